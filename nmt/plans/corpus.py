"""The plan for one corpus: each epoch reads each pair once, in the order defined by `nmt.data.batching`."""

from nmt import register
from nmt.data.batching import PART_PAIRS, PartPlan, plan_part
from nmt.data.plan import BatchPlan, Position
from nmt.options import NoOptions


@register("plan", "corpus", NoOptions)
class CorpusPlan(BatchPlan):
    """Each pair once per epoch, in an order that differs from epoch to epoch."""

    def part(self, position: Position) -> PartPlan:
        """See BatchPlan."""
        lengths, part = (self.corpus.source_lengths, self.corpus.target_lengths), position.pairs // PART_PAIRS
        return plan_part(*lengths, self.batch_tokens, self.seed, position.epoch, part)
