"""chrF++ (Popović, 2017), computed with sacreBLEU: chrF with additional word n-grams."""

from typing import Any, Final

from nmt import register
from nmt.extensions.scores.metrics.options import ChrfPlusOptions
from nmt.metrics.sacrebleu import SacreBleuMetric

MAX_NGRAM_WORDS: Final = 2


@register("metric", "chrf++", ChrfPlusOptions)
class ChrfPlus(SacreBleuMetric):
    """chrF++, 0 to 100: F2 score over n-grams of 1 to 6 characters and of 1 or 2 words."""

    options: ChrfPlusOptions

    def build(self) -> Any:
        from sacrebleu.metrics import CHRF

        return CHRF(word_order=MAX_NGRAM_WORDS, lowercase=self.options.lowercase)
