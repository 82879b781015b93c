"""A way to split words into tokens: pieces of at most three characters.

nmt prepare --plugin my_subword.py --subword my-subword --source-lang en --target-lang de \
        --train CORPUS --valid CORPUS --output DATA
nmt train --plugin my_subword.py --data DATA --output RUN
"""

from collections import Counter
from collections.abc import Sequence

from nmt import options_class, register
from nmt.subwords.base import Subword, TrainingText
from nmt.text.vocabulary import EncodedTexts, WordVocabulary

GOES_ON = "@@"  # ends a piece if another piece of the same word follows
SIZE = 3  # CHANGE: characters per piece


class MySubwordVocabulary(WordVocabulary):
    """A list of pieces. Its file is saved in data and model folders, and read again to encode and decode texts."""

    suffix = ".pieces"  # file name extension of the vocabulary

    @staticmethod
    def cut(text: str) -> str:
        """A text with a space between its pieces."""  # CHANGE: how words are split
        words = ([word[i : i + SIZE] for i in range(0, len(word), SIZE)] for word in text.split(" "))
        return " ".join(f"{GOES_ON} ".join(pieces) for pieces in words)

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """The ids of each text, with statistics for the reports of `nmt prepare`."""
        return super().encode_batch([self.cut(text) for text in texts])

    def decode(self, ids: Sequence[int]) -> str:
        """The text that ids stand for."""
        return super().decode(ids).replace(f"{GOES_ON} ", "")

    def surface(self, token: int) -> str:
        """The text that an id adds to a translation."""
        return super().surface(token).removesuffix(GOES_ON)


@options_class
class MySubwordOptions:
    pass


@register("subword", "my-subword", MySubwordOptions)
class MySubword(Subword):
    """Pieces of equal length."""

    vocabulary = MySubwordVocabulary
    takes_all = True  # --vocab-size 0 keeps all pieces

    def learn(self, text: TrainingText) -> MySubwordVocabulary:
        """The vocabulary of the training text. self.options: the options of `nmt prepare`"""
        counts = Counter[str]()
        for word, count in text.word_counts().items():
            for piece in MySubwordVocabulary.cut(word).split(" "):
                counts[piece] += count
        return MySubwordVocabulary.learn(
            counts, self.options.vocab_size, self.options.min_frequency, self.options.symbols
        )
