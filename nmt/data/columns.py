"""Columns of training data: files beside the text with numbers of pairs or of target words, or with links between words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from nmt.errors import InputError, UserError, quoted
from nmt.symbols import ColumnKind
from nmt.text.corpus import bad_bytes, decode_line
from nmt.text.pipeline import Pipeline, Side
from nmt.text.words import tokens_per_word

GIVEN: Final = re.compile(r"([a-z][a-z0-9_-]*)(?::([a-z]+))?=(.+)", re.DOTALL)
RESERVED_NAMES: Final = ("source", "target", "lengths")  # of the files of a set
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LINK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
TYPES: Final[dict[ColumnKind, np.dtype[Any]]] = {
    "pair": np.dtype("<f4"),
    "target": np.dtype("<f4"),
    "links": np.dtype("<u4"),
}


class Rows(NamedTuple):
    """Values of some pairs, one pair after the other. values: (sum of lengths, ...); lengths: (N,) values of each pair."""

    values: NDArray[Any]
    lengths: NDArray[Any]

    def keep(self, kept: NDArray[np.bool_]) -> "Rows":
        """The rows of the pairs that are kept. kept: (N,)"""
        return Rows(self.values[np.repeat(kept, self.lengths)], self.lengths[kept])


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


@dataclass(frozen=True)
class Sentences:
    """The pairs that a chunk of a column belongs to.

    numbers: (N,) of their lines, counted from 1
    good: (N,) whether the text of the pair can be used; the values of others are not read
    prepared: source and target lines, ready for subwords
    """

    numbers: NDArray[np.int64]
    good: NDArray[np.bool_]
    prepared: tuple[Sequence[str], Sequence[str]]
    pipeline: Pipeline

    def token_counts(self, side: int) -> list[NDArray[np.int64]]:
        """Of each pair (words,) tokens of each word of the source (0) or target (1), in the order of the text."""
        return tokens_per_word(self._side(side), self.prepared[side])

    def right_to_left(self, side: int) -> bool:
        return self._side(side).settings.right_to_left

    def _side(self, side: int) -> Side:
        return (self.pipeline.source, self.pipeline.target)[side]


def read_column(kind: ColumnKind, path: Path, lines: Sequence[bytes], pairs: Sentences) -> Rows:
    """The values of a chunk's pairs for a column of tokens, positions in the model's order.

    lines: (N,) raw lines of the column's file
    Raises InputError with FILE:LINE for what is not a value of this kind.
    """
    texts = [
        _words(path, int(number), raw) if good else None
        for number, raw, good in zip(pairs.numbers, lines, pairs.good, strict=True)
    ]
    places = [f"{quoted(path)}:{number}" for number in pairs.numbers]
    rows: list[NDArray[Any]] = []
    empty = np.zeros((0, 2) if kind == "links" else 0, TYPES[kind])
    read = READERS[kind](pairs)
    for i, (place, words) in enumerate(zip(places, texts, strict=True)):
        rows.append(empty if words is None else read(place, i, words))
    return Rows(np.concatenate([empty, *rows]), np.array([len(row) for row in rows], dtype=np.uint32))


def _words(path: Path, number: int, raw: bytes) -> list[str]:
    line = decode_line(raw, number == 1)
    if line.bad_byte is not None:
        raise bad_bytes(path, number, line)
    return line.text.split()


Reader = Callable[[str, int, list[str]], NDArray[Any]]  # (FILE:LINE, index of the pair, words of the line) -> values


def _pair_reader(_: Sentences) -> Reader:
    """One number a pair."""

    def read(place: str, _: int, words: list[str]) -> NDArray[Any]:
        if len(words) != 1:
            raise InputError(f"{place}: {len(words)} numbers; must be 1, the number of the pair (mend the line)")
        return _numbers(place, words)

    return read


def _target_reader(pairs: Sentences) -> Reader:
    """A number for each target word, and one for EOS, which is 1 where the line has none."""
    token_counts, right_to_left = pairs.token_counts(1), pairs.right_to_left(1)

    def read(place: str, i: int, words: list[str]) -> NDArray[Any]:
        counts = token_counts[i]
        if len(words) not in (len(counts), len(counts) + 1):
            raise InputError(
                f"{place}: {len(words)} numbers; must be {len(counts)}, one for each target word as nmt prepare divides the "
                f"line, or {len(counts) + 1} with one for its end (mend the line)"
            )
        numbers = _numbers(place, words)
        tokens = np.repeat(numbers[: len(counts)], counts)
        end = numbers[len(counts) :] if len(words) > len(counts) else np.ones(1, tokens.dtype)
        return np.concatenate([tokens[::-1] if right_to_left else tokens, end])

    return read


def _links_reader(pairs: Sentences) -> Reader:
    """Links between words, as links between all tokens of the one and all of the other."""
    sides = [(pairs.token_counts(side), pairs.right_to_left(side)) for side in (0, 1)]

    def read(place: str, i: int, words: list[str]) -> NDArray[Any]:
        tokens = [_positions(counts[i], right_to_left) for counts, right_to_left in sides]
        links = [_link(place, word, len(tokens[0]), len(tokens[1])) for word in words]
        found = [(s, t) for source, target in sorted(set(links)) for s in tokens[0][source] for t in tokens[1][target]]
        return np.array(found, TYPES["links"]).reshape(-1, 2)

    return read


READERS: Final[dict[ColumnKind, Callable[[Sentences], Reader]]] = {
    "pair": _pair_reader,
    "target": _target_reader,
    "links": _links_reader,
}


def _numbers(place: str, words: Sequence[str]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        numbers = np.array([float(word) if NUMBER.fullmatch(word) else np.nan for word in words], TYPES["pair"])
    if not np.isfinite(numbers).all():
        word = words[int(np.flatnonzero(~np.isfinite(numbers))[0])]
        raise InputError(f"{place}: '{quoted(word)}': must be a finite number of 32 bits (mend the line)")
    return numbers


def _positions(counts: NDArray[np.int64], right_to_left: bool) -> list[range]:
    """The positions of each word's tokens in the model's order. counts: (words,) tokens of each"""
    ends, total = np.cumsum(counts).tolist(), int(counts.sum())
    spans = zip([0, *ends], ends, strict=False)
    return [range(total - end, total - start) if right_to_left else range(start, end) for start, end in spans]


def _link(place: str, word: str, num_source: int, num_target: int) -> tuple[int, int]:
    """(source word, target word) of `S-T`."""
    match = LINK.fullmatch(word)
    source, target = (int(match[1]), int(match[2])) if match else (num_source, num_target)
    if source >= num_source or target >= num_target:
        raise InputError(
            f"{place}: '{quoted(word)}': must be SOURCE-TARGET, words counted from 0; the pair has {num_source} source words "
            f"and {num_target} target words as nmt prepare divides the lines (mend the line)"
        )
    return source, target
