"""An LSTM layer that also reads a context, computed by additive attention with the layer's previous output as the query.

The context is only used in a product with a matrix. So the memory is multiplied by that matrix once (`project_memory`), and
each step sums the products.

Dimensions: T target and S source positions, B sentences, widths H of a cell, R of an output, A of the attention,
N = B * W rows.
"""

import math

import torch
from torch import Tensor, nn

from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.lstm import LstmCell, LstmForm, LstmState, product_with
from nmt.kernels.base import fastest, has_kernel
from nmt.nn.linear import Linear


class AttentiveLstm(nn.Module):
    """An LSTM layer over [token; context], with attention queried by its output at the previous step.

    attention: the attention from outputs to the memory
    bias: whether the gates have a bias
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
        """Project a memory (B, S, M) to keys (B, S, A) and to values (B, S, 4 H) for the gates."""
        return self.attention.project_memory(memory), self.context(memory)

    def forward(
        self, gates: Tensor, keys: Tensor, values: Tensor, mask: Tensor, clip: float = math.inf
    ) -> tuple[Tensor, Tensor]:
        """Run all steps, starting with a zero state.

        gates: (T, B, 4 H), result of `inputs` for the tokens
        keys, values: result of `project_memory`
        mask: (B, S), False at padding
        returns: the outputs (T, B, R), and the attention weights (B, T, S)
        """
        states: tuple[Tensor, Tensor] = fastest(self.all_steps, gates)(gates, keys, values, mask, clip)
        return states

    @has_kernel("attentive-lstm-steps")
    def all_steps(
        self, gates: Tensor, keys: Tensor, values: Tensor, mask: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        """See `forward`."""
        query = product_with(self.attention.query, keys.dtype)
        cell_weights, state = self.cell.weights(gates.dtype), self.cell.initial(gates.shape[1], gates)
        outputs, weights = [], []
        with torch.autocast(gates.device.type, enabled=False):
            for own in gates.unbind(0):
                context, step_weights = self._read(query(state.output), keys, values, mask)
                state = self.cell.update(own + context, state, cell_weights, clip)
                outputs.append(state.output)
                weights.append(step_weights)
        return torch.stack(outputs), torch.cat(weights, 1)

    def step(
        self, gates: Tensor, state: LstmState, keys: Tensor, values: Tensor, mask: Tensor, clip: float = math.inf
    ) -> tuple[LstmState, Tensor]:
        """Run one step: gates (N, 4 H) and the previous state -> the next state, and the weights (B, N / B, S)."""
        context, weights = self._read(self.attention.query(state.output), keys, values, mask)
        return self.cell.step(gates + context, state, clip), weights

    def _read(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The context's contribution to the gates (N, 4 H), and the attention weights (B, N / B, S). query: (N, A)"""
        weights = self.attention.weights(query, keys, mask)
        return (weights.to(values.dtype) @ values).flatten(0, 1), weights
