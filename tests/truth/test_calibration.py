"""Calibration: the error by hand, and the temperature that a known one was hidden in."""

import math

import numpy as np
import pytest
import torch

from nmt.checkpoint import load_model
from nmt.errors import InputError
from nmt.extensions.scores.calibration import MAX_TEMPERATURE, calibrate, fit_temperature
from nmt.symbols import BOS, EOS
from nmt.translate.forced_decoding import force_decode


def drawn(temperature: float, positions: int = 20_000, vocabulary: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities (N, V) of a model, and tokens (N,) drawn from them at another temperature."""
    generator = torch.Generator().manual_seed(7)
    logits = 3 * torch.randn(positions, vocabulary, generator=generator)
    tokens = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).squeeze(1)
    return logits.log_softmax(-1), tokens


def nll_at(log_probs: torch.Tensor, tokens: torch.Tensor, temperature: float) -> float:
    scaled = (log_probs.double() / temperature).log_softmax(-1)
    return -float(scaled.gather(1, tokens[:, None]).mean())


def test_the_calibration_error_equals_a_computation_by_hand():
    rows = [[0.95, 0.03, 0.02], [0.92, 0.04, 0.04], [0.5, 0.3, 0.2], [0.45, 0.35, 0.2], [0.41, 0.39, 0.2]]
    log_probs, tokens = torch.tensor(rows).log(), torch.tensor([0, 1, 0, 0, 2])
    before, _ = fit_temperature(lambda: [(log_probs, tokens)])
    assert before.counts == [0, 0, 0, 0, 3, 0, 0, 0, 0, 2]  # 0.5 is the upper end of its bin
    assert before.rights == [0, 0, 0, 0, 2, 0, 0, 0, 0, 1]
    # bin 5: mean confidence (0.5 + 0.45 + 0.41) / 3, accuracy 2 / 3; bin 10: (0.95 + 0.92) / 2, accuracy 1 / 2
    by_hand = 3 / 5 * abs(2 / 3 - 1.36 / 3) + 2 / 5 * abs(1 / 2 - 1.87 / 2)
    assert before.ece == pytest.approx(by_hand, abs=1e-6)
    nll = -(math.log(0.95) + math.log(0.04) + math.log(0.5) + math.log(0.45) + math.log(0.2)) / 5
    assert before.nll == pytest.approx(nll, abs=1e-6)


@pytest.mark.parametrize("hidden", [0.4, 1.0, 2.5])
def test_fitting_recovers_the_sampling_temperature_and_calibrates(hidden):
    log_probs, tokens = drawn(hidden)
    parts = list(zip(log_probs.split(999), tokens.split(999), strict=True))
    before, after = fit_temperature(lambda: parts)
    assert after.temperature == pytest.approx(hidden, rel=0.03)
    least = nll_at(log_probs, tokens, after.temperature)
    assert after.nll == pytest.approx(least, abs=1e-5)
    assert before.nll == pytest.approx(nll_at(log_probs, tokens, 1.0), abs=1e-5)
    for near in (0.98, 1.02):
        assert nll_at(log_probs, tokens, near * after.temperature) > least
    assert sum(after.counts) == sum(before.counts) == len(tokens)
    assert sum(after.rights) == sum(before.rights) == int((log_probs.argmax(-1) == tokens).sum())
    assert after.ece < 0.015
    if hidden != 1:
        assert before.ece > 5 * after.ece


@pytest.mark.parametrize(("vocabulary", "top", "right"), [(30_000, 13.0, 0.6), (8_000, 11.5, 0.5)])
def test_fitting_recovers_the_temperature_of_an_overconfident_model_with_a_flat_tail(vocabulary, top, right):
    generator = torch.Generator().manual_seed(3)
    logits = torch.zeros(200, vocabulary)
    logits[:, 0] = top + 0.5 * torch.randn(200, generator=generator)
    tokens = torch.where(torch.rand(200, generator=generator) < right, 0, 1 + torch.arange(200))
    log_probs = logits.log_softmax(-1)
    before, after = fit_temperature(lambda: [(log_probs, tokens)])
    assert after.nll < before.nll and after.temperature > 1.1
    for near in (0.99, 1.01):
        assert nll_at(log_probs, tokens, near * after.temperature) > nll_at(log_probs, tokens, after.temperature)


def test_tripling_the_logits_triples_the_temperature():
    log_probs, tokens = drawn(1.3)
    plain, scaled = (
        fit_temperature(lambda rows=rows: [(rows, tokens)])[1] for rows in (log_probs, (3 * log_probs).log_softmax(-1))
    )
    assert scaled.temperature == pytest.approx(3 * plain.temperature, rel=1e-3)
    assert scaled.ece == pytest.approx(plain.ece, abs=1e-3)


def test_impossible_tokens_change_nothing_and_a_hopeless_model_gets_the_highest_temperature():
    log_probs, tokens = drawn(2.0)
    never = torch.full((len(tokens), 1), -math.inf)
    plain, wider = (
        fit_temperature(lambda rows=rows: [(rows, tokens)])[1].temperature
        for rows in (log_probs, torch.cat([log_probs, never], 1))
    )
    assert wider == pytest.approx(plain, rel=1e-4)
    wrong = log_probs.argmin(-1)  # always the least likely token
    assert fit_temperature(lambda: [(log_probs, wrong)])[1].temperature == pytest.approx(MAX_TEMPERATURE, rel=1e-3)


@torch.inference_mode()
def test_forced_decoding_also_reports_probabilities_at_a_temperature(trained):
    loaded = load_model(trained, torch.device("cpu"))
    source, target = loaded.pipeline.source.encode("ban des"), loaded.pipeline.target.encode("DES BAN")
    [cold] = force_decode(loaded.model, [np.array(source)], [target], 2.0)
    [own] = force_decode(loaded.model, [np.array(source)], [target])
    assert cold.log_probs == own.log_probs == own.calibrated
    state, before, expected = loaded.model.start(torch.tensor([[*source, EOS]])), BOS, []
    for token in [*target, EOS]:
        log_probs, state = loaded.model.step(torch.tensor([before]), state)
        expected.append(float((log_probs[0] / 2).log_softmax(-1)[token]))
        before = token
    assert cold.calibrated == pytest.approx(expected, abs=1e-5)
    assert cold.confidence == pytest.approx(math.prod(map(math.exp, expected)) ** (1 / len(expected)), abs=1e-5)


def test_having_no_pair_is_an_error_and_blank_and_overlong_pairs_are_ignored(trained):
    loaded = load_model(trained, torch.device("cpu"))
    model, pipeline = loaded.model, loaded.pipeline
    with pytest.raises(InputError, match="no pairs of lines to calibrate with"):
        calibrate(model, pipeline, ["", "ban", "ban des"], ["BAN", " ", "BAN " * 9], 100, 8)
    pairs = ["ban des", "lora"], ["DES BAN", "LORA"]
    alone, among = (
        calibrate(model, pipeline, *sides, 100, 8)
        for sides in (pairs, [[*pairs[0], "", "ban " * 9], [*pairs[1], "BAN", "BAN"]])
    )
    assert alone == among and sum(alone[0].counts) == 3 + 2
