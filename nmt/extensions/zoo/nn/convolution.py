"""Convolutions over positions, for whole sentences and for single steps of a search.

A convolution with kernel size k reads k *taps* at each position, `dilation` positions apart. These input vectors are
concatenated and multiplied by one matrix. In a search, the *history* of a convolution holds the inputs of each sentence's
latest entries (see State in nmt.models.base). So a step only gathers its taps, and no vectors move when hypotheses are reordered.
Dimensions: B sentences, T positions, C inputs, E outputs, W hypotheses per sentence, N = B * W rows, R slots of a history.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from nmt.nn.linear import Linear


class Taps:
    """The positions of the taps of all convolutions at one step of a search.

    ancestors: (N, t) int64, the entry of each row at each step up to this one
    num_entries: number of entries per sentence, including this step's
    num_sentences: B
    """

    def __init__(self, ancestors: Tensor, num_entries: int, num_sentences: int) -> None:
        self.ancestors, self.num_entries, self.num_sentences = ancestors, num_entries, num_sentences
        self.width = len(ancestors) // num_sentences  # W
        self._rows: dict[tuple[int, int, int], Tensor] = {}  # indices shared by layers of the same shape

    def slots(self, first: int, end: int, capacity: int) -> Tensor:
        """The slots of entries `first` to `end - 1` in a history: (end - first,). Slot 0 stays zero, for positions before 0."""
        return 1 + torch.arange(first, end, device=self.ancestors.device) % capacity

    def rows(self, capacity: int, kernel: int, dilation: int) -> Tensor:
        """Indices of the taps in a history that is flattened to (B * R, C), the earliest tap first: (N * k,)."""
        key = capacity, kernel, dilation
        if key not in self._rows:
            last = self.ancestors.shape[1] - 1
            zero_slots = self.ancestors.new_zeros(len(self.ancestors))
            positions = range(last - (kernel - 1) * dilation, last + 1, dilation)
            slots = [1 + self.ancestors[:, i] % capacity if i >= 0 else zero_slots for i in positions]
            starts = torch.arange(self.num_sentences, device=zero_slots.device).repeat_interleave(self.width)  # N
            self._rows[key] = (torch.stack(slots, 1) + (starts * (capacity + 1))[:, None]).flatten()
        return self._rows[key]


ConvolutionStep = Callable[[Tensor, Tensor, Taps], tuple[Tensor, Tensor]]
"""One step: (states (N, C), history (B, R, C), taps) -> the outputs (N, E) and the history with these states."""


class Convolution(nn.Module):
    """A convolution over positions, with a bias.

    causal: whether the last tap is the position itself; if not, the taps are centred on it
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, causal: bool = False) -> None:
        super().__init__()
        self.inputs, self.kernel, self.dilation, self.causal = inputs, kernel, dilation, causal
        self.span = (kernel - 1) * dilation + 1  # number of positions from the first to the last tap
        self.linear = Linear(kernel * inputs, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """Compute (B, T, C) -> (B, T, E). Positions beyond either end count as zeros; padding inside must be zero too."""
        if self.kernel > 1:
            before = self.span - 1 if self.causal else (self.span - 1) // 2
            padded = functional.pad(states, (0, 0, before, self.span - 1 - before))
            starts = range(0, self.span, self.dilation)
            states = torch.cat([padded[:, start : start + states.shape[1]] for start in starts], -1)  # B T kC
        output: Tensor = self.linear(states)
        return output

    def history(self, sentences: Tensor) -> Tensor:
        """The empty history of a causal convolution, (B, R, C). sentences: (B, ...)"""
        slots = 0 if self.kernel == 1 else 1 + self.span
        return torch.zeros(len(sentences), slots, self.inputs, device=sentences.device)

    def search_step(self) -> ConvolutionStep:
        """The causal convolution as a function for one search, without gradient."""
        multiply = self.linear.search_step()

        def step(states: Tensor, history: Tensor, taps: Taps) -> tuple[Tensor, Tensor]:
            if self.kernel == 1:
                return multiply(states), history
            first = taps.num_entries - taps.width
            if history.shape[1] - 1 < self.span * taps.width:
                history = self._enlarged(history, first, taps)
            capacity = history.shape[1] - 1
            slots = taps.slots(first, taps.num_entries, capacity)
            history[:, slots] = states.view(len(history), taps.width, -1).to(history.dtype)
            rows = taps.rows(capacity, self.kernel, self.dilation)
            return multiply(history.flatten(0, 1).index_select(0, rows).view(len(states), -1)), history

        return step

    def _enlarged(self, history: Tensor, end: int, taps: Taps) -> Tensor:
        """The history, enlarged to hold `span` steps of W hypotheses. end: number of entries so far"""
        old, new = history.shape[1] - 1, self.span * taps.width
        larger = history.new_zeros(len(history), 1 + new, self.inputs)
        first = max(0, end - old)
        larger[:, taps.slots(first, end, new)] = history[:, taps.slots(first, end, old)]
        return larger
