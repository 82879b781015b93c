"""chrF2 (Popović, 2015; 2016) as computed by sacreBLEU."""

from typing import Any

from nmt import register
from nmt.metrics.options import ChrfOptions
from nmt.metrics.sacrebleu import SacreBleuMetric


@register("metric", "chrf", ChrfOptions)
class Chrf(SacreBleuMetric):
    """chrF2, 0 to 100: F-score of character n-grams that weighs recall twice as much as precision."""

    options: ChrfOptions

    def build(self) -> Any:
        from sacrebleu.metrics import CHRF

        return CHRF(lowercase=self.options.lowercase)
