"""Weights of 8 bits against the rounding that defines them, and searches among a shortlist's words."""

import random
from collections import defaultdict

import numpy as np
import pytest
import torch
from scorers import with_texts

from nmt import UserError, registry
from nmt.decoders.hypothesis import Constraints
from nmt.errors import ArtefactError
from nmt.extensions.fast.nn.quantized import Int8Linear, quantize
from nmt.extensions.searches.shortlist_file import Shortlist, learn_shortlist, measure_coverage
from nmt.extensions.searches.wrappers.shortlist import search_shortlist
from nmt.models.base import Vocabularies
from nmt.nn.linear import Linear
from nmt.symbols import EOS, PAD, SYMBOLS

V = 40


@pytest.fixture
def in_bytes(monkeypatch):
    """Layers of any size multiply in 8 bits."""
    monkeypatch.setattr("nmt.extensions.fast.nn.quantized.MIN_INT8_WEIGHTS", 0)


@pytest.mark.usefixtures("in_bytes")
@pytest.mark.parametrize("bias", [True, False])
def test_an_8_bit_layer_computes_with_the_rounded_numbers(bias):
    torch.manual_seed(1)
    plain = Linear(64, 48, bias=bias)
    layer = Int8Linear.of(plain)
    states = torch.randn(3, 5, 64) * torch.logspace(-3, 3, 15).view(3, 5, 1)
    scale = plain.weight.abs().amax(1, keepdim=True) / 127
    largest = states.abs().amax(-1, keepdim=True)
    rounded = torch.round(states / largest * layer.max_input) / layer.max_input * largest
    expected = rounded.double() @ (torch.round(plain.weight / scale) * scale).double().t()
    expected = expected + (plain.bias.double() if bias else 0)
    found = layer(states)
    assert torch.all((found - expected).abs() <= 2e-2 * largest)  # a number halfway may be rounded either way
    assert (found - expected).abs().mean() / expected.abs().mean() < 1e-3
    assert (found - plain(states)).abs().mean() / expected.abs().mean() < 0.05


@pytest.mark.parametrize("bias", [True, False])
def test_a_small_layer_rounds_its_weights_but_not_its_inputs(bias):
    torch.manual_seed(1)
    plain = Linear(64, 48, bias=bias)
    layer, states = Int8Linear.of(plain), torch.randn(3, 5, 64)
    scale = plain.weight.abs().amax(1, keepdim=True) / 127
    expected = torch.nn.functional.linear(states, torch.round(plain.weight / scale) * scale, plain.bias)
    torch.testing.assert_close(layer(states), expected)
    torch.testing.assert_close(layer.search_step()(states[0]), expected[0])
    assert set(layer.state_dict()) == {"weight", "scale", *(["bias"] if bias else [])}
    assert Int8Linear.of(Linear(512, 512)).int8_products and not layer.int8_products


@pytest.mark.parametrize("small", [0, 2**18])
def test_prepared_weights_are_reused(small, monkeypatch):
    monkeypatch.setattr("nmt.extensions.fast.nn.quantized.MIN_INT8_WEIGHTS", small)
    layer, states = Int8Linear.of(Linear(64, 48)), torch.randn(3, 64)
    expected = layer(states)
    other = Int8Linear(layer.weight, layer.scale, layer.bias)
    other.ready()
    monkeypatch.delattr("nmt.extensions.fast.nn.quantized.Int8Linear._packed")
    monkeypatch.delattr("nmt.extensions.fast.nn.quantized.Linear")
    torch.testing.assert_close(other(states), expected)


@pytest.mark.usefixtures("in_bytes")
def test_a_row_gives_the_same_alone_and_in_a_batch():
    torch.manual_seed(2)
    layer = Int8Linear.of(Linear(64, 48))
    states = torch.randn(9, 64) * torch.logspace(-2, 2, 9)[:, None]
    for row, together in zip(states, layer(states), strict=True):
        assert torch.equal(layer(row[None])[0], together)
    assert layer(torch.zeros(2, 64)).isfinite().all()


def test_computing_some_outputs_equals_selecting_them_from_all():
    torch.manual_seed(3)
    states, rows = torch.randn(7, 64), torch.tensor([0, 5, 6, 40])
    large = Int8Linear.of(Linear(64, 2**13))  # some outputs of which are few, and must not be computed otherwise
    for layer in (Linear(64, 48), Int8Linear.of(Linear(64, 48)), Linear(64, 48, bias=False), large):
        torch.testing.assert_close(layer.rows(rows)(states), layer(states)[:, rows])


def model():
    torch.manual_seed(4)
    options = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "d_ff": 64, "heads": 4}
    built = registry.build(registry.choose("model", "transformer", options), Vocabularies(V, V, True)).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.2)
    return built


SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, EOS, PAD, PAD, PAD], [10, 11, 12, EOS, PAD]])


@pytest.mark.parametrize("small", [0, 2**18])
def test_every_linear_layer_is_quantized_and_probabilities_stay_close(small, monkeypatch):
    monkeypatch.setattr("nmt.extensions.fast.nn.quantized.MIN_INT8_WEIGHTS", small)
    plain, rounded = model(), model()
    quantize(rounded)
    assert not any(isinstance(module, Linear) for module in rounded.modules())
    assert rounded.source_embedding.weight is rounded.output.weight  # which are tied
    log_probs = []
    for one in (plain, rounded):
        with torch.inference_mode():
            log_probs.append(one.step(torch.full((3,), 1), one.start(SOURCE))[0])
    assert (log_probs[0] - log_probs[1]).abs().mean() < 0.1
    decoder = registry.build(registry.choose("decoder", "beam", {"max_len_b": 5}))
    together = decoder.search(rounded, SOURCE)
    for row, ones in zip(SOURCE, together, strict=True):
        alone = decoder.search(rounded, row[None, : int((row != PAD).sum())])[0]
        assert ones[0].tokens == alone[0].tokens
        assert ones[0].score == pytest.approx(alone[0].score, abs=1e-4)


def shortlist(rows, frequent=()):
    """rows: the target words of each source word, by id; those that are not named have none."""
    words = [sorted(rows.get(token, ())) for token in range(V)]
    starts = np.cumsum([0, *map(len, words)])
    return Shortlist(
        starts, np.array([word for row in words for word in row], np.int64), np.array(sorted(frequent), np.int64)
    )


@pytest.mark.usefixtures("in_bytes")
@pytest.mark.parametrize("eight_bits", [False, True])
@pytest.mark.parametrize("name", ["beam", "greedy"])
def test_a_full_shortlist_changes_nothing_and_output_stays_within_a_short_one(name, eight_bits):
    built, decoder = model(), registry.build(registry.choose("decoder", name, {"max_len_b": 5}))
    if eight_bits:
        quantize(built)
    plain = decoder.search(built, SOURCE)
    whole = search_shortlist(decoder.search, built, SOURCE, [Constraints()] * 3, shortlist({}, range(4, V)))
    for ones, others in zip(plain, whole, strict=True):
        assert [one.tokens for one in ones] == [one.tokens for one in others]
        assert [one.score for one in ones] == pytest.approx([one.score for one in others], abs=1e-4)
    few = shortlist({5: [20, 21], 9: [22], 12: [23]}, [30])
    allowed = {20, 21, 22, 23, 30, 35, *range(len(SYMBOLS))}
    for ones in search_shortlist(
        decoder.search, built, SOURCE, [Constraints(prefix=(35,)), Constraints(), Constraints()], few
    ):
        assert all(set(one.tokens) <= allowed for one in ones)
    assert (
        search_shortlist(decoder.search, built, SOURCE, [Constraints(prefix=(35,)), Constraints(), Constraints()], few)[
            0
        ][0].tokens[0]
        == 35
    )


@pytest.mark.usefixtures("in_bytes")
@pytest.mark.parametrize("name", ["beam", "greedy", "diverse-beam"])
def test_the_shortlist_of_a_sentence_does_not_depend_on_the_others_of_its_batch(name):
    built, decoder = model(), registry.build(registry.choose("decoder", name, {"max_len_b": 5}))
    rows = {
        token: chosen.tolist()
        for token, chosen in enumerate(np.random.default_rng(3).permuted(np.arange(V * 6) % (V - 4) + 4).reshape(V, 6))
    }
    few = shortlist(rows, [30])
    constraints = [Constraints(prefix=(35,)), Constraints(), Constraints()]
    together = search_shortlist(decoder.search, built, SOURCE, constraints, few)
    for row, constraint, ones in zip(SOURCE, constraints, together, strict=True):
        length = int((row != PAD).sum())
        [alone] = search_shortlist(decoder.search, built, row[None, :length], [constraint], few)
        assert [one.tokens for one in ones] == [one.tokens for one in alone]
        assert [one.score for one in ones] == pytest.approx([one.score for one in alone], abs=1e-4)


def test_texts_to_avoid_are_also_avoided_with_a_shortlist():
    built, decoder = model(), registry.build(registry.choose("decoder", "beam", {"max_len_b": 5}))
    with_texts(decoder, [f" w{token}" for token in range(V)])
    first = decoder.search(built, SOURCE)[0][0].tokens[0]
    avoiding = [Constraints(filters={"avoid": (f"w{first}",)}), Constraints(), Constraints()]
    assert (
        first not in search_shortlist(decoder.search, built, SOURCE, avoiding, shortlist({5: range(4, V)}))[0][0].tokens
    )


