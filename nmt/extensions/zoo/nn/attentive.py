"""An LSTM layer whose input contains the context that additive attention selects by the previous output.

The context enters only through a matrix, so the memory is multiplied by it once (`project_memory`) and each step sums the
products.
Dimensions: T target and S source positions, B sentences, H of a cell, R of an output, A of the attention, N = B * W rows.
"""

import math

import torch
from torch import Tensor, nn

from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.lstm import LstmCell, LstmForm, LstmState, product_with
from nmt.kernels.base import fastest, has_kernel
from nmt.nn.linear import Linear


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
        states: tuple[Tensor, Tensor] = fastest(self.all_steps, gates)(gates, keys, values, mask, clip)
        return states

    @has_kernel("attentive-lstm-steps")
    def all_steps(
        self, gates: Tensor, keys: Tensor, values: Tensor, mask: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        """See `forward`."""
        query = product_with(self.attention.query, keys.dtype)
        of_cell, state = self.cell.weights(gates.dtype), self.cell.initial(gates.shape[1], gates)
        outputs, weights = [], []
        with torch.autocast(gates.device.type, enabled=False):
            for own in gates.unbind(0):
                context, step_weights = self._read(query(state.output), keys, values, mask)
                state = self.cell.update(own + context, state, of_cell, clip)
                outputs.append(state.output)
                weights.append(step_weights)
        return torch.stack(outputs), torch.cat(weights, 1)

    def step(
        self, gates: Tensor, state: LstmState, keys: Tensor, values: Tensor, mask: Tensor, clip: float = math.inf
    ) -> tuple[LstmState, Tensor]:
        """One step: gates (N, 4 H) and the state before it -> the state after it, and the weights (B, N / B, S)."""
        context, weights = self._read(self.attention.query(state.output), keys, values, mask)
        return self.cell.step(gates + context, state, clip), weights

    def _read(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """query: (N, A) -> the context's share of the gates (N, 4 H), and the attention weights (B, N / B, S)"""
        weights = self.attention.weights(query, keys, mask)
        return (weights.to(values.dtype) @ values).flatten(0, 1), weights
