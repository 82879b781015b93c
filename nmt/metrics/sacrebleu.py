"""The base class of the metrics that sacreBLEU computes (Post, 2018)."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

from nmt.metrics.base import Lines, Metric, References, Score, given_references


class SacreBleuMetric(Metric):
    """A metric that sacreBLEU computes, with sacreBLEU's signature and detail line."""

    @abstractmethod
    def build(self) -> Any:
        """Build sacreBLEU's metric object. Import sacreBLEU here, because its import takes 0.2 s."""

    @cached_property
    def corpus_metric(self) -> Any:
        """sacreBLEU's metric object for test sets."""
        return self.build()

    @property
    def sentence_metric(self) -> Any:
        """sacreBLEU's metric object for single sentences."""
        return self.corpus_metric

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        return corpus_score(self.corpus_metric, hypotheses, references)

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        metric = self.sentence_metric
        return [
            float(metric.sentence_score(line, of_line).score)
            for line, *of_line in zip(hypotheses, *given_references(references), strict=True)
        ]


def corpus_score(metric: Any, hypotheses: Lines, references: References) -> Score:
    """Score a test set with a sacreBLEU metric object."""
    result = metric.corpus_score(list(hypotheses), given_references(references))
    return Score(float(result.score), str(metric.get_signature()), str(result))
