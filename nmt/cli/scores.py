"""The output of `nmt evaluate`: lines, a table for several systems or definitions, or rows of JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.cli.tables import table_lines
from nmt.errors import quoted
from nmt.extensions.scores.significance import Comparison
from nmt.files import json_text
from nmt.metrics.base import Score

NamedScore = tuple[str, Score]
"""The name of a metric or of a definition, and its score."""


@dataclass(frozen=True)
class System:
    """The lines of a system, to be scored.

    name: file or model
    decoder: signature of the search that made the lines; None for those of a file
    language: of the lines; None if only the names of the files can tell
    num_failed: lines that could not be translated
    """

    name: str
    lines: Sequence[str]
    decoder: str | None = None
    language: str | None = None
    num_failed: int = 0


def as_rows(systems: Sequence[System], scores: Sequence[Sequence[NamedScore]]) -> str:
    """JSON with a row per score. scores: of each system"""
    rows = [
        {"system": system.name, "metric": name, **vars(score), "decoder": system.decoder}
        for system, of_system in zip(systems, scores, strict=True)
        for name, score in of_system
    ]
    return json_text(rows)


def as_lines(scores: Sequence[NamedScore]) -> str:
    """A line per score: its detail, then its signature."""
    return "".join(f"{score.detail or f'{name} = {score.value:.2f}'}  {score.signature}\n" for name, score in scores)


def as_table(systems: Sequence[System], scores: Sequence[Sequence[NamedScore]]) -> str:
    """A table: a row per metric or definition, a column per system, then the signature.

    scores: of each system, of the same metrics
    """
    head = ["", *(quoted(system.name) for system in systems), "signature"]
    rows = [
        [of_metric[0][0], *(f"{score.value:.2f}" for _, score in of_metric), of_metric[0][1].signature]
        for of_metric in zip(*scores, strict=True)
    ]
    return _text([head, *rows])


def compared_as_table(comparisons: Sequence[Comparison]) -> str:
    """A table: a row per metric and system, then the signature of each metric."""
    rows = [
        [
            comparison.metric,
            quoted(comparison.system),
            f"{comparison.value:.2f}",
            f"{comparison.mean:.2f} +- {comparison.ci:.2f}",
            "baseline" if comparison.p_value is None else f"{comparison.p_value:.4f}",
        ]
        for comparison in comparisons
    ]
    signatures = [[comparison.metric, comparison.signature] for comparison in comparisons if comparison.p_value is None]
    return _text([["", "system", "score", "mean, 95 %", "p"], *rows]) + "\n" + _text(signatures)


def _text(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"{line}\n" for line in table_lines(rows))
