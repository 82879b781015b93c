"""chrF2 (Popović, 2015; 2016) by sacreBLEU, and a fast implementation for all pairs of a few texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nmt import register
from nmt.metrics.options import ChrfOptions
from nmt.metrics.sacrebleu import SacreBleuMetric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_NGRAM_CHARACTERS: Final = 6
BETA: Final = 2  # the weight of recall relative to precision


@register("metric", "chrf", ChrfOptions)
class Chrf(SacreBleuMetric):
    """chrF2, 0 to 100: F-score of character n-grams, recall counted twice."""

    options: ChrfOptions

    def build(self) -> Any:
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
            precisions += common / np.maximum(totals, 1)[:, None]
            recalls += common / np.maximum(totals, 1)
            orders += np.outer(totals, totals) > 0
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
