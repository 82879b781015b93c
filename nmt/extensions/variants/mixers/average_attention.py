"""The average attention network (Zhang et al., 2018): the mean of all inputs so far replaces a decoder's self-attention.

A step of a search costs the same at any length, and the past of a hypothesis is a single vector, the sum of its inputs.
Dimensions: B sentences, T positions, D width, N rows of a search.
"""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.extensions.variants.feed_forwards.glu import GatedFeedForward
from nmt.extensions.variants.mixers.cell import CellMixer
from nmt.feed_forwards.base import FeedForward, FeedForwardShape
from nmt.feed_forwards.dense import DenseFeedForward
from nmt.mixers.base import MixerStep, Past
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape
from nmt.nn.linear import Linear
from nmt.options import NoOptions


@register("mixer", "average-attention", NoOptions)
class AverageAttention(CellMixer):
    """A feed-forward network applied to the mean of all inputs so far, gated with the input (Zhang et al., 2018).

    g_j = FFN((y_1 + ... + y_j) / j) and i_j, f_j = sigmoid(W [y_j; g_j] + b); the output is i_j * y_j + f_j * g_j, to which
    the layer adds y_j before its norm. The FFN is gated if the layers' own networks are.
    """

    def __init__(self, options: TransformerOptions, shape: AttentionShape) -> None:
        width = shape.width
        super().__init__(width)
        sizes = FeedForwardShape(width, options.d_ff, options.activation_dropout, options.activation)
        network: type[FeedForward] = GatedFeedForward if options.ffn == "glu" else DenseFeedForward
        self.feed_forward = network.for_layer(options, sizes, 1)
        self.gates = Linear(2 * width, 2 * width)
        nn.init.xavier_uniform_(self.gates.weight)
        nn.init.zeros_(self.gates.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = True) -> Tensor:
        """See Mixer. Always causal."""
        counts = torch.arange(1, states.shape[1] + 1, device=states.device)[:, None]  # T 1
        means = (states.cumsum(1) / counts).to(states.dtype)  # B T D
        averages = self.feed_forward(means)
        return _gated(states, averages, self.gates(torch.cat([states, averages], -1)))

    def search_step(self) -> MixerStep:
        """See Mixer. The cell is the sum of the previous inputs."""
        feed_forward, gates = self.feed_forward.search_step(), self.gates.search_step()

        def step(states: Tensor, past: Past, length: int) -> tuple[Tensor, Past]:
            total = past["cell"] + states
            averages = feed_forward((total / (length + 1)).to(states.dtype))
            return _gated(states, averages, gates(torch.cat([states, averages], -1))), {"cell": total}

        return step


def _gated(states: Tensor, averages: Tensor, gates: Tensor) -> Tensor:
    """Combine states and averages. states, averages: (..., D); gates: (..., 2D), before the sigmoid"""
    state_gates, average_gates = gates.sigmoid().chunk(2, -1)
    return state_gates * states + average_gates * averages
