"""What every decoder promises, over every model: a registered decoder is tested here without being named."""

import math
from dataclasses import fields

import pytest
import torch
from small_models import SMALL

from nmt import registry
from nmt.models.base import Vocabularies
from nmt.options import options_of
from nmt.symbols import BOS, EOS, PAD, UNK

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = registry.names("decoder")
MODELS = [name for name in registry.names("model") if registry.find("model", name).cls.reads_source]
BOUNDS = {"max_len_a": 1.0, "max_len_b": 6, "min_length": 2}
V = 30


@pytest.fixture(scope="module")
def models():
    """A small model of each kind, with weights large enough for confident predictions."""
    built = {}
    for name in MODELS:
        torch.manual_seed(4)
        model = registry.build(registry.choose("model", name, SMALL.get(name, {})), Vocabularies(V, V, True)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape), alpha=0.2)
        built[name] = model
    return built


def sentences(count=8):
    """Rows of 1 to 9 random words and EOS."""
    generator = torch.Generator().manual_seed(6)
    lengths = [1 + (i * 5) % 9 for i in range(count)]
    return [torch.cat([torch.randint(UNK, V, (n,), generator=generator), torch.tensor([EOS])]) for n in lengths]


def padded(rows, more=0):
    width = max(map(len, rows)) + more
    return torch.stack([torch.cat([row, row.new_full((width - len(row),), PAD)]) for row in rows])


def build(name, **values):
    """A decoder with BOUNDS, and so the decoders that it holds."""
    held = [option.name for option in options_of(registry.find("decoder", name).options) if option.kind == "decoder"]
    bounds = BOUNDS | {f"{part}.{key}": value for part in held for key, value in BOUNDS.items()}
    return registry.build(registry.choose("decoder", name, bounds | values))


def same(found, expected):
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], abs=1e-4)


class Counted:
    """A Scorer, and the most rows that it was asked about at once."""

    def __init__(self, scorer):
        self.scorer, self.rows = scorer, 0
        self.start = scorer.start

    def step(self, tokens, state):
        self.rows = max(self.rows, len(tokens))
        return self.scorer.step(tokens, state)


@pytest.mark.parametrize("several", [{}, {"n_best": 3}])
@pytest.mark.parametrize("name", ALL)
def test_a_search_tracks_no_more_hypotheses_than_it_declares(name, several, models):
    known = {option.name for option in options_of(registry.find("decoder", name).options)}
    decoder = build(name, **{key: value for key, value in several.items() if key in known})
    scorer, rows = Counted(models["transformer"]), sentences(4)
    decoder.search(scorer, padded(rows))
    assert scorer.rows == len(rows) * decoder.paths


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALL)
def test_a_sentence_has_the_same_translations_alone_and_in_any_batch(name, model, models):
    decoder, scorer, rows = build(name), models[model], sentences()
    alone = [decoder.search(scorer, row[None])[0] for row in rows]
    together = decoder.search(scorer, padded(rows))
    with_more_padding = decoder.search(scorer, padded(rows, 5))
    backwards = decoder.search(scorer, padded(rows[::-1]))[::-1]
    some = decoder.search(scorer, padded(rows[2:6]))
    assert len({len(one[0].tokens) for one in alone}) > 1  # they do not all end together
    for found in (together, with_more_padding, backwards):
        for one, expected in zip(found, alone, strict=True):
            same(one, expected)
    for one, expected in zip(some, alone[2:6], strict=True):
        same(one, expected)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALL)
def test_a_translation_respects_the_length_limits_and_has_the_model_s_probability(name, model, models):
    decoder, scorer, rows = build(name), models[model], sentences()
    results = decoder.search(scorer, padded(rows))
    pairs = [(row, one.tokens) for row, found in zip(rows, results, strict=True) for one in found]
    log_probs = iter(forced(scorer, pairs))
    for row, found in zip(rows, results, strict=True):
        assert found
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            assert BOUNDS["min_length"] <= len(one.tokens) <= len(row) - 1 + BOUNDS["max_len_b"]
            assert {PAD, BOS, EOS}.isdisjoint(one.tokens)
            assert math.isfinite(one.score)
            assert one.log_prob == pytest.approx(next(log_probs), abs=1e-3)


@torch.no_grad()
def forced(scorer, pairs):
    """The log-probability of the tokens of each pair (source row, tokens)."""
    state, totals = scorer.start(padded([row for row, _ in pairs])), torch.zeros(len(pairs))
    targets = padded([torch.tensor([*tokens, EOS]) for _, tokens in pairs])  # N T
    read = torch.full((len(pairs),), BOS)
    for said in targets.unbind(1):
        log_probs, state = scorer.step(read, state)
        totals += log_probs.gather(1, said[:, None])[:, 0].masked_fill(said == PAD, 0)
        read = said
    return totals.tolist()


@pytest.mark.parametrize("name", ALL)
def test_repeating_a_search_gives_the_same_result(name, models):
    source = padded(sentences())
    assert build(name).search(models[MODELS[0]], source) == build(name).search(models[MODELS[0]], source)


@pytest.mark.parametrize("name", ALL)
def test_a_search_never_copies_per_sentence_state(name, models):
    """Finished sentences leave the batch, and no step sees more sentences than are left."""
    rows = sentences()
    searches = []  # one, or several where more samples are wanted than are drawn at once

    class Watching:
        def start(self, source):
            searches.append([])
            return models[MODELS[0]].start(source)

        def step(self, tokens, state):
            sizes = {len(tensor) for tensor in state.sentences.values()}
            assert len(sizes) == 1
            searches[-1].append((len(tokens), sizes.pop()))
            return models[MODELS[0]].step(tokens, state)

    build(name).search(Watching(), padded(rows))
    for seen in searches:
        hypotheses, left = zip(*seen, strict=True)
        assert left[0] == len(rows)
        assert left[-1] < len(rows)
        assert list(left) == sorted(left, reverse=True)
        assert all(rows % sentences == 0 for rows, sentences in zip(hypotheses, left, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_non_finite_numbers_affect_only_their_own_sentence(name, models):
    scorer, rows = models[MODELS[0]], sentences(6)

    class Broken:
        def start(self, source):
            state = scorer.start(source)
            state.sentences["broken"] = source[:, 0] == rows[2][0]
            return state

        def step(self, tokens, state):
            broken = state.sentences["broken"]
            log_probs, after = scorer.step(tokens, state)
            log_probs[broken.repeat_interleave(len(tokens) // len(broken))] = math.nan
            after.sentences["broken"] = broken
            return log_probs, after

    expected = build(name).search(scorer, padded(rows))
    for row, one, other in zip(rows, build(name).search(Broken(), padded(rows)), expected, strict=True):
        if row[0] == rows[2][0]:
            assert not any(math.isfinite(hypothesis.score) for hypothesis in one)
        else:
            same(one, other)


@pytest.mark.parametrize("name", ALL)
def test_its_signature_names_it_and_every_setting(name):
    options = registry.find("decoder", name).options
    signature = build(name).signature
    assert signature.startswith(name)
    assert all(f"{key}:" in signature for key in (field.name for field in fields(options)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ALL)
def test_a_gpu_finds_what_the_cpu_finds(name, models):
    scorer, source = models[MODELS[0]], padded(sentences())
    expected = build(name).search(scorer, source)
    try:
        found = build(name).search(scorer.cuda(), source.cuda())
    finally:
        scorer.cpu()
    for one, other in zip(found, expected, strict=True):
        same(one, other)
