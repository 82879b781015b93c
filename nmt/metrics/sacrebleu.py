"""The base class of the metrics that sacreBLEU computes (Post, 2018)."""

import re
from abc import abstractmethod
from functools import cached_property
from typing import Any, Final

from nmt.metrics.base import Lines, Metric, References, Score, given_references

# A run of letters of scripts without spaces between words: Thai to Tibetan, Myanmar, Khmer, kana and Han. Words have fewer.
UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{8}"
)
MAX_UNSPACED_LINES: Final = 0.1  # share of the lines: more are no quotations


def unspaced_lines(references: References) -> str:
    """How many lines have no spaces between words, as text; empty if there are few."""
    lines = [line for of_reference in references for line in of_reference]
    count = sum(UNSPACED.search(line) is not None for line in lines)
    return f"{count:,} of {len(lines):,} references" if count > MAX_UNSPACED_LINES * len(lines) else ""


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU, with sacreBLEU's signature and line of detail."""

    @abstractmethod
    def build(self) -> Any:
        """Build sacreBLEU's metric object. sacreBLEU takes 0.2 s to import, so it is imported here."""

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
    """Score a test set with one of sacreBLEU's metric objects."""
    result = metric.corpus_score(list(hypotheses), given_references(references))
    return Score(float(result.score), str(metric.get_signature()), str(result))
