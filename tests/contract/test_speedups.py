"""Every faster way to compute something equals the core's, and a plug-in adds another in one file."""

import copy

import pytest
import torch
from conftest import train_arguments
from refusals import assert_refused
from scorers import random_sources
from torch import nn

from nmt import registry
from nmt.checkpoint import check_tensors, load_model, read_tensors, weights_of
from nmt.decoders.beam import Beam
from nmt.decoders.options import BeamOptions
from nmt.extensions.fast.nn import products
from nmt.extensions.fast.search_speedups.capture import capture_steps
from nmt.extensions.fast.search_speedups.compile import compile_steps
from nmt.extensions.toolkits.model_folder import export_model
from nmt.models.base import Vocabularies
from nmt.models.options import TransformerOptions
from nmt.models.transformer import Transformer
from nmt.nn.linear import Linear
from nmt.nn.matmul import Products, using
from nmt.runs import WEIGHTS, find_model
from nmt.weight_formats.base import weight_format

V = 20
SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 16, "d_ff": 24, "heads": 2}
SEARCH = Beam(BeamOptions(beam_size=3, n_best=3, max_len_a=0, max_len_b=20))


def new_model(**options):
    torch.manual_seed(1)
    return Transformer(TransformerOptions(**SIZES, **options), Vocabularies(V, V, True)).eval().requires_grad_(False)


def by_matmul(model):
    products.transpose_weights(model)
    products.choose_matmuls(model)


CHANGES = {"capture": capture_steps, "compile": compile_steps, "matmul": by_matmul}


@pytest.mark.parametrize("options", [{}, {"norm_position": "pre", "norm": "rms"}], ids=str)
@pytest.mark.parametrize("name", registry.names("search-speedup"))
def test_a_search_finds_the_same_with_each_speedup(name, options, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **named: step)  # what the compiler makes is its own affair
    plain, fast = new_model(**options), new_model(**options)
    CHANGES[name](fast)  # a speedup without a change here is not tested
    for seed, count in enumerate((5, 9, 1)):
        source = random_sources(seed, count, V)
        with using(Products()):
            expected = SEARCH.search(plain, source)
        with using(products.FastProducts("auto")):
            found = SEARCH.search(fast, source)
        for ours, theirs in zip(found, expected, strict=True):
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
            assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], abs=1e-4)


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("implementation", products._IMPLEMENTATIONS)
def test_each_matrix_product_implementation_equals_the_core_s(implementation, cast):
    torch.manual_seed(1)
    layer, states, upstream = Linear(24, 40), torch.randn(70, 24, requires_grad=True), torch.randn(70, 40)
    found = []
    for each in (Products(), products.FastProducts(implementation)):
        with using(each), torch.autocast("cpu", torch.bfloat16, enabled=cast):
            output, prepared = layer(states), layer.search_step()(states.detach())
        gradients = torch.autograd.grad(output, [states, *layer.parameters()], upstream)
        found.append([output.detach(), prepared, *gradients])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        tolerance = (2**-6 if cast else 1e-5) * float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", registry.choosable("weight-format", "converts"))
def test_a_weight_format_computes_nearly_the_same_and_frees_the_converted_weights(name):
    plain = new_model()
    converted, room = copy.deepcopy(plain), copy.deepcopy(plain)
    weight_format(name).convert(converted)
    weight_format(name).convert_layers(room)
    check_tensors(weights_of(room), weights_of(converted), "room")
    states = torch.randn(5, SIZES["d_model"])
    logits = plain.output(states)
    assert float((converted.output(states) - logits).abs().max()) < 0.05 * float(logits.abs().max())
    assert not any(isinstance(module, nn.Linear) for module in converted.modules())


