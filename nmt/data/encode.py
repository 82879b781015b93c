"""Chunks of raw line pairs, and tasks that turn them into text to learn a vocabulary from, or ids to train on."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice, tee
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.columns.base import ColumnItems, ColumnKind, Sentences, column_kind
from nmt.data.held_out import pair_keys, repeats
from nmt.data.options import BadLine
from nmt.errors import InputError, quoted
from nmt.rows import Rows
from nmt.text.context import DocumentLines, context_text, encode_with_contexts
from nmt.text.corpus import bad_bytes, count_lines, decode_line, misaligned, raw_lines
from nmt.text.pipeline import CHARACTERS_PER_TOKEN, Pipeline
from nmt.text.steps import NOT_TEXT_BUT_LF
from nmt.text.vocabulary import Numbers

CHUNK_PAIRS: Final = 2000
# Reasons to drop a pair. The first that applies is counted, but the limit on characters is always checked first.
REASONS: Final = ("bad bytes", "bad column", "empty", "too short", "too long", "ratio", "equals held-out", "duplicate")
MAX_WORD_CHARACTERS: Final = 1000  # longer words get no vocabulary entry
KEPT: Final = -1  # marks a kept pair, which has no index into REASONS


@dataclass(frozen=True)
class FilePair:
    """Two files that are translations of each other, line by line, and column files with one line per pair.

    corpus: name of the corpus, if the files are training text
    is_named: whether the user chose that name
    is_tsv: whether both sides are in one file, with a tab between source and target
    label: name of the source in messages, if it differs from the file name
    """

    source: Path
    target: Path
    columns: tuple[Path, ...] = ()
    corpus: str = ""
    is_named: bool = False
    is_tsv: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """The name of the source in messages."""
        return self.label or quoted(self.source)

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.source, self.target, *self.columns

    def count_lines(self) -> list[int]:
        """Count the lines of each of `paths`, reading each file only once."""
        counts = {path: count_lines(path) for path in dict.fromkeys(self.paths)}
        return [counts[path] for path in self.paths]

    def unequal(self, counts: Sequence[int]) -> InputError | None:
        """The error for the first file whose number of lines differs from the source's. counts: lines of each of `paths`"""
        if counts[0] != counts[1]:
            return misaligned(self.source, self.target, counts[0], counts[1])
        for path, count in zip(self.columns, counts[2:], strict=True):
            if count != counts[0]:
                return InputError(
                    f"{quoted(path)} has {count:,} lines, but {self.name} has {counts[0]:,} (a column needs one line per pair)"
                )
        return None


@dataclass(frozen=True)
class Chunk:
    """Some lines of a file pair, as bytes.

    numbers: (N,) line numbers, counted from 1
    source, target: lines with their LF, which the last line may lack
    columns: lines of each column
    contexts: context of each source line (nmt.text.context); empty if no context is used
    """

    files: FilePair
    numbers: NDArray[np.int64]
    source: list[bytes]
    target: list[bytes]
    columns: tuple[list[bytes], ...] = ()
    contexts: Sequence[tuple[str, ...]] = ()

    def target_start(self, i: int) -> int:
        """Number of bytes before the target in the line of pair i: in a TSV file, the source and the tab; otherwise none."""
        return len(self.source[i]) if self.files.is_tsv else 0


BlockReader = Callable[[FilePair], Iterator[list[list[bytes]]]]
Selection = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


def aligned_blocks(pair: FilePair) -> Iterator[list[list[bytes]]]:
    """Read all files in parallel, CHUNK_PAIRS lines at a time. Raises InputError if their line counts differ."""
    streams = [raw_lines(path) for path in pair.paths]
    if pair.is_tsv:
        rows, same_rows = tee(_tsv_rows(pair))  # `tee` buffers at most CHUNK_PAIRS rows
        streams[:2] = [(source for source, _ in rows), (target for _, target in same_rows)]
    while True:
        block = [list(islice(stream, CHUNK_PAIRS)) for stream in streams]
        if len(set(map(len, block))) > 1:
            counts = pair.count_lines()
            raise pair.unequal(counts) or misaligned(pair.source, pair.target, counts[0], counts[1])
        if not block[0]:
            return
        yield block


