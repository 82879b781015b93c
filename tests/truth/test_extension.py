"""Extended vocabularies: known text keeps its ids, new text gets entries, and their rows are means of old rows."""

import random
from collections import Counter
from itertools import pairwise

import pytest
import torch
from small_models import SMALL

from nmt import UserError, registry
from nmt.checkpoint import build_model, weights_of
from nmt.data.learn import SubwordSettings, learn_subwords
from nmt.extensions.vocabularies.extension import extended, is_extension, learn_entries, parts_of_new_entries
from nmt.extensions.vocabularies.starts.vocabulary_extension import extended_weights
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.options import make
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

CODES = "#version: 0.2\nb a\nk i</w>\nba ki</w>\nd e\nl o</w>\n"


def text(syllables, lines, seed):
    chance = random.Random(seed)
    words = lambda: ("".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(6))  # noqa: E731
    return [" ".join(words()) for _ in range(lines)]


OLD = text(["ba", "de", "ki", "lo", "mu", "ra", "sten", "tion"], 400, 1)
NEW = text(["qua", "vex", "zo", "ba", "ki", "ß", "ω"], 200, 2)
COUNTS = Counter(word for line in NEW for word in line.split())


def vocabulary(kind):
    counts = Counter(word for line in OLD for word in line.split())
    if kind == "none":
        return WordVocabulary.learn(counts, 60, 1)
    if kind == "subword-nmt":
        return CodesVocabulary.learn(CODES, counts, 0)
    name, _, in_bytes = kind.partition(" ")
    return learn_subwords(iter(OLD), SubwordSettings(name, 340 if in_bytes else 80, 1.0, bool(in_bytes)))


KINDS = ("none", "subword-nmt", "bpe", "unigram", "char", "bpe bytes", "unigram bytes")


@pytest.mark.parametrize("kind", KINDS)
def test_old_texts_keep_their_ids_and_new_texts_round_trip(kind):
    old = vocabulary(kind)
    new = extended(old, [], COUNTS, 60)
    assert old.size < new.size <= old.size + 60
    assert [new.piece(token) for token in range(old.size)] == [old.piece(token) for token in range(old.size)]
    unchanged = 0
    words = [word for line in OLD for word in line.split()]
    for before, after in zip(old.encode_batch(words).rows(), new.encode_batch(words).rows(), strict=True):
        if max(after) < old.size:  # no new entry applies
            assert before.tolist() == after.tolist()
            unchanged += 1
    assert unchanged > len(words) / 2
    before, after = old.encode_batch(NEW), new.encode_batch(NEW)
    assert "bytes" in kind or after.unknown.sum() < before.unknown.sum()
    assert kind in ("none", "char") or len(after.ids) < 0.8 * len(before.ids)
    if kind != "none":  # 60 words are not all
        assert [new.decode(row.tolist()) for row in after.rows()] == NEW
    reread = type(new).from_bytes(new.to_bytes(), "here")
    assert reread.encode_batch(NEW).ids.tolist() == after.ids.tolist()


@pytest.mark.parametrize("kind", ["none", "bpe", "unigram", "char bytes", "subword-nmt"])
def test_an_added_word_becomes_one_entry_and_an_existing_one_is_kept(kind):
    old = vocabulary(kind)
    words = ["<2fr>", "[0]", "<2fr>", "vexoma"]
    new = extended(old, words, {}, 0)
    assert new.size == old.size + 3
    ids = new.encode_batch(["<2fr> vexoma [0]"]).ids.tolist()
    assert ids == [old.size, old.size + 2, old.size + 1]
    assert new.decode(ids) == "<2fr> vexoma [0]"
    assert extended(new, words, {}, 0).to_bytes() == new.to_bytes()


def test_an_added_word_that_would_split_another_entry_is_refused():
    old = vocabulary("bpe")
    [word, *_] = [
        old.surface(token)[1:]
        for token in range(old.size)
        if len(old.surface(token)) > 3 and old.surface(token)[0] == " "
    ]
    assert old.encode_batch([word]).lengths.tolist() == [1] and old.encode_batch([word[:2]]).lengths.tolist() != [1]
    with pytest.raises(UserError, match=f"'{word}' cannot be an entry, because the SentencePiece model splits"):
        extended(old, [word[:2], word], {}, 0)
    cutting = extended(old, [word[:2]], {}, 0)
    with pytest.raises(UserError, match=f"'{word}' cannot be an entry, because the SentencePiece model splits"):
        extended(cutting, [word], {}, 0)


def test_a_subword_can_be_added_as_a_word_but_not_its_marker():
    old = vocabulary("subword-nmt")
    words = sorted(set(" ".join(NEW).split()) - set(" ".join(OLD).split()))
    new = extended(old, words, {}, 0)
    assert new.encode_batch(words).lengths.tolist() == [1] * len(words)
    assert old.encode_batch(OLD).ids.tolist() == new.encode_batch(OLD).ids.tolist()
    with pytest.raises(UserError, match="'vex@@' cannot be an entry"):
        extended(old, ["vex@@"], {}, 0)


@pytest.mark.parametrize("counts", [{"lo@@": 5, "x": 3}, {"x@@": 5, "xy": 4}, {"a</w>.": 5, "a": 4}, {"@@": 5}])
def test_words_with_subword_markers_are_not_learnt(counts):
    """Text that is cut already, by mistake: two pieces would have one name, or none."""
    old = vocabulary("subword-nmt")
    new = extended(old, [], counts, 1000)
    assert all(parts_of_new_entries(new, old))
    assert new.encode_batch(OLD).ids.tolist() == old.encode_batch(OLD).ids.tolist()


