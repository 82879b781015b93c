"""`nmt doctor` as one call: finds faults in a corpus, given as text files or as a data folder.

Lines are counted first, then each pair is read once. This takes about 200 MB of memory, plus 18 bytes per pair to find
duplicates.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from nmt import signals
from nmt.data.duplicates import find_repeated
from nmt.data.encode import CHUNK_PAIRS, FilePair, LengthFilter
from nmt.data.options import CorpusOptions, set_label
from nmt.data.row_files import SIDES
from nmt.data.sets import Kind, text_sets
from nmt.data.shards import REPORT_FILE, PreparedData, named_pipeline
from nmt.data.workers import in_order
from nmt.errors import expecting, quoted
from nmt.extensions.doctor.examine import ExaminedPairs, ExaminePairs
from nmt.extensions.doctor.findings import CHECKS, SEVERITIES, Example, Finding, FindingCounts
from nmt.extensions.doctor.repeats import TrainingOverlap, first_row_of_key
from nmt.extensions.doctor.sets import PairSet
from nmt.log import log
from nmt.options import opt, options_class
from nmt.text.languages import UNSPACED_LANGUAGES, base_language
from nmt.text.pipeline import Pipeline

# With 200 unrelated pairs, a correlation of 0.3 occurs by chance in fewer than one in 10,000 corpora.
MIN_CORRELATION_PAIRS: Final = 200
MIN_CORRELATION: Final = 0.3
MAX_TOKENS_PER_WORD: Final = 2.5
MAX_NAMED_CHARACTERS: Final = 20  # maximum number of out-of-vocabulary characters in the report


@options_class
class DoctorOptions(CorpusOptions):
    """The corpus to examine: a data folder, or text files as in `nmt prepare`."""

    data: str | None = opt(
        None,
        "data folder to examine, instead of text files",
        group="Input and output",
        common=True,
        aliases=("d",),
    )
    vocabulary: str | None = opt(
        None,
        "model, run or data folder to tokenize text with",
        group="Input and output",
        common=True,
        excludes=("data",),
        metavar="FOLDER",
    )
    max_pairs: int = opt(
        0, "number of training pairs to examine; 0 means all", group="Speed and memory", common=True, minimum=0
    )
    examples: int = opt(3, "number of examples to report for each finding", group="Report", common=True, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        files = self.names_training or self.names_evaluation
        if self.data is not None and files:
            raise ValueError(
                f"data folder '{quoted(self.data)}' and text files cannot be combined (drop one of them; for several corpora "
                "use --train A --train B)"
            )
        if self.reads_stdin:
            raise ValueError("--train-tsv -: the corpus is read twice, so it cannot come from stdin (name a file)")
        if self.data is None and not files:
            raise ValueError("no corpus given (add a data folder, or --train PREFIX, or --source and --target)")
        if self.data is None:
            _ = self.languages


class SetReport:
    """The figures for one set."""

    def __init__(self, pair_set: PairSet, examined: ExaminedPairs) -> None:
        has_tokens = bool(examined.tokens.any())
        self.kind, self.name = pair_set.kind, pair_set.name
        self.pairs, self.examined = pair_set.num_pairs, examined.num_pairs  # only the examined pairs were read
        self.unit: Literal["words", "tokens"] = "tokens" if has_tokens else "words"  # unit of the lengths
        self.lengths = examined.lengths.rows()  # the histograms "source", "target" and "ratio"
        self.correlation = examined.lengths.correlation  # Pearson's correlation between the lengths of the two sides
        self.sides: dict[str, dict[str, Any]] = {}
        for i, side in enumerate(SIDES):
            tokens, words = int(examined.tokens[i]), int(examined.words[i])
            self.sides[side] = {
                "characters": int(examined.characters[i]),
                "words": words,
                "tokens": tokens if has_tokens else None,
                "tokens_per_word": round(tokens / words, 4) if tokens and words else None,
                "characters_out_of_vocabulary": dict(examined.unknown[i].most_common(MAX_NAMED_CHARACTERS)),
            }

    @property
    def label(self) -> str:
        return set_label(self.kind, self.name)


@dataclass
class DoctorReport:
    """The result of an examination. sets: training pairs first; findings: most severe first"""

    sets: list[SetReport]
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        return {"sets": [vars(report) for report in self.sets], "findings": [f.to_json() for f in self.findings]}


def doctor(options: DoctorOptions) -> DoctorReport:
    """Examine every pair and report the faults. Raises Interrupted after a signal to stop."""
    with signals.Signals():
        sets, languages, pipeline, findings = _open(options)
        for pair_set in sets:
            pair_set.count(options.max_pairs if pair_set.kind == "train" else 0)
            findings += pair_set.findings
        train = [pair_set for pair_set in sets if pair_set.kind == "train"]
        evaluation = [pair_set for pair_set in sets if pair_set.kind != "train"]
        task = ExaminePairs(languages, pipeline, None, options.examples, loose=bool(evaluation and train))
        # Evaluation sets come first, because their sentences are looked up while the training pairs are read.
        no_overlap = TrainingOverlap(())
        examined = [_examine(pair_set, task, no_overlap, options.workers) for pair_set in evaluation]
        overlap = TrainingOverlap(result.loose_keys for result in examined)
        limits = LengthFilter(options.min_length, options.max_length, options.max_ratio)
        task = replace(task, length_filter=limits if options.data is None else None)
        in_train = [_examine(pair_set, task, overlap, options.workers) for pair_set in train]
        results = list(zip([*train, *evaluation], [*in_train, *examined], strict=True))
        for pair_set, result in results:
            findings += _findings(pair_set, result, _sides_in_pieces(pipeline))
        for pair_set, result in zip(evaluation, examined, strict=True):
            if rows := overlap.training_rows(result.loose_keys):  # sentences that also occur in the training data
                examples = _examples(pair_set, dict(islice(rows.items(), options.examples)), train[0])
                finding = Finding(
                    "in-training", pair_set.label, "source", len(rows), pair_set.num_examined, "", examples
                )
                findings.append(finding)
        reports = [SetReport(pair_set, result) for pair_set, result in results]
    order = {report.label: i for i, report in enumerate(reports)}
    checks = list(CHECKS)
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), order[f.set], checks.index(f.check)))
    return DoctorReport(reports, findings)


def _open(options: DoctorOptions) -> tuple[list[PairSet], tuple[str, str], Pipeline | None, list[Finding]]:
    """Return the sets, their languages, the pipeline if there is one, and the findings from nmt prepare's report."""
    if options.data is not None:
        folder = Path(options.data)
        prepared = PreparedData(folder)
        languages = prepared.pipeline.source_lang, prepared.pipeline.target_lang
        return _prepared_sets(folder, prepared), languages, prepared.pipeline, _dropped_by_prepare(prepared)
    languages, pipeline = options.languages, None
    if options.vocabulary is not None:
        pipeline = named_pipeline(Path(options.vocabulary), languages)
    sets = [PairSet(text.kind, text.name, text.files) for text in text_sets(options)]
    return sets, languages, pipeline, []


