"""Translation edit rate (Snover et al., 2006) by sacreBLEU."""

from typing import Any, ClassVar

from nmt import register
from nmt.metrics.options import TerOptions
from nmt.metrics.sacrebleu import SacreBleuMetric


@register("metric", "ter", TerOptions)
class Ter(SacreBleuMetric):
    """TER: edits and shifts of words per 100 words of the reference; 0 is best."""

    higher_is_better: ClassVar[bool] = False

    options: TerOptions

    def build(self) -> Any:
        from sacrebleu.metrics import TER

        return TER(case_sensitive=self.options.case_sensitive)
