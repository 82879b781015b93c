"""Every loss kernel against the criterion's own sums and gradients: Triton's compiled on a GPU, else interpreted."""

import math
from functools import partial

import pytest
import torch

from nmt import registry
from nmt.criteria import chunks
from nmt.criteria.base import CriterionContext
from nmt.loss_kernels.base import fastest
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import PAD

KERNELS = [*registry.names("loss-kernel"), "cross-entropy by Triton"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_losses = pytest.importorskip("nmt.extensions.fast.nn.triton_losses")
N, D, V = 9, 6, 45
PASSES = {"cross-entropy": 1, "r-drop": 2}


def of_logits(criterion, name):
    """The method of a criterion that declares the kernel of that name."""
    methods = (getattr(criterion, each) for each in dir(criterion))
    [method] = (method for method in methods if getattr(method, "kernel", None) == name)
    return method


def by_triton(criterion, logits, *rows):
    return triton_losses.cross_entropy(logits, *rows, *criterion.weights(V), criterion.options.z_loss)


@pytest.mark.parametrize(("bias", "limit"), [(True, math.inf), (False, math.inf), (True, 0.8)])
@pytest.mark.parametrize(("rows", "z_loss"), [(4, 0.0), (100, 0.1)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_gives_the_sums_and_gradients_of_the_criterion(kernel, rows, z_loss, bias, limit, monkeypatch):
    monkeypatch.setattr(triton_losses, "LOGITS_AT_ONCE", 16)
    monkeypatch.setattr(chunks, "chunk_rows", lambda *_: rows)
    torch.manual_seed(1)
    name, _, triton = kernel.partition(" by ")
    with torch.device(DEVICE):
        output = ClippedLinear(Linear(D, V, bias=bias), limit)
        passes = [torch.randn(N, D, requires_grad=True) for _ in range(PASSES[name])]
        targets, factors = torch.randint(4, V, (N,)), 2 * torch.rand(N)
    targets[3], factors[3], factors[5] = PAD, 0.0, 0.0  # a weight of 0 is no padding: it counts in nll
    part = registry.choose("criterion", name, {"z_loss": z_loss})
    criterion = registry.build(part, CriterionContext(None, None))
    fast = partial(registry.build(registry.choose("loss-kernel", name)).sums, criterion)
    if triton:
        fast = partial(by_triton, criterion)
    plain, results = of_logits(criterion, name), []
    for function in (plain, fast):
        monkeypatch.setattr(chunks, "fastest", lambda _, __, function=function: function)
        sums = chunks.sums_of_logits(function, output, passes, targets, factors)
        results.append(([each.item() for each in sums], torch.autograd.grad(sums[0], [*passes, *output.parameters()])))
    (wanted, gradients), (found, ours) = results
    assert found == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-5)


def test_a_kernel_is_used_where_it_fits_and_not_for_a_method_that_overrides():
    plain = registry.find("criterion", "cross-entropy").cls

    class Other(plain):
        def of_logits(self, *given):
            return super().of_logits(*given)

    criterion, other = (
        cls(registry.choose("criterion", "cross-entropy").options, CriterionContext(None, None))
        for cls in (plain, Other)
    )
    assert fastest(criterion.of_logits, torch.zeros(1)) != criterion.of_logits
    assert fastest(other.of_logits, torch.zeros(1)) == other.of_logits
