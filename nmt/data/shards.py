"""Prepared data on disk: the ids and columns of each set of pairs in memory-mapped files, and the raw text of evaluation sets.

Files of a set STEM of N pairs, all little-endian:

    STEM.lengths.bin    (N, 2) tokens of each pair: source, target; 32-bit
    STEM.source.bin, STEM.target.bin    ids of all pairs without EOS, 16-bit if they fit, else 32-bit
    STEM.COLUMN.bin     values of a column: (N,) for kind "pair", (target tokens and EOS of all pairs,) for "target", both
        32-bit floats; (links, 2) for "links", 32-bit source and target positions in the model's order
    STEM.COLUMN.counts.bin    (N,) links of each pair, 32-bit; of "links" only
    STEM.*.sums         sha256 of each block of the file of ids or values
    STEM.source.txt, STEM.target.txt    lines of an evaluation set

`data.json` names the sets and their columns. Opening a set reads its lengths only; a block of ids or values is checked when it
is first used, so that training starts in seconds however large the data is.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from nmt.artefact import Artefact, to_json, write_file
from nmt.data.batching import Indices, micro_batches
from nmt.data.columns import TYPES, Rows
from nmt.errors import ArtefactError, UserError, quoted
from nmt.runs import find_model
from nmt.symbols import UNK, ColumnKind
from nmt.text.pipeline import Pipeline

DATA_KIND: Final = "prepared-data"
SETS_FILE: Final = "data.json"
SIDES: Final = ("source", "target")
LENGTH: Final = np.dtype("<u4")
BLOCK_BYTES: Final = 1 << 16  # checked at once
SHA256_BYTES: Final = 32
STRIDE_ROWS: Final = 64  # rows between two whose place in the file is kept in memory

IdArray = NDArray[np.unsignedinteger[Any]]


def id_type(size: int) -> np.dtype[Any]:
    """The type of the ids of a vocabulary of `size` entries."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def named_pipeline(folder: Path, languages: tuple[str, str]) -> Pipeline:
    """The text pipeline of a model, of a run's best checkpoint or of prepared data.

    languages: source and target; UserError if the pipeline has others
    """
    pipeline = Pipeline.load(Artefact(find_model(folder), "model", "checkpoint", DATA_KIND))
    pair = pipeline.source_lang, pipeline.target_lang
    if pair != languages:
        raise UserError(f"{quoted(folder)}: translates {'-'.join(pair)}; the data is {'-'.join(languages)}")
    return pipeline


class SetFacts(msgspec.Struct, omit_defaults=True):
    """A set of pairs in data.json. stem: beginning of its files' names; columns: kind of each column by name"""

    kind: Literal["train", "valid", "test"]
    name: str
    stem: str
    pairs: int
    columns: dict[str, ColumnKind] = {}


def write_facts(folder: Path, sets: list[SetFacts]) -> None:
    write_file(folder / SETS_FILE, to_json([msgspec.to_builtins(facts) for facts in sets]))


