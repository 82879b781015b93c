"""LSTM layers with hand-written gradients: a single product over all steps gives the gradient of each weight.

Autograd would compute a product and a sum for each step. The layers still loop over the steps with torch operations.
Dimensions: T positions, B sentences, S source positions, H cell width, R output width, A attention width.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt import register
from nmt.kernels.base import Kernel
from nmt.nn.matmul import product
from nmt.options import NoOptions


class _OfFloatWeights(Kernel):
    """A kernel for float weights in training. Weights in other formats, such as int8, have no gradient."""

    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """See Kernel."""
        return torch.is_grad_enabled() and isinstance(getattr(owner, "cell", owner).recurrent, nn.Linear)


@register("kernel", "lstm-steps", NoOptions)
class FastLstm(_OfFloatWeights):
    """The gradient of an LSTM over a sequence, with a single product for the recurrent weights instead of one per step."""

    def compute(self, owner: Any, *given: Any) -> Any:
        """See Kernel. given: gates (T, B, 4 H), clip, reverse; returns the outputs (T, B, R)"""
        gates, clip, reverse = given
        weights = owner.recurrent.weight, owner.peepholes, getattr(owner.projection, "weight", None)
        return _Unrolled.apply(gates, *weights, owner.form, clip, reverse)  # type: ignore[no-untyped-call]


@register("kernel", "attentive-lstm-steps", NoOptions)
class FastAttentiveLstm(_OfFloatWeights):
    """The gradient of an LSTM with attention in each step, with a single product per weight instead of one per step."""

    def compute(self, owner: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """See Kernel. given: gates (T, B, 4 H), keys, values, mask, clip; returns outputs (T, B, R), weights (B, T, S)"""
        (gates, keys, values, mask, clip), cell, attention = given, owner.cell, owner.attention
        recurrent = torch.cat([attention.query.weight, cell.recurrent.weight])  # A+4H R
        tensors = recurrent, attention.direction, ~mask, cell.peepholes, getattr(cell.projection, "weight", None)
        settings = cell.form, attention.form == "sum", clip
        outputs, weights = _AttentiveUnrolled.apply(gates, keys, values, *tensors, *settings)  # type: ignore[no-untyped-call]
        return outputs, weights.transpose(0, 1)


def of_weight(gradients: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a weight (Y, X), summed over all steps. gradients: (T, B, Y) of its products; inputs: (T, B, X)"""
    return gradients.flatten(0, 1).to(weight.dtype).t() @ inputs.flatten(0, 1).to(weight.dtype)


def previous(states: Tensor, reverse: bool) -> Tensor:
    """The state before each step, given the states (T, ...) after each step. It is 0 before the first step that is read."""
    zeros = torch.zeros_like(states[:1])
    return torch.cat([states[1:], zeros] if reverse else [zeros, states[:-1]])


