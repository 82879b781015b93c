"""Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), with or without the parts that papers vary.

Time comes first, as in torch's nn.LSTM. Gates stand in the order output, input, forget, candidate. Between two
steps only the state passes on: products with the inputs cover all positions at once.
Dimensions: T positions, B sentences, M width of an input, H of a cell, R of an output (H without projection), N rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.kernels.base import fastest, has_kernel
from nmt.nn.linear import Linear, Projection
from nmt.nn.matmul import product


class LstmState(NamedTuple):
    """What an LSTM keeps between two steps. output: (N, R) h; cell: (N, H) c, float32"""

    output: Tensor
    cell: Tensor


@dataclass(frozen=True)
class LstmForm:
    """What an LSTM computes besides the equations that all of them share.

    output_tanh: h = o * tanh(c), the standard; else h = o * c (GNMT, equation 11)
    peepholes: the gates see the cell through diagonal matrices (Gers et al., 2002)
    projection: R, to which a matrix projects the outputs (Sak et al., 2014); None for H
    """

    output_tanh: bool = True
    peepholes: bool = False
    projection: int | None = None


class LstmCell(nn.Module):
    """The recurrent part of an LSTM, for gates (..., 4 H) that the inputs have given already."""

    is_recurrent = True
    peepholes: nn.Parameter | None
    projection: Linear | None

    def __init__(self, hidden: int, form: LstmForm) -> None:
        super().__init__()
        self.hidden, self.form, self.width = hidden, form, form.projection or hidden
        self.recurrent = Linear(self.width, 4 * hidden, bias=False)
        self.recurrent.is_recurrent = True
        self.peepholes = nn.Parameter(torch.zeros(3, hidden)) if form.peepholes else None  # output, input, forget
        self.projection = Linear(hidden, form.projection, bias=False) if form.projection else None

    def initial(self, rows: int, like: Tensor) -> LstmState:
        """The state before the first step, zeros: of N rows, with the type and device of `like`."""
        return LstmState(like.new_zeros(rows, self.width), like.new_zeros(rows, self.hidden, dtype=torch.float32))

    def forward(self, gates: Tensor, clip: float = math.inf, reverse: bool = False) -> Tensor:
        """All steps from a state of zeros: (T, B, 4 H) -> the outputs (T, B, R).

        clip: greatest size of a number of the cell; reverse: from the last position to the first
        """
        outputs: Tensor = fastest(self.all_steps, gates)(gates, clip, reverse)
        return outputs

    @has_kernel("lstm-steps")
    def all_steps(self, gates: Tensor, clip: float, reverse: bool) -> Tensor:
        """See `forward`."""
        weights, state, outputs = self.weights(gates.dtype), self.initial(gates.shape[1], gates), []
        with torch.autocast(gates.device.type, enabled=False):
            for own in reversed(gates.unbind(0)) if reverse else gates.unbind(0):
                state = self.update(own, state, weights, clip)
                outputs.append(state.output)
        return torch.stack(outputs[::-1] if reverse else outputs)

    def step(self, gates: Tensor, state: LstmState, clip: float = math.inf) -> LstmState:
        """One step: gates (N, 4 H) and the state before it -> the state after it."""
        return self.update(gates, state, CellWeights(self.recurrent, self.peepholes, self.projection), clip)

    def weights(self, dtype: torch.dtype) -> "CellWeights":
        """The weights for all steps of a sequence, looked up and cast once."""
        peepholes = None if self.peepholes is None else self.peepholes.unbind(0)
        projection = None if self.projection is None else product_with(self.projection, dtype)
        return CellWeights(product_with(self.recurrent, dtype), peepholes, projection)

    def update(self, gates: Tensor, state: LstmState, weights: "CellWeights", clip: float) -> LstmState:
        """The state after a step. gates: (N, 4 H), what the inputs give; state: before the step"""
        gates, cell = gates + weights.recurrent(state.output), state.cell
        o, i, f, candidate = gates.chunk(4, dim=-1)  # N H each
        if weights.peepholes is not None:
            of_output, of_input, of_forget = weights.peepholes
            i, f = i + of_input * cell, f + of_forget * cell
        cell = f.sigmoid() * cell + i.sigmoid() * candidate.tanh()
        cell = cell if clip == math.inf else cell.clamp(-clip, clip)
        if weights.peepholes is not None:
            o = o + of_output * cell
        output = (o.sigmoid() * (cell.tanh() if self.form.output_tanh else cell)).to(gates.dtype)
        return LstmState(output if weights.projection is None else weights.projection(output), cell)


class CellWeights(NamedTuple):
    """What each step multiplies by. peepholes: of the output, input and forget gate, (H,) each"""

    recurrent: Projection
    peepholes: Tensor | tuple[Tensor, ...] | None
    projection: Projection | None


def product_with(layer: Linear, dtype: torch.dtype) -> Projection:
    """The product with a layer's weight, which is looked up and cast to this type once."""
    if torch.is_grad_enabled() and isinstance(layer, nn.Linear):
        return partial(product, weight=layer.weight.to(dtype))
    return layer.search_step()


def pack_states(states: Mapping[str, LstmState]) -> dict[str, Tensor]:
    """The states of LSTMs as the tensors `NAME.output` and `NAME.cell` of a search."""
    return {f"{name}.{part}": tensor for name, state in states.items() for part, tensor in state._asdict().items()}


def unpack_state(tensors: Mapping[str, Tensor], name: object) -> LstmState:
    """The state of one LSTM from the tensors of `pack_states`."""
    return LstmState(tensors[f"{name}.output"], tensors[f"{name}.cell"])


class Lstm(nn.Module):
    """A layer of LSTM over a whole sequence, or one step of it."""

    def __init__(self, inputs: int, hidden: int, form: LstmForm, bias: bool = True) -> None:
        super().__init__()
        self.inputs = Linear(inputs, 4 * hidden, bias=bias)
        self.cell = LstmCell(hidden, form)

    def forward(
        self, vectors: Tensor, padding: Tensor | None = None, clip: float = math.inf, reverse: bool = False
    ) -> Tensor:
        """(T, B, M) -> (T, B, R). padding: (T, B), True where a state is to stay zero, before the first real position

        See LstmCell for clip and reverse.
        """
        gates = self.inputs(vectors)
        if padding is not None:
            close_input_gates(gates, padding)
        outputs: Tensor = self.cell(gates, clip, reverse)
        return outputs

    def step(self, vectors: Tensor, state: LstmState, clip: float = math.inf) -> LstmState:
        """One step: vectors (N, M) and the state before it -> the state after it."""
        return self.cell.step(self.inputs(vectors), state, clip)


def close_input_gates(gates: Tensor, padding: Tensor) -> None:
    """Set input gates to exactly 0, in place, so that a cell of zeros stays zero. gates: (T, B, 4 H); padding: (T, B)"""
    H = gates.shape[-1] // 4
    gates[..., H : 2 * H].masked_fill_(padding[:, :, None], -math.inf)