def naive_entries(words, joinable, taken, limit):
    """The definition: count all candidates again before each entry."""
    rows, joinable, taken, learnt = [(list(row), count) for row, count in words], set(joinable), set(taken), []
    while len(learnt) < limit:
        counts = Counter()
        for row, count in rows:
            for entry in [*((symbol,) for symbol in row), *pairwise(row)]:
                new = "".join(entry) not in taken and (len(entry) == 1 or joinable.issuperset(entry))
                counts[entry] += count if new else 0
        entry = min(counts, key=lambda entry: (-counts[entry], entry))
        if counts[entry] < 2:
            break
        learnt.append((entry, counts[entry]))
        taken.add("".join(entry))
        joinable.add("".join(entry))
        for row, _ in rows:
            at = 0
            while len(entry) == 2 and at < len(row) - 1:
                if (row[at], row[at + 1]) == entry:
                    row[at : at + 2] = ["".join(entry)]
                at += 1
    return learnt


@pytest.mark.parametrize("seed", range(20))
def test_the_learnt_entries_follow_the_definition(seed):
    chance = random.Random(seed)
    words = [
        (chance.choices(["a", "b", "ab", "c", "ω"], k=chance.randint(1, 7)), chance.randint(1, 3)) for _ in range(12)
    ]
    known = {"a", "b"} | ({"ab"} if seed % 2 else set())
    assert learn_entries(words, known, known, 15) == naive_entries(words, known, known, 15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_new_entry_are_the_old_tokens_of_its_text(kind):
    old = vocabulary(kind)
    new = extended(old, [] if kind == "subword-nmt" else ["vexoma"], COUNTS, 40)
    parts = parts_of_new_entries(new, old)
    assert len(parts) == new.size - old.size
    for token, tokens in enumerate(parts, old.size):
        surface = new.surface(token)
        assert tokens and max(tokens) < old.size
        if kind == "none":
            assert tokens == [UNK]
        elif surface[0] == " " or surface.endswith(" "):  # a word alone is cut as in a text
            if not (kind == "subword-nmt" and not surface.endswith(" ")):
                assert tokens == old.encode_batch([surface.strip()]).ids.tolist()
        elif UNK not in tokens and "bytes" not in kind:
            assert "".join(map(old.surface, tokens)) == surface


def pipelines(joint):
    settings = SideSettings("en", "none", False, False, "none", "none")
    words = [f"w{number}" for number in range(9)]
    more = [*words, "x", "y"], [*words, "x", "y"]  # of both sides the same sizes
    old, new = ([WordVocabulary(words)] * 2, [WordVocabulary(each) for each in more])
    if joint:
        new = [new[0]] * 2
    return tuple(Pipeline(Side(settings, each[0]), Side(settings, each[1]), joint) for each in (old, new))


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("name", registry.names("model"))
def test_old_rows_of_every_model_are_copied_exactly_and_new_rows_are_means(name, joint, tmp_path):
    """A new word is unknown to the old pipeline: it starts as the unknown word does."""
    old, new = pipelines(joint)
    assert is_extension(new, old) and not is_extension(old, new)
    tie = {} if joint or not hasattr(make(registry.find("model", name).options, {}), "tie") else {"tie": "none"}
    options = make(registry.find("model", name).options, SMALL.get(name, {}) | tie)
    facts = [ModelFacts.of(name, options, Vocabularies(*pipeline.sizes, joint)) for pipeline in (old, new)]
    torch.manual_seed(1)
    weights, bigger = (dict(weights_of(build_model(each, tmp_path))) for each in facts)
    result = extended_weights(weights, facts[1], new, old, tmp_path)
    changed = 0
    for key, tensor in result.items():
        assert tensor.shape == bigger[key].shape
        before = weights[key]
        assert torch.equal(tensor[: len(before)], before)
        if len(tensor) != len(before):
            changed += 1
            if "parametrizations" not in key:
                assert torch.equal(tensor[len(before) :], torch.stack([before[UNK]] * 2))
    assert changed


def test_a_new_row_has_the_gain_and_direction_of_the_mean(tmp_path):
    old, new = (vocabulary("bpe"), extended(vocabulary("bpe"), [], COUNTS, 20))
    settings = SideSettings("en", "none", False, False, "none", "bpe")
    pair = [Pipeline(Side(settings, each), Side(settings, each), True) for each in (old, new)]
    options = make(registry.find("model", "convs2s").options, SMALL["convs2s"])
    facts = [ModelFacts.of("convs2s", options, Vocabularies(each.size, each.size, True)) for each in (old, new)]
    small, big = (build_model(each, tmp_path) for each in facts)
    result = extended_weights(weights_of(small), facts[1], pair[1], pair[0], tmp_path)
    for key, tensor in weights_of(big).items():
        tensor.copy_(result[key])
    for token, tokens in enumerate(parts_of_new_entries(new, old), old.size):
        expected = small.output.weight[tokens].mean(0)
        torch.testing.assert_close(big.output.weight[token], expected)
        assert torch.equal(big.output.bias[token], small.output.bias[tokens].mean(0))
