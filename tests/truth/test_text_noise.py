"""Noise of the source text: what it changes and how often, that its words are segmented as in translation, and its draws."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from noises import changed, text_noise
from plans import plan_of

from nmt.data.learn import SubwordSettings, learn_subwords
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.errors import UserError
from nmt.extensions.methods.noises.capitals import in_capitals
from nmt.extensions.methods.noises.text_noise import with_typo
from nmt.extensions.vocabularies.extension import extended
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.extensions.vocabularies.user_symbols import user_symbol_ids
from nmt.rows import Rows
from nmt.text.pipeline import Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

WORDS = ["garden", "house", "river", "mountain", "it's", "kitchen", "a", "42"]
CHANCE = random.Random(7)
TEXTS = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(1, 8))) for _ in range(400)]
SPELLED = [
    *TEXTS,
    *(text.upper() for text in TEXTS),
    *(" ".join("abcdefghijklmnopqrstuvwxyz'0123456789") for _ in range(3)),
]
KINDS = ["bpe", "unigram", "char", "subword-nmt", "none"]


def vocabulary(kind):
    if kind == "none":
        return WordVocabulary([*WORDS, *map(str.upper, WORDS)][:-2])
    if kind == "subword-nmt":
        letters = {letter: 1 for text in SPELLED for letter in text.split()}
        pieces = sorted({piece for letter in "".join(letters) for piece in (letter, f"{letter}@@")})
        return CodesVocabulary("#version: 0.2\nr i\nri v\n", [*pieces, "ri@@", "riv@@", "<2de>"], ["<2de>"])
    return learn_subwords(iter(SPELLED), SubwordSettings(kind, 120, 1.0, False, ("<2de>",)))


def side_of(kind):
    return Side(SideSettings("en", "nfc", False, False, "none", kind, user_symbols=("<2de>",)), vocabulary(kind))


def noisy(side, texts, case=0.0, typos=0.0, seed=1, longest=1000):
    """The texts with their noise, and their tokens."""
    encoded = side.encode_batch(texts)
    keys = np.random.default_rng(seed).integers(1 << 63, size=len(texts), dtype=np.uint64)
    rows = text_noise(side, case, typos).changed(Rows(encoded.ids, encoded.lengths.astype(np.int64)), keys, longest)
    tokens = np.split(rows.values, np.cumsum(rows.lengths)[:-1])
    return [side.decode(row.tolist()) for row in tokens], tokens


@pytest.mark.parametrize("kind", KINDS)
def test_changed_words_are_segmented_as_in_translation(kind):
    side = side_of(kind)
    texts, tokens = noisy(side, TEXTS, 0.5, 0.3)
    assert texts != TEXTS
    for text, row in zip(texts, tokens, strict=True):
        assert row.tolist() == side.encode(text)


def test_typing_errors_have_the_requested_rate_and_three_kinds():
    texts, _ = noisy(side_of("char"), TEXTS, typos=0.25)
    pairs = [pair for old, new in zip(TEXTS, texts, strict=True) for pair in zip(old.split(), new.split(), strict=True)]
    able = [(old, new) for old, new in pairs if old not in ("a", "42")]
    assert all(old == new for old, new in pairs if old in ("a", "42"))
    changed = [(old, new) for old, new in able if old != new]
    assert len(changed) / len(able) == pytest.approx(0.25, abs=0.04)
    kinds = [len(new) - len(old) for old, new in changed]
    for kind in (-1, 0, 1):
        assert kinds.count(kind) / len(kinds) == pytest.approx(1 / 3, abs=0.08)
    assert all(sorted(old) == sorted(new) for old, new in changed if len(old) == len(new))


def test_a_typing_error_swaps_drops_or_doubles_a_letter_between_letters():
    assert {with_typo("ab1", number) for number in range(30)} == {"ba1", "b1", "aab1"}
    assert {with_typo("abc", 3 * place) for place in range(2)} == {"bac", "acb"}
    for word in ("a", "1a2", "42", "", "a'b"):
        assert {with_typo(word, number) for number in range(9)} == {word}


def test_case_noise_changes_whole_sentences_half_to_capitals_half_to_title_case():
    texts, _ = noisy(side_of("char"), TEXTS, case=0.4)
    titles = [" ".join(word[:1].upper() + word[1:] for word in text.split()) for text in TEXTS]
    rows = [
        (new == old, new == old.upper(), new == title)
        for old, new, title in zip(TEXTS, texts, titles, strict=True)
        if old.upper() != title and old != title
    ]
    assert all(sum(row) == 1 for row in rows)
    shares = np.mean(rows, axis=0)
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2], atol=0.07)
    assert noisy(side_of("char"), TEXTS, case=1.0)[0] != TEXTS and noisy(side_of("char"), TEXTS)[0] == TEXTS


@pytest.mark.parametrize("kind", KINDS[:4])
def test_tags_unknown_words_and_sentences_that_would_grow_too_long_are_unchanged(kind):
    side = side_of(kind)
    texts, _ = noisy(side, ["<2de> river"] * 50, 1.0, 1.0)
    assert all(text.startswith("<2de> ") for text in texts) and "<2de> river" not in texts
    unknown = side.encode("river ф river")
    _, tokens = noisy(side, ["river ф river"] * 20, 0.0, 1.0)
    of_unknown = side.encode("ф")
    assert all(of_unknown[-1] in row for row in tokens) and any(row.tolist() != unknown for row in tokens)
    same, _ = noisy(side, TEXTS, 1.0, 1.0, longest=0)
    assert same == TEXTS


@pytest.mark.parametrize("kind", KINDS[:4])
def test_added_vocabulary_entries_are_unchanged_too(kind):
    old = side_of(kind)
    side = Side(old.settings, extended(old.vocabulary, ["<2fr>"], {}, 0))
    assert user_symbol_ids(side) == [*user_symbol_ids(old), old.size]
    texts, _ = noisy(side, ["<2fr> river"] * 50, 1.0, 1.0)
    assert all(text.startswith("<2fr> ") for text in texts) and "<2fr> river" not in texts


def test_tokenizer_escapes_are_unchanged():
    texts = ["a &apos;s river", "&quot; it &quot;", "&#91; a"] * 40
    letters = [" ".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ&;#0123456789")] * 3
    settings = SideSettings("en", "nfc", False, False, "none", "char")
    side = Side(settings, learn_subwords(iter([*texts, *letters]), SubwordSettings("char", 90, 1.0, False, ())))
    changed, _ = noisy(side, texts, 1.0, 1.0)
    for old, new in zip(texts, changed, strict=True):
        assert [word for word in old.split() if "&" in word] == [
            "&apos;s" if word == "&apos;S" else word for word in new.split() if "&" in word
        ]
    assert any("&apos;S" in text for text in changed) and any("&apos;s" in text for text in changed)


def test_listed_words_change_only_into_other_listed_words():
    texts, _ = noisy(side_of("none"), TEXTS, 1.0, 0.0)
    assert all(word in [*WORDS, *map(str.upper, WORDS)] for text in texts for word in text.split())
    assert any("RIVER" in text for text in texts) and noisy(side_of("none"), TEXTS, 0.0, 1.0)[0] == TEXTS


class Pairs(SimpleNamespace):
    def __len__(self):
        return len(self.source_lengths)


def corpus_of(side, texts, **columns):
    encoded = side.encode_batch(texts)
    rows, lengths = encoded.rows(), encoded.lengths
    take = lambda indices: np.concatenate([rows[i] for i in indices])  # noqa: E731
    return Pairs(sources=take, targets=take, source_lengths=lengths, target_lengths=lengths, columns=columns)


def test_noise_affects_only_the_source_and_depends_on_seed_epoch_and_pair():
    side = side_of("bpe")
    corpus = corpus_of(side, TEXTS)
    sampled = lambda draws, epoch, seed=1: changed(text_noise(side, 0.2, 0.2, seed), corpus, draws, epoch)  # noqa: E731
    whole, all_pairs = sampled(range(100), 1), np.arange(100)
    assert np.array_equal(whole[1].take(all_pairs), corpus.targets(all_pairs))
    assert not np.array_equal(whole[0].take(all_pairs), corpus.sources(all_pairs))
    loader = Loader(plan_of(corpus, 400, 1), 90, noises=[text_noise(side, 0.2, 0.2)])
    batch = next(loader.updates(Position())).batches[0]
    assert torch.equal(batch.without_noise.source, batch.target[:, 1:])
    assert not torch.equal(batch.source, batch.target[:, 1:])
    for draws in ([5], [99, 5, 17]):
        assert np.array_equal(sampled(draws, 1)[0].take(np.arange(len(draws))), whole[0].take(np.array(draws)))
    for other in (
        sampled(range(100), 2),
        sampled(range(100), 1, 2),
        sampled(range(400, 500), 1),
    ):  # drawn a second time
        assert not np.array_equal(other[0].take(all_pairs), whole[0].take(all_pairs))


def test_noise_is_refused_with_link_columns_and_case_noise_with_lowercased_text():
    side = side_of("bpe")
    with pytest.raises(UserError, match="--case-noise, --typo-noise and the column 'alignment'"):
        text_noise(side, 0.1, 0.1, columns=[("alignment", "links")])
    lower = Side(SideSettings("en", "nfc", False, True, "none", "bpe"), side.vocabulary)
    with pytest.raises(UserError, match="prepared with --lowercase"):
        text_noise(lower, 0.1, 0.0)
    text_noise(lower, 0.0, 0.1)


@pytest.mark.parametrize(("language", "word", "capitals"), [
    ("tr", "iki", "İKİ"), ("az_AZ", "ısı", "ISI"), ("en", "iki", "IKI"), ("de", "straße", "STRASSE"), ("nl", "ijs", "IJS"),
    ("el", "Μάιος", "ΜΑΪΟΣ"), ("el", "άυλος", "ΑΫΛΟΣ"), ("el", "προϊόν", "ΠΡΟΪΟΝ"), ("el", "ΐδιος", "ΪΔΙΟΣ"), ("el", "ή", "Ή"),
    ("el", "café", "CAFÉ"),
    ("ka", "წიგნს", "წიგნს"), ("en", "a-წიგნს", "A-წიგნს"), ("hy", "և", "ԵՎ"), ("lt", "i\u0307\u0301", "Í"), ("th", "น้ำ", "น้ำ"),
    ("he", "שלום", "שלום"),
    ("ru", "ещё", "ЕЩЁ"), ("hi", "क्या", "क्या"), ("ar", "كتاب", "كتاب"),
])  # fmt: skip
def test_capitals_are_those_that_people_write(language, word, capitals):
    assert in_capitals(word, language) == capitals


@pytest.mark.parametrize(("language", "word"), [("ka", "წიგნს"), ("ru", "книга"), ("el", "βιβλίο")])
def test_no_word_becomes_bytes(language, word):
    texts = [f"{word} {word}"] * 50
    learnt = learn_subwords(iter(texts), SubwordSettings("bpe", 300, 1.0, True))
    side = Side(SideSettings(language, "nfc", False, False, "none", "bpe"), learnt)
    assert noisy(side, texts, case=1.0)[0] == texts
