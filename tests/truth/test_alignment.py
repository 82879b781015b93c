"""Alignments: AER by hand, weights of tokens made weights of words, and attention that finds which word is which."""

import runpy
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from nmt import registry
from nmt.batch import Batch
from nmt.data.learn import SubwordSettings, learn_subwords
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.errors import InputError
from nmt.extensions.details.alignment import hard_alignment, pharaoh, threshold_alignment, word_weights
from nmt.extensions.details.wrappers.details import TranslationDetails, numbers_in_line
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.models.base import Vocabularies
from nmt.symbols import BOS, EOS, UNK
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary
from nmt.translate.engine import EncodedLine
from nmt.translate.forced_decoding import ForcedDecoding, force_decode
from nmt.translate.options import TranslatorOptions
from nmt.translate.results import Candidate

benchmark = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "alignment.py")))


def side_of(vocabulary, subword):
    return Side(SideSettings("en", "none", False, False, "none", subword), vocabulary)


def test_words_are_split_as_the_vocabulary_splits_them():
    learnt = learn_subwords(iter(["a b"]), SubwordSettings("bpe", 20, 1.0, False))
    for subword, vocabulary, words in (
        ("none", WordVocabulary([]), ["a\u2581b", "\u2581"]),
        ("bpe", learnt, ["a", "b"]),
    ):
        assert side_of(vocabulary, subword).words("a\u2581b  \u2581") == words


def test_an_unknown_token_inside_a_source_word_shifts_no_alignment():
    codes = CodesVocabulary("#version: 0.2\na b</w>\n", ["a@@", "ab", "c", "b"])
    side = side_of(codes, "subword-nmt")
    source = side.encode("a\u732bb c ab")
    assert [side.piece(token) for token in source] == ["a@@", "<unk>", "b", "c", "ab"]
    weights = np.eye(6)[[3, 4, 0, 5]]  # of c, <unk>, ab and EOS
    tokens = [codes.encode_batch([word]).ids[0] for word in ("c", "x", "ab")]
    forced = ForcedDecoding([0.0] * 4, [0.0] * 4, weights.astype(np.float32))
    options = TranslatorOptions(alignment="hard", replace_unk=True)
    details = TranslationDetails(options, Pipeline(side, side, joint=True), SimpleNamespace(has_attention=True))
    line = EncodedLine("a\u732bb c ab", source, Constraints(), False)
    found = details._with_details(line, Candidate.of(Hypothesis(tokens, 0.0, 0.0), side), forced)
    assert found.text == "c ab ab"
    assert hard_alignment(np.array(found.weights)) == [(1, 0), (2, 1), (0, 2)]


@pytest.mark.parametrize(
    ("text", "prepared", "owners"),
    [
        ("Es kostet 10\u00a0000\u202fEuro.", "Es kostet 10 000 Euro.", [0, 1, 2, 2, 2]),  # a tokenizer splits words
        ("(a)  b\tc", "( a ) b c", [0, 0, 0, 1, 2]),
        ("\u200b a \u200b b", "a b", [1, 3]),  # words that show nothing are counted too
        ("a b", "a b", [0, 1]),
    ],
)
def test_links_are_numbered_by_the_words_of_the_line_itself(text, prepared, owners):
    side = Side(SideSettings("en", "folded", False, False, "none", "none"), WordVocabulary([]))
    assert list(numbers_in_line(range(len(owners)), side, text, prepared.split())) == owners


def gold(sure, possible):
    return benchmark.ReferenceAlignment(frozenset(sure), frozenset(sure) | frozenset(possible))


HALF = gold({(0, 0), (1, 1)}, {(2, 1)})