PLUGIN = '''
"""Speedups in one file: products that are counted."""
from nmt import opt, options_class, register
from nmt.nn import matmul
from nmt.search_speedups.base import SearchSpeedup
from nmt.training_speedups.base import TrainingSpeedup


class Counted(matmul.Products):
    number = 0

    def product(self, states, weight, bias):
        self.number += 1
        return super().product(states, weight, bias)


@options_class
class CountedOptions:
    count_products: bool = opt(False, "count matrix products")


@register("training-speedup", "counted", CountedOptions)
class CountedTraining(TrainingSpeedup):
    """Products of a training that are counted."""

    order = 1

    def before_updates(self, run):
        self.products = Counted()
        if self.options.count_products:
            matmul.use(self.products)

    def after_updates(self, run):
        if self.options.count_products:
            run.report.line(f"products were counted: {self.products.number > 0}")


@register("search-speedup", "counted", CountedOptions)
class CountedSearch(SearchSpeedup):
    """Products of a search that are counted."""

    order = 1

    def begin(self, engine, decoder):
        if self.options.count_products:
            engine.products = Counted()

    def prepare(self, engine, model):
        if self.options.count_products:
            raise ValueError(f"prepared for many: {type(engine.products).__name__}")
'''


@pytest.fixture
def plugin(tmp_path):
    """The flag that loads the plug-in, which is forgotten afterwards."""
    (tmp_path / "counted.py").write_text(PLUGIN)
    yield f"--plugin={tmp_path / 'counted.py'}"
    for kind in ("training-speedup", "search-speedup"):
        del registry._shelf.parts[kind, "counted"]


def test_speedups_from_one_file_run_in_training_and_search(data, tmp_path, call, plugin):
    plain, counted = (train_arguments(data, tmp_path / name, 10, plugin) for name in ("plain", "counted"))
    assert call(*plain).code == call(*counted, "--count-products").code == 0
    assert "products were counted: True" in (tmp_path / "counted/train.log").read_text()
    weights = [
        (tmp_path / f"{name}/checkpoints/update-10/model.safetensors").read_bytes() for name in ("plain", "counted")
    ]
    assert weights[0] == weights[1]
    (tmp_path / "text").write_text("ban\nden\n")
    translate = ["translate", plugin, "--model", tmp_path / "plain", "--input", tmp_path / "text", "--engine=torch"]
    assert call(*translate, "--batch-tokens=1").code == 0
    assert_refused(call(*translate, "--batch-tokens=1", "--count-products"), 2, "prepared for many: Counted")


FORMAT = '''
"""A format of weights in one file: halves of those of layers with a bias, which are doubled when they are used."""
from nmt import UserError, register
from nmt.nn.linear import Linear
from nmt.options import NoOptions
from nmt.weight_formats.base import WeightFormat


class Halved(Linear):
    def forward(self, states):
        return super().forward(states) * 2

    def search_step(self):
        return self.forward


@register("weight-format", "halved", NoOptions)
class HalvedFormat(WeightFormat):
    """Weights that are half as large, but not those of the embeddings."""

    def check(self, device):
        if device.type != "cpu":
            raise UserError(f"--device {device}: such weights are for CPUs")

    def convert(self, model):
        for module in self.convert_layers(model):
            module.weight.data /= 2
            module.bias.data /= 2

    def convert_layers(self, model):
        layers = [module for module in model.modules() if type(module) is Linear and module.bias is not None]
        for layer in layers:
            layer.__class__ = Halved
        return layers
'''


def test_a_weight_format_from_one_file_is_saved_and_translates(data, tmp_path, call):
    (tmp_path / "halved.py").write_text(FORMAT)
    plugin = f"--plugin={tmp_path / 'halved.py'}"
    try:
        assert call(*train_arguments(data, tmp_path / "run", 20)).code == 0
        (tmp_path / "text").write_text("ban\nden\n")
        translate = ["translate", plugin, "--input", tmp_path / "text", "--engine=torch", "--model"]
        plain = call(*translate, tmp_path / "run")
        assert plain.code == 0
        assert call(*translate, tmp_path / "run", "--precision=halved").out == plain.out
        export_model(load_model(tmp_path / "run", torch.device("cpu")), tmp_path / "halved", "halved")
        assert call(*translate, tmp_path / "halved").out == plain.out
        assert call(*translate, tmp_path / "halved", "--precision=int8").code == 2
        weights = [read_tensors(find_model(tmp_path / name) / WEIGHTS) for name in ("run", "halved")]
        assert any(not weights[0][name].equal(weights[1][name]) for name in weights[0])
    finally:
        del registry._shelf.parts["weight-format", "halved"]
