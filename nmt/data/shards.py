"""Prepared data on disk: ids and lengths in memory-mapped shards, and the raw text of the evaluation sets.

A set NAME of PAIRS pairs is `NAME-00000.source.bin`, `.target.bin` (ids without EOS, 16-bit where they fit) and
`.lengths.bin` (tokens of each pair: source, target; 32-bit); little-endian. `data.json` names the sets.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from nmt.artefact import Artefact, to_json, write_file
from nmt.data.batching import Indices, micro_batches
from nmt.errors import ArtefactError, quoted
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

KIND: Final = "prepared-data"
FACTS: Final = "data.json"
SHARD_PAIRS: Final = 1_000_000
LENGTH: Final = np.dtype("<u4")
CHECKED_AT_ONCE: Final = 1 << 24

Ids = NDArray[np.unsignedinteger[Any]]


def id_type(size: int) -> np.dtype[Any]:
    """The type of the ids of a vocabulary of `size` entries."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


class SetFacts(msgspec.Struct):
    """A set of pairs in data.json. kind: train, valid or test; stem: what its files' names begin with."""

    kind: Literal["train", "valid", "test"]
    name: str
    stem: str
    pairs: int
    shards: int


def write_facts(folder: Path, sets: list[SetFacts]) -> None:
    write_file(folder / FACTS, to_json([msgspec.to_builtins(facts) for facts in sets]))


class ShardWriter:
    """Writes the pairs of one set, shard after shard, as they come."""

    def __init__(
        self, folder: Path, stem: str, source_size: int, target_size: int, shard_pairs: int = SHARD_PAIRS
    ) -> None:
        self.pairs = self.shards = 0
        self._folder, self._stem, self._shard_pairs = folder, stem, shard_pairs
        self._types = id_type(source_size), id_type(target_size)
        self._files: list[BinaryIO] = []

    def add(self, lengths: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> None:
        """lengths: (N, 2) tokens of each pair; source, target: the ids of all of them, one after the other."""
        done = 0
        while done < len(lengths):
            if self.pairs == self.shards * self._shard_pairs:
                self._next_shard()
            take = min(len(lengths) - done, self.shards * self._shard_pairs - self.pairs)
            part = lengths[done : done + take]
            num_source, num_target = part.sum(axis=0, dtype=np.int64)
            arrays = (
                source[:num_source].astype(self._types[0]),
                target[:num_target].astype(self._types[1]),
                part.astype(LENGTH),
            )
            for file, array in zip(self._files, arrays, strict=True):
                file.write(array.tobytes())
            source, target = source[num_source:], target[num_target:]
            self.pairs += take
            done += take

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _next_shard(self) -> None:
        self.close()
        self._files = [(self._folder / name).open("wb") for name in shard_files(self._stem, self.shards)]
        self.shards += 1


def shard_files(stem: str, number: int) -> tuple[str, str, str]:
    """The names of a shard's files: source ids, target ids, lengths."""
    start = f"{stem}-{number:05d}"
    return f"{start}.source.bin", f"{start}.target.bin", f"{start}.lengths.bin"


class _Column:
    """The ids of one side of one shard: row i is ids[starts[i] : starts[i + 1]]."""

    def __init__(self, path: Path, lengths: NDArray[Any], size: int) -> None:
        """Raises ArtefactError unless the lengths add up to the file and every id is one of text, below `size`."""
        kind = id_type(size)
        self.starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=self.starts[1:])
        if int(self.starts[-1]) * kind.itemsize != path.stat().st_size:
            raise ArtefactError(
                f"{quoted(path)}: {path.stat().st_size:,} bytes; its lengths say {self.starts[-1]:,} ids"
            )
        self.ids: Ids = np.memmap(path, dtype=kind, mode="r") if self.starts[-1] else np.zeros(0, dtype=kind)
        for start in range(0, len(self.ids), CHECKED_AT_ONCE):
            part = self.ids[start : start + CHECKED_AT_ONCE]
            if int(part.max()) >= size or int(part.min()) < UNK:
                raise ArtefactError(f"{quoted(path)}: holds an id that is not {UNK} to {size - 1}")

    def __getitem__(self, row: int) -> Ids:
        return self.ids[self.starts[row] : self.starts[row + 1]]


