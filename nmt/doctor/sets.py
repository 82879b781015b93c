"""The sets of pairs that `nmt doctor` looks at, files or prepared data, read side by side however long they are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.encode import CHUNK_PAIRS, FilePair
from nmt.data.row_files import IdArray
from nmt.data.sets import Kind
from nmt.data.shards import Corpus
from nmt.doctor.examine import Lines
from nmt.doctor.findings import Example, Finding
from nmt.errors import quoted
from nmt.signals import Signals
from nmt.text.corpus import count_lines, raw_lines
from nmt.text.pipeline import Pipeline, Side


@dataclass(frozen=True)
class Part:
    """Pairs that stand together: two files, or the training pairs of prepared data. places: FILE of FILE:LINE."""

    places: tuple[str, str]
    content: FilePair | tuple[Corpus, Pipeline]

    def count(self, signals: Signals) -> tuple[int, int]:
        """Lines of both sides."""
        if isinstance(self.content, FilePair):
            return count_lines(self.content.source, signals.check), count_lines(self.content.target, signals.check)
        return len(self.content[0]), len(self.content[0])

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The lines side by side, up to the end of the shorter side."""
        if isinstance(self.content, FilePair):
            return zip(raw_lines(self.content.source), raw_lines(self.content.target), strict=False)
        return _decoded(*self.content)

    @classmethod
    def of_files(cls, files: FilePair) -> "Part":
        return cls((str(files.source), str(files.target)), files)


def _decoded(corpus: Corpus, pipeline: Pipeline) -> Iterator[tuple[bytes, bytes]]:
    """The text of the training pairs of prepared data: normalised, and what was unknown then is unknown still."""
    for first in range(0, len(corpus), CHUNK_PAIRS):
        rows = np.arange(first, min(first + CHUNK_PAIRS, len(corpus)))
        sources = _texts(pipeline.source, corpus.sources(rows), corpus.source_lengths[rows])
        yield from zip(sources, _texts(pipeline.target, corpus.targets(rows), corpus.target_lengths[rows]), strict=True)


def _texts(side: Side, ids: IdArray, lengths: NDArray[Any]) -> list[bytes]:
    """The texts of ids that stand one after the other. lengths: (N,)"""
    rows = np.split(ids, np.cumsum(lengths[:-1], dtype=np.int64))
    return [side.decode(row.tolist()).encode() for row in rows]


class PairSet:
    """A set of pairs and what is found in it. Its index of a pair counts the pairs that are looked at, from 0."""

    def __init__(self, kind: Kind, name: str, parts: Sequence[Part]) -> None:
        self.kind, self.name, self.parts = kind, name, parts
        self.findings: list[Finding] = []
        self.pairs = self.examined = 0
        self._starts: list[int] = []  # pairs before each part
        self.told = kind if kind == "train" else f"{kind} {quoted(name)}"

    def count(self, most: int, signals: Signals) -> None:
        """Count the pairs; files of different length and sets without a line are found here. most: pairs to look at."""
        for part in self.parts:
            source, target = part.count(signals)
            if source != target:
                place = f"{part.places[source < target]}:{min(source, target) + 1}"
                text = f"{quoted(part.places[0])} has {source:,} lines, {quoted(part.places[1])} has {target:,}"
                sizes = abs(source - target), max(source, target)
                self.findings.append(Finding("line-counts", self.told, "pair", *sizes, "", [Example(place, text)]))
            self._starts.append(self.pairs)
            self.pairs += min(source, target)
        self.examined = min(most or self.pairs, self.pairs)
        if not self.pairs:
            empty = Example(self.parts[0].places[0], "no pair of lines")
            self.findings.append(Finding("no-lines", self.told, "pair", 1, 1, "", [empty]))

    def _row(self, i: int) -> int:
        """The pair that is looked at as number i, of all: they are evenly spaced."""
        return -(-(i + 1) * self.pairs // self.examined) - 1

    def place(self, i: int) -> str:
        """FILE:LINE of the source of the pair with index i."""
        row = self._row(i)
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self.parts[part].places[0]}:{row - self._starts[part] + 1}"

    def lines(self) -> Iterator[Lines]:
        """The pairs to look at, CHUNK_PAIRS at a time."""
        sampled = self.examined < self.pairs
        for part, start in zip(self.parts, self._starts, strict=True):
            rows = part.rows()
            for first in count(1, CHUNK_PAIRS):
                some = list(islice(rows, CHUNK_PAIRS))
                if not some:
                    break
                numbers: Sequence[int] = range(first, first + len(some))
                if sampled:
                    at = np.arange(start + first - 1, start + first - 1 + len(some))
                    taken = (at + 1) * self.examined // self.pairs > at * self.examined // self.pairs
                    numbers, some = list(compress(numbers, taken)), list(compress(some, taken))
                if some:
                    sources, targets = zip(*some, strict=True)
                    yield Lines(part.places, numbers, list(sources), list(targets))
