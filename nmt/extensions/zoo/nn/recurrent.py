"""Gated recurrent units with additive attention (Bahdanau, Cho and Bengio, 2014, appendix A).

torch's GRU resets the product U h and has two biases per gate. The paper's GRU resets h before the product and has one bias.

Dimensions: B sentences, S source positions, widths M of an input, H of a state, A of the attention, N rows of a step.
"""

import torch
from torch import Tensor, nn

from nmt.extensions.zoo.nn.additive import additive_weights
from nmt.nn.linear import Linear


def interpolate(state: Tensor, candidate: Tensor, update: Tensor) -> Tensor:
    """Compute (1 - z) * h + z * h~ (appendix A.1.1), in the precision of the state."""
    return torch.lerp(state, candidate.to(state.dtype), update.to(state.dtype))


def orthogonal_blocks(weight: Tensor) -> None:
    """Initialise each square block of weight (H, k * H) with a random orthogonal matrix (appendix B.1)."""
    for block in torch.split(weight, weight.shape[0], dim=1):
        nn.init.orthogonal_(block)


class BidirectionalGru(nn.Module):
    """A GRU from left to right and a GRU from right to left, computed together in one loop."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.inputs = Linear(inputs, 2 * 3 * hidden)  # for each direction: update, reset, candidate
        self.gates = nn.Parameter(torch.empty(2, hidden, 2 * hidden))  # update, reset
        self.candidate = nn.Parameter(torch.empty(2, hidden, hidden))
        for direction in range(2):
            orthogonal_blocks(self.gates.data[direction])
            orthogonal_blocks(self.candidate.data[direction])

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Compute (B, S, M) -> (B, S, 2 H), the left-to-right state first. mask: (B, S), False at padding

        Padding leaves a state unchanged, so that the right-to-left GRU starts with the last token of each sentence.
        """
        inputs = _stack_directions(*self.inputs(vectors).chunk(2, dim=-1))  # (S, 2, B, 3 H)
        padding = _stack_directions(~mask, ~mask).unsqueeze(-1)  # (S, 2, B, 1)
        inputs[..., : self.hidden].masked_fill_(padding, float("-inf"))  # makes the update gate exactly 0
        gate_inputs, candidate_inputs = torch.split(inputs, [2 * self.hidden, self.hidden], dim=-1)
        state = vectors.new_zeros(2, len(vectors), self.hidden)
        states = []
        for gates, candidate in zip(gate_inputs.unbind(0), candidate_inputs.unbind(0), strict=True):
            update, reset = torch.baddbmm(gates, state, self.gates).sigmoid().chunk(2, dim=-1)
            state = interpolate(state, torch.baddbmm(candidate, reset * state, self.candidate).tanh(), update)
            states.append(state)
        forwards, backwards = torch.stack(states).unbind(1)  # (S, B, H)
        return torch.cat([forwards, backwards.flip(0)], dim=-1).transpose(0, 1)  # (B, S, 2 H)


def _stack_directions(forwards: Tensor, backwards: Tensor) -> Tensor:
    """Stack two tensors (B, S, ...) into (S, 2, B, ...), the second one in reverse order."""
    return torch.stack([forwards.transpose(0, 1), backwards.transpose(0, 1).flip(0)], dim=1)


class AttentiveGruCell(nn.Module):
    """A GRU cell that reads a token and a context, computed by additive attention with the state as the query (appendix A.2.2).

    The context is only used in products with matrices. So the memory is multiplied by them once (`project_memory`), and each
    step sums the products.
    """

    def __init__(self, hidden: int, memory: int, attention: int) -> None:
        super().__init__()
        self.widths = [attention, 2 * hidden]
        self.recurrent = nn.Parameter(torch.empty(hidden, attention + 2 * hidden))  # query, update, reset
        self.candidate = nn.Parameter(torch.empty(hidden, hidden))
        self.keys = Linear(memory, attention, bias=False)  # U_a
        self.values = Linear(memory, 3 * hidden, bias=False)  # C_z, C_r, C
        self.energy = nn.Parameter(torch.zeros(attention))  # v_a
        nn.init.normal_(self.keys.weight, std=0.001)
        nn.init.normal_(self.recurrent.data[:, :attention], std=0.001)  # W_a
        orthogonal_blocks(self.recurrent.data[:, attention:])
        orthogonal_blocks(self.candidate.data)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory (B, S, M) to keys (B, S, A) and values (B, S, 3 H)."""
        return self.keys(memory), self.values(memory)

    def forward(
        self, token: Tensor, state: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run one step, with attention queried by the previous state.

        token: (N, 3 H), projected embedding for update, reset and candidate
        state: (N, H)
        mask: (B, S)
        returns: the next state (N, H), and the attention weights (B, N / B, S)
        """
        query, gates = torch.split(state @ self.recurrent, self.widths, dim=-1)
        weights = additive_weights(query, keys, self.energy, mask)  # (B, W, S)
        inputs = token + (weights.to(values.dtype) @ values).flatten(0, 1)  # (N, 3 H)
        gate_inputs, candidate_inputs = torch.split(inputs, [gates.shape[-1], state.shape[-1]], dim=-1)
        update, reset = (gates + gate_inputs).sigmoid().chunk(2, dim=-1)
        candidate = torch.addmm(candidate_inputs, reset * state, self.candidate).tanh()
        return interpolate(state, candidate, update), weights
