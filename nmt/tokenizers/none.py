"""Text without a tokenizer."""

from nmt import register
from nmt.options import NoOptions
from nmt.tokenizers.base import Tokenizer


@register("tokenizer", "none", NoOptions)
class NoTokenizer(Tokenizer):
    """Leaves text as it is: words are separated by spaces."""

    def tokenize(self, text: str) -> str:
        return text

    def detokenize(self, text: str) -> str:
        return text
