"""Tokenisers: text to text with spaces between its words, and back."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

TokenizerName = Literal["none", "moses"]


@dataclass(frozen=True)
class Tokenizer:
    """`none` leaves text as it is; `moses` is the Moses tokeniser (sacremoses), without HTML escapes."""

    name: TokenizerName
    language: str

    def tokenize(self, text: str) -> str:
        if self.name == "none":
            return text
        return str(self._tokenizer.tokenize(text, escape=False, return_str=True))

    def detokenize(self, text: str) -> str:
        if self.name == "none":
            return text
        return str(self._detokenizer.detokenize(text.split(" "), unescape=False))

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer  # slow to import, so only when asked for

        return MosesTokenizer(lang=self.language)

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=self.language)
