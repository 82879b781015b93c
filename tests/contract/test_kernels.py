"""Every kernel computes what the method that it replaces does: Triton's compiled on a GPU, else interpreted."""

import math
from functools import partial

import pytest
import torch
from conftest import train_arguments

from nmt import registry
from nmt.criteria import chunks
from nmt.criteria.base import CriterionContext
from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.attentive import AttentiveLstm
from nmt.extensions.zoo.nn.lstm import LstmCell, LstmForm
from nmt.kernels.base import _kernel, fastest
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import PAD

OF_LAYERS = ("lstm-steps", "attentive-lstm-steps")
KERNELS = [*(name for name in registry.names("kernel") if name not in OF_LAYERS), "cross-entropy by Triton"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_losses = pytest.importorskip("nmt.extensions.fast.nn.triton_losses")
N, D, V = 9, 6, 45
PASSES = {"cross-entropy": 1, "r-drop": 2}


def method_of(owner, name):
    """The method of an object that declares the kernel of that name."""
    methods = (getattr(owner, each) for each in dir(owner))
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
    fast = partial(registry.build(registry.choose("kernel", name)).compute, criterion)
    if triton:
        fast = partial(by_triton, criterion)
    plain, results = method_of(criterion, name), []
    for function in (plain, fast):
        monkeypatch.setattr(chunks, "fastest", lambda _, __, function=function: function)
        sums = chunks.sums_of_logits(function, output, passes, targets, factors)
        results.append(([each.item() for each in sums], torch.autograd.grad(sums[0], [*passes, *output.parameters()])))
    (wanted, gradients), (found, ours) = results
    assert found == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-5)


def test_a_kernel_is_used_where_it_fits_but_not_for_an_overriding_method():
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


T, B, S, M, H, A = 6, 3, 4, 5, 8, 7
FORMS = [LstmForm(), LstmForm(output_tanh=False), LstmForm(peepholes=True, projection=6)]


def check_layer(layer, inputs, others):
    """The kernel of a layer's loop gives its outputs and the gradients of all weights and inputs."""
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    results = []
    for method in (layer.all_steps, fastest(layer.all_steps, inputs[0])):
        outputs = method(*inputs, *others)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = sum((one * torch.arange(one.numel()).view(one.shape).sin()).sum() for one in outputs)
        wanted = [*inputs, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
        results.append((method, outputs, torch.autograd.grad(total, wanted, allow_unused=True)))
    (plain, *expected), (fast, *found) = results
    assert fast != plain
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        assert fastest(layer.all_steps, inputs[0]) == layer.all_steps


@pytest.mark.parametrize("clip", [math.inf, 0.6])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_kernel_of_an_lstm_equals_its_loop(form, clip):
    torch.manual_seed(1)
    cell, gates = LstmCell(H, form).double(), torch.randn(T, B, 4 * H, dtype=torch.float64, requires_grad=True)
    for reverse in (False, True):
        check_layer(cell, [gates], (clip, reverse))


@pytest.mark.parametrize("attention", ["sum", "product"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_kernel_of_an_attentive_lstm_equals_its_loop(form, attention):
    torch.manual_seed(1)
    width = form.projection or H
    layer = AttentiveLstm(M, M, H, form, AdditiveAttention(width, M, A, attention)).double()
    for unused in (layer.inputs, layer.context, layer.attention.keys):  # their products are given
        unused.requires_grad_(False)
    sizes = (T, B, 4 * H), (B, S, A), (B, S, 4 * H)
    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    mask = torch.arange(S) < torch.tensor([[4], [2], [3]])
    check_layer(layer, inputs, (mask, 0.6))


PLUGIN = '''
"""A criterion in one file, and a kernel for it."""
import torch
from conftest import train_arguments
from nmt import register
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.criteria.options import CrossEntropyOptions
from nmt.kernels.base import Kernel, has_kernel
from nmt.options import NoOptions


@register("criterion", "plain", CrossEntropyOptions)
class Plain(CrossEntropy):
    """Cross entropy by torch's operations, unless a kernel fits."""

    @has_kernel("counted")
    def of_logits(self, *given):
        return super().of_logits(*given)


@register("kernel", "counted", NoOptions)
class Counted(Kernel):
    """The same, of which the chunks are counted."""

    chunks = 0

    def fits(self, owner, inputs):
        return torch.is_grad_enabled()  # in training, not in validation

    def compute(self, owner, *given):
        Counted.chunks += 1
        return owner.of_logits(*given)
'''


def test_a_kernel_from_one_file_computes_the_losses_of_a_training(data, tmp_path, call):
    (tmp_path / "counted.py").write_text(PLUGIN)
    try:
        more = f"--plugin={tmp_path / 'counted.py'}", "--criterion=plain"
        assert call(*train_arguments(data, tmp_path / "run", 3, *more)).code == 0
        assert registry.find("kernel", "counted").cls.chunks >= 3
    finally:
        _kernel.cache_clear()
        for entry in (("criterion", "plain"), ("kernel", "counted")):
            del registry._shelf.parts[entry]
