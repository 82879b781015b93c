"""BLEU (Papineni et al., 2002), chrF2 (Popović, 2015; 2016) and TER (Snover et al., 2006) by sacreBLEU (Post, 2018)."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nmt import UserError, opt, options_class, register
from nmt.errors import ResourceError, quoted, unknown
from nmt.metrics.base import Lines, Metric, Score

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOKENIZER_PACKAGES: Final = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
MAX_NGRAM_CHARACTERS: Final = 6  # of chrF2
BETA: Final = 2  # of chrF2: the weight of recall relative to precision


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU, with sacreBLEU's signature and line of detail."""

    @abstractmethod
    def build(self, of_sentences: bool = False) -> Any:
        """Build sacreBLEU's metric object, for test sets or for single sentences. Importing sacreBLEU takes 0.2 s."""

    @cached_property
    def _corpus_metric(self) -> Any:
        return self.build()

    @cached_property
    def _sentence_metric(self) -> Any:
        return self.build(of_sentences=True)

    def __call__(self, hypotheses: Lines, references: Sequence[Lines], sources: Lines | None = None) -> Score:
        return corpus_score(self._corpus_metric, hypotheses, references)

    def sentence_scores(
        self, hypotheses: Lines, references: Sequence[Lines], sources: Lines | None = None
    ) -> list[float]:
        rows = zip(hypotheses, *references, strict=True)
        return [float(self._sentence_metric.sentence_score(line, of_line).score) for line, *of_line in rows]


def corpus_score(metric: Any, hypotheses: Lines, references: Sequence[Lines]) -> Score:
    """Score a test set with one of sacreBLEU's metric objects."""
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(float(result.score), str(metric.get_signature()), str(result))


@options_class
class BleuOptions:
    tokenize: str = opt("13a", "BLEU's tokenizer (13a, intl, char, ...); none for text that is tokenised already")
    lowercase: bool = opt(False, "compare without case")


@register("metric", "bleu", BleuOptions)
class Bleu(SacreBleuMetric):
    """BLEU, 0 to 100: n-gram precision with a brevity penalty."""

    def __init__(self, options: BleuOptions) -> None:
        self.options = options

    def check(self) -> None:
        """Raise UserError for an unknown tokenizer or a missing package, ResourceError for a missing tokenizer model."""
        _ = self._corpus_metric

    def build(self, of_sentences: bool = False) -> Any:
        """See SacreBleuMetric. BLEU of a sentence is over the n-gram orders that it has, as sacreBLEU advises."""
        from sacrebleu.metrics import BLEU

        name = self.options.tokenize
        if name not in BLEU.TOKENIZERS:
            raise unknown("tokenizer of BLEU", name, BLEU.TOKENIZERS)
        _check_tokenizer_model(name)
        try:
            return BLEU(tokenize=name, lowercase=self.options.lowercase, force=True, effective_order=of_sentences)
        except (ImportError, RuntimeError, OSError) as error:
            if name in TOKENIZER_PACKAGES:
                raise UserError(
                    f"BLEU's tokenizer '{name}' needs packages that are not installed "
                    f"(pip install '{TOKENIZER_PACKAGES[name]}')"
                ) from error
            raise ResourceError(f"BLEU's tokenizer '{name}' cannot be used: {quoted(error)}") from error


def _check_tokenizer_model(name: str) -> None:
    """Raise ResourceError if a tokenizer's model file is missing: sacreBLEU's download is unpinned and has no time-out."""
    from sacrebleu.tokenizers import tokenizer_spm

    if name in tokenizer_spm.SPM_MODELS:
        address = tokenizer_spm.SPM_MODELS[name]["url"]
        file = Path(tokenizer_spm.SACREBLEU_DIR, "models", address.rpartition("/")[2])
        if not file.is_file():
            raise ResourceError(
                f"{quoted(file)}: not there; BLEU's tokenizer '{name}' needs it (download it from {address})"
            )


@options_class
class ChrfOptions:
    lowercase: bool = opt(False, "compare without case")


@register("metric", "chrf", ChrfOptions)
class Chrf(SacreBleuMetric):
    """chrF2, 0 to 100: F-score of character n-grams, recall counted twice."""

    def __init__(self, options: ChrfOptions) -> None:
        self.options = options

    def build(self, of_sentences: bool = False) -> Any:
        from sacrebleu.metrics import CHRF

        return CHRF(lowercase=self.options.lowercase)

    def pairwise(self, source: str, texts: Sequence[str]) -> "NDArray[np.float64]":
        """See Metric; sacreBLEU's values, with the n-grams of all texts counted once."""
        import numpy as np

        characters = ["".join((text.lower() if self.options.lowercase else text).split()) for text in texts]
        precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
        for n in range(1, MAX_NGRAM_CHARACTERS + 1):
            counts = _ngram_counts(characters, n)  # K G
            totals = counts.sum(1)
            common = np.array([np.minimum(row, counts).sum(1) for row in counts], dtype=np.float64)  # K K
            both = np.outer(totals, totals) > 0
            precisions += np.where(both, common / np.maximum(totals, 1)[:, None], 0)
            recalls += np.where(both, common / np.maximum(totals, 1)[None, :], 0)
            orders += both
        precision, recall = precisions / np.maximum(orders, 1), recalls / np.maximum(orders, 1)
        divisor = BETA**2 * precision + recall
        scores: NDArray[np.float64] = 100 * (1 + BETA**2) * precision * recall / np.where(divisor > 0, divisor, 1)
        return scores


def _ngram_counts(texts: Sequence[str], n: int) -> "NDArray[np.int64]":
    """Counts in each of K texts of each of the G character n-grams that occur: (K, G)."""
    import numpy as np

    rows = [[text[i : i + n] for i in range(len(text) - n + 1)] for text in texts]
    columns = {ngram: column for column, ngram in enumerate(sorted({ngram for row in rows for ngram in row}))}
    counts = np.zeros((len(rows), len(columns)), np.int64)
    for row, ngrams in zip(counts, rows, strict=True):
        np.add.at(row, [columns[ngram] for ngram in ngrams], 1)
    return counts


@options_class
class TerOptions:
    case_sensitive: bool = opt(False, "TER compares with case; sacreBLEU's default is without")


@register("metric", "ter", TerOptions)
class Ter(SacreBleuMetric):
    """TER: edits and shifts of words per 100 words of the reference; 0 is best."""

    higher_is_better: ClassVar[bool] = False

    def __init__(self, options: TerOptions) -> None:
        self.options = options

    def build(self, of_sentences: bool = False) -> Any:
        from sacrebleu.metrics import TER

        return TER(case_sensitive=self.options.case_sensitive)
