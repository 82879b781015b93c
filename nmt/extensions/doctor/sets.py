"""The sets of pairs that `nmt doctor` reads, in chunks, from files or a data folder."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nmt.data.batching import Indices
from nmt.data.encode import CHUNK_PAIRS, Chunk, FilePair, aligned_blocks, chunks
from nmt.data.options import set_label
from nmt.data.sets import Kind, evenly_spaced
from nmt.data.shards import Corpus
from nmt.errors import quoted
from nmt.extensions.doctor.findings import Example, Finding
from nmt.text.corpus import raw_lines
from nmt.text.pipeline import Pipeline


class PairSet:
    """The training pairs, or one evaluation set.

    num_pairs: number of pairs in the set
    num_examined: number of pairs to read, evenly spaced and numbered from 0 to num_examined - 1
    findings: faults of the files, such as different lengths
    """

    def __init__(
        self, kind: Kind, name: str, files: Sequence[FilePair], prepared: tuple[Corpus, Pipeline] | None = None
    ) -> None:
        """prepared: the training pairs of a data folder; `files` is then a single pair that only provides names for FILE:LINE"""
        self.kind, self.name, self.files, self._prepared = kind, name, files, prepared
        self.findings: list[Finding] = []
        self.num_pairs = self.num_examined = 0
        self._starts: list[int] = []  # number of pairs before each pair of files
        self.label = set_label(kind, name)

    def count(self, max_pairs: int) -> None:
        """Count the pairs of all files. max_pairs: maximum number of pairs to examine; 0 examines all"""
        for pair in self.files:
            if self._prepared is None:
                source, target = pair.count_lines()
            else:
                source = target = len(self._prepared[0])
            if source != target:
                place = f"{pair.paths[source < target]}:{min(source, target) + 1}"
                text = f"{quoted(pair.source)} has {source:,} lines, {quoted(pair.target)} has {target:,}"
                sizes = abs(source - target), max(source, target)
                self.findings.append(Finding("line-counts", self.label, "pair", *sizes, "", [Example(place, text)]))
            self._starts.append(self.num_pairs)
            self.num_pairs += min(source, target)
        self.num_examined = min(max_pairs or self.num_pairs, self.num_pairs)
        if not self.num_pairs:
            example = Example(str(self.files[0].source), "no pair of lines")
            self.findings.append(Finding("no-lines", self.label, "pair", 1, 1, "", [example]))

    def place(self, index: int) -> str:
        """FILE:LINE of an examined pair's source."""
        row = -(-(index + 1) * self.num_pairs // self.num_examined) - 1
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self.files[part].source}:{row - self._starts[part] + 1}"

    def chunks(self) -> Iterator[Chunk]:
        """The pairs to examine; each chunk covers at most CHUNK_PAIRS pairs of the set."""
        is_sampled = self.num_examined < self.num_pairs
        return chunks(self.files, self._is_examined if is_sampled else None, blocks=self._blocks)

    def _is_examined(self, rows: Indices) -> NDArray[np.bool_]:
        return evenly_spaced(rows, self.num_examined, self.num_pairs)

    def _blocks(self, pair: FilePair) -> Iterator[list[list[bytes]]]:
        """The lines of both sides, CHUNK_PAIRS at a time, up to the end of the shorter side."""
        if self._prepared is not None:
            yield from _decoded_blocks(*self._prepared)
            return
        if pair.is_tsv:
            yield from aligned_blocks(pair)
            return
        rows = zip(raw_lines(pair.source), raw_lines(pair.target), strict=False)
        while block := list(islice(rows, CHUNK_PAIRS)):
            yield [list(lines) for lines in zip(*block, strict=True)]


def _decoded_blocks(corpus: Corpus, pipeline: Pipeline) -> Iterator[list[list[bytes]]]:
    """The training pairs of a data folder as text: normalised, and with UNK for unknown tokens."""
    for first in range(0, len(corpus), CHUNK_PAIRS):
        sources, targets = corpus.rows(np.arange(first, min(first + CHUNK_PAIRS, len(corpus))))
        yield [
            [pipeline.source.decode_line(source.tolist()).encode() for source in sources],
            [pipeline.target.decode(target.tolist()).encode() for target in targets],
        ]
