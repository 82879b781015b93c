"""What is wrong with a corpus: `nmt doctor` as one call, over text files or prepared data.

Lines are counted, then each pair is read once; memory is 18 bytes a pair, for duplicates, and about 200 MB.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from nmt.data.duplicates import find_repeated
from nmt.data.encode import CHUNK_PAIRS, FilePair
from nmt.data.sets import CorpusOptions, Kind, text_sets
from nmt.data.shards import PreparedData, named_pipeline
from nmt.data.workers import in_order
from nmt.doctor.examine import SIDES, Examine, Examined
from nmt.doctor.findings import CHECKS, SEVERITIES, Example, Finding, FindingCounts
from nmt.doctor.lengths import Rows
from nmt.doctor.repeats import Overlap, first_of
from nmt.doctor.sets import PairSet, Part
from nmt.errors import ArtefactError, quoted
from nmt.log import log
from nmt.options import opt, options_class
from nmt.signals import Signals
from nmt.text.pipeline import Pipeline

# A correlation of fewer pairs says little: at 200 one of 0.3 comes by chance less than once in 10,000 corpora.
LEAST_PAIRS: Final = 200
UNRELATED: Final = 0.3
MANY_PIECES: Final = 2.5
MOST_CHARACTERS: Final = 20  # of those out of vocabulary, how many are named


@options_class
class DoctorOptions(CorpusOptions):
    """What to look at: prepared data, or files as nmt prepare takes them."""

    data: str | None = opt(None, "a prepared-data folder; without it, files as nmt prepare takes them")
    vocabulary: str | None = opt(
        None,
        "a model, run or prepared data: lengths are those of its tokens, and what nmt prepare would drop is told",
    )
    max_pairs: int = opt(0, "look at no more training pairs than these, evenly spaced; 0 looks at all")
    examples: int = opt(3, "how many examples of each finding")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_pairs", "examples"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least 0")
        named = self.names_training or self.names_evaluation
        if self.data is not None:
            if named or self.vocabulary is not None:
                raise ValueError(
                    f"'{quoted(self.data)}' stands without a flag, as prepared data does, and files are named too (give one "
                    "of the two; of several files each has its flag: --train A --train B)"
                )
        elif not named:
            raise ValueError(
                "nothing to look at: name a prepared-data folder, or --train PREFIX, or --source and --target"
            )
        else:
            _ = self.languages


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


def doctor(options: DoctorOptions) -> DoctorReport:
    """Look at every pair and tell what is wrong. Raises Interrupted when a signal asked to stop."""
    with Signals() as signals:
        sets, languages, pipeline, findings = _opened(options)
        for one in sets:
            one.count(options.max_pairs if one.kind == "train" else 0, signals)
            findings += one.findings
        evaluation = [one for one in sets if one.kind != "train"]
        train = [one for one in sets if one.kind == "train"]
        task = Examine(languages, pipeline, None, options.examples, loose=bool(evaluation and train))
        looked = [_look(one, task, Overlap(()), options.workers, signals) for one in evaluation]
        overlap = Overlap(one.loose_keys for one in looked)
        task = replace(task, lengths=options.length_filter if options.data is None else None)
        first = [_look(one, task, overlap, options.workers, signals) for one in train]
        for one, found in zip([*train, *evaluation], [*first, *looked], strict=True):
            findings += _findings(one, found, signals)
        for one, found in zip(evaluation, looked, strict=True):
            if train:
                findings += _in_training(one, train[0], overlap.found(found.loose_keys), options.examples)
        reports = [_report(one, found) for one, found in zip([*train, *evaluation], [*first, *looked], strict=True)]
    order = {one.told: i for i, one in enumerate(reports)}
    findings.sort(
        key=lambda found: (SEVERITIES.index(found.severity), order[found.set], list(CHECKS).index(found.check))
    )
    return DoctorReport(reports, findings)


def _opened(options: DoctorOptions) -> tuple[list[PairSet], tuple[str, str], Pipeline | None, list[Finding]]:
    """The sets, their languages, the pipeline if there is one, and what prepared data tells of its making."""
    if options.data is not None:
        folder = Path(options.data)
        prepared = PreparedData(folder)
        languages = prepared.pipeline.source_lang, prepared.pipeline.target_lang
        return _prepared_sets(folder, prepared), languages, prepared.pipeline, _dropped_before(prepared)
    languages, pipeline = options.languages, None
    if options.vocabulary is not None:
        pipeline = named_pipeline(Path(options.vocabulary), languages)
    sets = [PairSet(one.kind, one.name, [Part.of_files(pair) for pair in one.files]) for one in text_sets(options)]
    return sets, languages, pipeline, []


def _prepared_sets(folder: Path, prepared: PreparedData) -> list[PairSet]:
    place = str(folder / "train")
    sets = [PairSet("train", "train", [Part((place, place), (prepared.train, prepared.pipeline))])]
    kinds: tuple[Kind, Kind] = ("valid", "test")
    for kind in kinds:
        for name in getattr(prepared, kind):
            source, target = (prepared.artefact.path(f"{kind}.{name}.{side}.txt") for side in SIDES)
            sets.append(PairSet(kind, name, [Part.of_files(FilePair(source, target))]))
    return sets if len(prepared.train) else sets[1:]


class _SetRow(msgspec.Struct):
    """Of a set in report.json what is read here."""

    kind: str
    read: int
    dropped: dict[str, int]


class _Prepared(msgspec.Struct):
    """report.json of prepared data."""

    sets: list[_SetRow]


def _dropped_before(prepared: PreparedData) -> list[Finding]:
    """What `nmt prepare` dropped when it made the data."""
    path = prepared.artefact.path("report.json")
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=_Prepared).sets
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{quoted(path)}: not a report of nmt prepare: {error}") from None
    dropped = [(row, reason, count) for row in rows if row.kind == "train" for reason, count in row.dropped.items()]
    return [Finding("dropped", "train", "pair", count, row.read, reason) for row, reason, count in dropped if count]


def _look(one: PairSet, task: Examine, overlap: Overlap, workers: int, signals: Signals) -> Examined:
    """All that is found in a set, with the keys of all its pairs; loose keys only of evaluation sets."""
    found = Examined(0, FindingCounts(task.limit))
    keep_loose = task.loose and one.kind != "train"
    found.pair_keys, found.source_keys = np.zeros((2, one.examined), dtype=np.uint64)
    found.loose_keys = np.zeros(one.examined if keep_loose else 0, dtype=np.uint64)
    chunks = -(-one.examined // CHUNK_PAIRS)
    results = in_order(task, one.lines(), max(min(workers, chunks), 1), signals)
    with closing(results), log.progress() as progress:
        bar = progress.add_task(one.told, total=one.examined)
        for some in results:
            at = slice(found.pairs, found.pairs + some.pairs)
            found.pair_keys[at], found.source_keys[at] = some.pair_keys, some.source_keys
            if keep_loose:
                found.loose_keys[at] = some.loose_keys
            overlap.see(some.loose_keys, found.pairs)
            found.merge(some)
            progress.advance(bar, some.pairs)
    return found


def _findings(one: PairSet, found: Examined, signals: Signals) -> Iterator[Finding]:
    """What is wrong with a set, but for what it shares with another."""
    yield from found.tally.findings(one.told, found.pairs)
    again = find_repeated(found.pair_keys[:, None], signals.check)
    others = find_repeated(found.source_keys[:, None], signals.check) & ~again
    repeats = ("duplicate-pairs", again, found.pair_keys), ("several-targets", others, found.source_keys)
    for check, rows, keys in repeats:
        at = np.flatnonzero(rows)
        if len(at):
            shown = [
                Example(one.place(i), f"as {one.place(first_of(keys, i))}") for i in at[: found.tally.limit].tolist()
            ]
            yield Finding(check, one.told, "pair", len(at), found.pairs, "", shown)
    correlation = found.lengths.correlation
    if found.pairs >= LEAST_PAIRS and correlation is not None and correlation < UNRELATED:
        detail = f"correlation {correlation:.2f}"
        yield Finding("lengths-unrelated", one.told, "pair", found.pairs, found.pairs, detail)
    for side, tokens, words in zip(SIDES, found.tokens.tolist(), found.words.tolist(), strict=True):
        if tokens > MANY_PIECES * words:
            yield Finding("pieces-a-word", one.told, side, tokens, words)


def _in_training(one: PairSet, train: PairSet, found: dict[int, int], limit: int) -> Iterator[Finding]:
    """The sentences of an evaluation set that are in the training data. found: index there by index in the set"""
    if found:
        shown = [Example(one.place(i), f"as {train.place(j)}") for i, j in list(found.items())[:limit]]
        yield Finding("in-training", one.told, "source", len(found), one.examined, "", shown)


def _report(one: PairSet, found: Examined) -> SetReport:
    lengths: dict[str, Rows] = {side: found.lengths.side_rows(i) for i, side in enumerate(SIDES)}
    sides: dict[str, dict[str, Any]] = {}
    for i, side in enumerate(SIDES):
        tokens, words = int(found.tokens[i]), int(found.words[i])
        sides[side] = {
            "characters": int(found.characters[i]),
            "words": words,
            "tokens": tokens if found.tokens.any() else None,
            "pieces_a_word": round(tokens / words, 4) if tokens and words else None,
            "characters_out_of_vocabulary": dict(found.unknown[i].most_common(MOST_CHARACTERS)),
        }
    return SetReport(
        kind=one.kind,
        name=one.name,
        pairs=one.pairs,
        examined=found.pairs,
        unit="tokens" if found.tokens.any() else "words",
        lengths={**lengths, "ratio": found.lengths.ratio_rows()},
        correlation=found.lengths.correlation,
        sides=sides,
    )
