"""Columns of training data: files beside the text with numbers of pairs or of target words, or with links between words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from nmt.data.row_files import COLUMN_TYPES
from nmt.errors import InputError, UserError, quoted
from nmt.rows import Rows
from nmt.symbols import ColumnKind
from nmt.text.corpus import checked_line
from nmt.text.pipeline import Pipeline, Side
from nmt.text.vocabulary import expand_ranges

GIVEN: Final = re.compile(r"([a-z][a-z0-9_-]*)(?::([a-z]+))?=(.+)", re.DOTALL)
RESERVED_NAMES: Final = ("source", "target", "lengths")  # of the files of a set
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LINK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def parse_columns(given: Sequence[str], num_files: int) -> tuple[dict[str, ColumnKind], list[tuple[Path, ...]]]:
    """The kind of each column that `NAME=FILE` or `NAME:KIND=FILE` names, and the files of all columns.

    num_files: pairs of training files; for each the result has a tuple of one file a column
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
                "order: --train, then --source, then --train-tsv)"
            )
    return kinds, list(zip(*files.values(), strict=True)) or [()] * num_files


class SideWords:
    """The words of one side of some pairs, and the tokens of each word.

    num_words, num_tokens: (N,) of each pair
    tokens: (words of all pairs,) tokens of each word
    starts: (words of all pairs,) position of each word's first token in its sentence, in the model's order
    """

    def __init__(self, side: Side, prepared: Sequence[str]) -> None:
        """prepared: (N,) lines, ready for subwords"""
        words = [side.words(line) for line in prepared]
        self.num_words = np.array(list(map(len, words)), dtype=np.int64)
        # no token crosses a space, so that a word has the same tokens wherever it stands
        self.tokens = side.encode_prepared(list(chain.from_iterable(words))).lengths.astype(np.int64)
        ends = np.cumsum(self.tokens)
        self.offsets = np.cumsum(self.num_words) - self.num_words  # (N,) of each pair's first word
        bounds = np.concatenate([[0], ends])
        self.num_tokens = bounds[self.offsets + self.num_words] - bounds[self.offsets]
        before = ends - self.tokens - np.repeat(bounds[self.offsets], self.num_words)
        after = np.repeat(self.num_tokens, self.num_words) - before - self.tokens
        self.starts = after if side.settings.right_to_left else before


@dataclass(frozen=True)
class Sentences:
    """The pairs that the lines of a column belong to.

    numbers: (N,) of their lines, counted from 1
    good: (N,) whether the text of the pair can be used; the values of others are not read, and stand for nothing
    prepared: source and target lines, ready for subwords
    """

    numbers: NDArray[np.int64]
    good: NDArray[np.bool_]
    prepared: tuple[Sequence[str], Sequence[str]]
    pipeline: Pipeline

    @cached_property
    def source(self) -> SideWords:
        return SideWords(self.pipeline.source, self.prepared[0])

    @cached_property
    def target(self) -> SideWords:
        return SideWords(self.pipeline.target, self.prepared[1])


class ColumnItems:
    """The items between the spaces of some lines. counts: (N,) of each line; pairs: (items,) index of each item's line"""

    def __init__(self, path: Path, lines: Sequence[bytes], sentences: Sentences) -> None:
        numbered = zip(sentences.numbers.tolist(), lines, sentences.good.tolist(), strict=True)
        rows = [checked_line(path, number, raw).split() if good else [] for number, raw, good in numbered]
        self.path, self.sentences, self.items = path, sentences, list(chain.from_iterable(rows))
        self.counts = np.array(list(map(len, rows)))
        self.pairs = np.repeat(np.arange(len(rows)), self.counts)

    def error(self, pair: int, message: str) -> InputError:
        """The error for the line of a pair."""
        return InputError(f"{quoted(self.path)}:{self.sentences.numbers[pair]}: {message} (mend the line)")

    def numbers(self) -> NDArray[Any]:
        """(items,) 32-bit floats; InputError for what is not a finite number."""
        values = [float(item) if NUMBER.fullmatch(item) else np.nan for item in self.items]
        with np.errstate(over="ignore"):
            numbers = np.array(values, COLUMN_TYPES["pair"])
        if not np.isfinite(numbers).all():
            i = int(np.isfinite(numbers).argmin())
            message = f"'{quoted(self.items[i])}': must be a finite number of 32 bits"
            raise self.error(int(self.pairs[i]), message)
        return numbers