class Corpus:
    """Pairs as nmt.data.shards has them."""

    def __init__(self, pairs):
        self.pairs = [(np.array(source), np.array(target)) for source, target in pairs]
        self.source_lengths = np.array([len(source) for source, _ in pairs], np.uint32)
        self.target_lengths = np.array([len(target) for _, target in pairs], np.uint32)

    def __len__(self):
        return len(self.pairs)

    def sources(self, indices):
        return np.concatenate([self.pairs[i][0] for i in indices])

    def targets(self, indices):
        return np.concatenate([self.pairs[i][1] for i in indices])


def language(pairs=300, seed=5):
    """A target word for each of 12 source words, in any order; and a word that stands in every target."""
    chance = random.Random(seed)
    sources = [[chance.randrange(4, 16) for _ in range(chance.randint(1, 6))] for _ in range(pairs)]
    return [(source, [*chance.sample([word + 16 for word in source], len(source)), 39]) for source in sources]


def test_a_shortlist_finds_the_dictionary_that_a_corpus_was_made_with():
    found = learn_shortlist(Corpus(language()), (V, V), 10_000, 5, 1, 1)
    assert found.frequent.tolist() == [39]
    for word in range(4, 16):
        assert found.tokens[found.starts[word] : found.starts[word + 1]].tolist() == [word + 16]
    assert found.of(np.array([5, 5, 7])).tolist() == [0, 1, 2, 3, 21, 23, 39]
    sources, targets = zip(
        *[(np.array(source), np.array(target)) for source, target in language(20, seed=6)], strict=True
    )
    words = np.mean([len(SYMBOLS) + 1 + len(set(source.tolist())) for source in sources])
    assert measure_coverage(found, sources, targets) == (1.0, pytest.approx(words))
    assert measure_coverage(found, sources, [np.full(3, 38)] * 20)[0] == 0.0


def test_a_pair_too_large_for_memory_is_skipped_by_shortlist_training(monkeypatch, capsys):
    monkeypatch.setattr("nmt.extensions.methods.word_alignment.MAX_PAIR_CELLS", 6 * 7)  # the largest of the language
    pairs = language()
    plain, more = (
        learn_shortlist(Corpus(given), (V, V), 10_000, 5, 1, 1) for given in (pairs, [*pairs, ([5] * 7, [39] * 7)])
    )
    assert [array.tolist() for array in vars(more).values()] == [array.tolist() for array in vars(plain).values()]
    assert "skipped 1 of 301" in capsys.readouterr().err
    with pytest.raises(UserError, match="none of the 1 training pairs is short"):
        learn_shortlist(Corpus([([5] * 7, [39] * 7)]), (V, V), 10_000, 5, 1, 1)


def test_its_probabilities_follow_ibm_model_1(monkeypatch):
    """Three rounds in plain Python give the same order of the target words of each source word."""
    pairs = language(25, seed=7)
    likely = defaultdict(lambda: 1.0)
    for _ in range(3):
        expected, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for word in target:
                every = [*source, "null"]
                total = sum(likely[other, word] for other in every)
                for other in every:
                    expected[other, word] += likely[other, word] / total
                    totals[other] += likely[other, word] / total
        likely = defaultdict(float, {pair: value / totals[pair[0]] for pair, value in expected.items()})
    monkeypatch.setattr("nmt.extensions.searches.shortlist_file.CHUNK_CELLS", 7)
    found = learn_shortlist(Corpus(pairs), (V, V), 10_000, 3, 3, 1)
    for word in range(4, 16):
        own = sorted(((value, -target) for (source, target), value in likely.items() if source == word), reverse=True)
        kept = found.tokens[found.starts[word] : found.starts[word + 1]].tolist()
        assert sorted((round(likely[word, target], 9) for target in kept), reverse=True) == [
            round(value, 9) for value, _ in own[:3]
        ]


def test_a_shortlist_reads_back_unchanged_and_a_mismatched_one_is_refused(tmp_path):
    path, one = tmp_path / "shortlist", shortlist({5: [20, 21]}, [30])
    one.save(path, "abc")
    read = Shortlist.load(path, "abc", (V, V))
    assert all(np.array_equal(vars(one)[name], vars(read)[name]) for name in vars(one))
    with pytest.raises(UserError, match="different vocabulary"):
        Shortlist.load(path, "abd", (V, V))
    for sizes in ((V, 25), (V - 1, V)):
        with pytest.raises(ArtefactError, match="not a shortlist"):
            Shortlist.load(path, "abc", sizes)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArtefactError, match="not a shortlist"):
        Shortlist.load(path, "abc", (V, V))
