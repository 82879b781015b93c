"""The plan of one corpus, for tests of what reads it."""

from nmt.data.plan import BatchPlan
from nmt.options import NoOptions
from nmt.plans.corpus import CorpusPlan


def plan_of(corpus, batch_tokens: int, seed: int) -> BatchPlan:
    return CorpusPlan(NoOptions(), corpus, batch_tokens, seed)
