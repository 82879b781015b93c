"""Warns about references that do not suit word-based metrics."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from nmt import register
from nmt.evaluations.base import TextCheck
from nmt.extensions.scores.metrics.gleu import MAX_NGRAM_TOKENS, Gleu
from nmt.metrics.base import Metric, References
from nmt.metrics.bleu import TOKENIZER_PACKAGES, Bleu, language_tokenizer
from nmt.metrics.ter import Ter
from nmt.options import AUTO, NoOptions

# A run of letters, longer than a word, in scripts without spaces between words: Thai to Tibetan, Myanmar, Khmer, kana, Han.
UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{8}"
)
MAX_UNSPACED_LINES: Final = 0.1  # share of lines; quotations alone do not reach a larger share
SPACED_TOKENIZERS: Final = ("13a", "intl")  # tokenizers that need spaces between words


@register("text-check", "word-metrics", NoOptions)
class WordMetrics(TextCheck):
    """Warns about references that have no spaces between words or are too short for BLEU."""

    def doubts(self, metrics: Sequence[Metric], references: References) -> Iterator[str]:
        lines = [line for of_reference in references for line in of_reference]
        count = sum(UNSPACED.search(line) is not None for line in lines)
        unspaced = f"{count:,} of {len(lines):,} references have no spaces between words"
        is_unspaced = count > MAX_UNSPACED_LINES * len(lines)
        for metric in metrics:
            bleu = metric.bleu if isinstance(metric, Gleu) else metric
            if isinstance(bleu, Bleu):
                yield from _missing_tokenizer(bleu)
                if is_unspaced and bleu.tokenizer in SPACED_TOKENIZERS:
                    way = "(use --tokenize zh, ja-mecab or char)"
                    yield f"{unspaced}, which BLEU's tokenizer '{bleu.tokenizer}' needs {way}"
            if isinstance(metric, Ter) and is_unspaced and not metric.splits_characters:
                yield f"{unspaced}, which TER needs (use chrf, or --target-lang for Chinese and Japanese)"
            if isinstance(metric, Bleu) and all(_num_tokens(metric, line) < MAX_NGRAM_TOKENS for line in lines):
                yield "all references have fewer than four words, so BLEU is always 0 (use chrf, or --tokenize char)"


def _missing_tokenizer(bleu: Bleu) -> Iterator[str]:
    fitting = language_tokenizer(bleu.options.target_lang or bleu.language)
    if bleu.options.tokenize == AUTO and bleu.tokenizer != fitting:
        way = f"(pip install '{TOKENIZER_PACKAGES[fitting]}', or use --tokenize {bleu.tokenizer})"
        yield f"BLEU's tokenizer '{fitting}' is not installed, so BLEU compares characters {way}"


def _num_tokens(bleu: Bleu, line: str) -> int:
    return len(bleu.corpus_metric.tokenizer(line).split())
