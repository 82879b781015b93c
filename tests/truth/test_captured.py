"""Layers over buffers of rounded sizes, as CUDA graphs need them, against layers over caches that grow.

On a CPU no graph is captured; tests/whole/test_simulated_gpu.py replays graphs on simulated devices.
"""

import copy
import math

import pytest
import torch
from scorers import random_sources
from small_models import SMALL

from nmt.decoders.beam import Beam, BeamOptions
from nmt.errors import UserError
from nmt.extensions.fast.search_speedups.capture import CapturedLayers, capture_steps, rounded_up
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions
from nmt.models.base import Vocabularies, scorer_for_search
from nmt.models.options import TransformerOptions
from nmt.models.transformer import Transformer
from nmt.symbols import BOS
from nmt.translate.ensemble import Ensemble

V = 30
SEARCHES = {
    "beam": Beam(BeamOptions(beam_size=5, n_best=5, max_len_a=0, max_len_b=40, alpha=1.0)),
    "sampling": Sampling(SamplingOptions(n_best=6, max_len_a=0, max_len_b=40)),
}


def pair_of_models(seed, **options):
    """A model, and the same with steps over buffers."""
    torch.manual_seed(seed)
    plain = Transformer(TransformerOptions(**{**SMALL["transformer"], **options}), Vocabularies(V, V, True)).eval()
    captured = copy.deepcopy(plain)
    capture_steps(captured)
    return plain, captured


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.parametrize("options", [{}, {"norm_position": "pre"}, {"attention_window": 3}, {"positions": "learned"}])
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_over_buffers_find_the_same_translations(name, options):
    plain, captured = pair_of_models(1, **options)
    for seed, count in enumerate((7, 12, 1, 3)):  # of other sizes, so that buffers grow and hold what others left
        source = random_sources(seed, count, V)
        assert_same(SEARCHES[name].search(captured, source), SEARCHES[name].search(plain, source))


def test_concurrent_searches_and_ensemble_members_have_separate_buffers():
    plain, captured = pair_of_models(2)
    sources = random_sources(1, 5, V), random_sources(2, 5, V)
    with torch.inference_mode():
        found = []
        for model in (plain, captured):
            scorers = [scorer_for_search(model) for _ in sources]
            states = [scorer.start(source) for scorer, source in zip(scorers, sources, strict=True)]
            rows = []
            for _ in range(4):
                for i, scorer in enumerate(scorers):
                    log_probs, states[i] = scorer.step(torch.full((5,), BOS), states[i])
                    rows.append(log_probs)
            found.append(torch.stack(rows))
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)
    both = [Ensemble([model, model]) for model in (plain, captured)]
    assert_same(*(SEARCHES["beam"].search(model, sources[0]) for model in both[::-1]))


def test_a_second_search_over_the_same_scorer_is_an_error():
    scorer = scorer_for_search(pair_of_models(2)[1])
    sources = random_sources(1, 5, V), random_sources(2, 5, V)
    with torch.inference_mode():
        states = [scorer.step(torch.full((5,), BOS), scorer.start(source))[1] for source in sources]
        with pytest.raises(RuntimeError, match="two searches use"):
            scorer.step(torch.full((5,), BOS), states[0])


def test_stale_buffer_contents_have_no_effect():
    plain, captured = pair_of_models(3)
    SEARCHES["beam"].search(captured, random_sources(1, 12, V))
    [layers] = captured.new_search.keywords["steps"]._of_thread.free
    assert isinstance(layers, CapturedLayers)
    with torch.inference_mode():
        for memory in layers._buffers.values():
            if memory.is_floating_point():
                memory.fill_(math.nan)
    source = random_sources(2, 7, V)
    assert_same(SEARCHES["beam"].search(captured, source), SEARCHES["beam"].search(plain, source))


def test_sizes_are_rounded_up_by_half_at_most():
    sizes = [rounded_up(number) for number in range(1, 1000)]
    assert all(number <= size <= 1.5 * number for number, size in enumerate(sizes, 1))
    assert sorted(set(sizes))[:9] == [1, 2, 3, 4, 6, 8, 12, 16, 24] and len(set(sizes)) == 20


@pytest.mark.parametrize("options", [{"positions": "relative"}, {"ffn": "moe", "expert_every": 1}])
def test_layers_whose_sizes_change_are_refused(options):
    with pytest.raises(UserError, match="--capture needs plain self-attention"):
        pair_of_models(1, **options)
