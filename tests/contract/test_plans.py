"""Plans of batches: a component of one file orders the data of a training by its own flag, also after a resume."""

import json

from conftest import train_arguments
from refusals import assert_refused

from nmt import registry
from nmt.data.plan import new_plan
from nmt.data.shards import PreparedData
from nmt.options import make
from nmt.train.options import TrainOptions

PLUGIN = '''
"""A plan in one file: the first pairs alone, again in each epoch."""

import json
import os
from typing import ClassVar

import numpy as np

from nmt import opt, options_class, register
from nmt.data.batching import PartPlan
from nmt.data.plan import BatchPlan


@options_class
class RepeatedOptions:
    stands_for: ClassVar[str] = "corpus"
    repeated: int = opt(0, "pairs that are repeated; 0 is none", must_stay=True)

    def is_active(self):
        return self.repeated > 0


@register("plan", "repeated", RepeatedOptions)
class Repeated(BatchPlan):
    """The first pairs of the data again and again, as many to an update."""

    def __init__(self, options, corpus, batch_tokens, seed):
        super().__init__(options, corpus, batch_tokens, seed)
        self.count = options.repeated

    def part(self, position):
        with open(os.environ["PLAN_LOG"], "a") as log:
            log.write(json.dumps([position.epoch, position.pairs]) + "\\n")
        bounds = np.append(np.arange(0, len(self.corpus), self.count), len(self.corpus))
        return PartPlan(0, np.arange(len(self.corpus)) % self.count, bounds, np.arange(len(bounds)))

    def lines(self):
        return [f"{self.count} pairs are repeated"]
'''


def test_a_plan_from_one_file_orders_the_data_by_its_own_flag_and_resumes_at_its_position(
    data, tmp_path, call, monkeypatch
):
    (tmp_path / "plan.py").write_text(PLUGIN)
    monkeypatch.setenv("PLAN_LOG", str(tmp_path / "log"))
    more = ("--log-every=1u", f"--plugin={tmp_path / 'plan.py'}", "--repeated=20")
    try:
        done = call(*train_arguments(data, tmp_path / "run", 3, *more), "--no-quiet")
        assert done.code == 0 and "20 pairs are repeated" in done.err, done.err
        (tmp_path / "log").unlink()
        assert call(*train_arguments(data, tmp_path / "run", 5, *more)).code == 0
        read = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert [1, 3 * 20] in read  # three updates of 20 pairs
        refused = call(*train_arguments(data, tmp_path / "run", 6, *more[:2], "--repeated=30"))
        assert_refused(refused, 2, "repeated: 20 -> 30")
    finally:
        registry._shelf.parts.pop(("plan", "repeated"), None)


def test_the_default_plan_is_for_one_corpus(data):
    corpus, given = PreparedData(data).train, {"data": str(data), "output": "run"}
    for more, wanted in (({}, "corpus"), ({"data_weights": ("temperature=2",)}, "mixture")):
        assert new_plan(make(TrainOptions, given | more), corpus).part_name == wanted
