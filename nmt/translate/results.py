"""Results of lines: translations with details, scores of pairs, failures. Also the retry of a failed batch."""

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
    """The result of a line that could not be translated or scored. message: the reason"""

    message: str


# The kinds of warnings that a Translation can have.
TRUNCATED: Final = "truncated"  # the line has too many tokens and was truncated
TRUNCATED_TEXT: Final = "truncated text"  # the text has too many characters and was truncated
UNKNOWN_TOKENS: Final = "unknown tokens"  # some tokens of the line are not in the vocabulary
UNKNOWN_TAG: Final = "unknown tag"  # the line starts with a tag that the model does not know
RETRIED: Final = "retried"  # the batch failed and was split in half; set only on the first line of the batch
REPAIRED: Final = "repaired"  # the line was translated again
BROKEN: Final = "broken"  # the translation looks broken
UNCHANGED: Final = "kept unchanged"  # a part of the text was left unchanged, because its translation lost something
WITHHELD: Final = "withheld"  # the confidence is too low

NOT_FINITE: Final = Failure("the model's probabilities are not finite")


@dataclass(frozen=True)
class PairScore:
    """The score of a sentence pair.

    log_prob: total log-probability of the target tokens and EOS, in nats
    pieces: target tokens in reading order, with EOS at the end
    log_probs: log-probability of each of these tokens, in nats
    """

    log_prob: float
    pieces: list[str]
    log_probs: list[float]


class Candidate(msgspec.Struct, frozen=True):
    """One translation of a line.

    tokens: target ids in reading order
    log_prob: log-probability in nats, including EOS
    score: the value by which the search ranks candidates
    word_scores: log-probability of each word and of EOS, in nats; empty unless requested
    weights: attention, (words, source words); empty unless requested, or if the model has no attention
    scores: with re-ranking, the scores of the search and of each model (`score` is their weighted mean); otherwise empty
    confidence: geometric mean of its tokens' probabilities; None unless requested
    warnings: warnings for the translation if this is its best candidate
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
        """Convert a hypothesis to text. target: the target side of the pipeline"""
        tokens = hypothesis.tokens
        return cls(target.decode(tokens), target.in_reading_order(tokens), hypothesis.log_prob, hypothesis.score)


class Translation(msgspec.Struct, frozen=True):
    """The result of translating a line.

    candidates: best first; empty for a line without tokens and for a failed line
    error: the reason for a failure, or empty
    warnings: messages by kind; the kinds are the constants from TRUNCATED to WITHHELD
    num_source_tokens: number of source tokens, including those of the context
    """

    candidates: list[Candidate] = []
    error: str = ""
    warnings: dict[str, str] = {}
    num_source_tokens: int = 0

    @property
    def shown(self) -> list[Candidate]:
        """The candidates, or none if the translation is withheld."""
        return [] if WITHHELD in self.warnings else self.candidates

    @property
    def text(self) -> str:
        """The best translation; empty if there is none or if it is withheld."""
        return self.shown[0].text if self.shown else ""

    def candidate(self, number: int) -> Candidate:
        """A candidate by its number, from 0; the last one if there are fewer, or an empty one if there are none."""
        last = len(self.candidates) - 1
        return self.candidates[min(number, last)] if self.candidates else Candidate("", [], 0.0, 0.0)


def retry_split(
    work: Callable[[slice], list[_Result | Failure]], num_lines: int
) -> tuple[list[_Result | Failure], str]:
    """Call `work` for all lines. A batch that fails is retried in halves, down to the single failing line.

    work: called with a slice of the lines; returns a result or a failure for each
    returns: the outcome of each line, and a warning if the whole batch failed, otherwise an empty string
    Raises UserError if `work` does, because then no line is at fault.
    """
    warning = ""

    def attempt(start: int, end: int) -> list[_Result | Failure]:
        nonlocal warning
        try:
            return work(slice(start, end))
        except UserError:
            raise
        except Exception as error:
            # Keep only the text: the exception itself would keep the tensors that filled the memory alive.
            place = place_in_plugin(error)
            reason = f"plug-in {place}: " * bool(place) + f"{type(error).__name__}: {quoted(error)}"
        if end - start == 1:
            return [Failure(reason)]
        warning = warning or f"a batch of {end - start} sentences failed ({reason}) and was retried in halves"
        middle = (start + end) // 2
        return attempt(start, middle) + attempt(middle, end)

    return attempt(0, num_lines), warning