def _tsv_rows(pair: FilePair) -> Iterator[tuple[bytes, bytes]]:
    """Split each line of a TSV file into source and target, with LF. Raises InputError for a line that lacks either."""
    for number, raw in enumerate(raw_lines(pair.source), 1):
        if number == 1 and (line := decode_line(raw, True)).wide_encoding:
            raise bad_bytes(pair.name, number, line)
        sides = raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
        if len(sides) != 2:
            columns = f"{len(sides)} column{'s' if len(sides) > 1 else ''}"
            message = f"{columns} found, expected 2: source and target, separated by a tab"
            ways = "; ".join(["fix the line", *registry.declared("storage", "chooses_columns")])
            raise InputError(f"{pair.name}:{number}: {message} ({ways})")
        yield sides[0] + b"\n", sides[1] + b"\n"


def chunks(
    files: Sequence[FilePair], select: Selection | None = None, context: int = 0, blocks: BlockReader = aligned_blocks
) -> Iterator[Chunk]:
    """Read the pairs of all files, in order. By default, raises InputError if two files differ in length.

    select: maps (N,) indices of pairs, counted from 0 over all files, to (N,) whether to keep them
    context: maximum context of a source line, in sentences; unused if `select` is set
    blocks: reads a file pair in blocks of CHUNK_PAIRS lines
    """
    offset = 0  # number of pairs in the previous files
    for pair in files:
        number, document = 1, DocumentLines(context)
        for block in blocks(pair):
            numbers = np.arange(number, number + len(block[0]))
            number += len(block[0])
            contexts = []
            if context:
                lines = [decode_line(raw, i == 1).text for i, raw in zip(numbers.tolist(), block[0], strict=True)]
                contexts = list(map(document.context_of, lines))
            if select is not None:
                taken = np.flatnonzero(select(offset + numbers - 1))
                numbers, block = numbers[taken], [[lines[i] for i in taken] for lines in block]
            if len(numbers):
                yield Chunk(pair, numbers, block[0], block[1], tuple(block[2:]), contexts)
        offset += number - 1


@dataclass
class Texts:
    """The text of a chunk. good: (N,) whether both sides of a pair are usable; num_replaced: lines with replaced bytes"""

    source: list[str]
    target: list[str]
    good: NDArray[np.bool_]
    num_replaced: int


def decode(chunk: Chunk, on_bad_line: BadLine) -> Texts:
    """Decode and clean a chunk. Raises InputError with FILE:LINE:BYTE for bytes that are not UTF-8, unless they are allowed."""
    good = np.ones(len(chunk.numbers), dtype=bool)
    source, target = _plain_texts(chunk.source), _plain_texts(chunk.target)
    if source is not None and target is not None and chunk.numbers[0] > 1:
        return Texts(source, target, good, 0)
    texts = Texts([], [], good, 0)
    name = chunk.files.name
    for i, number in enumerate(chunk.numbers.tolist()):
        before = chunk.target_start(i)
        sides = (
            (name, 0, chunk.source[i], texts.source),
            (name if before else quoted(chunk.files.target), before, chunk.target[i], texts.target),
        )
        for place, start, raw, decoded in sides:
            line = decode_line(raw, number == 1)
            decoded.append(line.text)
            if line.bad_byte is None:
                continue
            if on_bad_line == "error" or line.wide_encoding:
                raise bad_bytes(place, number, line._replace(bad_byte=line.bad_byte + start))
            texts.good[i] &= on_bad_line == "replace"
            texts.num_replaced += on_bad_line == "replace"
    return texts


def _plain_texts(lines: list[bytes]) -> list[str] | None:
    """Decode all lines at once, which is faster. Returns None if a line needs cleaning or has bytes that are not UTF-8."""
    try:
        text = b"".join(lines).decode()
    except UnicodeDecodeError:
        return None
    return None if NOT_TEXT_BUT_LF.search(text) else text.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class TextTask:
    """Maps a chunk to text that is ready for subword splitting. prepare: text steps by side, 0 (source) or 1 (target)"""

    prepare: Mapping[int, Callable[[Sequence[str]], list[str]]]
    on_bad_line: BadLine

    def __call__(self, chunk: Chunk) -> list[str]:
        texts = decode(chunk, self.on_bad_line)
        prepared: list[str] = []
        for side, prepare in self.prepare.items():
            prepared += prepare(list(compress((texts.source, texts.target)[side], texts.good)))
        return prepared


