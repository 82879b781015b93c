"""The interface for subwords: how text is split into tokens, and how their vocabulary is learnt.

A registered class is built as `cls(options, side)`. `options` are the options of `nmt prepare`; they are also an instance of
the options class that the component was registered with.
"""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Protocol

from nmt.text.vocabulary import Vocabulary


class TrainingText(Protocol):
    """The text that a vocabulary is learnt from, after all other text steps: one language, or both for a joint vocabulary."""

    def word_counts(self) -> Counter[str]:
        """The number of occurrences of each word (text between spaces)."""
        ...

    def learn_sentencepiece(self, model_type: str) -> Vocabulary:
        """Learn a sentencepiece model from a sample, in a separate process. model_type: bpe, unigram or char"""
        ...


class Subword(ABC):
    """A way to split text into tokens.

    vocabulary: class of the vocabularies that it learns; the class also loads saved ones
    takes_all: whether `--vocab-size 0`, which keeps all words or pieces of the text, is allowed
    """

    vocabulary: ClassVar[type[Vocabulary]]
    takes_all: ClassVar[bool] = False

    def __init__(self, options: Any, side: int) -> None:
        """side: 0 for the source or a joint vocabulary, 1 for the target"""
        self.options, self.side = options, side

    @abstractmethod
    def learn(self, text: TrainingText) -> Vocabulary:
        """Learn the vocabulary of a text. Raises UserError if that is impossible."""