class Corpus:
    """Pairs of id sequences, in memory only where they are read.

    source_lengths, target_lengths: (N,) int32 tokens without EOS
    """

    def __init__(self, artefact: Artefact, facts: SetFacts, source_size: int, target_size: int) -> None:
        """Raises ArtefactError when the shards are not what was written or do not fit the vocabularies."""
        columns, lengths = [], []
        for number in range(facts.shards):
            source, target, table = (artefact.path(name) for name in shard_files(facts.stem, number))
            content = np.fromfile(table, dtype=LENGTH)
            if len(content) % 2 or table.stat().st_size % LENGTH.itemsize:
                raise ArtefactError(f"{quoted(table)}: is not a table of two lengths a pair")
            rows = content.reshape(-1, 2)
            lengths.append(rows.astype(np.int32))
            columns.append((_Column(source, rows[:, 0], source_size), _Column(target, rows[:, 1], target_size)))
        both = np.concatenate([np.zeros((0, 2), dtype=np.int32), *lengths])
        if len(both) != facts.pairs:
            raise ArtefactError(
                f"{quoted(artefact.folder)}: set '{quoted(facts.name)}' has {len(both):,} pairs, not {facts.pairs:,}"
            )
        self.source_lengths, self.target_lengths = np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
        self._columns = columns
        self._starts = np.cumsum([0, *(len(rows) for rows in lengths)])

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int) -> Ids:
        """(S,) the source ids of pair i, without EOS."""
        return self._row(0, i)

    def target(self, i: int) -> Ids:
        """(T,) the target ids of pair i, without EOS."""
        return self._row(1, i)

    def _row(self, side: int, i: int) -> Ids:
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        shard = int(np.searchsorted(self._starts, i, side="right")) - 1
        return self._columns[shard][side][i - int(self._starts[shard])]


@dataclass(frozen=True)
class EvaluationSet:
    """A development or test set: ids for the loss, raw text (cleaned by rule 4 only) for translating and scoring."""

    name: str
    corpus: Corpus
    source_lines: list[str]
    target_lines: list[str]

    def batches(self, max_tokens: int) -> Iterator[Indices]:
        """Indices of pairs of nearly one length; pairs with an empty side are left out. max_tokens: cells of a batch."""
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        order = np.lexsort((source, target))
        full = order[(source[order] > 0) & (target[order] > 0)]
        return micro_batches([full], source, target, max_tokens) if len(full) else iter(())


class PreparedData:
    """A folder that `nmt prepare` made, opened for reading; what is used of it is checked before."""

    def __init__(self, folder: Path) -> None:
        self.artefact = Artefact(folder, KIND)
        self.manifest: dict[str, Any] = self.artefact.manifest
        self.pipeline = Pipeline.load(self.artefact)
        try:
            self._sets = msgspec.json.decode(self.artefact.path(FACTS).read_bytes(), type=list[SetFacts])
        except msgspec.DecodeError as error:
            raise ArtefactError(f"{quoted(folder / FACTS)}: not a list of sets: {error}") from None

    @property
    def fingerprint(self) -> str:
        """sha256 over the training data's files and the pipeline: the same for the same training data."""
        files = self.manifest["files"]
        rows = [f"{name} {files[name]['sha256']}\n" for name in sorted(files) if name.startswith("train-")]
        return hashlib.sha256("".join([*rows, self.pipeline.hash]).encode()).hexdigest()

    @cached_property
    def train(self) -> Corpus:
        """The training pairs; empty when the folder was prepared without any."""
        facts = next(
            (facts for facts in self._sets if facts.kind == "train"), SetFacts("train", "train", "train", 0, 0)
        )
        return self._corpus(facts)

    @cached_property
    def valid(self) -> dict[str, EvaluationSet]:
        """The development sets by name, in the order they were given."""
        return self._evaluation_sets("valid")

    @cached_property
    def test(self) -> dict[str, EvaluationSet]:
        """The test sets by name, in the order they were given."""
        return self._evaluation_sets("test")

    def _corpus(self, facts: SetFacts) -> Corpus:
        return Corpus(self.artefact, facts, self.pipeline.source.size, self.pipeline.target.size)

    def _evaluation_sets(self, kind: str) -> dict[str, EvaluationSet]:
        return {facts.name: self._evaluation_set(facts) for facts in self._sets if facts.kind == kind}

    def _evaluation_set(self, facts: SetFacts) -> EvaluationSet:
        source, target = (self._text(f"{facts.stem}.{side}.txt", facts.pairs) for side in ("source", "target"))
        return EvaluationSet(facts.name, self._corpus(facts), source, target)

    def _text(self, name: str, pairs: int) -> list[str]:
        path = self.artefact.path(name)
        try:
            found = path.read_bytes().decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise ArtefactError(f"{quoted(path)}: not UTF-8: {error}") from None
        if len(found) != pairs:
            raise ArtefactError(f"{quoted(path)}: has {len(found):,} lines where the set has {pairs:,} pairs")
        return found
