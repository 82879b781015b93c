"""Calibration of a model's confidences."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from nmt import register
from nmt.artefact import Artefact, set_fact
from nmt.checkpoint import TEMPERATURE
from nmt.cli.tables import table_text
from nmt.errors import quoted
from nmt.extensions.scores.calibration import Reliability, calibrate
from nmt.extensions.scores.scorings.options import CalibrationOptions
from nmt.files import json_text
from nmt.log import log
from nmt.scorings.base import WINDOW_LINES, PairScorer, Scoring, pairs
from nmt.translate.windows import LineEstimate


@register("scoring", "calibration", CalibrationOptions)
class Calibration(Scoring):
    """Fits a temperature, prints the reliability before and after, and stores the temperature in the model's manifest."""

    def check_model(self, folder: Path) -> None:
        Artefact(folder, "model")  # refuses a run, because its best checkpoint may change or be deleted

    def texts(self, scorer: PairScorer) -> Iterator[str]:
        options, loaded = self.options, scorer.loaded
        sources, targets = list[str](), list[str]()
        for window in pairs(options.source, options.target, WINDOW_LINES, LineEstimate(options.source)):
            sources += window[0]
            targets += window[1]
        settings = options.max_tokens, options.max_length
        reliabilities = calibrate(loaded.model, loaded.pipeline, sources, targets, *settings)
        temperature = reliabilities[1].temperature
        set_fact(Artefact(loaded.folder, "model"), TEMPERATURE, temperature)
        log.info(f"stored temperature {temperature:.4f} in {quoted(loaded.folder)} for nmt translate --min-confidence")
        if options.json:
            yield json_text([{**vars(reliability), "ece": reliability.ece} for reliability in reliabilities])
            return
        header = ["confidence", *["tokens", "confident", "right"] * len(reliabilities)]
        yield table_text([header, *_reliability_rows(reliabilities)], right=range(1, len(header)))
        for reliability in reliabilities:
            figures = f"ECE {reliability.ece:.4f}, nll {reliability.nll:.4f} nats per token"
            yield f"temperature {reliability.temperature:.4f}: {figures}\n"


def _reliability_rows(reliabilities: Sequence[Reliability]) -> list[list[str]]:
    """One row per confidence bin, with the tokens, the mean confidence and the accuracy at each temperature."""
    num_bins = len(reliabilities[0].counts)
    rows = []
    for m, (low, high) in enumerate(pairwise(i / num_bins for i in range(num_bins + 1))):
        row = [f"{low:.1f} to {high:.1f}"]
        for reliability in reliabilities:
            count, totals = reliability.counts[m], (reliability.confidences[m], reliability.rights[m])
            row += [f"{count:,}", *(f"{total / count:.3f}" if count else "-" for total in totals)]
        rows.append(row)
    return rows
