"""Translation edit rate (Snover et al., 2006) as computed by sacreBLEU."""

from typing import Any, ClassVar

from nmt import register
from nmt.metrics.bleu import language_tokenizer
from nmt.metrics.options import TerOptions
from nmt.metrics.sacrebleu import SacreBleuMetric


@register("metric", "ter", TerOptions)
class Ter(SacreBleuMetric):
    """TER: number of word edits and shifts per 100 reference words; 0 is best."""

    higher_is_better: ClassVar[bool] = False

    options: TerOptions

    def build(self) -> Any:
        from sacrebleu.metrics import TER

        splits = self.splits_characters
        return TER(normalized=splits, asian_support=splits, case_sensitive=self.options.case_sensitive)

    @property
    def splits_characters(self) -> bool:
        """Whether each character counts as a word, which is sacreBLEU's option for Chinese and Japanese."""
        return language_tokenizer(self.options.target_lang or self.language) in ("zh", "ja-mecab")
