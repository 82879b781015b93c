"""No tokenizer."""

from nmt import register
from nmt.options import NoOptions
from nmt.tokenizers.base import Tokenizer


@register("tokenizer", "none", NoOptions)
class NoTokenizer(Tokenizer):
    """Leaves text unchanged; spaces separate words."""

    def tokenize(self, text: str) -> str:
        return text

    def detokenize(self, text: str) -> str:
        return text
