"""A metric: the F-score of words, regardless of their order.

nmt evaluate --plugin my_metric.py --metrics my-metric --hypothesis HYPOTHESIS --reference REFERENCE
nmt train --plugin my_metric.py --valid-metrics my-metric --best-by my-metric --data DATA --output RUN
"""

from collections import Counter
from collections.abc import Sequence

from nmt import opt, options_class, register
from nmt.metrics.base import Metric, Score


@options_class
class MyMetricOptions:  # CHANGE: each option becomes a flag; metrics with an option of this name share the flag
    lowercase: bool = opt(False, "ignore case")


@register("metric", "my-metric", MyMetricOptions)
class MyMetric(Metric):
    """Harmonic mean of the precision and the recall of words, 0 to 100."""

    higher_is_better = True

    def __call__(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None = None
    ) -> Score:
        """Score a test set. references: one or more lists of lines; this metric reads the first"""
        same = words = 0
        for hypothesis, reference in zip(hypotheses, references[0], strict=True):
            first, second = self.words(hypothesis), self.words(reference)
            same += (first & second).total()  # CHANGE: what is counted
            words += first.total() + second.total()
        signature = f"nrefs:1|case:{'lc' if self.options.lowercase else 'mixed'}"
        return Score(200 * same / words if words else 0.0, signature)

    def words(self, line: str) -> Counter[str]:
        """How often each word occurs in a line."""
        return Counter((line.lower() if self.options.lowercase else line).split())