@dataclass
class Tape:
    """The activations of a cell at all steps, as needed by its backward pass.

    gates: (T, B, 4 H), after activation; cells: (T, B, H) float32; outputs: (T, B, R)
    """

    gates: Tensor
    cells: Tensor
    outputs: Tensor
    peepholes: Tensor | None
    projection: Tensor | None
    form: Any
    clip: float

    @classmethod
    def empty(
        cls, gates: Tensor, peepholes: Tensor | None, projection: Tensor | None, form: Any, clip: float
    ) -> "Tape":
        """A tape without steps for gates (T, B, 4 H) that were computed from the inputs."""
        T, B, H = *gates.shape[:2], gates.shape[2] // 4
        cells = gates.new_empty(T, B, H, dtype=torch.promote_types(gates.dtype, torch.float32))
        outputs = gates.new_empty(T, B, form.projection or H)
        return cls(torch.empty_like(gates), cells, outputs, peepholes, projection, form, clip)

    @cached_property
    def _cast_projection(self) -> Tensor | None:
        return None if self.projection is None else self.projection.to(self.outputs.dtype)

    def zeros(self) -> tuple[Tensor, Tensor]:
        """The output and the cell before the first step."""
        return torch.zeros_like(self.outputs[0]), torch.zeros_like(self.cells[0])

    def update(self, t: int, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Compute step t. Its gates must be set, but not yet activated. cell: (B, H) before the step; returns output and cell"""
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
        if self._cast_projection is None:
            return torch.mul(o, squashed, out=self.outputs[t]), after
        self.outputs[t] = product((o * squashed).to(self.outputs.dtype), self._cast_projection)
        return self.outputs[t], after


class TapeGradient:
    """The backward pass of a tape, step by step, starting with the last step that was read.

    gates: (T, B, 4 H), receives the gradients of the gates before activation
    """

    def __init__(self, tape: Tape, gates: Tensor, reverse: bool) -> None:
        self.tape, self.gates = tape, gates
        o, i, f, candidate = tape.gates.chunk(4, dim=-1)
        self.before = previous(tape.cells, reverse)
        self.squashed = tape.cells.tanh() if tape.form.output_tanh else tape.cells
        # The gradient of a gate is one of these factors times the gradient of the output (for o) or the cell (other gates).
        factors = torch.stack([o * (1 - o), i * (1 - i), f * (1 - f), 1 - candidate * candidate], 2)  # T B 4 H
        factors *= torch.stack([self.squashed, candidate.to(self.before), self.before, i.to(self.before)], 2)
        self.to_cell = o * (1 - self.squashed * self.squashed) if tape.form.output_tanh else o
        self.kept = f  # fraction of the cell's gradient that the previous step's cell gets
        if tape.clip != math.inf:
            inside = tape.cells.abs() < tape.clip  # clipped values have no gradient
            factors[:, :, 1:] *= inside[:, :, None]
            self.kept = f * inside
        self.factors, self.of_cell = factors, torch.zeros_like(tape.cells[0])
        self.of_outputs = torch.empty_like(tape.outputs) if tape.projection is not None else None

    def step(self, t: int, gradient: Tensor) -> Tensor:
        """Return the gradient of step t's gates (B, 4 H). gradient: (B, R), gradient of step t's output"""
        tape, gates = self.tape, self.gates[t].unflatten(1, (4, -1))  # B 4 H
        if tape.projection is not None and self.of_outputs is not None:
            self.of_outputs[t] = gradient
            gradient = gradient @ tape.projection.to(gradient.dtype)
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
        """The gradients of the peepholes and the projection, after all steps."""
        tape, of_peepholes, of_projection = self.tape, None, None
        o, i, f, _ = self.gates.chunk(4, dim=-1)
        if tape.peepholes is not None:
            products = o * tape.cells, i * self.before, f * self.before
            of_peepholes = torch.stack([product.sum((0, 1)) for product in products]).to(tape.peepholes.dtype)
        if tape.projection is not None and self.of_outputs is not None:
            outputs = tape.gates.chunk(4, dim=-1)[0] * self.squashed
            of_projection = of_weight(self.of_outputs, outputs, tape.projection)
        return of_peepholes, of_projection


class _Unrolled(torch.autograd.Function):
    """All steps of a cell. Returns the outputs (T, B, R)."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        recurrent: Tensor,
        peepholes: Tensor | None,
        projection: Tensor | None,
        form: Any,
        clip: float,
        reverse: bool,
    ) -> Tensor:
        with torch.autocast(gates.device.type, enabled=False):
            tape, weight = Tape.empty(gates, peepholes, projection, form, clip), recurrent.to(gates.dtype)
            state, cell = tape.zeros()
            for t in range(len(gates))[:: -1 if reverse else 1]:
                torch.add(product(state, weight), gates[t], out=tape.gates[t])
                state, cell = tape.update(t, cell)
        ctx.save_for_backward(recurrent, peepholes, projection, tape.gates, tape.cells, tape.outputs)
        ctx.settings = form, clip, reverse
        return tape.outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, peepholes, projection, gates, cells, outputs = ctx.saved_tensors
        form, clip, reverse = ctx.settings
        with torch.autocast(gradient.device.type, enabled=False):
            tape, weight = Tape(gates, cells, outputs, peepholes, projection, form, clip), recurrent.to(gradient.dtype)
            back = TapeGradient(tape, torch.empty_like(gates), reverse)
            of_state: Tensor | None = None
            for t in range(len(gradient))[:: 1 if reverse else -1]:
                total = gradient[t] if of_state is None else of_state.add_(gradient[t])
                of_state = back.step(t, total) @ weight
            of_recurrent = of_weight(back.gates, previous(outputs, reverse), recurrent)
            return back.gates, of_recurrent, *back.weights(), None, None, None