@dataclass(frozen=True)
class CountTask:
    """Maps a chunk to counts of words in the texts from `texts`. count: `count_words` or `count_casings`"""

    texts: TextTask
    count: Callable[[Iterable[str]], Counter[str]]

    def __call__(self, chunk: Chunk) -> Counter[str]:
        return self.count(self.texts(chunk))


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words (split at spaces) that have at most MAX_WORD_CHARACTERS characters."""
    return Counter(word for text in texts for word in text.split(" ") if 0 < len(word) <= MAX_WORD_CHARACTERS)


@dataclass(frozen=True)
class LengthFilter:
    """Limits on the lengths of a pair, in tokens after subword splitting, without EOS.

    min_length: minimum tokens of the shorter side
    max_length: maximum tokens on the longer side; 0 for no limit. A side's limit in characters is CHARACTERS_PER_TOKEN times this
    max_ratio: maximum ratio of the longer side to the shorter; 0 for no limit
    """

    min_length: int = 1
    max_length: int = 256
    max_ratio: float = 0.0

    @property
    def max_characters(self) -> float:
        """Maximum length of a side in characters."""
        return self.max_length * CHARACTERS_PER_TOKEN or math.inf

    def without_long(self, texts: Sequence[str]) -> list[str]:
        """Replace texts with too many characters with empty ones, so that they are not encoded."""
        return [text if len(text) <= self.max_characters else "" for text in texts]

    def reasons(self, lengths: NDArray[Any], characters: NDArray[Any]) -> NDArray[np.int8]:
        """(N,) the index in REASONS of the reason for dropping each pair, or KEPT.

        lengths, characters: (N, 2) tokens and characters of source and target
        """
        shorter, longer = np.sort(lengths.astype(np.int64), axis=1).T
        checks = [
            ("too long", characters.max(1) > self.max_characters),
            ("empty", shorter == 0),
            ("too short", shorter < self.min_length),
            ("too long", (longer > self.max_length) & (self.max_length > 0)),
            ("ratio", (longer > self.max_ratio * shorter) & (self.max_ratio > 0)),
        ]
        indices = [REASONS.index(reason) for reason, _ in checks]
        return np.select([holds for _, holds in checks], indices, KEPT).astype(np.int8)


@dataclass
class Encoded:
    """The ids of a chunk's pairs that are kept.

    lengths, words, unknown: (N, 2) tokens, words before subword splitting, and UNK tokens of source and target
    source, target: ids of all pairs, concatenated
    columns: values of each column
    digests: (N, 2) a 128-bit digest of each pair, for finding duplicates; (0, 2) if they are not needed
    read, dropped, num_replaced: numbers of pairs read, pairs dropped (by reason), and lines with replaced bytes
    unknown_tags: "FILE:LINE: '<2fr>'" for each source that starts with a tag missing from the vocabulary
    raw: cleaned source and target lines, for evaluation sets
    corpus: name of the pairs' corpus
    altered: counts by side (0 or 1), file, and the keys of TextPreparer.alterations
    """

    lengths: Numbers
    words: Numbers
    unknown: Numbers
    source: Numbers
    target: Numbers
    columns: list[Rows]
    digests: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 2), np.uint64))
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    num_replaced: int = 0
    unknown_tags: list[str] = field(default_factory=list)
    raw: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    corpus: str = ""
    altered: Counter[tuple[int, str, str]] = field(default_factory=Counter)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Keep only some of the pairs. kept: (N,) which pairs to keep"""
        if kept.all():
            return
        self.source = self.source[np.repeat(kept, self.lengths[:, 0])]
        self.target = self.target[np.repeat(kept, self.lengths[:, 1])]
        self.lengths, self.words, self.unknown = self.lengths[kept], self.words[kept], self.unknown[kept]
        self.columns = [rows.keep(kept) for rows in self.columns]


