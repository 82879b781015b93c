"""Convert search results into text, alignments and scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.decoders.base import Hypothesis
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.translate.alignment import replaced_unknown, word_weights
from nmt.translate.forced_decoding import ForcedDecoding


@dataclass(frozen=True)
class Candidate:
    """One translation of a line.

    tokens: target ids in reading order
    log_prob: nats, EOS counted
    score: the value that the search ranks by
    word_scores: nats of each word, and of EOS; empty unless requested
    weights: (words, source words) attention; empty unless requested, and without attention
    scores: with re-ranking, the scores of the search and of each model, whose weighted mean is `score`; else empty
    """

    text: str
    tokens: list[int]
    log_prob: float
    score: float
    word_scores: list[float] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Translation:
    """The result of translating a line.

    candidates: best first; none for a line without tokens and for one that failed
    error: the reason of a failure; empty without one
    warnings: messages by kind: `cut`, the line was too long; `retried`, its batch failed and was halved
    """

    candidates: list[Candidate] = field(default_factory=list)
    error: str = ""
    warnings: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The best translation; empty without one."""
        return self.candidates[0].text if self.candidates else ""


@dataclass(frozen=True)
class ResultOptions:
    """The details of a translation that are requested besides its text.

    word_scores: log-probabilities of words
    alignment: attention weights of words
    raw_tokens: give both for tokens instead of words
    dictionary: translations of source words, which replace unknown words; None leaves these
    """

    word_scores: bool = False
    alignment: bool = False
    raw_tokens: bool = False
    dictionary: Mapping[str, str] | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether the details come from attention weights."""
        return self.alignment or self.dictionary is not None

    def needs_forced_decoding(self, tokens: Sequence[int]) -> bool:
        """Whether the details of a translation come from a forced decoding of it."""
        return self.word_scores or self.alignment or (self.dictionary is not None and UNK in tokens)

    def candidate(
        self,
        pipeline: Pipeline,
        text: str,
        source: NDArray[Any],
        hypothesis: Hypothesis,
        forced: ForcedDecoding | None,
    ) -> Candidate:
        """A hypothesis as text, with the requested details.

        text, source: the line and its ids, without EOS
        forced: the forced decoding of the hypothesis, if the details need it
        """
        target, tokens = pipeline.target, pipeline.target.in_reading_order(hypothesis.tokens)
        candidate = Candidate(target.decode(hypothesis.tokens), tokens, hypothesis.log_prob, hypothesis.score)
        if forced is None:
            return candidate
        order = [*target.in_reading_order(range(len(tokens))), len(tokens)]  # EOS last
        log_probs = [forced.log_probs[position] for position in order]
        attention = None if forced.weights is None else forced.weights[order]
        source_words, target_words = pipeline.source.word_of_tokens(source.tolist()), target.word_of_tokens(tokens)
        if self.dictionary is not None and UNK in tokens and attention is not None:
            words = pipeline.source.words(pipeline.source.prepare([text])[0])
            numbers = word_weights(attention, source_words, range(len(tokens))).argmax(1)
            aligned = [words[min(number, len(words) - 1)] for number in numbers.tolist()]
            candidate = replace(candidate, text=replaced_unknown(target, tokens, aligned, self.dictionary))
        if self.raw_tokens:
            source_words, target_words = list(range(len(source))), list(range(len(tokens)))
        if self.word_scores:
            sums = np.bincount(target_words, log_probs[:-1]).tolist() if tokens else []
            candidate = replace(candidate, word_scores=[*sums, log_probs[-1]])
        if self.alignment and attention is not None:
            candidate = replace(candidate, weights=word_weights(attention, source_words, target_words).tolist())
        return candidate