class _AttentiveUnrolled(torch.autograd.Function):
    """All steps of an LSTM with attention in each step. Returns outputs (T, B, R) and attention weights (T, B, S).

    recurrent: (A + 4 H, R), the matrices for the query and the gates
    is_sum: whether energies are v . tanh(q + k) instead of v . (tanh(q) * k)
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        keys: Tensor,
        values: Tensor,
        recurrent: Tensor,
        energy: Tensor,
        padding: Tensor,
        peepholes: Tensor | None,
        projection: Tensor | None,
        form: Any,
        is_sum: bool,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        (T, B, _), (_, S, A) = gates.shape, keys.shape
        with torch.autocast(gates.device.type, enabled=False):
            weight, v = recurrent.to(gates.dtype), energy.to(keys.dtype)
            tape = Tape.empty(gates, peepholes, projection, form, clip)
            state, cell = tape.zeros()
            weights = tape.cells.new_empty(T, B, S)
            hidden = keys.new_empty((T, B, S, A) if is_sum else (T, B, A))
            for t in range(T):
                query, own = product(state, weight).split([A, gates.shape[2]], dim=1)
                if is_sum:
                    energies = torch.add(keys, query[:, None], out=hidden[t]).tanh_() @ v  # B S
                else:
                    torch.tanh(query, out=hidden[t])
                    energies = (keys @ (hidden[t] * v)[:, :, None])[:, :, 0]
                energies = energies.masked_fill_(padding, torch.finfo(energies.dtype).min).to(weights.dtype)
                torch.softmax(energies, 1, out=weights[t])
                context = weights[t].to(values.dtype)[:, None] @ values  # B 1 4H
                torch.add(own, gates[t], out=tape.gates[t]).add_(context[:, 0])
                state, cell = tape.update(t, cell)
        saved = keys, values, recurrent, energy, peepholes, projection, weights, hidden
        ctx.save_for_backward(*saved, tape.gates, tape.cells, tape.outputs)
        ctx.settings = form, is_sum, clip
        return tape.outputs, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # accessed only once, because a recomputed pass provides the tensors only once
        keys, values, recurrent, energy, peepholes, projection, weights, hidden, gates, cells, outputs = saved
        form, is_sum, clip = ctx.settings
        A = len(energy)
        with torch.autocast(gradient.device.type, enabled=False):
            tape, weight = Tape(gates, cells, outputs, peepholes, projection, form, clip), recurrent.to(gates.dtype)
            products = gates.new_empty(*gates.shape[:2], len(weight))  # T B A+4H: gradients of the recurrent products
            back = TapeGradient(tape, products[:, :, A:], reverse=False)
            attention = (_SumGradient if is_sum else _ProductGradient)(keys, energy, hidden)
            of_state: Tensor | None = None
            for t in reversed(range(len(gates))):
                of_gates = back.step(t, gradient[t] if of_state is None else of_state.add_(gradient[t]))  # B 4H
                of_context = of_weights[t] + (values @ of_gates[:, :, None])[:, :, 0]  # B S
                of_energies = weights[t] * (of_context - (weights[t] * of_context).sum(1, keepdim=True))
                products[t, :, :A] = attention.step(t, of_energies.to(keys.dtype))
                of_state = products[t] @ weight
            of_recurrent = of_weight(products, previous(outputs, reverse=False), recurrent)
            of_keys, of_energy = attention.finish()
            of_values = weights.to(values.dtype).permute(1, 2, 0) @ back.gates.transpose(0, 1)  # B S 4H
        of_tensors = back.gates, of_keys, of_values, of_recurrent, of_energy.to(energy.dtype), None
        return *of_tensors, *back.weights(), None, None, None


class _SumGradient:
    """The backward pass of v . tanh(q + k), step by step. hidden: (T, B, S, A) tanh(q + k)"""

    def __init__(self, keys: Tensor, energy: Tensor, hidden: Tensor) -> None:
        self.energy, self.hidden = energy.to(keys.dtype), hidden
        self.of_keys, self.of_energies = torch.zeros_like(keys), hidden.new_empty(hidden.shape[:3])

    def step(self, t: int, of_energies: Tensor) -> Tensor:
        """Return the gradient of the query, (B, A). of_energies: (B, S), gradient of the energies"""
        self.of_energies[t] = of_energies
        slope = 1 - self.hidden[t] * self.hidden[t]  # B S A
        self.of_keys.addcmul_(slope, of_energies[:, :, None])
        return (of_energies[:, None] @ slope)[:, 0] * self.energy

    def finish(self) -> tuple[Tensor, Tensor]:
        """The gradients of the keys (B, S, A) and of v (A,), after all steps."""
        return self.of_keys * self.energy, self.of_energies.flatten() @ self.hidden.flatten(0, 2)


class _ProductGradient:
    """The backward pass of v . (tanh(q) * k), step by step. hidden: (T, B, A) tanh(q)"""

    def __init__(self, keys: Tensor, energy: Tensor, hidden: Tensor) -> None:
        self.keys, self.energy, self.hidden = keys, energy.to(keys.dtype), hidden
        self.of_energies = hidden.new_empty(*hidden.shape[:2], keys.shape[1])
        self.of_products = torch.empty_like(hidden)

    def step(self, t: int, of_energies: Tensor) -> Tensor:
        """Return the gradient of the query, (B, A). of_energies: (B, S), gradient of the energies"""
        self.of_energies[t] = of_energies
        self.of_products[t] = (of_energies[:, None] @ self.keys)[:, 0]
        return self.of_products[t] * self.energy * (1 - self.hidden[t] * self.hidden[t])

    def finish(self) -> tuple[Tensor, Tensor]:
        """The gradients of the keys (B, S, A) and of v (A,), after all steps."""
        queries = (self.hidden * self.energy).transpose(0, 1)  # B T A
        return self.of_energies.permute(1, 2, 0) @ queries, (self.of_products * self.hidden).sum((0, 1))
