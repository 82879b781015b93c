"""Contrastive test sets: how often a model prefers the reference over wrong translations."""

from collections.abc import Iterator

from nmt import register
from nmt.cli.tables import table_text
from nmt.errors import quoted
from nmt.extensions.scores.contrast import ContrastCounts, categories_of
from nmt.extensions.scores.scorings.options import ContrastOptions
from nmt.files import json_text
from nmt.scorings.base import PairScorer, Scoring, value_of


@register("scoring", "contrast", ContrastOptions)
class Contrast(Scoring):
    """Counts how often the model prefers --target over the translations in --contrast."""

    order = 1

    def texts(self, scorer: PairScorer) -> Iterator[str]:
        options = self.options
        references = [value_of(options, pair) for _, scores in scorer.windows(options.target) for pair in scores]
        counts = ContrastCounts(references, categories_of(options.category, len(references)))
        for name in options.contrast:
            lines, values = list[str](), list[float | None]()
            for targets, scores in scorer.windows(name):
                lines += targets
                values += [value_of(options, pair) for pair in scores]
            counts.add(quoted(name), lines, values)
        yield json_text(counts.as_dict()) if options.json else table_text(counts.rows(), right=range(1, 4))
