"""What is wrong with a corpus: `nmt doctor` as one call, over text files or prepared data.

Lines are counted, then each pair is read once; memory is 18 bytes a pair, for duplicates, and some megabytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import compress, count, islice
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from nmt.artefact import Artefact
from nmt.data.encode import CHUNK_PAIRS, FilePair
from nmt.data.examine import SIDES, Examine, Examined, Lines
from nmt.data.findings import SEVERITIES, Example, Finding, Tally
from nmt.data.lengths import Rows
from nmt.data.prepare import PrepareOptions
from nmt.data.repeats import Keys, Overlap, first_of, repeated
from nmt.data.shards import KIND, Corpus, PreparedData
from nmt.data.workers import in_order
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import opt, options_of
from nmt.signals import Signals
from nmt.text.corpus import raw_lines
from nmt.text.filter import LengthFilter
from nmt.text.pipeline import Pipeline, Side

LINES_BETWEEN_LOOKS: Final = 1 << 17
# A correlation of fewer pairs says little: at 200 one of 0.3 comes by chance less than once in 10,000 corpora.
LEAST_PAIRS: Final = 200
UNRELATED: Final = 0.3
MANY_PIECES: Final = 2.5
MOST_CHARACTERS: Final = 20  # of those out of vocabulary, how many are named


def _as_in_prepare(name: str) -> Any:
    """The option of that name of nmt prepare, with its default, help and other flags."""
    option = next(option for option in options_of(PrepareOptions) if option.name == name)
    return opt(option.default, option.help, aliases=option.aliases)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What to look at: prepared data, or files as nmt prepare takes them."""

    data: str | None = opt(None, "a prepared-data folder; without it, files as nmt prepare takes them")
    source_lang: str | None = opt(None, "source language, and the ending of the files of a prefix: en")
    target_lang: str | None = opt(None, "target language, and the ending of the files of a prefix: de")
    train: tuple[str, ...] = _as_in_prepare("train")
    valid: tuple[str, ...] = _as_in_prepare("valid")
    test: tuple[str, ...] = _as_in_prepare("test")
    source: tuple[str, ...] = _as_in_prepare("source")
    target: tuple[str, ...] = _as_in_prepare("target")
    valid_source: tuple[str, ...] = _as_in_prepare("valid_source")
    valid_target: tuple[str, ...] = _as_in_prepare("valid_target")
    test_source: tuple[str, ...] = _as_in_prepare("test_source")
    test_target: tuple[str, ...] = _as_in_prepare("test_target")
    vocabulary: str | None = opt(
        None, "a model or prepared-data folder: lengths are those of its tokens, and what nmt prepare would drop is told"
    )
    min_length: int = _as_in_prepare("min_length")
    max_length: int = _as_in_prepare("max_length")
    max_ratio: float = _as_in_prepare("max_ratio")
    max_pairs: int = opt(0, "look at no more training pairs than these, evenly spaced; 0 looks at all")
    examples: int = opt(3, "how many examples of each finding")
    workers: int = _as_in_prepare("workers")

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("min_length", 1), ("max_length", 0), ("max_pairs", 0), ("examples", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        if self.max_ratio and self.max_ratio < 1:
            raise ValueError(f"--max-ratio is {self.max_ratio}; it must be at least 1, or 0 for any")
        for kind in ("", "valid_", "test_"):
            sources, targets = getattr(self, f"{kind}source"), getattr(self, f"{kind}target")
            if len(sources) != len(targets):
                flag = "--" + kind.replace("_", "-")
                raise ValueError(f"{flag}source names {len(sources)} files, {flag}target {len(targets)}; they are pairs")
        if self.data is not None:
            if self.named_files or self.vocabulary is not None:
                raise ValueError(
                    f"'{quoted(self.data)}' stands without a flag, as prepared data does, and files are named too (give one "
                    "of the two; of several files each has its flag: --train A --train B)"
                )
        elif not self.named_files:
            raise ValueError("nothing to look at: name a prepared-data folder, or --train PREFIX, or --source and --target")
        elif self.source_lang is None or self.target_lang is None:
            raise ValueError("--source-lang and --target-lang are missing (en, de)")

    @property
    def named_files(self) -> bool:
        kinds = ("train", "valid", "test", "source", "valid_source", "test_source")
        return any(getattr(self, kind) for kind in kinds)


@dataclass(frozen=True)
class _Part:
    """Pairs that stand together: two files, or the training pairs of prepared data. places: FILE of FILE:LINE."""

    places: tuple[str, str]
    content: FilePair | tuple[Corpus, Pipeline]

    def count(self, signals: Signals) -> tuple[int, int]:
        """Lines of both sides."""
        if isinstance(self.content, FilePair):
            return _count(self.content.source, signals), _count(self.content.target, signals)
        return len(self.content[0]), len(self.content[0])

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The lines side by side, up to the end of the shorter side."""
        if isinstance(self.content, FilePair):
            return zip(raw_lines(self.content.source), raw_lines(self.content.target), strict=False)
        corpus, pipeline = self.content
        return (
            (_text(pipeline.source, corpus.source(i)), _text(pipeline.target, corpus.target(i)))
            for i in range(len(corpus))
        )


@dataclass
class SetReport:
    """What was found of a set.

    pairs: there are; examined: of them that were looked at; lengths: rows of the histograms by "source", "target", "ratio"
    unit: what lengths are counted in; sides: figures of each side; correlation: of the lengths of both sides
    """

    kind: str
    name: str
    pairs: int
    examined: int
    unit: Literal["words", "tokens"]
    lengths: dict[str, Rows]
    correlation: float | None
    sides: dict[str, dict[str, Any]]

    @property
    def told(self) -> str:
        return self.kind if self.kind == "train" else f"{self.kind} {quoted(self.name)}"


@dataclass
class DoctorReport:
    """sets: the training pairs first; findings: the worst first."""

    sets: list[SetReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"sets": [vars(one) for one in self.sets], "findings": [found.to_json() for found in self.findings]}


class _Set:
    """A set of pairs and what is found in it. Its index of a pair counts the pairs that are looked at, from 0."""

    def __init__(self, kind: Literal["train", "valid", "test"], name: str, parts: Sequence[_Part]) -> None:
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
                found = Finding("line-counts", self.told, "pair", abs(source - target), max(source, target))
                self.findings.append(Finding(**{**vars(found), "examples": [Example(place, text)]}))
            self._starts.append(self.pairs)
            self.pairs += min(source, target)
        self.examined = min(most or self.pairs, self.pairs)
        if not self.pairs:
            place = Example(self.parts[0].places[0], "no pair of lines")
            self.findings.append(Finding("no-lines", self.told, "pair", 1, 1, examples=[place]))

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
