"""Utilities for minimum Bayes risk: scores of K texts, with each of them in turn as the reference."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nmt.metrics.base import Metric
from nmt.metrics.chrf import Chrf

MAX_NGRAM_CHARACTERS: Final = 6  # chrF's default
BETA: Final = 2  # weight of recall relative to precision


def pairwise(metric: Metric, source: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Score K translations of one source, with each of them in turn as the reference.

    returns: (K, K), one row per translation and one column per reference
    """
    if type(metric) is Chrf:
        return pairwise_chrf(texts, metric.options.lowercase)
    hypotheses = [text for text in texts for _ in texts]
    scores = metric.sentence_scores(hypotheses, [list(texts) * len(texts)], [source] * len(hypotheses))
    return np.array(scores, dtype=np.float64).reshape(len(texts), len(texts))


def pairwise_chrf(texts: Sequence[str], lowercase: bool) -> NDArray[np.float64]:
    """Like `pairwise`, but for chrF. The values equal sacreBLEU's, but each text's n-grams are counted only once."""
    characters = ["".join((text.lower() if lowercase else text).split()) for text in texts]
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


def _ngram_counts(texts: Sequence[str], n: int) -> NDArray[np.int64]:
    """Count the G distinct character n-grams in each of K texts: (K, G)."""
    rows = [[text[i : i + n] for i in range(len(text) - n + 1)] for text in texts]
    columns = {ngram: column for column, ngram in enumerate(sorted({ngram for row in rows for ngram in row}))}
    counts = np.zeros((len(rows), len(columns)), np.int64)
    for row, ngrams in zip(counts, rows, strict=True):
        np.add.at(row, [columns[ngram] for ngram in ngrams], 1)
    return counts