@dataclass(frozen=True)
class EncodeTask:
    """Maps a chunk to ids and columns. Source ids include the context if the pipeline has one.

    lengths: length filter for training data; None keeps every pair and its raw text, for evaluation sets
    columns: kind of each column
    held_out: keys of held-out pairs, which training pairs must not repeat (nmt.data.held_out)
    """

    pipeline: Pipeline
    lengths: LengthFilter | None
    digests: bool
    on_bad_line: BadLine
    columns: tuple[str, ...] = ()
    held_out: NDArray[np.uint64] | None = None

    def __call__(self, chunk: Chunk) -> Encoded:
        texts = decode(chunk, self.on_bad_line)
        characters = np.array([list(map(len, side)) for side in (texts.source, texts.target)]).T  # N 2
        limits = self.lengths or LengthFilter(max_length=0)
        used, unknown_tags = texts.good & (characters.max(1) <= limits.max_characters), self._unknown_tags(chunk, texts)
        texts.source, texts.target = map(limits.without_long, (texts.source, texts.target))
        prepared = self.pipeline.source.prepare(texts.source), self.pipeline.target.prepare(texts.target)
        contexts = self.pipeline.source.prepare(list(map(context_text, chunk.contexts)))
        source, num_context = encode_with_contexts(
            self.pipeline.source.encode_prepared,
            limits.without_long(contexts),
            prepared[0],
            limits.max_length or math.inf,
        )
        target = self.pipeline.target.encode_prepared(prepared[1])
        sentences = Sentences(chunk.numbers, used.copy(), (chunk.source, chunk.target), prepared, self.pipeline)
        columns = [
            _read_column(column_kind(kind), path, lines, sentences, self.on_bad_line == "skip")
            for kind, path, lines in zip(self.columns, chunk.files.columns, chunk.columns, strict=True)
        ]
        encoded = Encoded(
            lengths=np.stack([source.lengths, target.lengths], axis=1),
            words=np.stack([source.words, target.words], axis=1),
            unknown=np.stack([source.unknown, target.unknown], axis=1),
            source=source.ids,
            target=target.ids,
            columns=columns,
            read=len(chunk.numbers),
            num_replaced=texts.num_replaced,
            unknown_tags=unknown_tags,
            corpus=chunk.files.corpus,
            altered=self._altered(chunk, texts),
        )
        reasons = np.full(len(used), KEPT, np.int8)
        if self.lengths is not None:
            lengths = np.stack([source.lengths - num_context, target.lengths], axis=1)
            reasons = self.lengths.reasons(lengths, characters)
        if self.held_out is not None:
            repeated = repeats(pair_keys(texts.source, texts.target), self.held_out)
            reasons[(reasons == KEPT) & repeated] = REASONS.index("equals held-out")
        reasons[used & ~sentences.good] = REASONS.index("bad column")
        reasons[~texts.good] = REASONS.index("bad bytes")
        encoded.dropped.update(REASONS[reason] for reason in reasons[reasons != KEPT].tolist())
        kept = reasons == KEPT
        encoded.keep(kept)
        if self.lengths is None:
            encoded.raw = list(compress(texts.source, kept)), list(compress(texts.target, kept))
        if self.digests:
            sources = map(str.__add__, contexts, prepared[0]) if contexts else prepared[0]
            encoded.digests = digests_of(compress(sources, kept), compress(prepared[1], kept))
        return encoded

    def _altered(self, chunk: Chunk, texts: Texts) -> Counter[tuple[int, str, str]]:
        """See `Encoded`."""
        found: Counter[tuple[int, str, str]] = Counter()
        for side, (of, lines) in enumerate(
            ((self.pipeline.source, texts.source), (self.pipeline.target, texts.target))
        ):
            file = chunk.files.label or quoted(chunk.files.paths[side])
            found.update({(side, file, key): count for key, count in of.prepare.alterations(lines).items()})
        return found

    def _unknown_tags(self, chunk: Chunk, texts: Texts) -> list[str]:
        rows = zip(chunk.numbers.tolist(), map(self.pipeline.source.unknown_tag, texts.source), strict=True)
        return [f"{chunk.files.name}:{number}: '{quoted(tag)}'" for number, tag in rows if tag]


def _read_column(kind: ColumnKind, path: Path, lines: Sequence[bytes], sentences: Sentences, skips: bool) -> Rows:
    """Read the values of a column. skips: whether to mark pairs with an invalid line as unusable instead of raising an error"""
    try:
        return kind.read(ColumnItems(path, lines, sentences))
    except InputError:
        if not skips:
            raise
    for i in np.flatnonzero(sentences.good).tolist():
        try:
            kind.read(ColumnItems(path, lines[i : i + 1], sentences.only(i)))
        except InputError:
            sentences.good[i] = False
    return kind.read(ColumnItems(path, lines, sentences))


def digests_of(sources: Iterable[str], targets: Iterable[str]) -> NDArray[np.uint64]:
    """(N, 2) a 128-bit digest of each pair. Lines contain no LF, so different pairs never give the same joined text."""
    pairs = (f"{source}\n{target}".encode() for source, target in zip(sources, targets, strict=True))
    joined = b"".join(hashlib.blake2b(pair, digest_size=16).digest() for pair in pairs)
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2)