class SetWriter:
    """Writes the pairs of one set as they come."""

    def __init__(
        self,
        folder: Path,
        stem: str,
        source_size: int,
        target_size: int,
        columns: Mapping[str, ColumnKind] | None = None,
    ) -> None:
        """source_size, target_size: entries of the vocabularies; columns: kind of each column by name"""
        self.pairs = 0
        self._kinds = dict(columns or {})
        names = [f"{stem}.{name}.bin" for name in (*SIDES, *self._kinds)]
        links = [f"{stem}.{name}.counts.bin" for name, kind in self._kinds.items() if kind == "links"]
        self._checked = [(folder / name).open("wb") for name in names]
        self._counts = [(folder / name).open("wb") for name in (f"{stem}.lengths.bin", *links)]
        value_types = (TYPES[kind] for kind in self._kinds.values())
        self._types = id_type(source_size), id_type(target_size), *value_types

    def add(
        self, lengths: NDArray[Any], source: NDArray[Any], target: NDArray[Any], columns: Sequence[Rows] = ()
    ) -> None:
        """lengths: (N, 2) tokens of each pair; source, target: the ids of all of them, one after the other."""
        values = source, target, *(rows.values for rows in columns)
        links = (rows.lengths for rows, kind in zip(columns, self._kinds.values(), strict=True) if kind == "links")
        for file, array, kind in zip(self._checked, values, self._types, strict=True):
            file.write(array.astype(kind).tobytes())
        for file, counts in zip(self._counts, (lengths, *links), strict=True):
            file.write(counts.astype(LENGTH).tobytes())
        self.pairs += len(lengths)

    def close(self) -> None:
        for file in (*self._checked, *self._counts):
            file.close()

    def finish(self) -> None:
        """Close the files, and write the sums of their blocks."""
        self.close()
        for file in self._checked:
            path = Path(file.name)
            with path.open("rb") as content, path.with_suffix(".sums").open("wb") as sums:
                while block := content.read(BLOCK_BYTES):
                    sums.write(hashlib.sha256(block).digest())


