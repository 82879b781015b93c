"""Translation edit rate (Snover et al., 2006) by sacreBLEU."""

from collections.abc import Iterator
from typing import Any, ClassVar

from nmt import register
from nmt.metrics.base import Lines, References
from nmt.metrics.bleu import language_tokenizer
from nmt.metrics.options import TerOptions
from nmt.metrics.sacrebleu import SacreBleuMetric, unspaced_lines


@register("metric", "ter", TerOptions)
class Ter(SacreBleuMetric):
    """TER: edits and shifts of words per 100 words of the reference; 0 is best."""

    higher_is_better: ClassVar[bool] = False

    options: TerOptions

    def build(self) -> Any:
        from sacrebleu.metrics import TER

        splits = self._splits_characters
        return TER(normalized=splits, asian_support=splits, case_sensitive=self.options.case_sensitive)

    @property
    def _splits_characters(self) -> bool:
        """Whether Chinese and Japanese characters are words, as sacreBLEU offers for these languages."""
        return language_tokenizer(self.options.target_lang or self.language) in ("zh", "ja-mecab")

    def doubts(self, hypotheses: Lines, references: References) -> Iterator[str]:
        """See Metric."""
        if not self._splits_characters and (lines := unspaced_lines(references)):
            yield f"{lines} have no spaces between words, which TER counts (use --target-lang zh or ja, else --metrics chrf)"
