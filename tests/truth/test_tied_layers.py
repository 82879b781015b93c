"""Tied layers: one set of weights, passed as often as a stack has layers."""

import pytest
import torch
from random_models import make_model
from safetensors import safe_open
from small_models import SMALL, perturb

from nmt import registry
from nmt.batch import flatten, make_batch
from nmt.checkpoint import load_model, weights_of
from nmt.extensions.toolkits.transformer import arrays_of
from nmt.models.base import Vocabularies
from nmt.nn.cost import count_flops
from nmt.runs import WEIGHTS

V = 20
SIZES = SMALL["transformer"] | {"encoder_layers": 3, "decoder_layers": 2, "dropout": 0.0}
TIED = {"encoder": ("encoder",), "decoder": ("decoder",), "all": ("encoder", "decoder")}


def build(**options):
    torch.manual_seed(1)
    return registry.build(registry.choose("model", "transformer", SIZES | options), Vocabularies(V, V, True))


def batch():
    return make_batch(flatten([[5, 6, 7], [8, 9, 5, 6]]), flatten([[5, 6, 5, 8], [9, 9, 7]]))


def untied(tied, sides):
    """The same function by a model with as many copies of a tied layer as it is passed."""
    model = build()
    weights = tied.state_dict()
    for name in model.state_dict():
        side, _, rest = name.partition(".")
        weights[name] = weights[f"{side}.0.{rest.partition('.')[2]}"] if side in sides else weights[name]
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("tie_layers", TIED)
def test_a_tied_layer_equals_copies_and_gets_the_sum_of_their_gradients(tie_layers):
    tied = perturb(build(tie_layers=tie_layers), 0.2).double()
    copies = untied(tied, TIED[tie_layers]).double()
    features = [model(batch()).features for model in (tied, copies)]
    torch.testing.assert_close(*features, rtol=0, atol=0)
    for result in features:
        result.square().sum().backward()
    of_copies = dict(copies.named_parameters())
    for name, parameter in tied.named_parameters():
        side, _, rest = name.partition(".")
        layers = range({"encoder": 3, "decoder": 2}[side]) if side in TIED[tie_layers] else ()
        expected = sum(of_copies[f"{side}.{i}.{rest.partition('.')[2]}"].grad for i in layers)
        torch.testing.assert_close(parameter.grad, expected if layers else of_copies[name].grad)


@pytest.mark.parametrize("tie_layers", TIED)
def test_its_weights_are_counted_and_saved_once(tie_layers, tmp_path):
    tied, plain = build(tie_layers=tie_layers), build()
    of_layer = {side: sum(p.numel() for p in getattr(plain, side)[0].parameters()) for side in ("encoder", "decoder")}
    spared = sum((SIZES[f"{side}_layers"] - 1) * of_layer[side] for side in TIED[tie_layers])
    assert plain.num_parameters() - tied.num_parameters() == spared
    folder = make_model(tmp_path / "m", **SIZES, tie_layers=tie_layers)
    with safe_open(folder / WEIGHTS, "pt") as file:
        saved = set(file.keys())
    assert saved == set(weights_of(tied))
    assert not any(name.startswith(f"{side}.1.") for name in saved for side in TIED[tie_layers])
    loaded = load_model(folder, torch.device("cpu"))
    assert arrays_of(loaded).keys() == weights_of(plain).keys()  # as other toolkits get them


def test_each_pass_costs_as_much_as_an_untied_layer():
    lengths = torch.tensor([4]), torch.tensor([5])
    tied = build(tie_layers="all")
    assert int(tied.flops(*lengths)) == int(build().flops(*lengths))
    pair = make_batch(flatten([[5, 6, 7]]), flatten([[5, 6, 5, 8]]))
    assert count_flops(lambda: tied.output(tied(pair).features)) == int(tied.flops(*lengths))
