"""Convolutions against torch's, and a search's steps against whole sentences."""

import pytest
import torch
from torch.nn.functional import conv1d, pad

from nmt.extensions.zoo.nn.convolution import Convolution, Taps
from nmt.models.base import State

KINDS = [(1, 1), (2, 1), (3, 1), (3, 4), (5, 2)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel", "dilation"), KINDS)
@torch.no_grad()
def test_it_equals_torchs_convolution_with_padding_on_one_or_both_sides(kernel, dilation, causal):
    torch.manual_seed(1)
    layer, states = Convolution(5, 7, kernel, dilation, causal), torch.randn(2, 9, 5)
    reach = (kernel - 1) * dilation
    before = reach if causal else reach // 2
    weight = layer.linear.weight.view(7, kernel, 5).transpose(1, 2)
    padded = pad(states.transpose(1, 2), (before, reach - before))
    expected = conv1d(padded, weight, layer.linear.bias, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(layer(states), expected)


@pytest.mark.parametrize("widths", [[1] * 14, [1, *[4] * 13], [3, 5, 5, 2, 1, 6, 6, 2, 2, 4, 1, 1, 3, 3]])
@pytest.mark.parametrize(("kernel", "dilation"), KINDS)
@torch.no_grad()
def test_steps_equal_the_whole_sentence_while_hypotheses_are_reordered(kernel, dilation, widths):
    """Each row takes a random ancestor of its sentence; the widest step may come at any time."""
    torch.manual_seed(2)
    B, layer = 3, Convolution(4, 6, kernel, dilation, causal=True)
    step, history, state = layer.search_step(), layer.history(torch.empty(B)), State()
    pasts = torch.empty(B * widths[0], 0, 4)
    for i, width in enumerate(widths):
        if i:
            ancestors = torch.cat([torch.randint(widths[i - 1], (width,)) + b * widths[i - 1] for b in range(B)])
            state.reorder(ancestors)
            pasts = pasts[ancestors]
        inputs = torch.randn(B * width, 4)
        pasts = torch.cat([pasts, inputs[:, None]], 1)
        taps = Taps(state.append_entries(torch.zeros(len(inputs), dtype=torch.int64), B), state.num_entries, B)
        outputs, history = step(inputs, history, taps)
        torch.testing.assert_close(outputs, layer(pasts)[:, -1])


@torch.no_grad()
def test_the_history_of_a_long_search_stays_bounded():
    B, layer = 2, Convolution(4, 6, 3, dilation=2, causal=True)
    step, history, state = layer.search_step(), layer.history(torch.empty(B)), State()
    sizes = set()
    for _ in range(40):
        inputs = torch.randn(B * 3, 4)
        taps = Taps(state.append_entries(torch.zeros(len(inputs), dtype=torch.int64), B), state.num_entries, B)
        _, history = step(inputs, history, taps)
        sizes.add(history.shape[1])
    assert sizes == {1 + 3 * 5}  # a row of zeros, and three hypotheses at each of the five positions of the span