class _RowFile:
    """Rows of values, one after the other in a memory-mapped file whose blocks are checked when they are first used."""

    def __init__(
        self, artefact: Artefact, name: str, kind: np.dtype[Any], lengths: NDArray[Any], more: int = 0, width: int = 1
    ) -> None:
        """Raises ArtefactError unless the lengths add up to the file.

        lengths: (N,) values of each row without `more`, which each row has besides
        width: numbers of a value
        """
        self._path, self._lengths, self._more = artefact.unchecked_path(f"{name}.bin"), lengths, more
        firsts = np.arange(0, len(lengths), STRIDE_ROWS)
        sums = np.add.reduceat(lengths, firsts, dtype=np.int64) if len(firsts) else firsts
        sums += more * np.minimum(STRIDE_ROWS, len(lengths) - firsts)
        self._starts = np.concatenate([[0], np.cumsum(sums)])  # of every STRIDE_ROWS-th row
        size, expected = self._path.stat().st_size, int(self._starts[-1]) * kind.itemsize * width
        if size != expected:
            raise ArtefactError(
                f"{quoted(self._path)}: {size:,} bytes; its lengths say {expected:,} (prepare it again)"
            )
        values = np.asarray(np.memmap(self._path, dtype=kind, mode="r")) if size else np.zeros(0, dtype=kind)
        self._values: NDArray[Any] = values if width == 1 else values.reshape(-1, width)
        self._value_bytes = kind.itemsize * width
        self._sums = artefact.path(f"{name}.sums").read_bytes()
        self._checked = np.zeros(-(-size // BLOCK_BYTES), dtype=bool)
        if len(self._sums) != SHA256_BYTES * len(self._checked):
            raise ArtefactError(f"{quoted(self._path.with_suffix('.sums'))}: not the sums of {self._path.name}")

    def lengths(self, rows: Indices) -> Indices:
        """(N,) values of some rows."""
        return self._lengths[rows].astype(np.int64) + self._more

    def take(self, rows: Indices) -> NDArray[Any]:
        """The values of rows (N,), one after the other; ArtefactError when they are not those that were written."""
        lengths = self.lengths(rows)
        near = rows // STRIDE_ROWS
        steps = np.arange(STRIDE_ROWS)
        between = self._lengths[
            np.minimum(near[:, None] * STRIDE_ROWS + steps, len(self._lengths) - 1)
        ]  # N STRIDE_ROWS
        steps_to_row = rows % STRIDE_ROWS
        starts = self._starts[near] + np.where(steps < steps_to_row[:, None], between, 0).sum(1, dtype=np.int64)
        starts += self._more * steps_to_row
        self._check(starts[lengths > 0], (starts + lengths)[lengths > 0])
        values: NDArray[Any] = self._values[
            np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        ]
        return values

    def _check(self, starts: Indices, ends: Indices) -> None:
        """Check the blocks that hold the values from starts to ends, unless they have been."""
        first, last = starts * self._value_bytes // BLOCK_BYTES, (ends * self._value_bytes - 1) // BLOCK_BYTES
        counts = last - first + 1
        blocks = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            bounds = block * BLOCK_BYTES // self._value_bytes, (block + 1) * BLOCK_BYTES // self._value_bytes
            values = self._values[slice(*bounds)]
            if (
                hashlib.sha256(values.tobytes()).digest()
                != self._sums[block * SHA256_BYTES : (block + 1) * SHA256_BYTES]
            ):
                raise ArtefactError(f"{quoted(self._path)}: damaged: block {block} is not what was written")
            self._check_values(values)
            self._checked[block] = True

    def _check_values(self, values: NDArray[Any]) -> None:
        """Raise ArtefactError for values that `nmt prepare` never writes."""
        if not np.isfinite(values).all():
            raise ArtefactError(f"{quoted(self._path)}: holds a number that is not finite")


class _IdFile(_RowFile):
    """The ids of one side of a set. size: entries of the vocabulary"""

    def __init__(self, artefact: Artefact, name: str, lengths: NDArray[Any], size: int) -> None:
        super().__init__(artefact, name, id_type(size), lengths)
        self._size = size

    def _check_values(self, values: NDArray[Any]) -> None:
        if int(values.max()) >= self._size or int(values.min()) < UNK:
            raise ArtefactError(f"{quoted(self._path)}: holds an id that is not {UNK} to {self._size - 1}")


class StoredColumn:
    """A column of a set, in memory only where it is read."""

    def __init__(
        self,
        artefact: Artefact,
        name: str,
        kind: ColumnKind,
        source_lengths: NDArray[Any],
        target_lengths: NDArray[Any],
    ) -> None:
        """Raises ArtefactError when the files do not fit the lengths. name: beginning of the files' names"""
        self.kind, self._name, self._limits = kind, name, (source_lengths, target_lengths)
        if kind == "pair":
            self._rows = _RowFile(artefact, name, TYPES[kind], np.broadcast_to(LENGTH.type(0), len(target_lengths)), 1)
        elif kind == "target":
            self._rows = _RowFile(artefact, name, TYPES[kind], target_lengths, 1)
        else:
            counts = _counts(artefact, f"{name}.counts.bin", len(target_lengths))
            self._rows = _RowFile(artefact, name, TYPES[kind], counts, width=2)

    def take(self, indices: Indices) -> Rows:
        """The values of pairs (N,); ArtefactError when they are not those that were written."""
        rows = Rows(self._rows.take(indices), self._rows.lengths(indices))
        if self.kind == "links":
            limits = np.stack([lengths[indices] for lengths in self._limits], axis=1)
            if (rows.values >= np.repeat(limits, rows.lengths, axis=0)).any():
                raise ArtefactError(f"{quoted(self._name)}: a link leaves its sentence (prepare the data again)")
        return rows


def _counts(artefact: Artefact, name: str, rows: int, width: int = 1) -> NDArray[Any]:
    """The lengths of (rows, width), or (rows,) where width is 1, in a file; ArtefactError if there are not as many."""
    path = artefact.path(name)
    size = path.stat().st_size
    if size != LENGTH.itemsize * rows * width:
        raise ArtefactError(f"{quoted(path)}: {size:,} bytes; {rows:,} pairs have {LENGTH.itemsize * rows * width:,}")
    counts = np.asarray(np.memmap(path, dtype=LENGTH, mode="r") if size else np.zeros(0, LENGTH))
    return counts if width == 1 else counts.reshape(-1, width)


class Corpus:
    """Pairs of id sequences, in memory only where they are read.

    source_lengths, target_lengths: (N,) tokens without EOS
    columns: further data of the pairs, by name
    """

    def __init__(self, artefact: Artefact, facts: SetFacts, source_size: int, target_size: int) -> None:
        """Raises ArtefactError when the files are not what was written or do not fit the vocabularies."""
        both = _counts(artefact, f"{facts.stem}.lengths.bin", facts.pairs, 2)
        self.source_lengths, self.target_lengths = both[:, 0], both[:, 1]
        self._source = _IdFile(artefact, f"{facts.stem}.source", self.source_lengths, source_size)
        self._target = _IdFile(artefact, f"{facts.stem}.target", self.target_lengths, target_size)
        self.columns = {
            name: StoredColumn(artefact, f"{facts.stem}.{name}", kind, self.source_lengths, self.target_lengths)
            for name, kind in facts.columns.items()
        }

    def __len__(self) -> int:
        return len(self.source_lengths)

    def sources(self, indices: Indices) -> IdArray:
        """The source ids of pairs, one after the other, without EOS; source_lengths[indices] are their counts."""
        return self._source.take(indices)

    def targets(self, indices: Indices) -> IdArray:
        """The target ids of pairs, one after the other, without EOS; target_lengths[indices] are their counts."""
        return self._target.take(indices)


@dataclass(frozen=True)
class EvaluationSet:
    """A development or test set: ids for the loss, raw text (cleaned by rule 4 only) for translating and scoring."""

    name: str
    corpus: Corpus
    source_lines: list[str]
    target_lines: list[str]

    def batches(self, max_tokens: int) -> Iterator[Indices]:
        """Indices of pairs of nearly one length; pairs with an empty side are left out. max_tokens: cells of a batch"""
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        order = np.lexsort((source, target))
        full = order[(source[order] > 0) & (target[order] > 0)]
        return micro_batches([full], source, target, max_tokens) if len(full) else iter(())


class PreparedData:
    """A folder that `nmt prepare` made, opened for reading; files are checked before they are used."""

    def __init__(self, folder: Path) -> None:
        self.artefact = Artefact(folder, DATA_KIND)
        self.manifest: dict[str, Any] = self.artefact.manifest
        self.pipeline = Pipeline.load(self.artefact)
        try:
            self._sets = msgspec.json.decode(self.artefact.path(SETS_FILE).read_bytes(), type=list[SetFacts])
        except msgspec.DecodeError as error:
            raise ArtefactError(f"{quoted(folder / SETS_FILE)}: not a list of sets: {error}") from None
        kinds, stems = [facts.kind for facts in self._sets], {facts.stem for facts in self._sets}
        if kinds.count("train") != 1 or len(stems) < len(kinds):
            raise ArtefactError(
                f"{quoted(folder / SETS_FILE)}: must name one set to train on, and files of its own for each set"
            )

    @property
    def fingerprint(self) -> str:
        """sha256 over the training data's files and the pipeline: the same for the same training data."""
        files = self.manifest["files"]
        rows = [f"{name} {files[name]['sha256']}\n" for name in sorted(files) if name.startswith("train.")]
        return hashlib.sha256("".join([*rows, self.pipeline.hash]).encode()).hexdigest()

    @cached_property
    def train(self) -> Corpus:
        """The training pairs; empty when the folder was prepared without any."""
        return self._corpus(next(facts for facts in self._sets if facts.kind == "train"))

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
        source, target = (self._text(f"{facts.stem}.{side}.txt", facts.pairs) for side in SIDES)
        return EvaluationSet(facts.name, self._corpus(facts), source, target)

    def _text(self, name: str, pairs: int) -> list[str]:
        path = self.artefact.path(name)
        try:
            lines = path.read_bytes().decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise ArtefactError(f"{quoted(path)}: not UTF-8: {error}") from None
        if len(lines) != pairs:
            raise ArtefactError(f"{quoted(path)}: has {len(lines):,} lines where the set has {pairs:,} pairs")
        return lines
