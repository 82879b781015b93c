"""Prepared data on disk: the ids and columns of each set of pairs (nmt.data.row_files), and the raw text of evaluation sets.

`data.json` names the sets and their columns; the lines of an evaluation set STEM are STEM.source.txt and STEM.target.txt.
Opening a set checks its files, which are then in memory only where they are read.
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
from nmt.errors import ArtefactError, UserError, expecting, quoted
from nmt.files import to_json
from nmt.runs import find_model
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline

DATA_KIND: Final = "prepared-data"
SETS_FILE: Final = "data.json"
REPORT_FILE: Final = "report.json"
CHECKED_PAIRS: Final = 4096  # at once
ENDINGS: Final = (".bin", ".sums", ".txt", ".counts.bin")  # of a set's files; format 1, which is read too, has .sums


def named_pipeline(folder: Path, languages: tuple[str, str]) -> Pipeline:
    """The text pipeline of a model, of a run's best checkpoint or of prepared data.

    languages: source and target; UserError if the pipeline has others
    """
    pipeline = Pipeline.load(Artefact(find_model(folder), "model", "checkpoint", DATA_KIND))
    pair = pipeline.source_lang, pipeline.target_lang
    if pair != languages:
        sides = " ".join(f"--{side}-lang {language}" for side, language in zip(SIDES, pair, strict=True))
        files = " ".join(f"--{side} FILE.{language}" for side, language in zip(SIDES, languages, strict=True))
        way = f"to treat the text as {pair[0]} and {pair[1]} anyway, write `{sides} {files}`, else drop --vocabulary"
        if languages == pair[::-1]:
            way = f"for this direction write `{sides}`; the other needs a vocabulary of its own, without --vocabulary"
        raise UserError(f"{quoted(folder)}: translates {'-'.join(pair)}; the data is {'-'.join(languages)} ({way})")
    return pipeline


class SetFacts(msgspec.Struct, omit_defaults=True):
    """A set of pairs in data.json.

    stem: beginning of its files' names; columns: kind of each column by name
    corpora: name and pairs of the corpora of training pairs, in their order; empty if there is one without a given name
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
    """Pairs of id sequences, in memory only where they are read.

    sources, targets: functions from indices of pairs (N,) to their ids, one after the other, without EOS
    columns: further data of the pairs, by name
    corpora: name and pairs of each corpus, in the order of the pairs; one name may come again
    """

    def __init__(self, artefact: Artefact, facts: SetFacts, sizes: tuple[int, int]) -> None:
        """Raises ArtefactError when the files are not what was written or do not fit the vocabularies."""
        self._lengths = open_lengths(artefact, f"{facts.stem}.lengths.bin", facts.pairs, 2)
        lengths: list[Counts] = [lambda rows: self.source_lengths[rows], lambda rows: self.target_lengths[rows]]
        self.sources, self.targets = (
            RowFile(artefact, f"{facts.stem}.{side}", id_type(size), facts.pairs, of_side, (UNK, size - 1)).take
            for side, size, of_side in zip(SIDES, sizes, lengths, strict=True)
        )
        for name, kind in facts.columns.items():
            if kind not in registry.names("column"):
                message = f"column '{quoted(name)}' is of kind '{quoted(kind)}', which this nmt does not have"
                raise ArtefactError(f"{quoted(artefact.folder)}: {message} (--plugin FILE loads one)")
        self.columns = {
            name: StoredColumn(
                artefact, f"{facts.stem}.{name}", kind, facts.pairs, lambda rows: self._lengths.numbers[rows]
            )
            for name, kind in facts.columns.items()
        }
        self.corpora = facts.corpora or [(facts.name, facts.pairs)]
        counts = [pairs for _, pairs in self.corpora]
        if min(counts) < 0 or sum(counts) != facts.pairs:
            raise ArtefactError(f"{quoted(artefact.folder / SETS_FILE)}: its corpora do not have the pairs of the set")

    def __len__(self) -> int:
        return len(self.source_lengths)

    @property
    def source_lengths(self) -> NDArray[Any]:
        """(N,) tokens without EOS. Raises ArtefactError if the file was cut off, as `target_lengths` does."""
        return self._lengths.numbers[:, 0]

    @property
    def target_lengths(self) -> NDArray[Any]:
        """(N,) tokens without EOS."""
        return self._lengths.numbers[:, 1]

    def rows(self, indices: Indices) -> tuple[list[IdArray], list[IdArray]]:
        """The source and the target ids of each pair, without EOS. indices: (N,) at least one"""
        ends = [
            np.cumsum(lengths[indices][:-1], dtype=np.int64) for lengths in (self.source_lengths, self.target_lengths)
        ]
        return np.split(self.sources(indices), ends[0]), np.split(self.targets(indices), ends[1])


