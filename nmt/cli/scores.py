"""Formats the output of `nmt evaluate`: lines, a table for several systems or definitions, or JSON."""

from collections.abc import Sequence

from nmt.cli.tables import table_text
from nmt.errors import quoted
from nmt.evaluations.base import System
from nmt.files import json_text
from nmt.metrics.base import Score

NamedScore = tuple[str, Score]
"""The name of a metric or definition, and its score."""


def as_rows(systems: Sequence[System], scores: Sequence[Sequence[NamedScore]]) -> str:
    """The scores as a JSON list with one object per score. scores: the scores of each system"""
    rows = [
        {"system": system.name, "metric": name, **vars(score), "decoder": system.decoder}
        for system, of_system in zip(systems, scores, strict=True)
        for name, score in of_system
    ]
    return json_text(rows)


def as_lines(scores: Sequence[NamedScore]) -> str:
    """One line per score: its details, then its signature."""
    return "".join(f"{score.detail or f'{name} = {score.value:.2f}'}  {score.signature}\n" for name, score in scores)


def as_table(systems: Sequence[System], scores: Sequence[Sequence[NamedScore]]) -> str:
    """A table with one row per metric or definition, one column per system, and the signatures.

    scores: the scores of each system, for the same metrics
    """
    head = ["", *(quoted(system.name) for system in systems), "signature"]
    rows = [
        [of_metric[0][0], *(f"{score.value:.2f}" for _, score in of_metric), of_metric[0][1].signature]
        for of_metric in zip(*scores, strict=True)
    ]
    return table_text([head, *rows])
