"""Words as they stand between spaces, and what every vocabulary has in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ArtefactError, quoted
from nmt.symbols import SYMBOLS, UNK

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class Ids:
    """The ids of N texts, one after the other, without EOS.

    ids: (sum of lengths,); lengths, words, unknown: (N,) of each text: ids, words between spaces, ids that are UNK
    """

    ids: Numbers
    lengths: Numbers
    words: Numbers
    unknown: Numbers

    def rows(self) -> list[Numbers]:
        """The ids of each text."""
        ends = np.cumsum(self.lengths, dtype=np.int64).tolist()
        return [self.ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def backwards(self) -> "Ids":
        """The same texts, the ids of each from its last to its first."""
        lengths = self.lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        places = np.repeat(2 * ends - lengths - 1, lengths) - np.arange(len(self.ids))
        return replace(self, ids=self.ids[places])


def divide(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The words between spaces of all texts, an empty one where two spaces meet, and (N,) how many each text has."""
    counts = np.fromiter(map(str.count, texts, repeat(" ")), dtype=np.int64, count=len(texts)) + 1
    return " ".join(texts).split(" "), counts


def sums(values: NDArray[Any], counts: NDArray[np.int64]) -> Numbers:
    """(N,) the sum over each text of what its words have. counts: (N,) words of each text, one at least."""
    return np.add.reduceat(values, np.cumsum(counts) - counts).astype(np.uint32)


class Vocabulary(Protocol):
    """Text to ids and back. Text never gives the id of a control symbol but UNK, which stands for what is not in it."""

    suffix: str  # of its file

    @property
    def size(self) -> int:
        """Ids are 0 to size - 1; the first four are the control symbols."""

    def encode_batch(self, texts: Sequence[str]) -> Ids: ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; PAD, BOS and EOS have none."""

    def piece(self, token: int) -> str:
        """How an id is shown to a person."""

    def surface(self, token: int) -> str:
        """What an id adds to a text, a space before it where it begins a word."""

    def to_bytes(self) -> bytes:
        """The content of its file."""


class Words:
    """`--subword none`: a word list; a word of the text that looks like a control symbol is a word like any other."""

    suffix = ".words"

    def __init__(self, words: Sequence[str]) -> None:
        """words: by id, without the control symbols; ValueError for an empty or doubled word, or one with a space."""
        self._words: Final = [*SYMBOLS, *words]
        self._ids: Final = {word: i for i, word in enumerate(words, len(SYMBOLS))}
        if len(self._ids) != len(words) or any(not word or " " in word or "\n" in word for word in words):
            raise ValueError("words must be different, not empty, and without spaces")

    @classmethod
    def learn(cls, counts: Mapping[str, int], vocab_size: int, min_frequency: int) -> "Words":
        """The most frequent words, of equals the first by code point. vocab_size: control symbols counted; 0 takes all."""
        frequent = sorted(
            (word for word, count in counts.items() if count >= min_frequency), key=lambda w: (-counts[w], w)
        )
        return cls(frequent[: max(0, vocab_size - len(SYMBOLS))] if vocab_size else frequent)

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> "Words":
        try:
            return cls(content.decode().removesuffix("\n").split("\n") if content else [])
        except ValueError as error:
            raise ArtefactError(f"{quoted(place)}: not a word list: {error}") from None

    @property
    def size(self) -> int:
        return len(self._words)

    def encode_batch(self, texts: Sequence[str]) -> Ids:
        if not texts:
            return Ids(*(np.zeros(0, dtype=np.uint32) for _ in range(4)))
        words, counts = divide(texts)
        found = np.fromiter(map(self._ids.get, words, repeat(UNK)), dtype=np.uint32, count=len(words))
        real = np.fromiter(map(len, words), dtype=np.int64, count=len(words)) > 0
        lengths = sums(real, counts)
        return Ids(found[real], lengths, lengths, sums(real & (found == UNK), counts))

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[token] for token in ids if token >= UNK)

    def piece(self, token: int) -> str:
        return self._words[token]

    def surface(self, token: int) -> str:
        return f" {self._words[token]}" if token >= UNK else ""

    def to_bytes(self) -> bytes:
        return "".join(word + "\n" for word in self._words[len(SYMBOLS) :]).encode()
