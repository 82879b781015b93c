"""R-Drop against its definition (Liang et al., 2021, equations 1 to 3) in float64."""

import math
from dataclasses import replace

import pytest
import torch
from gradients import OPTIONS, PIPELINE, sentences, transformer
from torch import nn

from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.criteria.options import CrossEntropyOptions
from nmt.extensions.methods.criteria.options import RDropOptions
from nmt.extensions.methods.criteria.r_drop import RDrop
from nmt.models.base import Output
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import PAD

N, D, V = 9, 6, 20


def criterion(**options):
    return RDrop(RDropOptions(**options), CriterionContext(None, None))


def by_definition(first, second, targets, eps, weight):
    """Equations 1 to 3, halved, over logits (N, V)."""
    total = 0.0
    for one, two, gold in zip(first.double(), second.double(), targets.tolist(), strict=True):
        if gold == PAD:
            continue
        p, q = one.softmax(0), two.softmax(0)
        smoothed = torch.full((len(p),), eps / (len(p) - 1), dtype=torch.float64)
        smoothed[gold] = 1 - eps
        likelihood = -(smoothed * p.log()).sum() - (smoothed * q.log()).sum()
        divergence = (p * (p / q).log()).sum() / 2 + (q * (q / p).log()).sum() / 2
        total = total + (likelihood + weight * divergence) / 2
    return total


@pytest.mark.parametrize(("bias", "limit"), [(True, math.inf), (False, math.inf), (True, 0.8)])
@pytest.mark.parametrize("weight", [0.0, 5.0])
@pytest.mark.parametrize(("rows", "z_loss"), [(2, 0.0), (100, 0.1)])
def test_loss_and_gradient_follow_the_definition(bias, limit, weight, rows, z_loss, monkeypatch):
    monkeypatch.setattr("nmt.criteria.chunks.chunk_rows", lambda *_: rows)
    torch.manual_seed(1)
    linear, features = Linear(D, V, bias=bias), torch.randn(2 * N, D, requires_grad=True)
    output = ClippedLinear(linear, limit)
    targets = torch.randint(4, V, (N,))
    targets[3] = PAD
    options = {"label_smoothing": 0.1, "divergence_weight": weight, "z_loss": z_loss}
    tensors = [features, *output.parameters()]
    wanted = by_definition(*output(features).chunk(2), targets, 0.1, weight)
    for of_pass in output(features).double().chunk(2):
        wanted = wanted + z_loss / 2 * (of_pass.logsumexp(-1) ** 2)[targets != PAD].sum()
    factors = (targets != PAD).float()
    found = sums_of_logits(criterion(**options).of_both, output, features.chunk(2), targets, factors)
    assert found[0].item() == pytest.approx(wanted.item(), rel=1e-5)
    gradients = [torch.autograd.grad(total, tensors) for total in (wanted, found[0])]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_a_weight_scales_the_loss_and_divergence_of_its_token(monkeypatch):
    monkeypatch.setattr("nmt.criteria.chunks.chunk_rows", lambda *_: 2)
    torch.manual_seed(3)
    output, features = Linear(D, V), torch.randn(2 * N, D, requires_grad=True)
    targets, factors = torch.randint(4, V, (N,)), torch.rand(N)
    targets[3], factors[3] = PAD, 0.0
    made = criterion(label_smoothing=0.1, divergence_weight=2.0)
    found = sums_of_logits(made.of_both, output, features.chunk(2), targets, factors)
    rows = [
        factor * by_definition(*output(features[[n, N + n]]).chunk(2), targets[n : n + 1], 0.1, 2.0)
        for n, factor in enumerate(factors)
    ]
    wanted, tensors = torch.stack(rows).sum(), [features, *output.parameters()]
    assert found[0].item() == pytest.approx(wanted.item(), rel=1e-5)
    gradients = [torch.autograd.grad(total, tensors) for total in (wanted, found[0])]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


class Recorder(nn.Module):
    """A model of one layer, that records the rows of its batches."""

    def __init__(self, probability):
        super().__init__()
        torch.manual_seed(2)
        self.embedding, self.output = nn.Embedding(V, D), Linear(D, V)
        self.dropout, self.rows = nn.Dropout(probability), []

    def forward(self, batch):
        self.rows.append(len(batch))
        return Output(self.dropout(self.embedding(batch.target_input)), {})


def test_two_passes_are_one_batch_and_differ_in_dropout_alone():
    batch = Batch(torch.randint(4, V, (3, 4)), torch.randint(4, V, (3, 5)))
    plain = CrossEntropy(CrossEntropyOptions(), CriterionContext(None, None))
    model = Recorder(0.0)
    loss, wanted = criterion()(model, batch), plain(model, batch)
    assert model.rows == [6, 3]
    assert loss.reported["divergence"].total.item() == pytest.approx(0, abs=1e-5)
    assert loss.trained["loss"].total.item() == pytest.approx(wanted.trained["loss"].total.item(), rel=1e-5)
    gradients = [torch.autograd.grad(each.trained["loss"].total, model.output.weight)[0] for each in (loss, wanted)]
    torch.testing.assert_close(*gradients)
    assert criterion()(Recorder(0.5), batch).reported["divergence"].total > 0.1
    model.eval()
    assert "divergence" not in criterion()(model, batch).reported and model.rows[2:] == [3]


def test_a_model_without_a_linear_output_layer_has_the_same_loss():
    batch, losses = sentences(5, 6), []
    for wrapped in (False, True):
        torch.manual_seed(3)
        model = transformer(replace(OPTIONS, dropout=0.2))
        if wrapped:
            model.output = nn.Sequential(model.output)
        torch.manual_seed(4)
        losses.append(RDrop(RDropOptions(), CriterionContext(PIPELINE, model))(model, batch))
    for part in ("loss", "nll", "divergence"):
        one, two = ({**loss.trained, **loss.reported}[part].total.item() for loss in losses)
        assert one == pytest.approx(two, rel=1e-5)
