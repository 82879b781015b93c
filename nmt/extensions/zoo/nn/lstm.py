"""Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), with or without the parts that papers vary.

Time comes first, as in torch's nn.LSTM. Gates stand in the order output, input, forget, candidate, so that one operation
serves neighbours. Between two steps only the state passes on: products with the inputs cover all positions at once.
Dimensions: T positions, B sentences, M width of an input, H of a cell, R of an output (H without projection), N rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.nn.linear import Linear, Projection
from nmt.nn.matmul import add_product, product, product_back


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
        if torch.is_grad_enabled() and isinstance(self.recurrent, Linear):
            projection = None if self.projection is None else self.projection.weight
            weights = self.recurrent.weight, self.peepholes, projection
            outputs: Tensor = _Unrolled.apply(gates, *weights, self.form, clip, reverse)  # type: ignore[no-untyped-call]
            return outputs
        with torch.no_grad():
            project = None if self.projection is None else self.projection.prepared()
            tape = Tape.empty(gates, self.peepholes, project, self.form, clip)
            tape.record(gates, self.recurrent.prepared(), reverse)
        return tape.outputs

    def step(self, gates: Tensor, state: LstmState, clip: float = math.inf) -> LstmState:
        """One step: gates (N, 4 H) and the state before it -> the state after it."""
        gates, cell = gates + self.recurrent(state.output), state.cell
        o, i, f, candidate = gates.chunk(4, dim=-1)  # N H each
        if self.peepholes is not None:
            i, f = i + self.peepholes[1] * cell, f + self.peepholes[2] * cell
        cell = f.sigmoid() * cell + i.sigmoid() * candidate.tanh()
        cell = cell if clip == math.inf else cell.clamp(-clip, clip)
        if self.peepholes is not None:
            o = o + self.peepholes[0] * cell
        output = (o.sigmoid() * (cell.tanh() if self.form.output_tanh else cell)).to(gates.dtype)
        return LstmState(output if self.projection is None else self.projection(output), cell)


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


def steps(length: int, reverse: bool) -> range:
    """The positions in the order in which they are read."""
    return range(length - 1, -1, -1) if reverse else range(length)


def previous(states: Tensor, reverse: bool) -> Tensor:
    """(T, ...) -> the states that each step began with, zeros for the first one read."""
    zeros = torch.zeros_like(states[:1])
    return torch.cat([states[1:], zeros] if reverse else [zeros, states[:-1]])


class _Unrolled(torch.autograd.Function):
    """All steps of a cell; backwards, one product over all steps gives the gradient of the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        recurrent: Tensor,
        peepholes: Tensor | None,
        projection: Tensor | None,
        form: LstmForm,
        clip: float,
        reverse: bool,
    ) -> Tensor:
        with torch.autocast(gates.device.type, enabled=False):
            tape = Tape.empty(gates, peepholes, product_with(projection, gates), form, clip)
            tape.record(gates, partial(product, weight=recurrent.to(gates.dtype)), reverse)
        ctx.save_for_backward(recurrent, peepholes, projection, tape.gates, tape.cells, tape.outputs)
        ctx.settings = form, clip, reverse
        return tape.outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, peepholes, projection, gates, cells, outputs = ctx.saved_tensors
        form, clip, reverse = ctx.settings
        with torch.autocast(gradient.device.type, enabled=False):
            tape = Tape(gates, cells, outputs, peepholes, None, form, clip)
            weight = recurrent.to(gradient.dtype)
            back = TapeGradient(tape, projection, torch.empty_like(gates), reverse)
            of_state: Tensor | None = None
            for t in steps(len(gradient), not reverse):
                total = gradient[t] if of_state is None else of_state.add_(gradient[t])
                of_state = product_back(back.step(t, total), weight)
            of_recurrent = torch.zeros_like(recurrent)
            inputs = previous(tape.outputs, reverse).to(recurrent.dtype)
            add_product(of_recurrent, back.gates.flatten(0, 1).to(recurrent.dtype), inputs.flatten(0, 1))
            return back.gates, of_recurrent, *back.weights(), None, None, None


def product_with(weight: Tensor | None, like: Tensor) -> Projection | None:
    """The product with a weight (Y, X) in the type of `like`; None for no weight."""
    return None if weight is None else partial(product, weight=weight.to(like.dtype))


