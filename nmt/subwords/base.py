"""The interface of subwords: how text is split into tokens, and how the vocabulary for that is learnt.

A registered class is built as `cls(options, side)`. The options are those of `nmt prepare`, which are also an instance of its
own options class.
"""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Protocol

from nmt.text.vocabulary import Vocabulary


class TrainingText(Protocol):
    """The text that a vocabulary is learnt from: of one language, or of both for a joint one, after the other text steps."""

    def word_counts(self) -> Counter[str]:
        """The number of occurrences of each word between spaces."""
        ...

    def learn_sentencepiece(self, model_type: str) -> Vocabulary:
        """A sentencepiece model, learnt from a sample in a separate process. model_type: bpe, unigram or char"""
        ...


class Subword(ABC):
    """A way to split text into tokens.

    vocabulary: the class of its vocabularies, which also reads saved ones
    takes_all: whether `--vocab-size 0` means all words or pieces of the text
    """

    vocabulary: ClassVar[type[Vocabulary]]
    takes_all: ClassVar[bool] = False

    def __init__(self, options: Any, side: int) -> None:
        """side: 0 for the source or a joint vocabulary, 1 for the target"""
        self.options, self.side = options, side

    @abstractmethod
    def learn(self, text: TrainingText) -> Vocabulary:
        """The vocabulary of a text. Raises UserError if none can be learnt."""