def _prepared_sets(folder: Path, prepared: PreparedData) -> list[PairSet]:
    names, train = [FilePair(folder / "train", folder / "train")], (prepared.train, prepared.pipeline)
    sets = [PairSet("train", "train", names, train)] if len(prepared.train) else []
    kinds: tuple[Kind, Kind] = ("valid", "test")
    for kind in kinds:
        for name in getattr(prepared, kind):
            source, target = (prepared.artefact.path(f"{kind}.{name}.{side}.txt") for side in SIDES)
            sets.append(PairSet(kind, name, [FilePair(source, target)]))
    return sets


class _PreparedSet(msgspec.Struct):
    kind: str
    read: int
    dropped: dict[str, int]


class _PrepareReport(msgspec.Struct):
    sets: list[_PreparedSet]


def _dropped_by_prepare(prepared: PreparedData) -> list[Finding]:
    """The training pairs that nmt prepare dropped when it created the data, by reason."""
    path, report = prepared.artefact.folder / REPORT_FILE, prepared.artefact.json(REPORT_FILE)
    with expecting("a report of nmt prepare", path):
        rows = msgspec.convert(report, _PrepareReport).sets
    dropped = [(row, reason, count) for row in rows if row.kind == "train" for reason, count in row.dropped.items()]
    return [Finding("dropped", "train", "pair", count, row.read, reason) for row, reason, count in dropped if count]


