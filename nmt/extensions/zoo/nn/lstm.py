"""Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), with the variants that papers use.

Time is the first dimension, as in torch's nn.LSTM. The order of the gates is output, input, forget, candidate. Steps depend
on each other only through the state: products with the inputs cover all positions at once.

Dimensions: T positions, B sentences, widths M of an input, H of a cell, R of an output (H without projection), N rows.
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
    """The state of an LSTM between two steps. output: (N, R), h; cell: (N, H), c, in float32"""

    output: Tensor
    cell: Tensor


@dataclass(frozen=True)
class LstmForm:
    """The variant of an LSTM.

    output_tanh: whether h = o * tanh(c), the standard, or h = o * c (GNMT, equation 11)
    peepholes: whether the gates see the cell through diagonal matrices (Gers et al., 2002)
    projection: width R to which the outputs are projected (Sak et al., 2014); None for no projection
    """

    output_tanh: bool = True
    peepholes: bool = False
    projection: int | None = None


class LstmCell(nn.Module):
    """The recurrent part of an LSTM, for gates (..., 4 H) that have already been computed from the inputs."""

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
        """The zero state before the first step, for N rows, with the dtype and device of `like`."""
        return LstmState(like.new_zeros(rows, self.width), like.new_zeros(rows, self.hidden, dtype=torch.float32))

    def forward(self, gates: Tensor, clip: float = math.inf, reverse: bool = False) -> Tensor:
        """Run all steps, starting with a zero state: (T, B, 4 H) -> the outputs (T, B, R).

        clip: maximum magnitude of the cell's numbers
        reverse: run from the last position to the first
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
        """Run one step: gates (N, 4 H) and the previous state -> the next state."""
        return self.update(gates, state, CellWeights(self.recurrent, self.peepholes, self.projection), clip)

    def weights(self, dtype: torch.dtype) -> "CellWeights":
        """The weights for all steps of a sequence, looked up and cast only once."""
        peepholes = None if self.peepholes is None else self.peepholes.unbind(0)
        projection = None if self.projection is None else product_with(self.projection, dtype)
        return CellWeights(product_with(self.recurrent, dtype), peepholes, projection)

    def update(self, gates: Tensor, state: LstmState, weights: "CellWeights", clip: float) -> LstmState:
        """The state after a step. gates: (N, 4 H), contribution of the inputs; state: previous state"""
        gates, cell = gates + weights.recurrent(state.output), state.cell
        o, i, f, candidate = gates.chunk(4, dim=-1)  # N H each
        if weights.peepholes is not None:
            output_peephole, input_peephole, forget_peephole = weights.peepholes
            i, f = i + input_peephole * cell, f + forget_peephole * cell
        cell = f.sigmoid() * cell + i.sigmoid() * candidate.tanh()
        cell = cell if clip == math.inf else cell.clamp(-clip, clip)
        if weights.peepholes is not None:
            o = o + output_peephole * cell
        output = (o.sigmoid() * (cell.tanh() if self.form.output_tanh else cell)).to(gates.dtype)
        return LstmState(output if weights.projection is None else weights.projection(output), cell)


class CellWeights(NamedTuple):
    """The weights of each step. peepholes: (H,) each for the output, input and forget gates"""

    recurrent: Projection
    peepholes: Tensor | tuple[Tensor, ...] | None
    projection: Projection | None


def product_with(layer: Linear, dtype: torch.dtype) -> Projection:
    """A function that multiplies by a layer's weight, which is looked up and cast to `dtype` only once."""
    if torch.is_grad_enabled() and isinstance(layer, nn.Linear):
        return partial(product, weight=layer.weight.to(dtype))
    return layer.search_step()


def pack_states(states: Mapping[str, LstmState]) -> dict[str, Tensor]:
    """The states of LSTMs as tensors `NAME.output` and `NAME.cell` in the state of a search."""
    return {f"{name}.{part}": tensor for name, state in states.items() for part, tensor in state._asdict().items()}


def unpack_state(tensors: Mapping[str, Tensor], name: object) -> LstmState:
    """The state of one LSTM from the tensors of `pack_states`."""
    return LstmState(tensors[f"{name}.output"], tensors[f"{name}.cell"])


class Lstm(nn.Module):
    """An LSTM layer, for whole sequences or single steps."""

    def __init__(self, inputs: int, hidden: int, form: LstmForm, bias: bool = True) -> None:
        super().__init__()
        self.inputs = Linear(inputs, 4 * hidden, bias=bias)
        self.cell = LstmCell(hidden, form)

    def forward(
        self, vectors: Tensor, padding: Tensor | None = None, clip: float = math.inf, reverse: bool = False
    ) -> Tensor:
        """Compute (T, B, M) -> (T, B, R). padding: (T, B), True before the first token, where the state must stay zero

        See LstmCell for clip and reverse.
        """
        gates = self.inputs(vectors)
        if padding is not None:
            close_input_gates(gates, padding)
        outputs: Tensor = self.cell(gates, clip, reverse)
        return outputs

    def step(self, vectors: Tensor, state: LstmState, clip: float = math.inf) -> LstmState:
        """Run one step: vectors (N, M) and the previous state -> the next state."""
        return self.cell.step(self.inputs(vectors), state, clip)


def close_input_gates(gates: Tensor, padding: Tensor) -> None:
    """Set input gates to exactly 0 in place, so that a zero cell stays zero. gates: (T, B, 4 H); padding: (T, B)"""
    H = gates.shape[-1] // 4
    gates[..., H : 2 * H].masked_fill_(padding[:, :, None], -math.inf)
