"""Vocabularies: map texts to token ids and back. Components of the kind `subword` learn them."""

from abc import abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, repeat
from typing import Any, Final, Protocol, Self

import numpy as np
import sentencepiece
from numpy.typing import DTypeLike, NDArray

from nmt.errors import ArtefactError, expecting, quoted
from nmt.symbols import BOS, EOS, PAD, SPACE_MARK, SYMBOLS, UNK

MAX_CACHED_WORDS: Final = 1 << 17
MAX_CACHED_CHARACTERS: Final = 1 << 22  # total over all cached words; a "word" can be as long as a line
MIN_THREAD_WORDS: Final = 16  # sentencepiece starts a thread for a list; this takes as long as 16 words (22 us, Zen 3)

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of N texts, concatenated, without EOS.

    ids: (sum of lengths,) ids of all texts
    lengths: (N,) number of ids in each text
    words: (N,) number of words (split at spaces) in each text
    unknown: (N,) number of UNK ids in each text
    """

    ids: Numbers
    lengths: Numbers
    words: Numbers
    unknown: Numbers

    def rows(self) -> list[Numbers]:
        """The ids of each text."""
        return [self.ids[start:end] for start, end in self._ranges()]

    def lists(self) -> list[list[int]]:
        """The ids of each text, as Python integers."""
        ids = self.ids.tolist()
        return [ids[start:end] for start, end in self._ranges()]

    def _ranges(self) -> Iterator[tuple[int, int]]:
        return pairwise(accumulate(self.lengths.tolist(), initial=0))

    def reversed(self) -> Self:
        """The same texts, with the ids of each in reverse order."""
        return replace(self, ids=self.ids[backwards(self.lengths.astype(np.int64))])


def split_words(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Split texts at spaces. Returns all words ("" between two adjacent spaces), and (N,) the number of words per text."""
    counts = np.fromiter(map(str.count, texts, repeat(" ")), dtype=np.int64, count=len(texts)) + 1
    return " ".join(texts).split(" ") if texts else [], counts


def sum_by_text(values: NDArray[Any], counts: NDArray[np.int64]) -> Numbers:
    """Sum values over the words of each text: (N,). values: (words,); counts: (N,) number of words per text, at least 1"""
    return np.add.reduceat(values, np.cumsum(counts) - counts).astype(np.uint32)


def expand_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate the ranges start, ..., start + length - 1. starts, lengths: (N,)"""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))


def join_rows(rows: Sequence[bytes], kind: DTypeLike, width: int = 1) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Decode rows of bytes. Returns the numbers of all rows, (lines, width) or flat if width is 1, and (N,) lines in each row."""
    numbers = np.frombuffer(bytearray().join(rows), kind)  # a bytearray, so that the result is writable
    counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) // (numbers.itemsize * width)
    return numbers if width == 1 else numbers.reshape(-1, width), counts


