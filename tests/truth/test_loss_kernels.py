"""The Triton kernels of losses against the plain sums and gradients: compiled on a GPU, else by Triton's interpreter."""

import math

import pytest
import torch

from nmt.criteria import cross_entropy
from nmt.criteria.base import CriterionContext
from nmt.criteria.options import CrossEntropyOptions
from nmt.extensions.methods.criteria import r_drop
from nmt.extensions.methods.criteria.options import RDropOptions
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import PAD

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
kernels = pytest.importorskip("nmt.nn.loss_kernels")
N, D, V = 9, 6, 45


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    monkeypatch.setattr(kernels, "LOGITS_AT_ONCE", 16)


def problem(passes, bias, limit):
    torch.manual_seed(1)
    with torch.device(DEVICE):
        output = ClippedLinear(Linear(D, V, bias=bias), limit)
        features = torch.randn(passes * N, D, requires_grad=True)
        targets, factors = torch.randint(4, V, (N,)), 2 * torch.rand(N)
    targets[3], factors[3], factors[5] = PAD, 0.0, 0.0  # a weight of 0 is no padding: it counts in nll
    return output, features, targets, factors


def assert_same(module, monkeypatch, criterion, output, features, targets, factors):
    """The sums and the gradients of a loss by kernels, against its plain ones."""
    tensors = [features, *output.parameters()]
    results = []
    for chosen in (None, kernels):
        monkeypatch.setattr(module, "loss_kernels", lambda _, chosen=chosen: chosen)
        sums = criterion.sums(output, features, targets, factors)
        results.append(([each.item() for each in sums], torch.autograd.grad(sums[0], tensors)))
    (wanted, gradients), (found, ours) = results
    assert found == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("bias", "limit"), [(True, math.inf), (False, math.inf), (True, 0.8)])
@pytest.mark.parametrize(("rows", "z_loss"), [(4, 0.0), (100, 0.1)])
def test_cross_entropy(rows, z_loss, bias, limit, monkeypatch):
    monkeypatch.setattr(cross_entropy, "chunk_rows", lambda *_: rows)
    criterion = cross_entropy.CrossEntropy(CrossEntropyOptions(z_loss=z_loss), CriterionContext(None, None))
    assert_same(cross_entropy, monkeypatch, criterion, *problem(1, bias, limit))


@pytest.mark.parametrize(("bias", "limit"), [(True, math.inf), (False, math.inf), (True, 0.8)])
@pytest.mark.parametrize(("rows", "z_loss"), [(4, 0.0), (100, 0.1)])
def test_r_drop(rows, z_loss, bias, limit, monkeypatch):
    monkeypatch.setattr(cross_entropy, "chunk_rows", lambda *_: rows)
    criterion = r_drop.RDrop(RDropOptions(z_loss=z_loss), CriterionContext(None, None))
    assert_same(r_drop, monkeypatch, criterion, *problem(2, bias, limit))
