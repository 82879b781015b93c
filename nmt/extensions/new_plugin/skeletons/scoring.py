"""A scoring: `nmt score` prints the pairs with the lowest scores, which are often wrong translations.

nmt score --plugin my_scoring.py --my-scoring 10 --model RUN --source TEXT --target REFERENCE
nmt score --plugin my_scoring.py --my-scoring 10 --normalize --model RUN --source TEXT --target REFERENCE
"""

from collections.abc import Iterator

from nmt import opt, options_class, register
from nmt.scorings.base import PairScorer, Scoring, value_of


@options_class
class MyScoringOptions:  # the scoring is in use when one of its options differs from its default
    my_scoring: int = opt(
        0,
        "print only the N pairs with the lowest scores; 0 prints all",
        minimum=0,
        group="Details of the output",
    )


@register("scoring", "my-scoring", MyScoringOptions)
class MyScoring(Scoring):
    """Line number, score and target of the pairs with the lowest scores."""

    def texts(self, scorer: PairScorer) -> Iterator[str]:
        """Yield the output in chunks of any size. self.options: the options of `nmt score` and your own"""
        rows = list[tuple[float | None, int, str]]()
        for targets, pairs in scorer.windows(self.options.target):
            for target, pair in zip(targets, pairs, strict=True):
                rows.append(
                    (value_of(self.options, pair), len(rows) + 1, target)
                )  # the score in nats, or None if scoring failed
        known = sorted(row for row in rows if row[0] is not None)
        for value, number, target in known[: self.options.my_scoring]:  # CHANGE: what is printed
            yield f"{number}\t{value:.4f}\t{target}\n"