@pytest.mark.parametrize(
    ("found", "true", "precision", "recall", "error_rate"),
    [
        ([[(0, 0), (1, 1)]], [HALF], 1, 1, 0),
        ([[(0, 0), (2, 1)]], [HALF], 1, 1 / 2, 1 - 3 / 4),  # both are possible, one is sure
        ([[(0, 0), (1, 1), (2, 1)]], [HALF], 1, 1, 0),  # a possible pair more costs nothing
        ([[(0, 0), (0, 1)]], [HALF], 1 / 2, 1 / 2, 1 - 2 / 4),
        ([[]], [HALF], 1, 0, 1),
        ([[(0, 0), (0, 0)]], [HALF], 1, 1 / 2, 1 - 2 / 3),  # a pair counts once
        ([[(0, 0)], [(3, 3), (4, 4), (5, 5)]], [HALF, gold({(3, 3)}, ())], 2 / 4, 2 / 3, 1 - 4 / 7),  # one sum for all
        ([[]], [gold((), ())], 1, 1, 0),
    ],
)
def test_agreement_equals_a_count_by_hand(found, true, precision, recall, error_rate):
    result = benchmark.agreement(found, true)
    assert (result.precision, result.recall, result.error_rate) == pytest.approx((precision, recall, error_rate))


def test_alignments_of_other_sentences_are_refused():
    with pytest.raises(ValueError):
        benchmark.agreement([[]], [HALF, HALF])


def test_a_gold_file_says_which_pairs_are_sure(tmp_path):
    path = tmp_path / "gold"
    path.write_text("0-0 1-1 2p1\n\n10p2\n")
    assert benchmark.read_gold(path) == [HALF, gold((), ()), gold((), {(10, 2)})]
    assert pharaoh(HALF.sure) == "0-0 1-1"
    path.write_text("0-0\n1-1 2:3\n")
    with pytest.raises(InputError, match=r"gold:2: .*2:3"):
        benchmark.read_gold(path)


def test_word_weights_are_sums_over_source_tokens_and_means_over_target_tokens():
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.1, 0.3], [0.0, 0.6, 0.2, 0.2], [0.25, 0.25, 0.25, 0.25]])
    words = word_weights(weights, [0, 1, 1], [0, 0, 1])  # the last of each side is EOS
    assert words == pytest.approx(np.array([[0.3, 0.35], [0.0, 0.8]]))
    assert word_weights(np.stack([weights, 2 * weights]), [0, 1, 1], [0, 0, 1]) == pytest.approx(
        np.stack([words, 2 * words])
    )
    assert hard_alignment(words) == [(1, 0), (1, 1)] and threshold_alignment(words, 0.3) == [(1, 0), (1, 1)]


WORDS = 5
FIRST = UNK + 1
OPTIONS = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "d_ff": 64, "heads": 2, "dropout": 0.0}


def batches(seed, size=24):
    """Sentences of 3 to 5 words, and their translations: each word has its own, and neighbours change places two by two.

    Yields sources, targets (ids) and the source word of each target word.
    """
    chance = Random(seed)
    while True:
        length = chance.randint(3, 5)
        sources = [chance.sample(range(FIRST, FIRST + WORDS), length) for _ in range(size)]
        order = [i ^ 1 if i ^ 1 < length else i for i in range(length)]
        yield sources, [[one[i] + WORDS for i in order] for one in sources], order


def test_most_attention_of_a_trained_transformer_is_on_the_word_it_translates():
    torch.manual_seed(1)
    size = FIRST + 2 * WORDS
    model = registry.build(registry.choose("model", "transformer", OPTIONS), Vocabularies(size, size, True))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    for sources, targets, _ in islice(batches(1), 250):
        batch = Batch(
            torch.tensor([[*one, EOS] for one in sources]), torch.tensor([[BOS, *one, EOS] for one in targets])
        )
        logits = model.output(model(batch).features)
        optimizer.zero_grad()
        cross_entropy(logits.flatten(0, 1), batch.target_output.flatten()).backward()
        optimizer.step()
    found, true = [], []
    for sources, targets, order in islice(batches(2), 5):
        rows = force_decode(model.eval(), [np.array(one) for one in sources], targets)
        found += [hard_alignment(row.weights[: len(order), : len(order)]) for row in rows]
        true += [gold({(i, number) for number, i in enumerate(order)}, ())] * len(rows)
    assert benchmark.agreement(found, true).error_rate < 0.3  # by chance it is 0.75
