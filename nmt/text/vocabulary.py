"""Vocabularies: texts to token ids and back, by sentencepiece or by whole words."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt.errors import ArtefactError, expecting, quoted
from nmt.symbols import BOS, EOS, PAD, SYMBOLS, UNK

MAX_CACHED_WORDS: Final = 1 << 17
MAX_CACHED_CHARACTERS: Final = 1 << 22  # of all cached words: what stands between two spaces may be as long as a line
SPACE_MARK: Final = "\u2581"  # sentencepiece's sign for a space; in text it is taken for a space

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of N texts, concatenated, without EOS.

    ids: (sum of lengths,) of all texts
    lengths: (N,) ids of each text
    words: (N,) words between spaces of each text
    unknown: (N,) ids of each text that are UNK
    """

    ids: Numbers
    lengths: Numbers
    words: Numbers
    unknown: Numbers

    def rows(self) -> list[Numbers]:
        """The ids of each text."""
        ends = np.cumsum(self.lengths, dtype=np.int64).tolist()
        return [self.ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def reversed(self) -> Self:
        """The same texts, the ids of each from its last to its first."""
        lengths = self.lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        positions = np.repeat(2 * ends - lengths - 1, lengths) - np.arange(len(self.ids))
        return replace(self, ids=self.ids[positions])


def split_words(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The words between spaces of all texts, "" between two spaces, and (N,) the number of words of each text."""
    counts = np.fromiter(map(str.count, texts, repeat(" ")), dtype=np.int64, count=len(texts)) + 1
    return " ".join(texts).split(" ") if texts else [], counts


def sum_by_text(values: NDArray[Any], counts: NDArray[np.int64]) -> Numbers:
    """(N,) sums over the words of each text. values: (words,); counts: (N,) words of each text, at least 1"""
    return np.add.reduceat(values, np.cumsum(counts) - counts).astype(np.uint32)


def expand_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers start, ..., start + length - 1 of each range, one range after the other. starts, lengths: (N,)"""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))


