"""Prepared data on disk: the ids of each set of pairs in memory-mapped files, and the raw text of the evaluation sets.

A set NAME of N pairs is `NAME.lengths.bin` ((N, 2) tokens of each pair: source, target; 32-bit), `NAME.source.bin` and
`NAME.target.bin` (ids without EOS, 16-bit where they fit), and `NAME.source.sums`, `NAME.target.sums` (the sha256 of each
block of those). All is little-endian. `data.json` names the sets. Opening a set reads its lengths only; a block of ids is
checked when it is first used, so that training starts in seconds however large the data is.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from nmt.artefact import Artefact, to_json, write_file
from nmt.data.batching import Indices, micro_batches
from nmt.errors import ArtefactError, UserError, quoted
from nmt.runs import find_model
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

KIND: Final = "prepared-data"
FACTS: Final = "data.json"
SIDES: Final = ("source", "target")
LENGTH: Final = np.dtype("<u4")
BLOCK: Final = 1 << 16  # bytes of ids that are checked at once
DIGEST: Final = 32  # bytes of a sha256
STRIDE: Final = 64  # rows between two whose place in the file is kept in memory

Ids = NDArray[np.unsignedinteger[Any]]


def id_type(size: int) -> np.dtype[Any]:
    """The type of the ids of a vocabulary of `size` entries."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def named_pipeline(folder: Path, languages: tuple[str, str]) -> Pipeline:
    """The text pipeline of a model, of a run's best checkpoint or of prepared data.

    languages: source and target that are wanted; UserError when it has others
    """
    pipeline = Pipeline.load(Artefact(find_model(folder), "model", "checkpoint", KIND))
    found = pipeline.source_lang, pipeline.target_lang
    if found != languages:
        raise UserError(f"{quoted(folder)}: translates {'-'.join(found)}; the data is {'-'.join(languages)}")
    return pipeline


class SetFacts(msgspec.Struct):
    """A set of pairs in data.json. kind: train, valid or test; stem: what its files' names begin with."""

    kind: Literal["train", "valid", "test"]
    name: str
    stem: str
    pairs: int


def write_facts(folder: Path, sets: list[SetFacts]) -> None:
    write_file(folder / FACTS, to_json([msgspec.to_builtins(facts) for facts in sets]))


