"""An LSTM layer whose input contains the context that additive attention selects by the previous output.

The context enters only through a matrix, so the memory is multiplied by it once (`project_memory`) and each step sums the
products. One tape of activations gives the gradient of each weight by one product over all steps.
Dimensions: T target and S source positions, B sentences, H of a cell, R of an output, A of the attention, N = B * W rows.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.extensions.zoo.nn.additive import AdditiveAttention, AdditiveForm
from nmt.extensions.zoo.nn.lstm import LstmCell, LstmForm, LstmState, Tape, TapeGradient, previous, product_with, steps
from nmt.nn.linear import Linear
from nmt.nn.matmul import add_product, product, product_back


class AttentiveLstm(nn.Module):
    """An LSTM layer over [token; context], with attention queried by its output of the step before.

    attention: whose queries are the outputs and whose memory gives the contexts
    bias: of the gates
    """

    def __init__(
        self, inputs: int, memory: int, hidden: int, form: LstmForm, attention: AdditiveAttention, bias: bool = True
    ) -> None:
        super().__init__()
        self.inputs = Linear(inputs, 4 * hidden, bias=bias)
        self.context = Linear(memory, 4 * hidden, bias=False)
        self.cell = LstmCell(hidden, form)
        self.attention = attention

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory: (B, S, M) -> its keys (B, S, A), and its values (B, S, 4 H) for the gates"""
        return self.attention.project_memory(memory), self.context(memory)

    def forward(
        self, gates: Tensor, keys: Tensor, values: Tensor, mask: Tensor, clip: float = math.inf
    ) -> tuple[Tensor, Tensor]:
        """All steps from a state of zeros.

        gates: (T, B, 4 H) `inputs` of the tokens; keys, values: of the memory; mask: (B, S), False at padding
        returns: the outputs (T, B, R), and the attention weights (B, T, S)
        """
        cell, energy = self.cell, self.attention.direction
        if torch.is_grad_enabled() and isinstance(cell.recurrent, Linear):
            recurrent = torch.cat([self.attention.query.weight, cell.recurrent.weight])  # A+4H R
            projection = None if cell.projection is None else cell.projection.weight
            settings = cell.form, self.attention.form, clip
            tensors = gates, keys, values, recurrent, energy, ~mask, cell.peepholes, projection
            outputs, weights = _AttentiveUnrolled.apply(*tensors, *settings)  # type: ignore[no-untyped-call]
            return outputs, weights.transpose(0, 1)
        state, all_outputs, all_weights = cell.initial(gates.shape[1], gates), [], []
        for step_gates in gates.unbind(0):
            state, step_weights = self.step(step_gates, state, keys, values, mask, clip)
            all_outputs.append(state.output)
            all_weights.append(step_weights)
        return torch.stack(all_outputs), torch.cat(all_weights, 1)

    def step(
        self, gates: Tensor, state: LstmState, keys: Tensor, values: Tensor, mask: Tensor, clip: float = math.inf
    ) -> tuple[LstmState, Tensor]:
        """One step: gates (N, 4 H) and the state before it -> the state after it, and the weights (B, N / B, S)."""
        weights = self.attention(state.output, keys, mask)  # B W S
        context = (weights.to(values.dtype) @ values).flatten(0, 1)  # N 4H
        return self.cell.step(gates + context, state, clip), weights


class _AttentiveUnrolled(torch.autograd.Function):
    """All steps of an AttentiveLstm: outputs (T, B, R) and weights (T, B, S)."""

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
        form: LstmForm,
        attention_form: AdditiveForm,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        (T, B, _), (_, S, A) = gates.shape, keys.shape
        with torch.autocast(gates.device.type, enabled=False):
            weight, v = recurrent.to(gates.dtype), energy.to(keys.dtype)
            tape = Tape.empty(gates, peepholes, product_with(projection, gates), form, clip)
            state, cell = tape.zeros()
            weights = tape.cells.new_empty(T, B, S)
            hidden = keys.new_empty((T, B, S, A) if attention_form == "sum" else (T, B, A))
            for t in range(T):
                query, own = product(state, weight).split([A, gates.shape[2]], dim=1)
                if attention_form == "sum":
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
        ctx.settings = form, attention_form, clip
        return tape.outputs, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: a recomputed pass gives them once
        keys, values, recurrent, energy, peepholes, projection, weights, hidden, gates, cells, outputs = saved
        form, attention_form, clip = ctx.settings
        A, gradient_of = len(energy), _SumGradient if attention_form == "sum" else _ProductGradient
        with torch.autocast(gradient.device.type, enabled=False):
            weight = recurrent.to(gates.dtype)
            tape = Tape(gates, cells, outputs, peepholes, None, form, clip)
            products = gates.new_empty(*gates.shape[:2], len(weight))  # T B A+4H: gradients of the recurrent products
            back = TapeGradient(tape, projection, products[:, :, A:], reverse=False)
            attention = gradient_of(keys, energy, hidden)
            of_state: Tensor | None = None
            for t in steps(len(gates), reverse=True):
                of_gates = back.step(t, gradient[t] if of_state is None else of_state.add_(gradient[t]))  # B 4H
                of_context = of_weights[t] + (values @ of_gates[:, :, None])[:, :, 0]  # B S
                of_energies = weights[t] * (of_context - (weights[t] * of_context).sum(1, keepdim=True))
                products[t, :, :A] = attention.step(t, of_energies.to(keys.dtype))
                of_state = product_back(products[t], weight)
            of_recurrent = torch.zeros_like(recurrent)
            inputs = previous(outputs, reverse=False).to(recurrent.dtype)
            add_product(of_recurrent, products.flatten(0, 1).to(recurrent.dtype), inputs.flatten(0, 1))
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
        """of_energies: (B, S) -> the gradient of the query, (B, A)"""
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
        """of_energies: (B, S) -> the gradient of the query, (B, A)"""
        self.of_energies[t] = of_energies
        self.of_products[t] = (of_energies[:, None] @ self.keys)[:, 0]
        return self.of_products[t] * self.energy * (1 - self.hidden[t] * self.hidden[t])

    def finish(self) -> tuple[Tensor, Tensor]:
        """The gradients of the keys (B, S, A) and of v (A,), after all steps."""
        queries = (self.hidden * self.energy).transpose(0, 1)  # B T A
        return self.of_energies.permute(1, 2, 0) @ queries, (self.of_products * self.hidden).sum((0, 1))
