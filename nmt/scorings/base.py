"""The interface of scorings, and the class that scores pairs for them.

A registered scoring is built as `cls(options)` if one of its options is set. `options` is the options object of
`nmt score`, which is also an instance of the scoring's options class. Without a scoring, `nmt score` prints the score of each
pair. If a scoring calibrates confidences, its options class names the command for this in `calibrates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from nmt.checkpoint import LoadedModel
from nmt.errors import InputError
from nmt.log import log
from nmt.text.context import DocumentLines
from nmt.text.corpus import MAX_RAW_LINE_BYTES, checked_line, raw_lines
from nmt.translate.line_warnings import RateLimitedWarnings
from nmt.translate.pair_scores import score
from nmt.translate.results import Failure, PairScore
from nmt.translate.windows import STDIN_NAME, LineEstimate, growing, open_source, place_of, windows

WINDOW_LINES: Final = 10_000


class PairScorer:
    """Scores pairs of lines from --source and another file.

    options: options of `nmt score`
    num_failed: number of pairs without a score so far
    """

    def __init__(self, options: Any, loaded: LoadedModel, shows_progress: bool) -> None:
        self.options, self.loaded, self.shows_progress = options, loaded, shows_progress
        self.num_failed = 0

    def windows(self, target: str) -> Iterator[tuple[list[str], list[PairScore | None]]]:
        """Yield the target lines of each window with their scores. A failed pair has the score None, and a message reports it."""
        options, source = self.options, self.options.source
        failures, num_pairs = RateLimitedWarnings(log.error), 0
        place = place_of(source) if target == options.target else place_of(target)
        settings, estimate = (options.max_tokens, options.max_length), LineEstimate(source)
        with log.progress("scoring", estimate.total, "pairs", shown=self.shows_progress) as bar:
            document = DocumentLines(self.loaded.pipeline.context)
            for sources, targets in pairs(source, target, WINDOW_LINES, estimate):
                model, pipeline = self.loaded.model, self.loaded.pipeline
                scores = score(model, pipeline, sources, targets, *settings, bar.advance, document)
                for number, pair in enumerate(scores, num_pairs + 1):
                    if isinstance(pair, Failure):
                        failures.add(f"{place}:{number}: no score: {pair.message}")
                num_pairs += len(scores)
                yield targets, [None if isinstance(pair, Failure) else pair for pair in scores]
        self.num_failed += failures.count
        if failures.count:
            log.warn(f"{place}: {failures.count:,} of {num_pairs:,} pairs have no score")


def value_of(options: Any, pair: PairScore | None) -> float | None:
    """The score of a pair in nats, or None if it failed."""
    if pair is None:
        return None
    return pair.log_prob / len(pair.pieces) if options.normalize else pair.log_prob


class Scoring(ABC):
    """Computes the text to print instead of the scores.

    order: if several scorings are active, the one with the lowest order is used
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def check_model(self, folder: Path) -> None:  # noqa: B027 most scorings have nothing to check
        """Raise ArtefactError if the scoring cannot use this model. Called before the model is loaded."""

    @abstractmethod
    def texts(self, scorer: PairScorer) -> Iterator[str]:
        """Yield the text to print, in parts."""


def pairs(source: str, target: str, size: int, estimate: LineEstimate) -> Iterator[tuple[list[str], list[str]]]:
    """Read two parallel texts, at most `size` lines at a time. One of them may be stdin, "-", which is read as it arrives.

    estimate: estimate of the number of lines in `source`
    Raises InputError if a text is not UTF-8, or if the texts differ in length. A line longer than MAX_RAW_LINE_BYTES is truncated
    or raises InputError.
    """
    live, stored = (target, source) if target == STDIN_NAME else (source, target)
    others, first = raw_lines(Path(stored)), 1
    with open_source(live, estimate) as stream:
        for window in windows(stream, growing(size), MAX_RAW_LINE_BYTES):
            rows = list(islice(others, len(window)))
            if len(rows) < len(window):
                raise _longer(live, stored, first + len(rows) - 1)
            live_lines, stored_lines = (
                [checked_line(place_of(name), number, raw) for number, raw in enumerate(lines, first)]
                for name, lines in ((live, window), (stored, rows))
            )
            yield (stored_lines, live_lines) if target == STDIN_NAME else (live_lines, stored_lines)
            first += len(window)
    if next(others, None) is not None:
        raise _longer(stored, live, first - 1)


def _longer(longer: str, shorter: str, num_lines: int) -> InputError:
    """The error for texts of different lengths. The lines of the longer one are not counted, because a stream may be endless."""
    return InputError(
        f"{place_of(longer)} has more lines than {place_of(shorter)}, which has {num_lines:,}; "
        "line i of one must translate line i of the other"
    )
