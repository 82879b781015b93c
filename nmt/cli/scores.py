"""How `nmt evaluate` shows scores: lines, a table where there are several systems or definitions, or rows of JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.errors import quoted
from nmt.metrics.evaluate import Comparison, Score


@dataclass(frozen=True)
class System:
    """What is scored. decoder: the signature of the search that made the lines, None for those of a file.

    language: of the lines, None where only the files' names can tell
    num_failed: lines that could not be translated
    """

    name: str
    lines: Sequence[str]
    decoder: str | None = None
    language: str | None = None
    num_failed: int = 0


def as_rows(systems: Sequence[System], scores: Sequence[Sequence[Score]]) -> str:
    """JSON: a row a score. scores: of each system"""
    return _json(
        {"system": system.name, **vars(score), "decoder": system.decoder}
        for system, own in zip(systems, scores, strict=True)
        for score in own
    )


def compared_as_rows(comparisons: Sequence[Comparison]) -> str:
    """JSON: a row a metric and system."""
    return _json(vars(one) for one in comparisons)


def as_lines(scores: Sequence[Score]) -> str:
    """sacreBLEU's own line of each score, then the signature."""
    return "".join(f"{score.detail}  {score.signature}\n" for score in scores)


def as_table(systems: Sequence[System], scores: Sequence[Sequence[Score]]) -> str:
    """A row a metric or definition, a column a system, and the signature. scores: of each system, of the same metrics"""
    head = ["", *(quoted(system.name) for system in systems), "signature"]
    rows = [
        [of_one[0].metric, *(f"{score.value:.2f}" for score in of_one), of_one[0].signature]
        for of_one in zip(*scores, strict=True)
    ]
    return _aligned([head, *rows])


def compared_as_table(comparisons: Sequence[Comparison]) -> str:
    """A row a metric and system, then the signature of each metric."""
    rows = [
        [
            one.metric,
            quoted(one.system),
            f"{one.value:.2f}",
            f"{one.mean:.2f} +- {one.ci:.2f}",
            "baseline" if one.p_value is None else f"{one.p_value:.4f}",
        ]
        for one in comparisons
    ]
    signatures = [[one.metric, one.signature] for one in comparisons if one.p_value is None]
    return _aligned([["", "system", "score", "mean, 95 %", "p"], *rows]) + "\n" + _aligned(signatures)


def _json(rows: Iterable[object]) -> str:
    return json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(line.rstrip() + "\n" for line in lines)
