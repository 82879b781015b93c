"""GLEU (Wu et al., 2016, section 4.3): the minimum of precision and recall over all n-grams of 1 to 4 tokens."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Final, NamedTuple

from nmt import register
from nmt.extensions.scores.metrics.options import GleuOptions
from nmt.metrics.base import Lines, Metric, References, Score, given_references
from nmt.metrics.bleu import Bleu
from nmt.version import __version__

MAX_NGRAM_TOKENS: Final = 4
CACHED_COUNTS: Final = 1024  # number of lines to cache, because references are compared with many hypotheses


class _Matches(NamedTuple):
    """Counts of n-grams.

    common: number of n-grams that both sides share, each with the lower of its two counts
    most: number of n-grams on the side that has more
    """

    common: int
    most: int

    @property
    def gleu(self) -> float:
        """The minimum of precision and recall, 0 to 100; 0 without n-grams."""
        return 100 * self.common / max(self.most, 1)


@register("metric", "gleu", GleuOptions)
class Gleu(Metric):
    """GLEU, 0 to 100: the minimum of n-gram precision and recall, designed for single sentences.

    bleu: provides the tokenizer
    """

    def __init__(self, options: GleuOptions) -> None:
        self.options = options
        self.bleu = Bleu(options)
        self._counts = lru_cache(CACHED_COUNTS)(self._count)

    def use_language(self, language: str) -> None:
        self.bleu.use_language(language)

    def check(self) -> None:
        """See Bleu, which provides the tokenizers."""
        self.bleu.check()

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """Score a test set as NLTK's `corpus_gleu` does: divide the sum of `common` over all lines by the sum of `most`.

        Each line is matched with its best reference, or with the first of those that tie.
        """
        value = _Matches(*map(sum, zip(*self._matches(hypotheses, references), strict=True))).gleu
        is_variable = any(None in lines for lines in given_references(references))
        count, case = "var" if is_variable else len(references), "lc" if self.options.lowercase else "mixed"
        tokens = f"tok:{self.bleu.tokenizer}|ngrams:1-{MAX_NGRAM_TOKENS}|sacrebleu:{version('sacrebleu')}"
        return Score(value, f"nrefs:{count}|case:{case}|{tokens}|version:{__version__}", f"GLEU = {value:.2f}")

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        return [match.gleu for match in self._matches(hypotheses, references)]

    def _matches(self, hypotheses: Lines, references: References) -> list[_Matches]:
        """The matches of each line with the reference that matches it best."""
        lines = zip(hypotheses, *given_references(references), strict=True)
        return [self._best_match(line, [text for text in of_line if text is not None]) for line, *of_line in lines]

    def _best_match(self, hypothesis: str, references: Sequence[str]) -> _Matches:
        counts = self._counts(hypothesis)
        matches = [
            _Matches((counts & of_reference).total(), max(counts.total(), of_reference.total()))
            for of_reference in map(self._counts, references)
        ]
        return max(matches, key=lambda match: match.gleu)

    def _count(self, line: str) -> Counter[tuple[str, ...]]:
        """Count each n-gram of 1 to 4 tokens in a line."""
        text = line.lower() if self.options.lowercase else line
        tokens = self.bleu.corpus_metric.tokenizer(text.rstrip()).split()
        return Counter(
            tuple(tokens[i : i + n]) for n in range(1, MAX_NGRAM_TOKENS + 1) for i in range(len(tokens) - n + 1)
        )