@dataclass
class Tape:
    """The activations of a cell at all steps, which its backward pass needs.

    gates: (T, B, 4 H) activated; cells: (T, B, H) float32; outputs: (T, B, R)
    project: the projection of the outputs; None for none
    """

    gates: Tensor
    cells: Tensor
    outputs: Tensor
    peepholes: Tensor | None
    project: Projection | None
    form: LstmForm
    clip: float

    @classmethod
    def empty(
        cls, gates: Tensor, peepholes: Tensor | None, project: Projection | None, form: LstmForm, clip: float
    ) -> "Tape":
        T, B, H = *gates.shape[:2], gates.shape[2] // 4
        cells = gates.new_empty(T, B, H, dtype=torch.promote_types(gates.dtype, torch.float32))
        outputs = gates.new_empty(T, B, form.projection or H)
        return cls(torch.empty_like(gates), cells, outputs, peepholes, project, form, clip)

    def record(self, gates: Tensor, recurrent: Projection, reverse: bool) -> None:
        """Make all steps. gates: (T, B, 4 H) given by the inputs"""
        state, cell = self.zeros()
        for t in steps(len(gates), reverse):
            torch.add(recurrent(state), gates[t], out=self.gates[t])
            state, cell = self.update(t, cell)

    def zeros(self) -> tuple[Tensor, Tensor]:
        """Output and cell before the first step."""
        return torch.zeros_like(self.outputs[0]), torch.zeros_like(self.cells[0])

    def update(self, t: int, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Make step t, whose gates are there but not activated. cell: (B, H) before it; returns output and cell after it"""
        gates, after, H = self.gates[t], self.cells[t], cell.shape[1]
        o, i, f, candidate = gates.chunk(4, dim=-1)
        if self.peepholes is None:
            gates[:, : 3 * H].sigmoid_()
        else:
            i.addcmul_(self.peepholes[1], cell).sigmoid_()
            f.addcmul_(self.peepholes[2], cell).sigmoid_()
        torch.mul(f, cell, out=after).addcmul_(i, candidate.tanh_())
        if self.clip != math.inf:
            after.clamp_(-self.clip, self.clip)
        if self.peepholes is not None:
            o.addcmul_(self.peepholes[0], after).sigmoid_()
        squashed = after.tanh() if self.form.output_tanh else after
        if self.project is None:
            return torch.mul(o, squashed, out=self.outputs[t]), after
        self.outputs[t] = self.project((o * squashed).to(self.outputs.dtype))
        return self.outputs[t], after


class TapeGradient:
    """The backward pass of a tape, step by step from the last one read.

    gates: (T, B, 4 H) where the gradients of the gates before activation are written
    """

    def __init__(self, tape: Tape, projection: Tensor | None, gates: Tensor, reverse: bool) -> None:
        self.tape, self.projection, self.gates = tape, projection, gates
        o, i, f, candidate = tape.gates.chunk(4, dim=-1)
        self.before = previous(tape.cells, reverse)
        self.squashed = tape.cells.tanh() if tape.form.output_tanh else tape.cells
        # The gradient of each gate is one of these factors times that of the output (o) or of the cell (all others).
        factors = torch.stack([o * (1 - o), i * (1 - i), f * (1 - f), 1 - candidate * candidate], 2)  # T B 4 H
        factors *= torch.stack([self.squashed, candidate.to(self.before), self.before, i.to(self.before)], 2)
        self.to_cell = o * (1 - self.squashed * self.squashed) if tape.form.output_tanh else o
        self.kept = f  # the share of the cell's gradient that the step before gets
        if tape.clip != math.inf:
            inside = tape.cells.abs() < tape.clip  # a clipped number has no gradient
            factors[:, :, 1:] *= inside[:, :, None]
            self.kept = f * inside
        self.factors, self.of_cell = factors, torch.zeros_like(tape.cells[0])
        self.of_outputs = torch.empty_like(tape.outputs) if projection is not None else None

    def step(self, t: int, gradient: Tensor) -> Tensor:
        """gradient: (B, R) of step t's output -> the gradient of its gates (B, 4 H)"""
        tape, gates = self.tape, self.gates[t].unflatten(1, (4, -1))  # B 4 H
        if self.projection is not None and self.of_outputs is not None:
            self.of_outputs[t] = gradient
            gradient = product_back(gradient, self.projection.to(gradient.dtype))
        torch.mul(gradient, self.factors[t, :, 0], out=gates[:, 0])
        self.of_cell.addcmul_(gradient, self.to_cell[t])
        if tape.peepholes is not None:
            self.of_cell.addcmul_(gates[:, 0], tape.peepholes[0])
        torch.mul(self.of_cell[:, None], self.factors[t, :, 1:], out=gates[:, 1:])
        self.of_cell *= self.kept[t]
        if tape.peepholes is not None:
            self.of_cell.addcmul_(gates[:, 1], tape.peepholes[1]).addcmul_(gates[:, 2], tape.peepholes[2])
        return self.gates[t]

    def weights(self) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of peepholes and projection, after all steps."""
        tape, of_peepholes, of_projection = self.tape, None, None
        o, i, f, _ = self.gates.chunk(4, dim=-1)
        if tape.peepholes is not None:
            products = o * tape.cells, i * self.before, f * self.before
            of_peepholes = torch.stack([product.sum((0, 1)) for product in products]).to(tape.peepholes.dtype)
        if self.projection is not None and self.of_outputs is not None:
            outputs = (tape.gates.chunk(4, dim=-1)[0] * self.squashed).flatten(0, 1).to(self.projection.dtype)
            of_projection = torch.zeros_like(self.projection)
            add_product(of_projection, self.of_outputs.flatten(0, 1).to(outputs.dtype), outputs)
        return of_peepholes, of_projection
