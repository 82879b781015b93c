"""The interface of scorings, and what scores pairs for them.

A registered scoring is built as `cls(options)` when one of its options is given. The options are those of `nmt score`, which
are an instance of its own options class too. Without one, the score of each pair is printed. The options class of one that
calibrates confidences names its command in `calibrates`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

from nmt.checkpoint import LoadedModel
from nmt.log import log
from nmt.text.context import DocumentLines
from nmt.translate.line_warnings import RateLimitedWarnings
from nmt.translate.pair_scores import score
from nmt.translate.results import Failure, PairScore
from nmt.translate.windows import LineEstimate, pairs, place_of

WINDOW_LINES: Final = 10_000


class PairScorer:
    """Scores the lines of --source with those of other files.

    options: those of `nmt score`
    num_failed: pairs without a score so far
    """

    def __init__(self, options: Any, loaded: LoadedModel, shows_progress: bool) -> None:
        self.options, self.loaded, self.shows_progress = options, loaded, shows_progress
        self.num_failed = 0

    def windows(self, target: str) -> Iterator[tuple[list[str], list[PairScore | None]]]:
        """The target lines of each window with their scores; None where there is none, which a message names."""
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
    """The score of a pair, in nats; None without one."""
    if pair is None:
        return None
    return pair.log_prob / len(pair.pieces) if options.normalize else pair.log_prob


class Scoring(ABC):
    """What is printed in place of scores.

    order: the first of several is taken
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def check_model(self, folder: Path) -> None:  # noqa: B027 most have nothing to check
        """Raise ArtefactError for a model that it cannot take. Called before the model is loaded"""

    @abstractmethod
    def texts(self, scorer: PairScorer) -> Iterator[str]:
        """What is printed, in parts."""
