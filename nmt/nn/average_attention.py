"""The average attention network (Zhang et al., 2018), the mean of the past in place of a decoder's self-attention.

A step of a search costs the same whatever the length before it, and a hypothesis has one vector as its past: a sum.
Dimensions: B sentences, T positions, D width, N rows of a search.
"""

import torch
from torch import Tensor, nn

from nmt.nn.feed_forward import FeedForward, GatedFeedForward
from nmt.nn.linear import Linear
from nmt.nn.ssru import Cell, CellStep


class AverageAttention(nn.Module):
    """A feed-forward network of the mean of all inputs so far, and gates of it and of the input (section 3 of the paper).

    g_j = FFN((y_1 + ... + y_j) / j) and i_j, f_j = sigmoid(W [y_j; g_j] + b); the output is i_j * y_j + f_j * g_j, to which
    the layer adds y_j before its norm.
    """

    def __init__(self, feed_forward: FeedForward | GatedFeedForward, width: int) -> None:
        super().__init__()
        self.feed_forward = feed_forward
        self.gates = Linear(2 * width, 2 * width)
        nn.init.xavier_uniform_(self.gates.weight)
        nn.init.zeros_(self.gates.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        counts = torch.arange(1, states.shape[1] + 1, device=states.device)[:, None]  # T 1
        means = (states.cumsum(1) / counts).to(states.dtype)  # B T D
        averages, _ = self.feed_forward(means)
        return _gated(states, averages, self.gates(torch.cat([states, averages], -1)))

    def prepared(self) -> CellStep:
        """A step of one search, without gradient. The cell is the sum of the inputs before."""
        feed_forward, gates = self.feed_forward.prepared(), self.gates.prepared()

        def step(states: Tensor, cell: Cell, length: int, *_: object) -> tuple[Tensor, Cell]:
            total = cell[0] + states
            averages = feed_forward((total / (length + 1)).to(states.dtype))
            return _gated(states, averages, gates(torch.cat([states, averages], -1))), (total,)

        return step


def _gated(states: Tensor, averages: Tensor, gates: Tensor) -> Tensor:
    """states, averages: (..., D); gates: (..., 2D) before the sigmoid"""
    of_states, of_averages = gates.sigmoid().chunk(2, -1)
    return of_states * states + of_averages * averages