class Vocabulary(Protocol):
    """Text to ids and back. The only control symbol that text can give is UNK, for what has no entry."""

    suffix: str  # of its file
    size: int  # the number of ids, 0 to size - 1; the first four are the control symbols

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        """The vocabulary of a file's content. Raises ArtefactError, which names `place`, for anything else."""

    def to_bytes(self) -> bytes:
        """The content of its file."""

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts: ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; PAD, BOS and EOS have none."""

    def piece(self, token: int) -> str:
        """The name of an id, for people."""

    def surface(self, token: int) -> str:
        """The text that an id adds, with a space before it if it begins a word."""


class WordVocabulary:
    """The word list of `--subword none`. A word that looks like a control symbol is a word like any other."""

    suffix = ".words"

    def __init__(self, words: Sequence[str]) -> None:
        """words: by id, after the control symbols. Raises ValueError for empty or repeated words, and for spaces."""
        self._words: Final = [*SYMBOLS, *words]
        self.size = len(self._words)
        self._ids: Final = {word: i for i, word in enumerate(words, len(SYMBOLS))}
        if len(self._ids) != len(words) or any(not word or " " in word or "\n" in word for word in words):
            raise ValueError("words must be different, not empty, and without spaces")

    @classmethod
    def learn(cls, counts: Mapping[str, int], vocab_size: int, min_frequency: int) -> Self:
        """The most frequent words; of equal counts the first by code point.

        vocab_size: entries, the control symbols counted; 0 for all words
        min_frequency: count of a word, at least
        """
        words = (word for word, count in counts.items() if count >= min_frequency)
        frequent = sorted(words, key=lambda word: (-counts[word], word))
        return cls(frequent[: max(0, vocab_size - len(SYMBOLS))] if vocab_size else frequent)

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        with expecting("a word list", place):
            return cls(content.decode().removesuffix("\n").split("\n") if content else [])

    def to_bytes(self) -> bytes:
        return "".join(word + "\n" for word in self._words[len(SYMBOLS) :]).encode()

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        words, counts = split_words(texts)
        ids = np.fromiter(map(self._ids.get, words, repeat(UNK)), dtype=np.uint32, count=len(words))
        is_word = np.fromiter(map(len, words), dtype=np.int64, count=len(words)) > 0
        lengths = sum_by_text(is_word, counts)
        return EncodedTexts(ids[is_word], lengths, lengths, sum_by_text(is_word & (ids == UNK), counts))

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[token] for token in ids if token >= UNK)

    def piece(self, token: int) -> str:
        return self._words[token]

    def surface(self, token: int) -> str:
        return f" {self._words[token]}" if token >= UNK else ""


class SentencepieceVocabulary:
    """A sentencepiece model as a vocabulary."""

    suffix = ".model"

    def __init__(self, model: bytes, place: object = "the model") -> None:
        """Raises ArtefactError unless it is a sentencepiece model with the control symbols of nmt.symbols."""
        self._bytes = model
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise ArtefactError(f"{quoted(place)}: not a sentencepiece model: {error}") from None
        ids = (self._model.pad_id(), self._model.bos_id(), self._model.eos_id(), self._model.unk_id())
        if ids != (PAD, BOS, EOS, UNK):
            raise ArtefactError(
                f"{quoted(place)}: its control symbols have the ids {ids}; must be {(PAD, BOS, EOS, UNK)}"
            )
        self.size = int(self._model.vocab_size())
        with expecting("a sentencepiece model", place):  # each piece is UTF-8
            self._model.id_to_piece(list(range(self.size)))
        self._cache = _WordCache()

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> Self:
        return cls(content, place)

    def to_bytes(self) -> bytes:
        return self._bytes

    def __reduce__(self) -> tuple[type["SentencepieceVocabulary"], tuple[bytes]]:
        return SentencepieceVocabulary, (self._bytes,)

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode word by word: no piece crosses a space, so that a word has the same ids everywhere, and is cached."""
        words, counts = split_words([text.replace(SPACE_MARK, " ") for text in texts])
        numbers: defaultdict[str, int] = defaultdict(count().__next__)  # each different word gets the next number
        number_of_word = np.fromiter(map(numbers.__getitem__, words), dtype=np.int64, count=len(words))
        cache = self._cache
        new = [word for word in numbers if word not in cache.rows]
        cache.add(new, self._model.encode(new, out_type=int, num_threads=1))
        rows = np.fromiter(map(cache.rows.__getitem__, numbers), dtype=np.int64, count=len(numbers))[number_of_word]
        lengths = cache.lengths[rows]
        ids = cache.ids[expand_ranges(cache.starts[rows], lengths)]
        unknown = sum_by_text(cache.unknown[rows], counts)
        if len(cache.rows) > MAX_CACHED_WORDS or cache.num_characters > MAX_CACHED_CHARACTERS:
            self._cache = _WordCache()
        return EncodedTexts(ids, sum_by_text(lengths, counts), sum_by_text(lengths > 0, counts), unknown)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return SYMBOLS[token] if token < len(SYMBOLS) else str(self._model.id_to_piece(token))

    def surface(self, token: int) -> str:
        """See Vocabulary. A byte alone is U+FFFD."""
        if token < len(SYMBOLS):
            return SYMBOLS[UNK] if token == UNK else ""
        return "\ufffd" if self._model.is_byte(token) else self.piece(token).replace(SPACE_MARK, " ")


class _WordCache:
    """The ids of words, concatenated: those of word w begin at starts[rows[w]], and are lengths[rows[w]] many."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.num_characters = 0
        self.ids: Numbers = np.zeros(0, dtype=np.uint32)
        self.starts, self.lengths, self.unknown = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def add(self, words: Sequence[str], ids_of_words: Sequence[Sequence[int]]) -> None:
        if not words:
            return
        lengths = np.fromiter(map(len, ids_of_words), dtype=np.int64, count=len(words))
        ids = np.fromiter(chain.from_iterable(ids_of_words), dtype=np.uint32)
        unknown = np.fromiter((ids.count(UNK) for ids in ids_of_words), dtype=np.int64, count=len(words))
        starts = len(self.ids) + np.cumsum(lengths) - lengths
        self.num_characters += sum(map(len, words))
        self.rows.update(zip(words, range(len(self.rows), len(self.rows) + len(words)), strict=True))
        self.ids = np.concatenate([self.ids, ids])
        self.starts = np.concatenate([self.starts, starts])
        self.lengths = np.concatenate([self.lengths, lengths])
        self.unknown = np.concatenate([self.unknown, unknown])


VOCABULARIES: Final[Mapping[str, type[Vocabulary]]] = {
    "bpe": SentencepieceVocabulary,
    "unigram": SentencepieceVocabulary,
    "char": SentencepieceVocabulary,
    "none": WordVocabulary,
}
if TYPE_CHECKING:
    SubwordName = str
else:
    SubwordName = Literal[tuple(VOCABULARIES)]  # the choices of `--subword`
