"""Chunks of raw line pairs, and what is done with each: prepared text to learn from, or ids to train on."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nmt.symbols import UNK
from nmt.text.corpus import bad_bytes, decode_line, raw_pairs
from nmt.text.filter import KEPT, REASONS, LengthFilter
from nmt.text.pipeline import Pipeline, Side, TextPreparer

CHUNK_PAIRS: Final = 2000
DIGEST_BYTES: Final = 16

BadLine = Literal["error", "skip", "replace"]


@dataclass(frozen=True)
class FilePair:
    """Two files that are translations of each other, line by line."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Chunk:
    """Some consecutive lines of a file pair, as bytes. numbers: of the lines, counted from 1."""

    files: FilePair
    numbers: Sequence[int]
    source: list[bytes]
    target: list[bytes]


def chunks(files: Sequence[FilePair], wanted: Callable[[int], bool] = lambda _: True) -> Iterator[Chunk]:
    """The pairs of all files, in order. wanted: whether to take the pair of this index, counted from 0 over all files.

    Raises InputError when two files differ in length.
    """
    index = 0
    for pair in files:
        chunk = Chunk(pair, [], [], [])
        numbers: list[int] = []
        for number, (source, target) in enumerate(raw_pairs(pair.source, pair.target), 1):
            if wanted(index):
                numbers.append(number)
                chunk.source.append(source)
                chunk.target.append(target)
            index += 1
            if len(numbers) == CHUNK_PAIRS:
                yield Chunk(pair, numbers, chunk.source, chunk.target)
                chunk, numbers = Chunk(pair, [], [], []), []
        if numbers:
            yield Chunk(pair, numbers, chunk.source, chunk.target)


@dataclass
class Texts:
    """A chunk as text. good: (N,) whether both sides are to be used; num_replaced: lines with bytes that are not UTF-8."""

    source: list[str]
    target: list[str]
    good: NDArray[np.bool_]
    num_replaced: int


def decode(chunk: Chunk, on_bad_line: BadLine) -> Texts:
    """The text of a chunk, cleaned by rule 4. Raises InputError with FILE:LINE:BYTE for bad bytes, unless they are allowed."""
    texts = Texts([], [], np.ones(len(chunk.numbers), dtype=bool), 0)
    for i, number in enumerate(chunk.numbers):
        sides = ((chunk.files.source, chunk.source, texts.source), (chunk.files.target, chunk.target, texts.target))
        for path, raw, found in sides:
            line = decode_line(raw[i], number == 1)
            found.append(line.text)
            if line.bad_byte is None:
                continue
            if on_bad_line == "error":
                raise bad_bytes(path, number, line)
            texts.good[i] &= on_bad_line == "replace"
            texts.num_replaced += on_bad_line == "replace"
    return texts


@dataclass(frozen=True)
class TextTask:
    """Chunk -> its text, ready for subwords. source, target: how a side is prepared; None leaves that side out."""

    source: TextPreparer | None
    target: TextPreparer | None
    on_bad_line: BadLine

    def __call__(self, chunk: Chunk) -> list[str]:
        texts = decode(chunk, self.on_bad_line)
        found: list[str] = []
        for prepare, lines in ((self.source, texts.source), (self.target, texts.target)):
            if prepare is not None:
                found += [prepare(line) for line, good in zip(lines, texts.good, strict=True) if good]
        return found


@dataclass(frozen=True)
class CountTask:
    """Chunk -> how often each word occurs in the texts that `texts` gives."""

    texts: TextTask

    def __call__(self, chunk: Chunk) -> Counter[str]:
        return Counter(word for text in self.texts(chunk) for word in text.split(" ") if word)


@dataclass
class Encoded:
    """The ids of the pairs of a chunk that are kept.

    lengths, words, unknown: (N, 2) of source and target: tokens, words before subwords, tokens that are UNK
    source, target: the ids of all pairs, one after the other
    digests: of each pair, to find duplicates by; empty when not asked for
    read, dropped, num_replaced: pairs read, pairs left out by reason, lines with replaced bytes
    raw: the source and target lines of evaluation sets, cleaned by rule 4
    """

    lengths: NDArray[np.uint32]
    words: NDArray[np.uint32]
    unknown: NDArray[np.uint32]
    source: NDArray[np.uint32]
    target: NDArray[np.uint32]
    digests: list[bytes]
    read: int
    dropped: Counter[str]
    num_replaced: int
    raw: tuple[list[str], list[str]]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Leave out the pairs that are not kept. kept: (N,)"""
        self.source = self.source[np.repeat(kept, self.lengths[:, 0])]
        self.target = self.target[np.repeat(kept, self.lengths[:, 1])]
        self.lengths, self.words, self.unknown = self.lengths[kept], self.words[kept], self.unknown[kept]

    def drop_duplicates(self, seen: set[bytes]) -> None:
        """Leave out pairs whose digest is in `seen`, and add the others' to it."""
        kept = np.ones(len(self.digests), dtype=bool)
        for i, digest in enumerate(self.digests):
            kept[i] = digest not in seen
            seen.add(digest)
        self.dropped["duplicate"] += int((~kept).sum())
        self.keep(kept)


@dataclass(frozen=True)
class EncodeTask:
    """Chunk -> ids. lengths: the filter of training data; None keeps every pair and its raw text, for evaluation sets."""

    pipeline: Pipeline
    lengths: LengthFilter | None
    digests: bool
    on_bad_line: BadLine

    def __call__(self, chunk: Chunk) -> Encoded:
        texts = decode(chunk, self.on_bad_line)
        source, target = _Side.of(self.pipeline.source, texts.source), _Side.of(self.pipeline.target, texts.target)
        encoded = Encoded(
            lengths=np.stack([source.lengths, target.lengths], axis=1),
            words=np.stack([source.words, target.words], axis=1),
            unknown=np.stack([source.unknown, target.unknown], axis=1),
            source=source.ids,
            target=target.ids,
            digests=[],
            read=len(chunk.numbers),
            dropped=Counter(),
            num_replaced=texts.num_replaced,
            raw=(texts.source, texts.target) if self.lengths is None else ([], []),
        )
        if self.lengths is None:
            return encoded
        reasons = self.lengths.reasons(source.lengths, target.lengths)
        reasons[~texts.good] = REASONS.index("bad bytes")
        encoded.dropped.update(REASONS[reason] for reason in reasons.tolist() if reason != KEPT)
        kept = reasons == KEPT
        encoded.keep(kept)
        if self.digests:
            encoded.digests = [_digest(source.texts[i], target.texts[i]) for i in np.flatnonzero(kept)]
        return encoded


@dataclass(frozen=True)
class _Side:
    """One side of a chunk. texts: prepared for subwords; the rest as in Encoded, (N,)."""

    texts: list[str]
    ids: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    words: NDArray[np.uint32]
    unknown: NDArray[np.uint32]

    @classmethod
    def of(cls, side: Side, lines: list[str]) -> "_Side":
        texts = [side.prepare(line) for line in lines]
        rows = side.vocabulary.encode_batch(texts)
        words = [len(text.split()) for text in texts]
        ids = np.array([token for row in rows for token in row], dtype=np.uint32)
        return cls(texts, ids, _column(map(len, rows)), _column(words), _column(row.count(UNK) for row in rows))


def _column(numbers: Any) -> NDArray[np.uint32]:
    return np.fromiter(numbers, dtype=np.uint32)


def _digest(source: str, target: str) -> bytes:
    """128 bits of a pair; LF stands in no line, so no two pairs are joined to one text."""
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=DIGEST_BYTES).digest()
