"""A tokenizer: separates punctuation from words, and rejoins them in translations.

nmt prepare --plugin my_tokenizer.py --tokenizer my-tokenizer --source-lang en --target-lang de \
        --train CORPUS --valid CORPUS --output DATA
nmt train --plugin my_tokenizer.py --data DATA --output RUN
"""

import re

from nmt import options_class, register
from nmt.tokenizers.base import Tokenizer

JOINED = "\uffed"  # marks where a word and a punctuation mark were joined, so that the text can be restored exactly


@options_class
class MyTokenizerOptions:  # these options become flags of `nmt prepare`, but a tokenizer gets only the language
    pass


@register("tokenizer", "my-tokenizer", MyTokenizerOptions)
class MyTokenizer(Tokenizer):
    """Puts spaces around punctuation, and a mark where there was no space."""

    def tokenize(self, text: str) -> str:
        """A line with one space between its words. self.language: the language code, such as "en" """
        separated = re.sub(r"(?<=\w)(?=[^\w\s])", f" {JOINED}", text)  # CHANGE: the rules
        return re.sub(r"(?<=[^\w\s])(?=\w)", f"{JOINED} ", separated)

    def detokenize(self, text: str) -> str:
        """The line as people write it."""
        return text.replace(f" {JOINED}", "").replace(f"{JOINED} ", "")
