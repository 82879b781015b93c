"""Searching among the words that a shortlist has for a batch, instead of the whole vocabulary: a smaller projection."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmt.data.shortlist import Shortlist
from nmt.decoders.base import Decoder, Hypothesis
from nmt.decoders.filters import Constraints
from nmt.models.base import Model, State
from nmt.nn.linear import Linear
from nmt.nn.quantized import Int8Linear
from nmt.symbols import PAD


class Shortlisted:
    """A model whose vocabulary is part of its own. words: (V') ids, sorted; the control symbols stay where they are"""

    def __init__(self, model: Model, words: Tensor) -> None:
        output = model.output.rows(words).prepared() if isinstance(model.output, Linear | Int8Linear) else None
        self.words, self.scorer = words, model.prepared(output)

    def start(self, source: Tensor) -> State:
        """See Scorer; source ids are those of the whole vocabulary."""
        return self.scorer.start(source)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer; a model that knows of no other output is asked for all words, and some are taken."""
        log_probs, state = self.scorer.step(self.words[tokens], state)
        return (log_probs if log_probs.shape[1] == len(self.words) else log_probs[:, self.words]), state


def search(
    decoder: Decoder, model: Model, source: Tensor, constraints: Sequence[Constraints], shortlist: Shortlist
) -> list[list[Hypothesis]]:
    """What a decoder finds among the words of a shortlist; where a wish avoids texts, among all words."""
    if any(constraint.avoid for constraint in constraints):
        return decoder.search(model, source, constraints)
    ids = source.cpu().numpy()
    wished = [
        token for constraint in constraints for part in (constraint.prefix, *constraint.phrases) for token in part
    ]
    words = np.union1d(shortlist.of(ids[ids != PAD]), wished).astype(np.int64)

    def place(tokens: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.searchsorted(words, tokens).tolist())

    inside = [
        Constraints(place(constraint.prefix), tuple(map(place, constraint.phrases))) for constraint in constraints
    ]
    found = decoder.search(Shortlisted(model, torch.from_numpy(words).to(source.device)), source, inside)
    return [[replace(one, tokens=words[one.tokens].tolist()) for one in ones] for ones in found]
