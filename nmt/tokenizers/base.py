"""The interface for tokenizers, which put spaces between the words of a text, and remove them again."""

from abc import ABC, abstractmethod


class Tokenizer(ABC):
    """A tokenizer for one language, built as `cls(language)`. It must be picklable, for worker processes."""

    def __init__(self, language: str) -> None:
        self.language = language

    @abstractmethod
    def tokenize(self, text: str) -> str:
        """Put one space between the words of a line."""

    @abstractmethod
    def detokenize(self, text: str) -> str:
        """Restore the normal spacing of a tokenised line."""

    def reversible(self) -> "Tokenizer":
        """The lossless variant, which is used for new data; by default, the tokenizer itself."""
        return self
