"""The Moses tokenizer (sacremoses). New data uses a reversible version, which does not split words that it could not restore."""

from functools import cached_property
from typing import Any, ClassVar

from nmt import register
from nmt.extensions.texts.reversible import Reversible
from nmt.options import NoOptions
from nmt.text.languages import UNSPACED_LANGUAGES, base_language
from nmt.tokenizers.base import Tokenizer


@register("tokenizer", "moses", NoOptions)
class MosesTokenizer(Tokenizer):
    """The Moses tokenizer (sacremoses), without its escapes."""

    is_aggressive: ClassVar[bool] = False

    def tokenize(self, text: str) -> str:
        more = self.is_aggressive
        return str(self._moses[0].tokenize(text, aggressive_dash_splits=more, escape=more, return_str=True))

    def detokenize(self, text: str) -> str:
        return str(self._moses[1].detokenize(text.split(" "), unescape=self.is_aggressive))

    def reversible(self) -> Tokenizer:
        return Reversible(self)

    @cached_property
    def _moses(self) -> tuple[Any, Any]:
        import sacremoses  # imported only here, because this takes a second

        language = base_language(self.language)  # sacremoses does not support regions
        return sacremoses.MosesTokenizer(lang=language), sacremoses.MosesDetokenizer(lang=language)


@register("tokenizer", "moses-aggressive", NoOptions)
class AggressiveMosesTokenizer(MosesTokenizer):
    """The Moses tokenizer as in `tokenizer.perl -a` and fairseq: with @-@ for hyphens inside words, and with escapes."""

    is_aggressive = True

    def reversible(self) -> Tokenizer:
        return self


def missing_rules(language: str) -> str:
    """A message about what Moses lacks for a language; empty if nothing is missing."""
    from sacremoses.corpus import NonbreakingPrefixes

    base = base_language(language)
    if base in UNSPACED_LANGUAGES:
        return f"Moses cannot find words in language {language}, which has no spaces between words"
    if base not in NonbreakingPrefixes().available_langs.values():
        return f"Moses has no rules for language {language} and uses those for English"
    return ""
