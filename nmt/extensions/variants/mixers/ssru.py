"""The simpler simple recurrent unit (Kim et al., 2019), a recurrence that replaces a decoder's self-attention.

A step of a search costs two small products at any length, and the past of a hypothesis is a single vector.
Dimensions: B sentences, T positions, D width, N rows of a search.
"""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.extensions.variants.mixers.cell import CellMixer
from nmt.mixers.base import MixerStep, Past
from nmt.nn.attention import AttentionShape
from nmt.nn.linear import Linear
from nmt.options import NoOptions


@register("mixer", "ssru", NoOptions)
class SimplerRecurrence(CellMixer):
    """A recurrence without matrix products of its state (Kim et al., 2019).

    c_t = f * c_{t-1} + (1 - f) * (W x) with f = sigmoid(W_f x + b_f); the output is max(0, c_t) (Kim et al., 2019, section 3)
    """

    is_recurrent = True

    def __init__(self, options: object, shape: AttentionShape) -> None:
        super().__init__(shape.width)
        width = shape.width
        self.values = Linear(width, width, bias=False)
        self.forget = Linear(width, width)
        for linear in (self.values, self.forget):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = True) -> Tensor:
        """See Mixer. Always causal; the cell starts at zero."""
        forget = self.forget(states).sigmoid()  # B T D
        new = (1 - forget) * self.values(states)  # B T D
        cells = [new[:, 0]]
        for kept, added in zip(forget.unbind(1)[1:], new.unbind(1)[1:], strict=True):
            cells.append(torch.addcmul(added, kept, cells[-1]))
        return torch.stack(cells, 1).relu()

    def search_step(self) -> MixerStep:
        """See Mixer."""
        project_values, project_forget = self.values.search_step(), self.forget.search_step()

        def step(states: Tensor, past: Past, length: int) -> tuple[Tensor, Past]:
            values = project_values(states)
            after = values + project_forget(states).sigmoid_() * (past["cell"] - values)
            return after.relu(), {"cell": after}

        return step
