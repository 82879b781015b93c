"""Paired significance tests between systems with sacreBLEU (Koehn, 2004; Riezler and Maxwell, 2005)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from nmt.errors import UserError, quoted
from nmt.metrics.base import Metric, given_references
from nmt.metrics.sacrebleu import SacreBleuMetric

Test = Literal["bootstrap", "randomization"]
SACREBLEU_NAMES: Final = {"bootstrap": "bs", "randomization": "ar"}


@dataclass(frozen=True)
class Comparison:
    """The score of one system, compared with the baseline.

    system, metric: names
    value: the score
    mean, ci: mean of the score over bootstrap resamples; 95 % of them are between mean - ci and mean + ci
    p_value: probability of a difference at least this large if the systems did not differ; None for the baseline
    signature: signature of the metric, including the test, its trials and its seed
    """

    system: str
    metric: str
    value: float
    mean: float
    ci: float
    p_value: float | None
    signature: str


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[tuple[str, Metric]],
    test: Test,
    trials: int,
) -> list[Comparison]:
    """Run sacreBLEU's paired test of each system against the first, for each metric, in the current process.

    systems: names and lines of at least two systems
    references: one or more lists, each with the same number of lines as a system; see `given_references`
    metrics: names and metrics
    trials: number of resamples (bootstrap) or shuffles (randomization); 0 uses sacreBLEU's default, 1,000 or 10,000
    Raises UserError if sacreBLEU does not compute a metric, or if SACREBLEU_SEED would make results differ from run to run.
    """
    check_seed()
    tests = [(name, _sacrebleu_metric(name, metric)) for name, metric in metrics]
    from sacrebleu.significance import PairedTest

    comparisons: list[Comparison] = []
    given: Any = given_references(references)  # sacreBLEU accepts None in this list, although its types do not
    for name, metric in tests:
        paired_test = PairedTest(
            [(system, list(lines)) for system, lines in systems],
            {name: metric},
            given,
            test_type=SACREBLEU_NAMES[test],
            n_samples=trials,
            n_ar_confidence=0 if test == "randomization" else -1,  # randomization gives no confidence interval
        )
        signatures, columns = paired_test()
        [(key, signature)] = signatures.items()
        results: list[Any] = columns[key]
        for (system, lines), result in zip(systems, results, strict=True):
            p_value = None if result.p_value is None else float(result.p_value)
            is_equal = p_value is not None and result.score == results[0].score
            if is_equal and _have_same_statistics(metric, lines, systems[0][1], given):
                p_value = 1.0  # sacreBLEU counts only differences above zero, but all are zero here
            value, mean, ci = float(result.score), float(result.mean), float(result.ci)
            comparisons.append(Comparison(system, name, value, mean, ci, p_value, str(signature)))
    return comparisons


def _sacrebleu_metric(name: str, metric: Metric) -> Any:
    """A new sacreBLEU metric, because a test modifies the metric. Raises UserError if sacreBLEU does not compute it."""
    if not isinstance(metric, SacreBleuMetric):  # the test needs statistics for each line
        raise UserError(f"--significance does not support the metric {name} (use --metrics bleu, chrf or ter)")
    return metric.build()


def _have_same_statistics(metric: Any, lines: Sequence[str], others: Sequence[str], references: Any) -> bool:
    """Whether two systems have the same statistics on every line under a sacreBLEU metric."""
    of_lines, of_others = (metric._extract_corpus_statistics(list(each), references) for each in (lines, others))
    return bool(of_lines == of_others)


def check_seed() -> None:
    """Raise UserError unless SACREBLEU_SEED is unset or a positive number. sacreBLEU treats 0 and `none` as no seed."""
    seed = os.environ.get("SACREBLEU_SEED", "1")
    if not (seed.isascii() and seed.isdigit() and int(seed) > 0):
        raise UserError(f"SACREBLEU_SEED '{quoted(seed)}': must be a positive number, or unset")
