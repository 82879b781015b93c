"""chrF++ (Popović, 2017) by sacreBLEU: chrF with n-grams of words."""

from typing import Any, Final

from nmt import register
from nmt.extensions.scores.metrics.options import ChrfPlusOptions
from nmt.metrics.sacrebleu import SacreBleuMetric

MAX_NGRAM_WORDS: Final = 2


@register("metric", "chrf++", ChrfPlusOptions)
class ChrfPlus(SacreBleuMetric):
    """chrF++, 0 to 100: F-score of n-grams of 1 to 6 characters and of 1 and 2 words, recall counted twice."""

    options: ChrfPlusOptions

    def build(self) -> Any:
        from sacrebleu.metrics import CHRF

        return CHRF(word_order=MAX_NGRAM_WORDS, lowercase=self.options.lowercase)
