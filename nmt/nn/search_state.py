"""The state of a Scorer between two steps of a search.

Dimensions: B sentences, S source positions, W hypotheses per sentence, N = B * W rows, E entries per sentence.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class State:
    """The state of a Scorer between two steps of a search. Use a state only once, because a step may write into its tensors.

    Each step appends W *entries* to a sentence, one per hypothesis, in the order of its rows. If there are E entries before a
    step, its hypothesis w becomes entry E + w. Entries never move. When hypotheses are reordered, only `ancestors` changes. So a
    model can store one vector per entry, (B, E, ...), and gather a hypothesis's past through `ancestors` instead of copying it.

    sentences: tensors (B, ...) per source sentence, never copied per hypothesis
    hypotheses: tensors (N, ...) per hypothesis
    length: number of target positions read
    watched: whether the search needs the attention of each step
    attention: (N, S) weights of the source positions at the last step, if watched; each row sums to 1
    ancestors: (N, t) int64, the entry of each row's ancestor at each past step, oldest first; None until a model
        calls `append_entries`
    num_entries: E, the number of entries per sentence
    """

    sentences: dict[str, Tensor] = field(default_factory=dict)
    hypotheses: dict[str, Tensor] = field(default_factory=dict)
    length: int = 0
    watched: bool = False
    attention: Tensor | None = None
    ancestors: Tensor | None = None
    num_entries: int = 0

    def append_entries(self, tokens: Tensor, num_sentences: int) -> Tensor:
        """Append an entry per row at the start of a step, and return the new `ancestors`: (N, t + 1).

        tokens: (N,) the tokens that the step reads; num_sentences: B
        """
        past = tokens.new_empty(len(tokens), 0) if self.ancestors is None else self.ancestors
        W = len(tokens) // num_sentences
        own = torch.arange(self.num_entries, self.num_entries + W, device=tokens.device).repeat(num_sentences)  # N
        self.ancestors, self.num_entries = torch.cat([past, own[:, None]], 1), self.num_entries + W
        return self.ancestors

    def after(self, sentences: dict[str, Tensor], hypotheses: dict[str, Tensor], attention: Tensor | None) -> "State":
        """The state one step later."""
        length = self.length + 1
        return State(sentences, hypotheses, length, self.watched, attention, self.ancestors, self.num_entries)

    def reorder(self, rows: Tensor) -> None:
        """Replace hypothesis i with hypothesis `rows[i]` of the same sentence. rows: (N',) in 0..N-1; N' may differ from N"""
        self.hypotheses = {name: tensor.index_select(0, rows) for name, tensor in self.hypotheses.items()}
        if self.ancestors is not None:
            self.ancestors = self.ancestors.index_select(0, rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences (B',) and hypotheses (N',), in this order."""
        self.keep_sentences(sentences)
        self.reorder(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Keep only the tensors of these sentences (B',), but all hypotheses."""
        self.sentences = {name: tensor.index_select(0, sentences) for name, tensor in self.sentences.items()}
