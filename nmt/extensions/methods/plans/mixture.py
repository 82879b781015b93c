"""The batch plan for corpora mixed by weight. An epoch has as many pairs as the data, but may lack some and repeat others."""

from typing import Any

import msgspec
import numpy as np

from nmt import register
from nmt.data.batching import GROUPS_PER_UPDATE, PART_PAIRS, PartPlan, plan_pairs, tokens_of_group
from nmt.data.plan import BatchPlan, Position
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError
from nmt.extensions.methods.mixture import Draws, Mixture, PartStart
from nmt.extensions.methods.plans.options import MixtureOptions
from nmt.extensions.methods.stages import parse_stages


@register("plan", "mixture", MixtureOptions)
class MixturePlan(BatchPlan):
    """Mixes corpora with weights that may change over time; see nmt.extensions.methods.mixture."""

    def __init__(self, options: Any, corpus: Corpus, batch_tokens: int, seed: int) -> None:
        super().__init__(options, corpus, batch_tokens, seed)
        self.mixture = Mixture(corpus.corpora, parse_stages(options.data_weights), seed)

    def part(self, position: Position) -> PartPlan:
        """See BatchPlan."""
        size, epoch = len(self.corpus), position.epoch
        start = self.mixture.part(_start_in(position), epoch)
        draws = self.mixture.draw(start, min(PART_PAIRS, size - start.pairs))
        source, target = (
            lengths[draws.numbers % size] for lengths in (self.corpus.source_lengths, self.corpus.target_lengths)
        )
        if (updates := self.mixture.updates_left(start)) is not None:  # the part must not extend beyond the stage
            tokens = np.cumsum(target.astype(np.int64) + 1)
            stage_tokens = updates * GROUPS_PER_UPDATE * tokens_of_group(self.batch_tokens)
            count = max(1, int(np.searchsorted(tokens, stage_tokens, side="right")))
            draws, source, target = Draws(draws.numbers[:count], draws.corpora[:count]), source[:count], target[:count]
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, start.pairs]))
        part = plan_pairs(start.pairs, draws.numbers, source, target, self.batch_tokens, random)
        part.place, part.next_place = map(msgspec.to_builtins, (start, self.mixture.after(start, draws, len(part))))
        return part

    def tokens_per_epoch(self) -> float:
        """See BatchPlan."""
        return self.mixture.per_epoch(self.corpus.target_lengths)

    def first_position(self, updates: int) -> Position:
        """See BatchPlan."""
        return Position(part=msgspec.to_builtins(self.mixture.first_part(updates)))

    def settings(self) -> dict[str, Any]:
        """See BatchPlan."""
        return {"corpora": [[name, pairs] for name, pairs in self.corpus.corpora]}

    def lines(self) -> list[str]:
        """See BatchPlan."""
        return self.mixture.lines()


def _start_in(position: Position) -> PartStart | None:
    """The start of the part that contains a position. Raises ArtefactError if the position is invalid."""
    try:
        return msgspec.convert(position.part, PartStart | None)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"the saved position is damaged: {error}") from None
