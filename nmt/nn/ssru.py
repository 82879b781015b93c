"""The simpler simple recurrent unit (Kim et al., 2019), a recurrence in place of a decoder's self-attention.

A step of a search costs two small products whatever the length before it, and a hypothesis has one vector as its past.
Dimensions: B sentences, T positions, D width, N rows of a search.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.nn.linear import Linear

Cell = tuple[Tensor]  # (N, D), the past of each hypothesis
CellStep = Callable[..., tuple[Tensor, Cell]]
"""(states (N, D), cell, length, ...) -> the output (N, D), and the cell after it.

length: positions before this one; further arguments are those of an attention
"""


class SimplerRecurrence(nn.Module):
    """A recurrence without products of its state.

    c_t = f * c_{t-1} + (1 - f) * (W x) with f = sigmoid(W_f x + b_f); the output is max(0, c_t) (Kim et al., 2019, section 3)
    """

    is_recurrent = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.values = Linear(width, width, bias=False)
        self.forget = Linear(width, width)
        for linear in (self.values, self.forget):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), from a cell of zeros."""
        forget = self.forget(states).sigmoid()  # B T D
        new = (1 - forget) * self.values(states)  # B T D
        cells = [new[:, 0]]
        for kept, added in zip(forget.unbind(1)[1:], new.unbind(1)[1:], strict=True):
            cells.append(torch.addcmul(added, kept, cells[-1]))
        return torch.stack(cells, 1).relu()

    def prepared(self) -> CellStep:
        """A step of one search, without gradient."""
        project_values, project_forget = self.values.prepared(), self.forget.prepared()

        def step(states: Tensor, cell: Cell, *_: object) -> tuple[Tensor, Cell]:
            values = project_values(states)
            after = values + project_forget(states).sigmoid_() * (cell[0] - values)
            return after.relu(), (after,)

        return step
