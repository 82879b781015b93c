"""The sets of pairs that `nmt doctor` reads, files or prepared data, as chunks of lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice

import numpy as np

from nmt.data.encode import CHUNK_PAIRS, Chunk, FilePair
from nmt.data.sets import Kind, set_label
from nmt.data.shards import Corpus
from nmt.doctor.findings import Example, Finding
from nmt.errors import quoted
from nmt.signals import Signals
from nmt.text.corpus import count_lines, raw_lines
from nmt.text.pipeline import Pipeline


@dataclass(frozen=True)
class CorpusPart:
    """A pair of files, or the training pairs of prepared data, for which `files` are names in FILE:LINE."""

    files: FilePair
    prepared: tuple[Corpus, Pipeline] | None = None

    def count(self, signals: Signals) -> tuple[int, int]:
        """The number of lines of both sides."""
        if self.prepared is None:
            return count_lines(self.files.source, signals.check), count_lines(self.files.target, signals.check)
        return len(self.prepared[0]), len(self.prepared[0])

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of lines, up to the end of the shorter side."""
        if self.prepared is None:
            return zip(raw_lines(self.files.source), raw_lines(self.files.target), strict=False)
        return _decoded_rows(*self.prepared)


def _decoded_rows(corpus: Corpus, pipeline: Pipeline) -> Iterator[tuple[bytes, bytes]]:
    """The training pairs of prepared data as text: normalised, and with UNK for unknown tokens."""
    for first in range(0, len(corpus), CHUNK_PAIRS):
        rows = corpus.rows(np.arange(first, min(first + CHUNK_PAIRS, len(corpus))))
        for source, target in zip(*rows, strict=True):
            yield (
                pipeline.source.decode_line(source.tolist()).encode(),
                pipeline.target.decode(target.tolist()).encode(),
            )


class PairSet:
    """The training pairs, or one evaluation set.

    num_pairs: pairs of the set
    num_examined: pairs that are read, evenly spaced; they have the indices 0 to num_examined - 1
    findings: the faults of its files: different lengths, no lines
    """

    def __init__(self, kind: Kind, name: str, parts: Sequence[CorpusPart]) -> None:
        self.kind, self.name, self.parts = kind, name, parts
        self.findings: list[Finding] = []
        self.num_pairs = self.num_examined = 0
        self._starts: list[int] = []  # number of pairs before each part
        self.label = set_label(kind, name)

    def count(self, max_pairs: int, signals: Signals) -> None:
        """Count the pairs of each part. max_pairs: pairs to examine, at most; 0 for all"""
        for part in self.parts:
            source, target = part.count(signals)
            if source != target:
                place = f"{part.files.paths[source < target]}:{min(source, target) + 1}"
                text = f"{quoted(part.files.source)} has {source:,} lines, {quoted(part.files.target)} has {target:,}"
                sizes = abs(source - target), max(source, target)
                self.findings.append(Finding("line-counts", self.label, "pair", *sizes, "", [Example(place, text)]))
            self._starts.append(self.num_pairs)
            self.num_pairs += min(source, target)
        self.num_examined = min(max_pairs or self.num_pairs, self.num_pairs)
        if not self.num_pairs:
            example = Example(str(self.parts[0].files.source), "no pair of lines")
            self.findings.append(Finding("no-lines", self.label, "pair", 1, 1, "", [example]))

    def place(self, index: int) -> str:
        """FILE:LINE of the source of an examined pair."""
        row = -(-(index + 1) * self.num_pairs // self.num_examined) - 1
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self.parts[part].files.source}:{row - self._starts[part] + 1}"

    def chunks(self) -> Iterator[Chunk]:
        """The pairs to examine, of at most CHUNK_PAIRS pairs of the set at a time."""
        sampled = self.num_examined < self.num_pairs
        for part, start in zip(self.parts, self._starts, strict=True):
            rows = part.rows()
            for first in count(1, CHUNK_PAIRS):
                chunk = list(islice(rows, CHUNK_PAIRS))
                if not chunk:
                    break
                numbers = np.arange(first, first + len(chunk))
                if sampled:
                    before = np.arange(start + first - 1, start + first + len(chunk)) * self.num_examined
                    chosen = np.diff(before // self.num_pairs) > 0
                    numbers, chunk = numbers[chosen], list(compress(chunk, chosen))
                if chunk:
                    sources, targets = zip(*chunk, strict=True)
                    yield Chunk(part.files, numbers, list(sources), list(targets))
