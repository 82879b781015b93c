"""Columns of training data: files beside the text with numbers of pairs or of target words, or with links between words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from nmt.data.row_files import COLUMN_TYPES, Rows
from nmt.errors import InputError, UserError, quoted
from nmt.symbols import ColumnKind
from nmt.text.corpus import bad_bytes, decode_line
from nmt.text.pipeline import Pipeline, Side
from nmt.text.words import tokens_per_word

GIVEN: Final = re.compile(r"([a-z][a-z0-9_-]*)(?::([a-z]+))?=(.+)", re.DOTALL)
RESERVED_NAMES: Final = ("source", "target", "lengths")  # of the files of a set
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LINK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


@dataclass(frozen=True)
class ColumnFiles:
    """A column as the user names it. files: one for each pair of training files, in their order"""

    name: str
    kind: ColumnKind
    files: tuple[Path, ...]


def parse_columns(given: Sequence[str], num_files: int) -> list[ColumnFiles]:
    """The columns that `NAME=FILE` and `NAME:KIND=FILE` name. num_files: pairs of training files

    Raises UserError for anything else, and unless a column has a file for each pair of training files.
    """
    kinds: dict[str, ColumnKind] = {}
    files: dict[str, list[Path]] = {}
    for text in given:
        match = GIVEN.fullmatch(text)
        if match is None or match[1] in RESERVED_NAMES:
            raise UserError(
                f"--column {quoted(text)}: must be NAME=FILE or NAME:KIND=FILE; NAME is of the characters a-z 0-9 - _ and "
                f"none of {', '.join(RESERVED_NAMES)}"
            )
        name, kind = match[1], next((kind for kind in get_args(ColumnKind) if kind == (match[2] or "pair")), None)
        if kind is None:
            raise UserError(f"--column {quoted(text)}: KIND must be one of {', '.join(get_args(ColumnKind))}")
        if kinds.setdefault(name, kind) != kind:
            raise UserError(f"--column {quoted(text)}: the column's kind was {kinds[name]} before")
        files.setdefault(name, []).append(Path(match[3]))
    for name, paths in files.items():
        if len(paths) != num_files:
            raise UserError(
                f"--column {name}: {len(paths)} files for {num_files} pairs of training files (give one for each, in their "
                "order: --train, then --source)"
            )
    return [ColumnFiles(name, kinds[name], tuple(paths)) for name, paths in files.items()]


Spans = list[range]  # of a sentence: the positions of each word's tokens, in the model's order


@dataclass(frozen=True)
class Sentences:
    """The pairs that the lines of a column belong to.

    numbers: (N,) of their lines, counted from 1
    good: (N,) whether the text of the pair can be used; the values of others are not read
    prepared: source and target lines, ready for subwords
    """

    numbers: NDArray[np.int64]
    good: NDArray[np.bool_]
    prepared: tuple[Sequence[str], Sequence[str]]
    pipeline: Pipeline

    @cached_property
    def spans(self) -> list[tuple[Spans, Spans]]:
        """The spans of source and target of each pair."""
        source, target = (
            [_spans(side, counts) for counts in tokens_per_word(side, lines)]
            for side, lines in zip((self.pipeline.source, self.pipeline.target), self.prepared, strict=True)
        )
        return list(zip(source, target, strict=True))


def _spans(side: Side, counts: NDArray[np.int64]) -> Spans:
    """counts: (words,) tokens of each word"""
    ends, total = np.cumsum(counts).tolist(), int(counts.sum())
    spans = [range(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
    return [range(total - span.stop, total - span.start) for span in spans] if side.settings.right_to_left else spans


def read_column(kind: ColumnKind, path: Path, lines: Sequence[bytes], pairs: Sentences) -> Rows:
    """The values of some pairs, for tokens in the model's order. lines: (N,) raw lines of the column's file

    Raises InputError with FILE:LINE for what is not a value of this kind.
    """
    name, empty = quoted(path), np.zeros((0, 2) if kind == "links" else 0, COLUMN_TYPES[kind])
    spans = [([], [])] * len(lines) if kind == "pair" else pairs.spans
    rows = [
        _values(kind, f"{name}:{number}", _words(path, number, raw), *span) if good else empty
        for number, raw, good, span in zip(pairs.numbers.tolist(), lines, pairs.good, spans, strict=True)
    ]
    return Rows(np.concatenate([empty, *rows]), np.array([len(row) for row in rows], dtype=np.uint32))


def _words(path: Path, number: int, raw: bytes) -> list[str]:
    line = decode_line(raw, number == 1)
    if line.bad_byte is not None:
        raise bad_bytes(path, number, line)
    return line.text.split()


def _values(kind: ColumnKind, place: str, words: list[str], source: Spans, target: Spans) -> NDArray[Any]:
    """The values of one pair. place: FILE:LINE; words: of the line"""
    if kind == "links":
        links = sorted({_link(place, word, source, target) for word in words})
        positions = [(s, t) for one, other in links for s in source[one] for t in target[other]]
        return np.array(positions, COLUMN_TYPES[kind]).reshape(-1, 2)
    if kind == "pair":
        if len(words) != 1:
            raise InputError(f"{place}: {len(words)} numbers; must be 1, the number of the pair (mend the line)")
        return _numbers(place, words)
    if len(words) - len(target) not in (0, 1):
        raise InputError(
            f"{place}: {len(words)} numbers; must be {len(target)}, one for each target word as nmt prepare divides the "
            f"line, or {len(target) + 1} with one for its end (mend the line)"
        )
    values = np.ones(sum(map(len, target)) + 1, COLUMN_TYPES[kind])  # EOS has 1 unless the line has its number
    spans = [*target, range(len(values) - 1, len(values))]
    for number, span in zip(_numbers(place, words), spans, strict=False):
        values[span.start : span.stop] = number
    return values


def _numbers(place: str, words: Sequence[str]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        numbers = np.array([float(word) if NUMBER.fullmatch(word) else np.nan for word in words], COLUMN_TYPES["pair"])
    if not np.isfinite(numbers).all():
        word = words[int(np.isfinite(numbers).argmin())]
        raise InputError(f"{place}: '{quoted(word)}': must be a finite number of 32 bits (mend the line)")
    return numbers


def _link(place: str, word: str, source: Spans, target: Spans) -> tuple[int, int]:
    """(source word, target word) of `S-T`."""
    match = LINK.fullmatch(word)
    if match is None or int(match[1]) >= len(source) or int(match[2]) >= len(target):
        raise InputError(
            f"{place}: '{quoted(word)}': must be SOURCE-TARGET, words counted from 0; the pair has {len(source)} source "
            f"words and {len(target)} target words as nmt prepare divides the lines (mend the line)"
        )
    return int(match[1]), int(match[2])
