"""Gated recurrent units and additive attention (Bahdanau, Cho and Bengio, 2014, appendix A).

torch's own GRU resets the product U h and has two biases a gate; the paper's resets h before the product and has one.
Dimensions: B sentences, S source positions, M width of an input, H of a state, A of the attention, N rows of a step.
"""

import torch
from torch import Tensor, nn

from nmt.nn.linear import Linear


def interpolated(state: Tensor, candidate: Tensor, update: Tensor) -> Tensor:
    """(1 - z) * h + z * h~, appendix A.1.1, in the precision of the state."""
    return torch.lerp(state, candidate.to(state.dtype), update.to(state.dtype))


def orthogonal_blocks(weight: Tensor) -> None:
    """A random orthogonal matrix in each square block of weight (H, k * H), as the paper begins recurrent weights."""
    for block in torch.split(weight, weight.shape[0], dim=1):
        nn.init.orthogonal_(block)


class BidirectionalGru(nn.Module):
    """A GRU over the words from left to right and one from right to left, side by side in one loop."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.inputs = Linear(inputs, 2 * 3 * hidden)  # of each direction: update, reset, candidate
        self.gates = nn.Parameter(torch.empty(2, hidden, 2 * hidden))  # update, reset
        self.candidate = nn.Parameter(torch.empty(2, hidden, hidden))
        for direction in range(2):
            orthogonal_blocks(self.gates.data[direction])
            orthogonal_blocks(self.candidate.data[direction])

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """vectors: (B, S, M); mask: (B, S), True at words. Returns (B, S, 2 H), the state left to right first.

        At padding a state stays what it was, so that the way back begins with the last word of each sentence.
        """
        inputs = _both_ways(*self.inputs(vectors).chunk(2, dim=-1))  # S 2 B 3H
        padding = _both_ways(~mask, ~mask).unsqueeze(-1)  # S 2 B 1
        inputs[..., : self.hidden].masked_fill_(padding, float("-inf"))  # the update gate is then exactly 0
        state = vectors.new_zeros(2, len(vectors), self.hidden)
        states = []
        for gates, candidate in zip(*_split(inputs, 2 * self.hidden), strict=True):
            update, reset = torch.baddbmm(gates, state, self.gates).sigmoid().chunk(2, dim=-1)
            state = interpolated(state, torch.baddbmm(candidate, reset * state, self.candidate).tanh(), update)
            states.append(state)
        forwards, backwards = torch.stack(states).unbind(1)  # S B H
        return torch.cat([forwards, backwards.flip(0)], dim=-1).transpose(0, 1)  # B S 2H


def _both_ways(forwards: Tensor, backwards: Tensor) -> Tensor:
    """(B, S, ...) twice -> (S, 2, B, ...), the second in reverse order."""
    return torch.stack([forwards.transpose(0, 1), backwards.transpose(0, 1).flip(0)], dim=1)


def _split(inputs: Tensor, width: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The first `width` columns of each step, and the others."""
    first, second = torch.split(inputs, [width, inputs.shape[-1] - width], dim=-1)
    return first.unbind(0), second.unbind(0)


class AttentiveGruCell(nn.Module):
    """A GRU that reads a word and what additive attention, asked by its state, finds in the memory (appendix A.2.2).

    The context enters through matrices alone, so the memory is multiplied by them once (`remember`) and each step sums.
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

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory: (B, S, M) -> its keys (B, S, A) and values (B, S, 3 H)."""
        return self.keys(memory), self.values(memory)

    def forward(self, word: Tensor, state: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """One step. word: (N, 3 H) the word's part of update, reset and candidate; state: (N, H); mask: (B, S).

        Returns the next state (N, H) and the weights of the attention (B, N / B, S), which it asked with the old state.
        """
        query, gates = torch.split(state @ self.recurrent, self.widths, dim=-1)
        weights = self._attend(query, keys, mask)
        read = word + (weights.to(values.dtype) @ values).flatten(0, 1)  # N 3H
        read_gates, read_candidate = torch.split(read, [gates.shape[-1], state.shape[-1]], dim=-1)
        update, reset = (gates + read_gates).sigmoid().chunk(2, dim=-1)
        candidate = torch.addmm(read_candidate, reset * state, self.candidate).tanh()
        return interpolated(state, candidate, update), weights

    def _attend(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """softmax_j of v_a . tanh(W_a s + U_a h_j); query: (N, A); keys: (B, S, A) -> (B, N / B, S)."""
        by_sentence = query.view(len(keys), -1, 1, keys.shape[-1])  # B W 1 A
        energies = torch.tanh(by_sentence + keys.unsqueeze(1)) @ self.energy  # B W S
        lowest = torch.finfo(energies.dtype).min
        return energies.masked_fill(~mask.unsqueeze(1), lowest).softmax(dim=-1)
