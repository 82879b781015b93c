"""Data folders on disk: ids and columns of each set of pairs (nmt.data.row_files), and the raw text of evaluation sets.

`data.json` lists the sets and their columns. The lines of an evaluation set STEM are in STEM.source.txt and STEM.target.txt.
Opening a set checks its files, which are then loaded on demand.
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

from nmt import registry
from nmt.artefact import Artefact
from nmt.data.batching import Indices, micro_batches
from nmt.data.row_files import SIDES, Counts, IdArray, RowFile, StoredColumn, id_type, open_lengths
from nmt.errors import ArtefactError, InputError, UserError, expecting, quoted
from nmt.files import to_json
from nmt.runs import find_model
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

DATA_KIND: Final = "prepared-data"
SETS_FILE: Final = "data.json"
REPORT_FILE: Final = "report.json"
CHECKED_PAIRS: Final = 4096  # pairs checked at once
ENDINGS: Final = (".bin", ".sums", ".txt", ".counts.bin")  # suffixes of a set's files; only format 1 has .sums


def named_pipeline(folder: Path, languages: tuple[str, str]) -> Pipeline:
    """The text pipeline of a model folder, a run's best checkpoint or a data folder.

    languages: source and target language; raises UserError if the pipeline's languages differ
    """
    pipeline = Pipeline.load(Artefact(find_model(folder), "model", "checkpoint", DATA_KIND))
    pair = pipeline.source_lang, pipeline.target_lang
    if pair != languages:
        sides = " ".join(f"--{side}-lang {language}" for side, language in zip(SIDES, pair, strict=True))
        files = " ".join(f"--{side} FILE.{language}" for side, language in zip(SIDES, languages, strict=True))
        way = f"to treat the text as {pair[0]} and {pair[1]} anyway, use `{sides} {files}`; otherwise drop --vocabulary"
        if languages == pair[::-1]:
            way = f"for its direction use `{sides}`; for the other direction drop --vocabulary"
        raise UserError(f"{quoted(folder)} translates {'-'.join(pair)}, but the data is {'-'.join(languages)} ({way})")
    return pipeline


class SetFacts(msgspec.Struct, omit_defaults=True):
    """The entry of a set in data.json.

    stem: start of its file names; columns: kind of each column by name
    corpora: name and number of pairs of each training corpus, in order; empty if there is a single unnamed one
    """

    kind: Literal["train", "valid", "test"]
    name: str
    stem: str
    pairs: int
    columns: dict[str, str] = {}
    corpora: list[tuple[str, int]] = []


def write_facts(folder: Path, sets: list[SetFacts]) -> None:
    (folder / SETS_FILE).write_bytes(to_json(msgspec.to_builtins(sets)))


class Corpus:
    """Pairs of id sequences, loaded on demand.

    sources, targets: functions that map pair indices (N,) to their ids, concatenated, without EOS
    columns: extra data of the pairs, by name
    corpora: name and number of pairs of each corpus, in the order of the pairs; a name can occur several times
    """

    def __init__(self, artefact: Artefact, facts: SetFacts, sizes: tuple[int, int]) -> None:
        """Raises ArtefactError if the files are damaged or do not fit the vocabularies."""
        self._lengths = open_lengths(artefact, f"{facts.stem}.lengths.bin", facts.pairs, 2)
        lengths: list[Counts] = [lambda rows: self.source_lengths[rows], lambda rows: self.target_lengths[rows]]
        self.sources, self.targets = (
            RowFile(artefact, f"{facts.stem}.{side}", id_type(size), facts.pairs, of_side, (UNK, size - 1)).take
            for side, size, of_side in zip(SIDES, sizes, lengths, strict=True)
        )
        for name, kind in facts.columns.items():
            if kind not in registry.names("column"):
                message = f"column '{quoted(name)}' has the unknown kind '{quoted(kind)}'"
                raise ArtefactError(f"{quoted(artefact.folder)}: {message} (load its plug-in with --plugin FILE)")
        self.columns = {
            name: StoredColumn(
                artefact, f"{facts.stem}.{name}", kind, facts.pairs, lambda rows: self._lengths.numbers[rows]
            )
            for name, kind in facts.columns.items()
        }
        self.corpora = facts.corpora or [(facts.name, facts.pairs)]
        counts = [pairs for _, pairs in self.corpora]
        if min(counts) < 0 or sum(counts) != facts.pairs:
            file = quoted(artefact.folder / SETS_FILE)
            raise ArtefactError(f"{file}: corpus sizes do not add up to the size of the set (prepare the data again)")

    def __len__(self) -> int:
        return len(self.source_lengths)

    @property
    def source_lengths(self) -> NDArray[Any]:
        """(N,) tokens without EOS. Like `target_lengths`, raises ArtefactError if the file was truncated."""
        return self._lengths.numbers[:, 0]

    @property
    def target_lengths(self) -> NDArray[Any]:
        """(N,) tokens without EOS."""
        return self._lengths.numbers[:, 1]

    def rows(self, indices: Indices) -> tuple[list[IdArray], list[IdArray]]:
        """The source ids and target ids of each pair, without EOS. indices: (N,) pair indices, at least one"""
        ends = [
            np.cumsum(lengths[indices][:-1], dtype=np.int64) for lengths in (self.source_lengths, self.target_lengths)
        ]
        return np.split(self.sources(indices), ends[0]), np.split(self.targets(indices), ends[1])


@dataclass(frozen=True)
class EvaluationSet:
    """A validation or test set: ids for the loss, and raw (but cleaned) text for translating and scoring."""

    name: str
    corpus: Corpus
    source_lines: list[str]
    target_lines: list[str]

    def check(self) -> None:
        """Read the whole set once. Raises ArtefactError if anything is damaged, InputError if no pair can be validated on."""
        if next(self.batches(1), None) is None:
            raise InputError(f"no pair in the set '{self.name}' has text on both sides (choose another set)")
        columns = (column.take for column in self.corpus.columns.values())
        for take in (self.corpus.sources, self.corpus.targets, *columns):
            for start in range(0, len(self.corpus), CHECKED_PAIRS):
                take(np.arange(start, min(start + CHECKED_PAIRS, len(self.corpus))))

    def batches(self, max_tokens: int) -> Iterator[Indices]:
        """Batches of pairs of similar length, as indices, without pairs that have an empty side.

        max_tokens: maximum cells per batch
        """
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        order = np.lexsort((source, target))
        full = order[(source[order] > 0) & (target[order] > 0)]
        return micro_batches([full], source, target, max_tokens)


class PreparedData:
    """A data folder made by `nmt prepare`, opened for reading. Files are checked before they are used."""

    def __init__(self, folder: Path) -> None:
        self.artefact = Artefact(folder, DATA_KIND)
        self.pipeline = Pipeline.load(self.artefact)
        content = self.artefact.read(SETS_FILE)
        with expecting("a list of sets", folder / SETS_FILE):
            self._sets = msgspec.json.decode(content, type=list[SetFacts])
        kinds, stems = [facts.kind for facts in self._sets], {facts.stem for facts in self._sets}
        if kinds.count("train") != 1 or len(stems) < len(kinds):
            raise ArtefactError(
                f"{quoted(folder / SETS_FILE)}: expected exactly one training set, and different files for each set"
            )

    @property
    def fingerprint(self) -> str:
        """sha256 of the training files and the pipeline. Equal training data has equal fingerprints."""
        return self.digest("train")

    def digest(self, stem: str) -> str:
        """sha256 of a set's files and the pipeline. stem: "train", or "valid." followed by the set's name"""
        files = self.artefact.manifest["files"]
        [facts] = (facts for facts in self._sets if facts.stem == stem)
        names = {f"{stem}.{part}{ending}" for part in ("lengths", *SIDES, *facts.columns) for ending in ENDINGS}
        rows = [f"{name} {files[name]['sha256']}\n" for name in sorted(names & files.keys())]
        return hashlib.sha256("".join([*rows, self.pipeline.hash]).encode()).hexdigest()

    @cached_property
    def train(self) -> Corpus:
        """The training pairs; empty if the folder was prepared without any."""
        [facts] = (facts for facts in self._sets if facts.kind == "train")
        return Corpus(self.artefact, facts, self.pipeline.sizes)

    @cached_property
    def valid(self) -> dict[str, EvaluationSet]:
        """The validation sets by name, in the order in which they were given."""
        return self._evaluation_sets("valid")

    @cached_property
    def test(self) -> dict[str, EvaluationSet]:
        """The test sets by name, in the order in which they were given."""
        return self._evaluation_sets("test")

    def _evaluation_sets(self, kind: str) -> dict[str, EvaluationSet]:
        sets = {}
        for facts in (facts for facts in self._sets if facts.kind == kind):
            source, target = (self._text(f"{facts.stem}.{side}.txt", facts.pairs) for side in SIDES)
            corpus = Corpus(self.artefact, facts, self.pipeline.sizes)
            sets[facts.name] = EvaluationSet(facts.name, corpus, source, target)
        return sets

    def _text(self, name: str, pairs: int) -> list[str]:
        content, path = self.artefact.read(name), self.artefact.folder / name
        with expecting("UTF-8", path):
            lines = content.decode().split("\n")[:-1]
        if len(lines) != pairs:
            counts = f"{len(lines):,} lines, but the set has {pairs:,} pairs"
            raise ArtefactError(f"{quoted(path)}: {counts} (prepare the data again)")
        return lines
