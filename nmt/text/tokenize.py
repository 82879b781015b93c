"""Tokenizers: text to text with spaces between its words, and back.

To add one, write a class with the methods of `Tokenizer` and name it in `TOKENIZERS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol


class Tokenizer(Protocol):
    """A tokenizer of one language. It is pickled for worker processes."""

    def tokenize(self, text: str) -> str:
        """A line of text with one space between its words."""

    def detokenize(self, text: str) -> str:
        """The line as it is written, of one that was tokenised."""


@dataclass(frozen=True)
class NoTokenizer:
    """Words are what stands between spaces."""

    language: str

    def tokenize(self, text: str) -> str:
        return text

    def detokenize(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class MosesTokenizer:
    """The Moses tokenizer (sacremoses), without HTML escapes."""

    language: str

    def tokenize(self, text: str) -> str:
        return str(self._tokenizer.tokenize(text, escape=False, return_str=True))

    def detokenize(self, text: str) -> str:
        return str(self._detokenizer.detokenize(text.split(" "), unescape=False))

    @cached_property
    def _tokenizer(self) -> Any:
        import sacremoses  # imported when used: it takes a second

        return sacremoses.MosesTokenizer(lang=self.language)

    @cached_property
    def _detokenizer(self) -> Any:
        import sacremoses

        return sacremoses.MosesDetokenizer(lang=self.language)


TOKENIZERS: Final[Mapping[str, Callable[[str], Tokenizer]]] = {"none": NoTokenizer, "moses": MosesTokenizer}
if TYPE_CHECKING:
    TokenizerName = str
else:
    TokenizerName = Literal[tuple(TOKENIZERS)]  # the choices of `--tokenizer`