@dataclass(frozen=True)
class EvaluationSet:
    """A development or test set: ids for the loss, raw text (cleaned only) for translating and scoring."""

    name: str
    corpus: Corpus
    source_lines: list[str]
    target_lines: list[str]

    def check(self) -> None:
        """Read all of it. Raises ArtefactError for what is not as it was written."""
        columns = (column.take for column in self.corpus.columns.values())
        for take in (self.corpus.sources, self.corpus.targets, *columns):
            for start in range(0, len(self.corpus), CHECKED_PAIRS):
                take(np.arange(start, min(start + CHECKED_PAIRS, len(self.corpus))))

    def batches(self, max_tokens: int) -> Iterator[Indices]:
        """Indices of pairs of nearly one length; pairs with an empty side are left out. max_tokens: cells of a batch"""
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        order = np.lexsort((source, target))
        full = order[(source[order] > 0) & (target[order] > 0)]
        return micro_batches([full], source, target, max_tokens)


class PreparedData:
    """A folder that `nmt prepare` made, opened for reading; files are checked before they are used."""

    def __init__(self, folder: Path) -> None:
        self.artefact = Artefact(folder, DATA_KIND)
        self.pipeline = Pipeline.load(self.artefact)
        content = self.artefact.read(SETS_FILE)
        with expecting("a list of sets", folder / SETS_FILE):
            self._sets = msgspec.json.decode(content, type=list[SetFacts])
        kinds, stems = [facts.kind for facts in self._sets], {facts.stem for facts in self._sets}
        if kinds.count("train") != 1 or len(stems) < len(kinds):
            raise ArtefactError(
                f"{quoted(folder / SETS_FILE)}: must name one set to train on, and files of its own for each set"
            )

    @property
    def fingerprint(self) -> str:
        """sha256 over the training data's files and the pipeline: the same for the same training data."""
        return self.digest("train")

    def digest(self, stem: str) -> str:
        """sha256 over the files of a set, and the pipeline. stem: "train", or "valid." and the set's name"""
        files = self.artefact.manifest["files"]
        [facts] = (facts for facts in self._sets if facts.stem == stem)
        names = {f"{stem}.{part}{ending}" for part in ("lengths", *SIDES, *facts.columns) for ending in ENDINGS}
        rows = [f"{name} {files[name]['sha256']}\n" for name in sorted(names & files.keys())]
        return hashlib.sha256("".join([*rows, self.pipeline.hash]).encode()).hexdigest()

    @cached_property
    def train(self) -> Corpus:
        """The training pairs; empty when the folder was prepared without any."""
        [facts] = (facts for facts in self._sets if facts.kind == "train")
        return Corpus(self.artefact, facts, self.pipeline.sizes)

    @cached_property
    def valid(self) -> dict[str, EvaluationSet]:
        """The development sets by name, in the order they were given."""
        return self._evaluation_sets("valid")

    @cached_property
    def test(self) -> dict[str, EvaluationSet]:
        """The test sets by name, in the order they were given."""
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
            raise ArtefactError(f"{quoted(path)}: has {len(lines):,} lines where the set has {pairs:,} pairs")
        return lines
