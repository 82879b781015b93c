"""Comparison of systems with paired tests."""

from collections.abc import Sequence
from dataclasses import replace

from nmt import register
from nmt.cli.tables import table_text
from nmt.errors import quoted
from nmt.evaluations.base import Evaluation, System
from nmt.extensions.scores.evaluations.options import SignificanceOptions
from nmt.extensions.scores.significance import Comparison, compare
from nmt.files import json_text
from nmt.metrics.base import Lines, Metric, References


@register("evaluation", "significance", SignificanceOptions)
class Significance(Evaluation):
    """Compares each system with the first by a paired bootstrap or randomization test."""

    def __init__(self, options: SignificanceOptions) -> None:
        super().__init__(options)
        self.task = f"testing by {options.significance}"

    def text(
        self,
        systems: Sequence[System],
        references: References,
        sources: Lines | None,
        metrics: Sequence[tuple[str, Metric]],
    ) -> str:
        named = [(system.name, system.lines) for system in systems]
        comparisons = compare(named, references, metrics, self.options.significance, self.options.trials)
        comparisons = [replace(one, signature=one.signature + self.changes) for one in comparisons]
        if self.options.json:
            return json_text([vars(comparison) for comparison in comparisons])
        return compared_as_table(comparisons)


def compared_as_table(comparisons: Sequence[Comparison]) -> str:
    """A table with one row per metric and system, followed by the signature of each metric."""
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
    return table_text([["", "system", "score", "mean, 95 %", "p"], *rows]) + "\n" + table_text(signatures)