def backwards(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices that reverse each of N concatenated rows in place. lengths: (N,)"""
    ends = np.cumsum(lengths)
    return np.repeat(2 * ends - lengths - 1, lengths) - np.arange(int(lengths.sum()))


class Vocabulary(Protocol):
    """Maps text to ids and back. The only control symbol that encoding can produce is UNK, for text without an entry."""

    suffix: str  # file name suffix
    size: int  # number of ids, which are 0 to size - 1; the first four are the control symbols

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        """Load a vocabulary from a file's content. Raises ArtefactError if it is invalid. place: location, for messages"""

    def to_bytes(self) -> bytes:
        """The content of the vocabulary's file."""

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts: ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; PAD, BOS and EOS have no text."""

    def piece(self, token: int) -> str:
        """The name of an id, for display."""

    def surface(self, token: int) -> str:
        """The text that an id adds, with a space before it if it starts a word, or after it if it ends one."""


class WordVocabulary:
    """The word list of `--subword none`. A word that looks like a control symbol is treated like any other word.

    ids: id of each word, without the control symbols
    """

    suffix = ".words"

    def __init__(self, words: Sequence[str]) -> None:
        """words: ordered by id, without the control symbols. Raises ValueError if one is empty, repeated or has a space."""
        self._words: Final = [*SYMBOLS, *words]
        self.size = len(self._words)
        self.ids: Final = {word: i for i, word in enumerate(words, len(SYMBOLS))}
        if len(self.ids) != len(words) or any(not word or " " in word or "\n" in word for word in words):
            raise ValueError("words must be distinct, non-empty and without spaces")

    @classmethod
    def learn(
        cls, counts: Mapping[str, int], vocab_size: int, min_frequency: int, user_symbols: Sequence[str] = ()
    ) -> Self:
        """Take the user symbols and the most frequent words. Ties are broken by code point.

        vocab_size: number of entries, including control and user symbols; 0 for all words
        min_frequency: minimum count of a word
        """
        symbols = frozenset(user_symbols)
        words = (word for word, count in counts.items() if count >= min_frequency and word not in symbols)
        frequent = [*user_symbols, *sorted(words, key=lambda word: (-counts[word], word))]
        return cls(frequent[: max(len(user_symbols), vocab_size - len(SYMBOLS))] if vocab_size else frequent)

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        with expecting("a word list", place):
            return cls(content.decode().removesuffix("\n").split("\n") if content else [])

    @property
    def entries(self) -> list[str]:
        """The words ordered by id, without the control symbols."""
        return self._words[len(SYMBOLS) :]

    def to_bytes(self) -> bytes:
        return "".join(word + "\n" for word in self.entries).encode()

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        words, counts = split_words(texts)
        ids = np.fromiter(map(self.ids.get, words, repeat(UNK)), dtype=np.uint32, count=len(words))
        is_word = np.fromiter(map(len, words), dtype=np.int64, count=len(words)) > 0
        lengths = sum_by_text(is_word, counts)
        return EncodedTexts(ids[is_word], lengths, lengths, sum_by_text(is_word & (ids == UNK), counts))

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[token] for token in ids if token >= UNK)

    def piece(self, token: int) -> str:
        return self._words[token]

    def surface(self, token: int) -> str:
        return f" {self._words[token]}" if token >= UNK else ""


class ByWord:
    """Base class of vocabularies whose tokens never cross a space: each word always has the same ids, which are cached."""

    def __init__(self) -> None:
        self._cache: dict[str, bytes] = {}  # the ids of each word as bytes; threads may add to it concurrently
        self._num_characters = 0  # characters in all cached words

    def _prepare(self, text: str) -> str:
        return text

    @abstractmethod
    def _encode_words(self, words: Sequence[str]) -> Sequence[Sequence[int]]:
        """The ids of each word; an empty word has none."""

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        words, counts = split_words(list(map(self._prepare, texts)))
        cache = self._cache
        if new := [word for word in dict.fromkeys(words) if word not in cache]:
            for word, ids_of_word in zip(new, self._encode_words(new), strict=True):
                cache[word] = array("I", ids_of_word).tobytes()
            self._num_characters += sum(map(len, new))
        ids, ids_of_words = join_rows(list(map(cache.__getitem__, words)), np.uint32)
        lengths = sum_by_text(ids_of_words, counts)
        text_of_id = np.repeat(np.arange(len(texts)), lengths)
        unknown = np.bincount(text_of_id[ids == UNK], minlength=len(texts)).astype(np.uint32)
        if len(cache) > MAX_CACHED_WORDS or self._num_characters > MAX_CACHED_CHARACTERS:
            self._cache, self._num_characters = {}, 0
        return EncodedTexts(ids, lengths, sum_by_text(ids_of_words > 0, counts), unknown)


class SentencepieceVocabulary(ByWord):
    """A sentencepiece model as a vocabulary."""

    suffix = ".model"

    def __init__(self, model: bytes, place: object = "the model") -> None:
        """Raises ArtefactError unless `model` is a sentencepiece model with the control symbols of nmt.symbols."""
        super().__init__()
        self._bytes = model
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise ArtefactError(f"{quoted(place)}: not a sentencepiece model: {error}") from None
        ids = (self._model.pad_id(), self._model.bos_id(), self._model.eos_id(), self._model.unk_id())
        if ids != (PAD, BOS, EOS, UNK):
            expected = f"must be {(PAD, BOS, EOS, UNK)}"
            raise ArtefactError(f"{quoted(place)}: the ids of the control symbols are {ids}, but {expected}")
        self.size = int(self._model.vocab_size())
        with expecting("a sentencepiece model", place):  # fails unless each piece is UTF-8
            self._model.id_to_piece(list(range(self.size)))

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        return cls(content, place)

    def to_bytes(self) -> bytes:
        return self._bytes

    def __reduce__(self) -> tuple[type["SentencepieceVocabulary"], tuple[bytes]]:
        return SentencepieceVocabulary, (self._bytes,)

    def _prepare(self, text: str) -> str:
        return text.replace(SPACE_MARK, " ")

    def _encode_words(self, words: Sequence[str]) -> Sequence[Sequence[int]]:
        if len(words) < MIN_THREAD_WORDS:
            return [self._model.encode(word, out_type=int) for word in words]
        return self._model.encode(words, out_type=int, num_threads=1)  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return SYMBOLS[token] if token < len(SYMBOLS) else str(self._model.id_to_piece(token))

    def surface(self, token: int) -> str:
        """See Vocabulary. A single-byte token gives U+FFFD."""
        if token < len(SYMBOLS):
            return SYMBOLS[UNK] if token == UNK else ""
        return "\ufffd" if self._model.is_byte(token) else self.piece(token).replace(SPACE_MARK, " ")
