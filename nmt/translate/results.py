"""What is made of what a search found: text, and what is wanted of it besides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.decoders.base import Hypothesis
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.text.words import word_of_tokens, words_of
from nmt.translate.alignment import of_words, replaced_unknown
from nmt.translate.forced_decoding import ForcedDecoding


@dataclass(frozen=True)
class Candidate:
    """One translation of a line.

    tokens: target ids in the order of reading; log_prob: nats, EOS counted; score: what the search ranks by
    word_scores: nats of each word, and of EOS; empty unless asked for
    weights: of each word, how much it looks at each source word; empty unless asked for, and without attention
    scores: the search's own and that of each model that ranked it again, of which `score` is the mean; empty without such
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
    """What became of a line.

    candidates: best first; none for a line without tokens and for one that failed; error: why it failed
    """

    candidates: list[Candidate] = field(default_factory=list)
    error: str = ""

    @property
    def text(self) -> str:
        return self.candidates[0].text if self.candidates else ""


@dataclass(frozen=True)
class Detail:
    """What is wanted of a translation besides its text.

    word_scores, alignment: whether; of tokens: those of tokens, not of words
    dictionary: translations of source words, put where the model says the unknown word; None leaves it there
    """

    word_scores: bool = False
    alignment: bool = False
    of_tokens: bool = False
    dictionary: Mapping[str, str] | None = None

    @property
    def of_attention(self) -> bool:
        """Whether it needs to know where the model looks."""
        return self.alignment or self.dictionary is not None

    def wanted(self, tokens: Sequence[int]) -> bool:
        """Whether a translation has to be read again."""
        return self.word_scores or self.alignment or (self.dictionary is not None and UNK in tokens)

    def candidate(
        self,
        pipeline: Pipeline,
        text: str,
        sentence: NDArray[Any],
        hypothesis: Hypothesis,
        forced: ForcedDecoding | None,
    ) -> Candidate:
        """A hypothesis as text, with what is wanted besides.

        text, sentence: the line and its source ids; reading: the second one, where it is wanted
        """
        target, tokens = pipeline.target, pipeline.target.in_reading_order(hypothesis.tokens)
        found = Candidate(target.decode(hypothesis.tokens), tokens, hypothesis.log_prob, hypothesis.score)
        if forced is None:
            return found
        forced = forced.in_order([*target.in_reading_order(range(len(tokens))), len(tokens)])
        source_words, target_words = word_of_tokens(pipeline.source, sentence.tolist()), word_of_tokens(target, tokens)
        if self.dictionary is not None and UNK in tokens and forced.weights is not None:
            words = words_of(pipeline.source, text)
            looked = of_words(forced.weights, source_words, range(len(tokens))).argmax(1)
            aligned = [words[min(number, len(words) - 1)] for number in looked.tolist()]
            found = replace(found, text=replaced_unknown(target, tokens, aligned, self.dictionary))
        if self.of_tokens:
            source_words, target_words = list(range(len(sentence))), list(range(len(tokens)))
        if self.word_scores:
            sums = np.bincount(target_words, forced.log_probs[:-1]).tolist() if tokens else []
            found = replace(found, word_scores=[*sums, forced.log_probs[-1]])
        if self.alignment and forced.weights is not None:
            found = replace(found, weights=of_words(forced.weights, source_words, target_words).tolist())
        return found
