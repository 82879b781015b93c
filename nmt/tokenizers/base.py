"""The interface of tokenizers, which put spaces between the words of a text, and take them away again."""

from abc import ABC, abstractmethod


class Tokenizer(ABC):
    """A tokenizer of one language, built as `cls(language)`. It is pickled for worker processes."""

    def __init__(self, language: str) -> None:
        self.language = language

    @abstractmethod
    def tokenize(self, text: str) -> str:
        """A line of text with one space between its words."""

    @abstractmethod
    def detokenize(self, text: str) -> str:
        """The line as it is written, of one that was tokenised."""

    def reversible(self) -> "Tokenizer":
        """One that gives all text back as it was, for new data; by default this one."""
        return self
