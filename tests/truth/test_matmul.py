"""Products of matrices are the same by every path, and the fastest exact path is taken."""

from pathlib import Path

import pytest
import torch
from gradients import (
    assert_close,
    data_of,
    gradient,
    objective_of,
    sentences,
)
from torch.nn import functional

from nmt.extensions.fast.nn import products
from nmt.extensions.fast.nn.instructions import has_bfloat16, has_vnni
from nmt.extensions.fast.nn.products import FastProducts
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm
from nmt.nn import linear, matmul
from nmt.nn.matmul import using


class Clock:
    """A clock that goes by itself when it is read, and by what `slow` takes: no other process delays it."""

    def __init__(self):
        self.seconds = 0.0

    def perf_counter(self):
        self.seconds += 1e-4
        return self.seconds

    def slow(self, *given):
        self.seconds += 0.002
        return functional.linear(*given)


@pytest.fixture(autouse=True)
def fast_products():
    """The products of a training, which has chosen torch for float32."""
    with using(FastProducts("torch")):
        yield


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(products, "time", clock)
    return clock


needs_onednn = pytest.mark.skipif(not products.onednn_available(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "rows"), [(24, 40, 15), (40, 24, 15), (3, 40, 60)])
def test_a_product_and_its_gradient_are_the_same_on_either_path(inputs, outputs, rows, bias):
    torch.manual_seed(1)
    layer, states = linear.Linear(inputs, outputs, bias=bias), torch.randn(3, rows // 3, inputs, requires_grad=True)
    upstream = torch.randn(3, outputs, rows // 3).transpose(1, 2)  # not contiguous
    found = {}
    for path in ("torch", "onednn"):
        with using(FastProducts(path)):
            output = layer(states)
        leaves = [states, *layer.parameters()]
        found[path] = [output.detach(), *torch.autograd.grad(output, leaves, upstream)]
    assert_close(found["onednn"], found["torch"], 2e-6)
    assert all(gradient.is_contiguous() for gradient in found["onednn"][2:])
    assert matmul.current().implementation == "torch"


@needs_onednn
def test_an_empty_product_is_empty_on_either_path():
    layer = linear.Linear(4, 6)
    for path in ("torch", "onednn"):
        with using(FastProducts(path)):
            layer(torch.zeros(0, 4, requires_grad=True)).sum().backward()
        assert not layer.weight.grad.any() and not layer.bias.grad.any()


def rounded(values: torch.Tensor) -> torch.Tensor:
    return values.detach().bfloat16().float()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_under_autocast_on_a_cpu_factors_are_rounded_and_results_are_float32(rows, bias):
    """By float32 products of the rounded factors; results are rounded once more, to 8 bits."""
    torch.manual_seed(1)
    layer, states = linear.Linear(24, 40, bias=bias), torch.randn(1, rows, 24, requires_grad=True)
    upstream = torch.randn(1, 40, rows).transpose(1, 2)  # not contiguous
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(states)
        prepared = layer.search_step()(states[0].detach())
    found = torch.autograd.grad(output, [states, *layer.parameters()], upstream)
    weight, inputs, back = rounded(layer.weight), rounded(states), rounded(upstream)
    wanted = functional.linear(inputs, weight, rounded(layer.bias) if bias else None)
    assert {each.dtype for each in (output, *found, prepared)} == {torch.float32}
    assert_close([output.detach(), *found[:2]], [wanted, back @ weight, back[0].T @ inputs[0]], 2**-8)
    assert_close([prepared], [wanted[0]], 2**-8)
    if bias:
        torch.testing.assert_close(found[2], upstream[0].sum(0))


def test_an_empty_product_is_empty_under_autocast():
    layer = linear.Linear(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.zeros(0, 4, requires_grad=True)).sum().backward()
    assert not layer.weight.grad.any() and not layer.bias.grad.any()


def test_products_of_16_bit_numbers_use_few_shapes(monkeypatch):
    shapes, by_torch = set(), products.linear
    monkeypatch.setattr(products, "linear", lambda rows, *given: shapes.add(len(rows)) or by_torch(rows, *given))
    layer = linear.Linear(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert [len(layer(torch.zeros(rows, 4))) for rows in range(130)] == [*range(130)]
    assert shapes == {*range(64), 64, 128, 192}


def test_autocast_leaves_float64_alone():
    layer, states = linear.Linear(4, 6).double(), torch.randn(3, 4, dtype=torch.float64)
    exact = layer(states)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(states), exact)


@needs_onednn
def test_a_whole_update_is_the_same_on_either_path_and_uses_the_requested_one(monkeypatch):
    calls, product = [], products._onednn
    monkeypatch.setattr(products, "_onednn", lambda *given: calls.append(1) or product(*given))
    data = data_of(sentences(12, 9))
    _, plain = gradient(objective_of(), data)
    assert not calls
    with using(FastProducts("onednn")):
        _, other = gradient(objective_of(), data)
        asked = len(calls)
        gradient(objective_of(), data, precision="bf16")  # which has products of its own
    # 3 products of each of 22 linear layers, 3 of the logits, and one of a row, which has the size of the vocabulary
    assert asked == len(calls) == 3 * (2 * 4 + 2 * 7) + 4
    assert_close(other, plain, 1e-5)


@needs_onednn
def test_the_faster_path_of_equal_precision_is_taken(monkeypatch, clock):
    product = products._onednn
    monkeypatch.setattr(products, "linear", clock.slow)
    path, ratio = products.measured(8, 16, 16)
    assert path == "onednn" and ratio > 2
    monkeypatch.setattr(products, "linear", functional.linear)
    monkeypatch.setattr(products, "_onednn", clock.slow)
    assert products.measured(8, 16, 16)[0] == "torch"
    monkeypatch.setattr(products, "linear", clock.slow)
    monkeypatch.setattr(products, "_onednn", lambda *given: product(*given).bfloat16().float())
    assert products.measured(8, 16, 16) == ("torch", 0.0)


@needs_onednn
def test_gates_applied_in_place_can_be_trained_with_onednn():
    torch.manual_seed(1)
    layer, padding = Lstm(8, 6, LstmForm()), torch.zeros(5, 3, dtype=torch.bool)
    padding[:2, 1] = True
    vectors, found = torch.randn(5, 3, 8), {}
    for path in ("torch", "onednn"):
        layer.zero_grad()
        with using(FastProducts(path)):
            layer(vectors, padding).square().sum().backward()
        found[path] = [parameter.grad.clone() for parameter in layer.parameters()]
    for ours, theirs in zip(found["onednn"], found["torch"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("path", ["torch", "onednn", "numpy"])
@pytest.mark.parametrize("rows", [3, products.MIN_ROWS, 2 * products.MIN_ROWS + 1])
def test_search_products_are_the_same_on_every_path_for_any_weight_layout(path, bias, rows):
    if path == "onednn" and not products.onednn_available():
        pytest.skip("this torch has no oneDNN")
    layer, states = linear.Linear(24, 40, bias=bias), torch.randn(rows, 24)
    plain = (states.double() @ layer.weight.double().t() + (layer.bias if bias else 0)).float()
    for transposed in (False, True):
        if transposed:
            products.transpose_weights(layer)
            assert layer.weight.is_contiguous()  # it is trained
            products.transpose_weights(layer.requires_grad_(False))
            assert layer.weight.t().is_contiguous()
        with torch.inference_mode(), using(FastProducts(path)):
            for found in (layer(states), layer.search_step()(states), layer(states[None])[0]):
                assert_close([found], [plain], 2e-6)


def test_each_shape_uses_the_path_measured_fastest_for_it(monkeypatch, clock):
    asked = []
    quick = {"torch": clock.slow, "numpy": lambda *given: asked.append("numpy") or functional.linear(*given)}
    monkeypatch.setattr(products, "_IMPLEMENTATIONS", quick)
    monkeypatch.setattr(products, "_fastest", {})
    model, other = torch.nn.Sequential(linear.Linear(8, 16), linear.Linear(16, 16, bias=False)), linear.Linear(16, 24)
    with torch.inference_mode(), using(FastProducts("auto")):
        products.choose_matmuls(model)
        assert set(products._fastest.values()) == {"numpy"} and len(products._fastest) == 2
        asked.clear()
        model(torch.randn(products.MIN_ROWS, 8))
        assert asked == ["numpy", "numpy"]
        model(torch.randn(products.MIN_ROWS - 1, 8))  # too few rows
        other(torch.randn(products.MIN_ROWS, 16))  # a shape that was not measured
        assert asked == ["numpy", "numpy"]
    monkeypatch.setattr(products, "_fastest", {})
    monkeypatch.setitem(quick, "numpy", lambda *given: functional.linear(*given).bfloat16().float())
    with using(FastProducts("auto")):
        products.choose_matmuls(model)
    assert set(products._fastest.values()) == {"torch"}  # slower, but float32


@pytest.mark.parametrize(
    ("has", "limit", "bfloat16", "vnni"),
    [
        ({}, None, False, False),
        ({"avx512_vnni": True}, None, False, True),
        ({"avx512_vnni": True, "avx512_bf16": True}, None, True, True),
        ({"avx512_vnni": True, "avx512_bf16": True}, "ALL", True, True),
        ({"avx512_vnni": True, "avx512_bf16": True}, "avx512_core_amx", True, True),
        ({"avx512_vnni": True, "avx512_bf16": True}, "AVX512_CORE_VNNI", False, True),
        ({"avx512_vnni": True, "avx512_bf16": True}, "AVX2", False, False),
        ({"neon": True, "bf16": True}, None, True, False),
        ({"neon": True, "bf16": False}, None, False, False),
    ],
)
def test_processor_instructions_are_used_if_available_and_allowed(has, limit, bfloat16, vnni, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert (has_bfloat16(torch.device("cpu")), has_vnni()) == (bfloat16, vnni)


def test_bfloat16_support_is_read_from_the_processor_flags():
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("the flags of the processor are Linux' /proc/cpuinfo")
    flags = {*cpuinfo.read_text().split()}
    assert not has_bfloat16(torch.device("cpu")) or flags & {"avx512_bf16", "bf16"}
    assert not has_vnni() or "avx512_vnni" in flags
