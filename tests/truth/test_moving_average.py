"""The moving average of weights against its recursion in float64."""

import pytest
import torch
from torch import nn

from nmt.extensions.methods.starts.moving_average import MovingAverage


def changed(model: nn.Module, generator: torch.Generator) -> None:
    """Move the weights as an update would."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)


@pytest.mark.parametrize(("decay", "updates"), [(0.5, 30), (0.9, 200), (0.999, 500)])
def test_the_average_follows_the_recursion_with_tensorflows_decay(decay, updates):
    model, generator = nn.Sequential(nn.Linear(37, 5), nn.Linear(5, 3)), torch.Generator().manual_seed(1)
    average = MovingAverage(model, decay)
    expected = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    decays = []
    for number in range(1, updates + 1):
        changed(model, generator)
        average.update(number)
        decays.append(min(decay, (1 + number) / (10 + number)))
        for name, parameter in model.named_parameters():
            expected[name] = decays[-1] * expected[name] + (1 - decays[-1]) * parameter.detach().double()
    assert decays[0] == 2 / 11 and (decays[-1] == decay) == (decay < 0.98)  # the last is still warmed up
    for name, value in average.weights.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(value, model.get_parameter(name))


def test_the_average_starts_and_restarts_as_a_copy_of_the_weights():
    model, generator = nn.Linear(4, 4), torch.Generator().manual_seed(2)
    average = MovingAverage(model, 0.9)
    before = model.weight.detach().clone()
    changed(model, generator)
    assert torch.equal(average.weights["weight"], before) and not torch.equal(model.weight, before)
    average.restart()
    assert torch.equal(average.weights["weight"], model.weight)
    assert average.weights["weight"].data_ptr() != model.weight.data_ptr()


def test_tied_weights_have_one_average():
    model = nn.ModuleDict({"one": nn.Linear(3, 3, bias=False), "other": nn.Linear(3, 3, bias=False)})
    model["other"].weight = model["one"].weight
    assert list(MovingAverage(model, 0.9).weights) == ["one.weight"]
