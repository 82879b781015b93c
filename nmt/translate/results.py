"""Results of lines: translations with their details, scores of pairs, failures; and the retry of a failing batch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.decoders.hypothesis import Hypothesis
from nmt.errors import UserError, quoted
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.translate.alignment import read_dictionary, replaced_unknown, word_weights
from nmt.translate.options import TranslatorOptions

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
WITHHELD: Final = "withheld"  # its confidence is too low

NOT_FINITE: Final = Failure("the model gives no finite probability")


@dataclass(frozen=True)
class ForcedDecoding:
    """Log-probabilities and attention of one translation.

    log_probs: nats of each token and of EOS; calibrated: the same at the model's temperature (nmt score --calibrate)
    weights: (tokens + EOS, source tokens + EOS) attention; None for a Scorer without attention
    """

    log_probs: list[float]
    calibrated: list[float]
    weights: NDArray[np.float32] | None

    def without_context(self, num_context: int) -> "ForcedDecoding":
        """The same, but for the attention to the first source tokens."""
        return self if self.weights is None else replace(self, weights=self.weights[:, num_context:])

    @property
    def confidence(self) -> float:
        """The geometric mean of the calibrated probabilities, 0 to 1."""
        return math.exp(math.fsum(self.calibrated) / len(self.calibrated))


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
    confidence: of its ForcedDecoding; None unless requested
    """

    text: str
    tokens: list[int]
    log_prob: float
    score: float
    word_scores: list[float] = []
    weights: list[list[float]] = []
    scores: list[float] = []
    confidence: float | None = None


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


class ResultOptions:
    """The details of a translation that are requested besides its text.

    dictionary: translations of source words, which replace unknown words; None leaves these
    """

    def __init__(self, options: TranslatorOptions) -> None:
        self.word_scores, self.raw_tokens = options.word_scores, options.raw_tokens
        self.alignment = options.alignment is not None
        self.confidence = options.min_confidence is not None
        self.dictionary: Mapping[str, str] | None = None
        if options.replace_unk:
            self.dictionary = read_dictionary(Path(options.unk_dictionary)) if options.unk_dictionary else {}

    def attention_error(self) -> UserError | None:
        """The error for details of a model without attention; None if they need none."""
        if not self.alignment and self.dictionary is None:
            return None
        flags = ["--alignment", "--replace-unk", *registry.declared("pass", "needs_attention")]
        return UserError(
            f"{', '.join(flags)} and --format: the model has no attention, which they need (leave them out)"
        )

    def needs_forced_decoding(self, tokens: Sequence[int]) -> bool:
        """Whether the details of a translation come from a forced decoding of it."""
        return self.word_scores or self.alignment or self.confidence or (self.dictionary is not None and UNK in tokens)

    def candidate(
        self, pipeline: Pipeline, text: str, source: list[int], hypothesis: Hypothesis, forced: ForcedDecoding | None
    ) -> Candidate:
        """A hypothesis as text, with the requested details.

        text, source: the line and its ids, without EOS
        forced: the forced decoding of the hypothesis, if the details need it
        Raises UserError if the details need attention and the model has none.
        """
        target, tokens = pipeline.target, pipeline.target.in_reading_order(hypothesis.tokens)
        translation, word_scores, weights = target.decode(hypothesis.tokens), [], []
        if forced is not None:
            order = [*target.in_reading_order(range(len(tokens))), len(tokens)]  # EOS last
            log_probs = [forced.log_probs[position] for position in order]
            attention = None if forced.weights is None else forced.weights[order]
            if attention is None and (error := self.attention_error()) is not None:
                raise error
            source_words: Sequence[int] = range(len(source))
            target_words: Sequence[int] = range(len(tokens)) if self.raw_tokens else target.word_of_tokens(tokens)
            dictionary = self.dictionary if UNK in tokens else None
            needs_words = dictionary is not None or (self.alignment and not self.raw_tokens)
            if attention is not None and needs_words:  # otherwise the text is not cut once more
                words = pipeline.source.words(pipeline.source.prepare([text])[0])
                source_words = pipeline.source.word_of_text_tokens(words)[: len(source)]
                if dictionary is not None:
                    numbers = word_weights(attention, source_words, range(len(tokens))).argmax(1)
                    aligned = [words[number] for number in numbers.tolist()]
                    translation = replaced_unknown(target, tokens, aligned, dictionary)
            if self.word_scores:
                sums = np.bincount(target_words, log_probs[:-1]).tolist() if tokens else []
                word_scores = [*sums, log_probs[-1]]
            if self.alignment and attention is not None:
                weights = word_weights(attention, source_words, target_words).tolist()
        confidence = forced.confidence if forced is not None and self.confidence else None
        scores = hypothesis.log_prob, hypothesis.score
        return Candidate(translation, tokens, *scores, word_scores, weights, confidence=confidence)


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
            reason = f"{type(error).__name__}: {quoted(error)}"
        if end - start == 1:
            return [Failure(reason)]
        warning = warning or f"a batch of {end - start} sentences failed ({reason}) and was retried in halves"
        middle = (start + end) // 2
        return attempt(start, middle) + attempt(middle, end)

    return attempt(0, num_lines), warning