class SetWriter:
    """Writes the pairs of one set as they come."""

    def __init__(self, folder: Path, stem: str, source_size: int, target_size: int) -> None:
        self.pairs = 0
        self._types = id_type(source_size), id_type(target_size), LENGTH
        self._files = [(folder / f"{stem}.{what}.bin").open("wb") for what in (*SIDES, "lengths")]

    def add(self, lengths: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> None:
        """lengths: (N, 2) tokens of each pair; source, target: the ids of all of them, one after the other."""
        for file, array, kind in zip(self._files, (source, target, lengths), self._types, strict=True):
            file.write(array.astype(kind).tobytes())
        self.pairs += len(lengths)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def finish(self) -> None:
        """Close the files, and write the sums of their blocks."""
        self.close()
        for file in self._files[: len(SIDES)]:
            path = Path(file.name)
            with path.open("rb") as ids, path.with_suffix(".sums").open("wb") as sums:
                while block := ids.read(BLOCK):
                    sums.write(hashlib.sha256(block).digest())


class _Side:
    """The ids of one side of a set. lengths: (N,) of its rows, one after the other in the file."""

    def __init__(self, artefact: Artefact, name: str, lengths: NDArray[Any], size: int) -> None:
        """Raises ArtefactError unless the lengths add up to the file. size: of the vocabulary."""
        self._path, self._size, self._lengths = artefact.unchecked_path(f"{name}.bin"), size, lengths
        kind = id_type(size)
        every = np.arange(0, len(lengths), STRIDE)
        tokens = np.add.reduceat(lengths, every, dtype=np.int64) if len(every) else every
        self._starts = np.concatenate([[0], np.cumsum(tokens)])  # of every STRIDE-th row
        found = self._path.stat().st_size
        if int(self._starts[-1]) * kind.itemsize != found:
            raise ArtefactError(f"{quoted(self._path)}: {found:,} bytes; its lengths say {self._starts[-1]:,} ids")
        self._ids: Ids = np.asarray(np.memmap(self._path, dtype=kind, mode="r")) if found else np.zeros(0, dtype=kind)
        self._sums = artefact.path(f"{name}.sums").read_bytes()
        self._checked = np.zeros(-(-found // BLOCK), dtype=bool)
        if len(self._sums) != DIGEST * len(self._checked):
            raise ArtefactError(f"{quoted(self._path.with_suffix('.sums'))}: not the sums of {self._path.name}")

    def take(self, rows: Indices) -> Ids:
        """The ids of rows (N,), one after the other; ArtefactError when they are not those that were written."""
        lengths = self._lengths[rows].astype(np.int64)
        near = rows // STRIDE
        steps = np.arange(STRIDE)
        between = self._lengths[np.minimum(near[:, None] * STRIDE + steps, len(self._lengths) - 1)]  # N STRIDE
        starts = self._starts[near] + np.where(steps < (rows % STRIDE)[:, None], between, 0).sum(1, dtype=np.int64)
        self._check(starts[lengths > 0], (starts + lengths)[lengths > 0])
        ids: Ids = self._ids[np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())]
        return ids

    def _check(self, starts: Indices, ends: Indices) -> None:
        """Check the blocks that hold the ids from starts to ends, unless they have been."""
        width = self._ids.itemsize
        first, last = starts * width // BLOCK, (ends * width - 1) // BLOCK
        counts = last - first + 1
        blocks = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            part = self._ids[block * BLOCK // width : (block + 1) * BLOCK // width]
            if hashlib.sha256(part.tobytes()).digest() != self._sums[block * DIGEST : (block + 1) * DIGEST]:
                raise ArtefactError(f"{quoted(self._path)}: damaged: block {block} is not what was written")
            if int(part.max()) >= self._size or int(part.min()) < UNK:
                raise ArtefactError(f"{quoted(self._path)}: holds an id that is not {UNK} to {self._size - 1}")
            self._checked[block] = True


class Corpus:
    """Pairs of id sequences, in memory only where they are read.

    source_lengths, target_lengths: (N,) tokens without EOS
    """

    def __init__(self, artefact: Artefact, facts: SetFacts, source_size: int, target_size: int) -> None:
        """Raises ArtefactError when the files are not what was written or do not fit the vocabularies."""
        table = artefact.path(f"{facts.stem}.lengths.bin")
        size = table.stat().st_size
        if size != 2 * LENGTH.itemsize * facts.pairs:
            raise ArtefactError(
                f"{quoted(table)}: {size:,} bytes are not two lengths for each of {facts.pairs:,} pairs"
            )
        both = np.asarray(np.memmap(table, dtype=LENGTH, mode="r") if size else np.zeros(0, LENGTH)).reshape(-1, 2)
        self.source_lengths, self.target_lengths = both[:, 0], both[:, 1]
        self._source = _Side(artefact, f"{facts.stem}.source", self.source_lengths, source_size)
        self._target = _Side(artefact, f"{facts.stem}.target", self.target_lengths, target_size)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def sources(self, indices: Indices) -> Ids:
        """The source ids of pairs, one after the other, without EOS; source_lengths[indices] tells where each ends."""
        return self._source.take(indices)

    def targets(self, indices: Indices) -> Ids:
        """The target ids of pairs, one after the other, without EOS; target_lengths[indices] tells where each ends."""
        return self._target.take(indices)


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
        kinds, stems = [facts.kind for facts in self._sets], {facts.stem for facts in self._sets}
        if kinds.count("train") != 1 or len(stems) < len(kinds):
            raise ArtefactError(
                f"{quoted(folder / FACTS)}: wanted one set to train on, and files of its own for each set"
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