def _examine(pair_set: PairSet, task: ExaminePairs, overlap: TrainingOverlap, workers: int) -> ExaminedPairs:
    """The findings and keys of a set's pairs. Only evaluation sets keep loose keys. overlap: receives the training keys"""
    size = pair_set.num_examined
    examined = ExaminedPairs(0, FindingCounts(task.max_examples))
    keep_loose = task.loose and pair_set.kind != "train"
    examined.pair_keys, examined.source_keys = np.zeros((2, size), dtype=np.uint64)
    examined.loose_keys = np.zeros(size if keep_loose else 0, dtype=np.uint64)
    num_chunks = -(-size // CHUNK_PAIRS)
    results = in_order(task, pair_set.chunks(), max(min(workers, num_chunks), 1))
    with closing(results), log.progress(pair_set.label, size, "pairs") as bar:
        for chunk in results:
            rows = slice(examined.num_pairs, examined.num_pairs + chunk.num_pairs)
            examined.pair_keys[rows], examined.source_keys[rows] = chunk.pair_keys, chunk.source_keys
            if keep_loose:
                examined.loose_keys[rows] = chunk.loose_keys
            overlap.add_training(chunk.loose_keys, examined.num_pairs)
            examined.merge(chunk)
            bar.advance(chunk.num_pairs)
    return examined


def _sides_in_pieces(pipeline: Pipeline | None) -> list[str]:
    """The sides whose number of tokens per word is meaningful: words are separated by spaces, and tokens are not characters."""
    sides = [] if pipeline is None else [(SIDES[0], pipeline.source), (SIDES[1], pipeline.target)]
    spaced = [(name, side) for name, side in sides if base_language(side.settings.language) not in UNSPACED_LANGUAGES]
    return [name for name, side in spaced if side.settings.subword != "char"]


def _findings(pair_set: PairSet, examined: ExaminedPairs, in_pieces: Sequence[str]) -> Iterator[Finding]:
    """The findings of a set. in_pieces: the sides whose number of tokens per word is meaningful"""
    label, num_pairs = pair_set.label, examined.num_pairs
    yield from examined.counts.findings(label, num_pairs)
    duplicates = find_repeated(examined.pair_keys[:, None])
    other_targets = find_repeated(examined.source_keys[:, None]) & ~duplicates
    for check, repeated, keys in (
        ("duplicate-pairs", duplicates, examined.pair_keys),
        ("several-targets", other_targets, examined.source_keys),
    ):
        rows = np.flatnonzero(repeated).tolist()
        if rows:
            earlier = {row: first_row_of_key(keys, row) for row in rows[: examined.counts.max_examples]}
            yield Finding(check, label, "pair", len(rows), num_pairs, "", _examples(pair_set, earlier, pair_set))
    correlation = examined.lengths.correlation
    if num_pairs >= MIN_CORRELATION_PAIRS and correlation is not None and correlation < MIN_CORRELATION:
        yield Finding("lengths-unrelated", label, "pair", num_pairs, num_pairs, f"correlation {correlation:.2f}")
    for side, tokens, words in zip(SIDES, examined.tokens.tolist(), examined.words.tolist(), strict=True):
        if side in in_pieces and tokens > MAX_TOKENS_PER_WORD * words:
            yield Finding("tokens-per-word", label, side, tokens, words)


def _examples(pair_set: PairSet, earlier: dict[int, int], other: PairSet) -> list[Example]:
    """Examples for the rows of a set that repeat rows of another set."""
    return [Example(pair_set.place(row), f"same as {other.place(first)}") for row, first in earlier.items()]
