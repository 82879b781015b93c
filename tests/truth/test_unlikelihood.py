"""Unlikelihood against its definition (Welleck et al., 2020, equations 4 and 5) in float64."""

import math
from dataclasses import replace

import pytest
import torch
from gradients import PIPELINE, sentences, transformer

from nmt.batch import Column
from nmt.criteria.base import CriterionContext
from nmt.extensions.methods.criteria.options import UnlikelihoodOptions
from nmt.extensions.methods.criteria.unlikelihood import Unlikelihood
from nmt.symbols import EOS, PAD


def criterion(**options):
    return Unlikelihood(UnlikelihoodOptions(**options), CriterionContext(PIPELINE, None))


def batch_with_repetitions():
    torch.manual_seed(4)
    batch = sentences(5, 9)
    real = batch.target > EOS
    batch.target[real] = batch.target[real] % 3 + 4  # of three words, so that many repeat
    return batch


def by_definition(model, batch):
    probabilities = model.log_probs(model(batch).features).double().exp()
    total = 0.0
    for row, targets in zip(probabilities, batch.target_output.tolist(), strict=True):
        for position, gold in enumerate(targets):
            if gold != PAD:
                candidates = {token for token in targets[:position] if token > EOS + 1} - {gold}
                total -= sum((1 - row[position, token]).log() for token in candidates)
    return total


@pytest.mark.parametrize("rows", [3, 1000])
def test_sum_and_gradient_follow_the_definition(rows, monkeypatch):
    monkeypatch.setattr("nmt.criteria.chunks.chunk_rows", lambda *_: rows)
    model, batch = transformer(), batch_with_repetitions()
    wanted = by_definition(model, batch)
    term = criterion(unlikelihood_weight=0.3)(model, batch).trained["unlikelihood"]
    assert term.total.item() == pytest.approx(0.3 * wanted.item(), rel=1e-5) and wanted > 1
    assert int(term.count) == int(batch.num_target_tokens)
    parameters = list(model.parameters())
    found = torch.autograd.grad(term.total, parameters, allow_unused=True)
    for one, other in zip(found, torch.autograd.grad(0.3 * wanted, parameters, allow_unused=True), strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_weights_scale_the_unlikelihood_of_each_pair():
    model, batch = transformer(), batch_with_repetitions()
    values = torch.tensor([0.0, 2.0, 0.0, 0.5, 0.0])
    weighted = replace(batch, columns={"quality": Column(values, "pair")})
    found = criterion(loss_weights="quality")(model, weighted).trained["unlikelihood"].total.item()
    rows = [criterion()(model, batch.rows(slice(i, i + 1))).trained["unlikelihood"].total.item() for i in range(5)]
    assert found == pytest.approx(sum(value * row for value, row in zip(values.tolist(), rows, strict=True)), rel=1e-4)


def test_a_certain_repetition_has_a_finite_loss_and_gradient():
    model, batch = transformer(), batch_with_repetitions()
    with torch.no_grad():
        model.output.weight.mul_(1e3)
    total = criterion()(model, batch).trained["unlikelihood"].total
    total.backward()
    assert math.isfinite(total.item())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
