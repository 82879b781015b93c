"""`nmt score`: compute the log-probability of given translations."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nmt.artefact import Artefact, set_fact
from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.prompt import is_typed
from nmt.cli.tables import table_lines
from nmt.errors import quoted
from nmt.extensions.scores.contrast import ContrastCounts, categories_of
from nmt.log import log
from nmt.options import MAX_THREADS, REQUIRED, opt, options_class

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.checkpoint import LoadedModel
    from nmt.signals import Signals
    from nmt.translate.calibration import Reliability
    from nmt.translate.results import PairScore

WINDOW_LINES: Final = 10_000


@options_class
class ScoreOptions:
    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    source: str = opt(REQUIRED, "source file, plain or compressed; - is stdin", aliases=("s",))
    target: str = opt(REQUIRED, "target file, plain or compressed; - is stdin", aliases=("t",))
    contrast: tuple[str, ...] = opt(
        (),
        "instead print how often --target has the higher score than the wrong translations in these files, a line for each of "
        "its lines, blank where there is none; a tie is wrong",
    )
    category: str | None = opt(None, "with --contrast: file with the category of each line, for an accuracy of each")
    calibrate: bool = opt(
        False,
        "instead fit a temperature on these pairs, a development set (Guo et al., 2017), print how often the model is as right "
        "as it is sure, and keep the temperature in the model folder for confidences",
    )
    per_token: bool = opt(False, "also print each target token with its log-probability", aliases=("word-scores",))
    normalize: bool = opt(False, "divide by the number of target tokens, the end of the sentence counted")
    max_tokens: int = opt(4096, "tokens of a batch, padding counted", minimum=1)
    max_length: int = opt(1024, "tokens of a line; a pair with a longer one gets no score, and a warning", minimum=1)
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)
    json: bool = opt(False, "print JSON: an object a line; log_prob is null where there is no score")

    def __post_init__(self) -> None:
        if self.source == self.target == "-":
            raise ValueError("--source and --target are both -, but stdin is one text (name a file for one of them)")
        if self.calibrate and (self.contrast or self.per_token or self.normalize):
            raise ValueError("--calibrate: prints no scores (leave --contrast, --per-token and --normalize out)")
        if self.contrast and (self.per_token or "-" in (self.source, self.target, *self.contrast)):
            raise ValueError(
                "--contrast: reads files several times, and prints no scores (leave - and --per-token out)"
            )
        if self.category is not None and not self.contrast:
            raise ValueError("--category: has no effect without --contrast (give it too)")


def run(options: ScoreOptions) -> int:
    """Log-probability, in nats, of given translations: a line a pair.

    A blank line is a sentence without words: a blank target is scored by its end symbol alone, a blank source leaves the
    model to the target. A pair without a score gives nan, and code 5 at the end.
    """
    from nmt.checkpoint import load_model
    from nmt.device import choose_device, use_threads
    from nmt.signals import Signals

    use_threads(options.threads)
    if options.calibrate:
        Artefact(Path(options.model), "model")  # the best checkpoint of a run may change, or be deleted
    loaded = load_model(Path(options.model), choose_device(options.device))
    with Signals() as signals:
        if options.calibrate:
            _calibrate(options, loaded, signals)
            return 0
        scorer = _PairScorer(options, loaded, signals)
        if options.contrast:
            _contrast(options, scorer)
        else:
            for _, scores in scorer.windows(options.target):
                with log.hidden_bars(sys.stdout.buffer):
                    sys.stdout.buffer.write("".join(_line(options, pair) for pair in scores).encode())
                    sys.stdout.buffer.flush()
                signals.check()
    return 5 if scorer.num_failed else 0


class _PairScorer:
    """Scores the lines of --source with those of other files. num_failed: pairs without a score so far"""

    def __init__(self, options: ScoreOptions, loaded: "LoadedModel", signals: "Signals") -> None:
        self.options, self.loaded, self.signals = options, loaded, signals
        self.num_failed = 0

    def windows(self, target: str) -> "Iterator[tuple[list[str], list[PairScore | None]]]":
        """The target lines of each window with their scores; None where there is none, which a message names."""
        from nmt.text.context import DocumentLines
        from nmt.translate.forced_decoding import score
        from nmt.translate.line_warnings import RateLimitedWarnings
        from nmt.translate.results import Failure
        from nmt.translate.windows import LineEstimate, pairs, place_of

        options, check, source = self.options, self.signals.check, self.options.source
        failures, num_pairs = RateLimitedWarnings(log.error), 0
        place = place_of(source) if target == options.target else place_of(target)
        settings, estimate = (options.max_tokens, options.max_length), LineEstimate(source)
        with log.progress("scoring", estimate.total, "pairs", shown=not is_typed(source, target)) as bar:
            document = DocumentLines(self.loaded.pipeline.context)
            for sources, targets in pairs(source, target, WINDOW_LINES, estimate, check):
                model, pipeline = self.loaded.model, self.loaded.pipeline
                scores = score(model, pipeline, sources, targets, *settings, check, bar.advance, document)
                for number, pair in enumerate(scores, num_pairs + 1):
                    if isinstance(pair, Failure):
                        failures.add(f"{place}:{number}: no score: {pair.message}")
                num_pairs += len(scores)
                yield targets, [None if isinstance(pair, Failure) else pair for pair in scores]
        self.num_failed += failures.count
        if failures.count:
            log.warn(f"{place}: {failures.count:,} of {num_pairs:,} pairs have no score")


def _contrast(options: ScoreOptions, scorer: _PairScorer) -> None:
    """Print how often the model prefers --target to the translations of --contrast."""
    references = [_value(options, pair) for _, scores in scorer.windows(options.target) for pair in scores]
    categories = categories_of(options.category, len(references))
    counts = ContrastCounts(references, categories)
    for name in options.contrast:
        lines, values = list[str](), list[float | None]()
        for targets, scores in scorer.windows(name):
            lines += targets
            values += [_value(options, pair) for pair in scores]
        counts.add(quoted(name), lines, values)
    if options.json:
        print_json(counts.as_dict())
    else:
        print_lines(table_lines(counts.rows(), right=range(1, 4)))


def _calibrate(options: ScoreOptions, loaded: "LoadedModel", signals: "Signals") -> None:
    """Fit the temperature, print the reliability before and after, and put it into the model's manifest."""
    from nmt.checkpoint import TEMPERATURE
    from nmt.translate.forced_decoding import calibrate
    from nmt.translate.windows import LineEstimate, pairs

    sources, targets = list[str](), list[str]()
    for window in pairs(options.source, options.target, WINDOW_LINES, LineEstimate(options.source), signals.check):
        sources += window[0]
        targets += window[1]
    settings = options.max_tokens, options.max_length, signals.check
    reliabilities = calibrate(loaded.model, loaded.pipeline, sources, targets, *settings)
    temperature = reliabilities[1].temperature
    set_fact(Artefact(loaded.folder, "model"), TEMPERATURE, temperature)
    log.info(f"{quoted(loaded.folder)}: has the temperature {temperature:.4f} now, for nmt translate --min-confidence")
    if options.json:
        print_json([{**vars(reliability), "ece": reliability.ece} for reliability in reliabilities])
        return
    header = ["confidence", *["tokens", "confident", "right"] * len(reliabilities)]
    print_lines(table_lines([header, *_reliability_rows(reliabilities)], right=range(1, len(header))))
    for reliability in reliabilities:
        figures = f"ECE {reliability.ece:.4f}, nll {reliability.nll:.4f} nats a token"
        sys.stdout.write(f"temperature {reliability.temperature:.4f}: {figures}\n")


