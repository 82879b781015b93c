"""Results of lines: translations with their details, scores of pairs, failures; and the retry of a failing batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from nmt.decoders.hypothesis import Hypothesis
from nmt.errors import UserError, quoted
from nmt.registry import place_in_plugin
from nmt.text.pipeline import Side

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Failure:
    """The result of a line that failed. message: the reason"""

    message: str


# Kinds of warnings of a Translation.
CUT: Final = "cut"  # the line has more tokens than are read
CUT_TEXT: Final = "cut text"  # the text has more characters than are divided into sentences
UNKNOWN_TOKENS: Final = "unknown tokens"  # the vocabulary lacks tokens of the line
UNKNOWN_TAG: Final = "unknown tag"  # the line begins with a tag that the model lacks
RETRIED: Final = "retried"  # its batch failed and was halved; at the first line of the batch
REPAIRED: Final = "repaired"  # it was translated again
BROKEN: Final = "broken"  # its translation looks broken
UNCHANGED: Final = "kept unchanged"  # a part of the text stays as it is, because its translation lost something
WITHHELD: Final = "withheld"  # its confidence is too low

NOT_FINITE: Final = Failure("the model gives no finite probability")


@dataclass(frozen=True)
class PairScore:
    """The score of a sentence pair.

    log_prob: nats of all target tokens and EOS
    pieces: target tokens in reading order, EOS last
    log_probs: nats of each
    """

    log_prob: float
    pieces: list[str]
    log_probs: list[float]


class Candidate(msgspec.Struct, frozen=True):
    """One translation of a line.

    tokens: target ids in reading order
    log_prob: nats, EOS counted
    score: the value that the search ranks by
    word_scores: nats of each word, and of EOS; empty unless requested
    weights: (words, source words) attention; empty unless requested, and without attention
    scores: with re-ranking, the scores of the search and of each model, whose weighted mean is `score`; else empty
    confidence: geometric mean of its tokens' probabilities; None unless requested
    warnings: those of the translation if this is its best candidate
    """

    text: str
    tokens: list[int]
    log_prob: float
    score: float
    word_scores: list[float] = []
    weights: list[list[float]] = []
    scores: list[float] = []
    confidence: float | None = None
    warnings: dict[str, str] = {}

    @classmethod
    def of(cls, hypothesis: Hypothesis, target: Side) -> "Candidate":
        """A hypothesis as text. target: the side of the pipeline that it is on"""
        tokens = hypothesis.tokens
        return cls(target.decode(tokens), target.in_reading_order(tokens), hypothesis.log_prob, hypothesis.score)


class Translation(msgspec.Struct, frozen=True):
    """The result of translating a line.

    candidates: best first; none for a line without tokens and for one that failed
    error: the reason of a failure; empty without one
    warnings: messages by kind, from CUT to WITHHELD
    """

    candidates: list[Candidate] = []
    error: str = ""
    warnings: dict[str, str] = {}

    @property
    def shown(self) -> list[Candidate]:
        """The candidates, but none of a translation that is withheld."""
        return [] if WITHHELD in self.warnings else self.candidates

    @property
    def text(self) -> str:
        """The best translation; empty without one, and if it is withheld."""
        return self.shown[0].text if self.shown else ""

    def candidate(self, number: int) -> Candidate:
        """A candidate by its number from 0; the last one where there are fewer, and an empty one where there is none."""
        last = len(self.candidates) - 1
        return self.candidates[min(number, last)] if self.candidates else Candidate("", [], 0.0, 0.0)


def retry_split(
    work: Callable[[slice], list[_Result | Failure]], num_lines: int
) -> tuple[list[_Result | Failure], str]:
    """The results of `work` for all lines. A batch that fails is retried in halves, down to the single failing line.

    work: called with a slice of the lines; returns a result or a failure for each
    returns: the outcome of each line, and a warning if the whole batch failed, else an empty text
    Raises UserError if `work` does: it is not the fault of a line.
    """
    warning = ""

    def attempt(start: int, end: int) -> list[_Result | Failure]:
        nonlocal warning
        try:
            return work(slice(start, end))
        except UserError:
            raise
        except Exception as error:
            # the exception itself would keep the tensors alive that filled the memory
            place = place_in_plugin(error)
            reason = f"plug-in {place}: " * bool(place) + f"{type(error).__name__}: {quoted(error)}"
        if end - start == 1:
            return [Failure(reason)]
        warning = warning or f"a batch of {end - start} sentences failed ({reason}) and was retried in halves"
        middle = (start + end) // 2
        return attempt(start, middle) + attempt(middle, end)

    return attempt(0, num_lines), warning