def _read_pairs(items: ColumnItems) -> Rows:
    """One number of each pair."""
    for i in np.flatnonzero(items.sentences.good & (items.counts != 1)).tolist():
        raise items.error(i, f"{items.counts[i]} numbers; must be 1, the number of the pair")
    values = np.ones(len(items.counts), COLUMN_TYPES["pair"])
    values[items.pairs] = items.numbers()
    return Rows(values, np.ones(len(values), np.uint32))


def _read_target(items: ColumnItems) -> Rows:
    """A number of each target token and of EOS: that of its word; EOS has 1 unless the line has a number more."""
    sentences, words = items.sentences, items.sentences.target
    more = items.counts - words.num_words
    for i in np.flatnonzero(sentences.good & (more != 0) & (more != 1)).tolist():
        count = words.num_words[i]
        expected = (
            f"{count}, one for each target word as nmt prepare divides the line, or {count + 1} with one for its end"
        )
        raise items.error(i, f"{items.counts[i]} numbers; must be {expected}")
    numbers, ends = items.numbers(), np.cumsum(words.num_tokens + 1)
    values = np.ones(int(ends[-1]), COLUMN_TYPES["target"])
    of_end = (np.cumsum(items.counts) - 1)[more == 1]  # items that are the number of an EOS
    values[ends[more == 1] - 1] = numbers[of_end]
    good = np.repeat(sentences.good, words.num_words)
    starts = words.starts + np.repeat(ends - words.num_tokens - 1, words.num_words)
    values[expand_ranges(starts[good], words.tokens[good])] = np.repeat(np.delete(numbers, of_end), words.tokens[good])
    return Rows(values, (words.num_tokens + 1).astype(np.uint32))


def _read_links(items: ColumnItems) -> Rows:
    """(links, 2) between all tokens of linked words."""
    source, target, pairs = items.sentences.source, items.sentences.target, items.pairs
    matches = [LINK.fullmatch(item) for item in items.items]
    links = np.array([match.groups() if match else (-1, -1) for match in matches], np.int64).reshape(-1, 2)
    limits = np.stack([source.num_words[pairs], target.num_words[pairs]], axis=1)
    for i in np.flatnonzero(((links < 0) | (links >= limits)).any(axis=1)).tolist():
        pair = int(pairs[i])
        raise items.error(
            pair,
            f"'{quoted(items.items[i])}': must be SOURCE-TARGET, words counted from 0; the pair has {source.num_words[pair]} "
            f"source words and {target.num_words[pair]} target words as nmt prepare divides the lines",
        )
    # One number for each word of all pairs, so that equal links of a pair are one, in their order.
    size = max(1, len(target.tokens))
    keys = np.unique((source.offsets[pairs] + links[:, 0]) * size + target.offsets[pairs] + links[:, 1])
    one, other = keys // size, keys % size
    widths = target.tokens[other]
    counts = source.tokens[one] * widths
    step = expand_ranges(np.zeros_like(counts), counts)
    widths = np.repeat(widths, counts)
    first = np.stack([np.repeat(source.starts[one], counts), np.repeat(target.starts[other], counts)], axis=1)
    values = first + np.stack([step // widths, step % widths], axis=1)
    pair_of_word = np.repeat(np.arange(len(items.counts)), source.num_words)
    lengths = np.bincount(pair_of_word[one], counts, len(items.counts))
    return Rows(values.astype(COLUMN_TYPES["links"]), lengths.astype(np.uint32))


# Each gives the values of some pairs, for tokens in the model's order; InputError with FILE:LINE for what is no such value.
READERS: Final[dict[ColumnKind, Callable[[ColumnItems], Rows]]] = {
    "pair": _read_pairs,
    "target": _read_target,
    "links": _read_links,
}