def _reliability_rows(reliabilities: "Sequence[Reliability]") -> list[list[str]]:
    """For each bin of confidence, at each temperature: the tokens, and the means of confidence and accuracy."""
    num_bins = len(reliabilities[0].counts)
    rows = []
    for m, (low, high) in enumerate(pairwise(i / num_bins for i in range(num_bins + 1))):
        row = [f"{low:.1f} to {high:.1f}"]
        for reliability in reliabilities:
            count, totals = reliability.counts[m], (reliability.confidences[m], reliability.rights[m])
            row += [f"{count:,}", *(f"{total / count:.3f}" if count else "-" for total in totals)]
        rows.append(row)
    return rows


def _value(options: ScoreOptions, pair: "PairScore | None") -> float | None:
    """The score of a pair, in nats; None without one."""
    if pair is None:
        return None
    return pair.log_prob / len(pair.pieces) if options.normalize else pair.log_prob


def _line(options: ScoreOptions, pair: "PairScore | None") -> str:
    """The output line of a pair; None is a pair without a score."""
    value = _value(options, pair)
    tokens = [] if pair is None else list(zip(pair.pieces, pair.log_probs, strict=True))
    if options.json:
        row: dict[str, object] = {"log_prob": value}
        if options.per_token:
            row["tokens"] = [{"token": piece, "log_prob": log_prob} for piece, log_prob in tokens]
        return json.dumps(row, ensure_ascii=False) + "\n"
    shown = "nan" if value is None else f"{value:z.6f}"  # z: a probability of 1 is 0.000000, not -0.000000
    if options.per_token:
        shown += "\t" + " ".join(f"{piece}:{log_prob:z.4f}" for piece, log_prob in tokens)
    return shown + "\n"


COMMAND = Command("score", ScoreOptions, run, positional=("source", "target"), preload=("torch",), group="scores")
