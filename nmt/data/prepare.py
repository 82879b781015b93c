"""Makes a data folder from parallel text: `nmt prepare` as one call.

The result depends only on the texts, the settings and the seed, not on the number of workers ("Text" in
docs/reference/contract.md).
"""

import os
import select
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt import registry, signals
from nmt.artefact import check_output, new_folder
from nmt.columns.base import FLOAT, column_kind
from nmt.data.duplicates import without_duplicates
from nmt.data.encode import CHUNK_PAIRS, CountTask, EncodeTask, FilePair, LengthFilter, TextTask, count_words
from nmt.data.held_out import pair_keys
from nmt.data.learn import sum_counts
from nmt.data.options import BadLine, PrepareOptions
from nmt.data.pipelines import learnt_pipeline, reused_pipeline
from nmt.data.row_files import LENGTH, SIDES, ColumnWriter, SetWriter, id_type
from nmt.data.sets import SetStatistics, TextSet, text_sets, with_counts
from nmt.data.shards import DATA_KIND, REPORT_FILE, SetFacts, write_facts
from nmt.data.workers import CHECK_SECONDS, in_order
from nmt.errors import InputError, UserError, naming, quoted
from nmt.files import to_json
from nmt.log import log
from nmt.preparations.base import PairIds, Preparation
from nmt.symbols import PIECE_MARK
from nmt.text.corpus import read_lines
from nmt.text.pipeline import PIPELINE_FOLDER, Pipeline

STDIN_COPY: Final = "stdin.tsv"  # a file in the temporary data folder, removed before the folder is complete
STDIN_BLOCK_BYTES: Final = 1 << 20
PIECES_SHARE: Final = 0.1  # text counts as split into subwords if a larger share of its lines has subword marks


def prepare(options: PrepareOptions) -> dict[str, Any]:
    """Make a data folder and return its report. After an error or interruption, no files are left behind.

    Raises InputError for unusable text, and Interrupted after a stop signal.
    """
    output = Path(options.output)
    check_output(output, DATA_KIND, options.overwrite)
    preparations: list[Preparation] = [entry.cls(options) for entry in registry.active("preparation", options)]
    manifest: dict[str, Any] = {"seed": options.seed}
    with signals.Signals(), new_folder(output, DATA_KIND, manifest) as folder:
        counts: dict[FilePair, int] = {}
        stdin = folder / STDIN_COPY
        if options.reads_stdin:
            _save_stdin(stdin)
        named = text_sets(options, options.hold_out, options.column, stdin)
        sets = [with_counts(text_set, counts) for text_set in named]
        _check_context(options, sets, preparations, options.context)
        pipeline = _pipeline(options, sets, preparations, folder)
        sets = [replace(text_set, context=pipeline.context) for text_set in sets]
        _check_context(options, sets, preparations, pipeline.context)
        (folder / PIPELINE_FOLDER).mkdir()
        pipeline.save(folder / PIPELINE_FOLDER)
        reports = _write_sets(options, sets, pipeline, preparations, folder)
        sizes: dict[str, int] = dict(zip(SIDES, pipeline.sizes, strict=True))
        report = {
            "vocabulary": {"joint": pipeline.joint, **sizes, "sha256": pipeline.hash},
            "sets": reports,
            "alters": {"source": pipeline.source.prepare.alters, "target": pipeline.target.prepare.alters},
            "settings": options.settings,
        }
        stdin.unlink(missing_ok=True)
        (folder / REPORT_FILE).write_bytes(to_json(report))
        manifest["vocabulary"] = pipeline.hash
    return report


def _write_sets(
    options: PrepareOptions,
    sets: Sequence[TextSet],
    pipeline: Pipeline,
    preparations: Sequence[Preparation],
    folder: Path,
) -> list[dict[str, Any]]:
    """Write the files of all sets, and data.json. Returns the statistics of each set for the report."""
    # Evaluation sets come first, so that their errors appear early and the training set can exclude held-out pairs.
    rows: dict[str, tuple[SetFacts, dict[str, Any]]] = {}
    held_out: NDArray[np.uint64] | None = None
    for text_set in sorted(sets, key=lambda text_set: text_set.kind == "train"):
        rows[text_set.stem] = _write_set(text_set, options, pipeline, folder, held_out)
        if text_set.hold_out and text_set.kind != "train":
            held_out = pair_keys(*(read_lines(folder / f"{text_set.stem}.{side}.txt") for side in SIDES))
    facts, reports = map(list, zip(*(rows[text_set.stem] for text_set in sets), strict=True))
    if options.names_training:
        _add_columns(folder, facts[0], pipeline, preparations)
        reports[0] |= {"columns": facts[0].columns} if facts[0].columns else {}
    else:  # every data folder has a training set, possibly an empty one
        SetWriter(folder, "train", pipeline.sizes).close()
        facts.insert(0, SetFacts("train", "train", "train", 0))
    write_facts(folder, facts)
    return reports


def _check_context(
    options: PrepareOptions, sets: Sequence[TextSet], preparations: Sequence[Preparation], context: int
) -> None:
    """Raise UserError for options that cannot be combined with a context. context: maximum number of sentences"""
    if not context:
        return
    kinds = {kind for text_set in sets for kind in text_set.columns.values()}
    if of_source := sorted(kind for kind in kinds if 0 in column_kind(kind).sides):
        raise UserError(f"--context and columns of kind '{of_source[0]}' cannot be combined (drop one of them)")
    if options.hold_out:
        reason = "held-out lines do not form documents; add a set with --valid instead"
        raise UserError(f"--hold-out {options.hold_out} and --context cannot be combined ({reason})")
    for preparation in preparations:
        preparation.check(context)


def _pipeline(
    options: PrepareOptions,
    sets: Sequence[TextSet],
    preparations: Sequence[Preparation],
    scratch: Path,
) -> Pipeline:
    """The pipeline from --vocabulary, or one learnt from the training pairs, as changed by preparations."""

    def count(steps: Mapping[int, Callable[[Sequence[str]], list[str]]]) -> Counter[str]:
        task = CountTask(TextTask(steps, options.on_bad_line), count_words)
        return sum_counts(in_order(task, sets[0].chunks(), options.workers))

    if options.vocabulary is not None:
        pipeline = reused_pipeline(options, options.vocabulary)
    else:
        pipeline = learnt_pipeline(options, sets[0], scratch)
    for preparation in preparations:
        pipeline = preparation.change(pipeline, count)
    if options.right_to_left:
        pipeline = pipeline.right_to_left()
    if options.context:
        pipeline = pipeline.with_context(options.context)
    return pipeline


def _add_columns(folder: Path, train: SetFacts, pipeline: Pipeline, preparations: Sequence[Preparation]) -> None:
    """Write the columns that preparations learn from the training pairs."""
    lengths = np.memmap(folder / f"{train.stem}.lengths.bin", LENGTH, "r").reshape(-1, 2)
    ids = [
        np.memmap(folder / f"{train.stem}.{side}.bin", id_type(size), "r")
        for side, size in zip(SIDES, pipeline.sizes, strict=True)
    ]
    pairs = PairIds(lengths, ids[0], ids[1], pipeline.target.settings.right_to_left)
    for preparation in preparations:
        for name, (kind, rows) in preparation.columns(pairs, pipeline.sizes).items():
            with closing(ColumnWriter(folder, f"{train.stem}.{name}", column_kind(kind))) as writer:
                for values in rows:
                    writer.add(values)
            train.columns = {**train.columns, name: kind}


def _save_stdin(path: Path) -> None:
    """Copy stdin to a file, because text is read more than once. Raises UserError if stdin is closed."""
    if sys.stdin is None:
        raise UserError("--train-tsv -: stdin is closed (pipe text into the command, or name a file)")
    pipe, block = sys.stdin.fileno(), b"\n"
    with naming(path), path.open("wb") as file:
        while block:
            signals.check()
            if select.select([pipe], [], [], CHECK_SECONDS)[0]:  # a plain read would not return after a signal
                block = os.read(pipe, STDIN_BLOCK_BYTES)
                file.write(block)


def _warn_about_text(
    text_set: TextSet,
    options: PrepareOptions,
    pipeline: Pipeline,
    statistics: SetStatistics,
    raw: tuple[list[str], list[str]],
) -> None:
    """Warn about tags missing from the vocabulary, and about text that is already split into subwords.

    raw: lines of an evaluation set
    """
    if count := statistics.num_unknown_tags:
        known = ", ".join(map(quoted, pipeline.source.prepare.tags))
        more = ["add more with --user-symbols"]
        ways = more if options.vocabulary is None else registry.declared("preparation", "adds_entries")
        hint = "; ".join([f"known tags: {known}", *ways])
        log.warn(
            f"{statistics.first_unknown_tag} is not a tag in this vocabulary, so it is read as text ({hint}); "
            f"{text_set.name} has {count:,} line{'s' if count > 1 else ''} with unknown tags"
        )
    if PIECES_SHARE * sum(map(len, raw)) < sum(f"{PIECE_MARK} " in line for lines in raw for line in lines):
        log.warn(
            f"{quoted(text_set.files[0].source)} is already split into subwords ('{PIECE_MARK} '), which distorts BLEU "
            "(use raw text)"
        )


def _check_training(text_set: TextSet, statistics: SetStatistics, folder: Path) -> None:
    """Raise InputError if no training pairs are left, or if all weights of a column are 0."""
    if not statistics.kept:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in statistics.dropped.items()) or "none"
        raise InputError(f"{text_set.files[0].name}: no training pairs are left (dropped: {dropped})")
    for path, (name, kind) in zip(text_set.files[0].columns, text_set.columns.items(), strict=True):
        if column_kind(kind).are_weights and not np.memmap(folder / f"{text_set.stem}.{name}.bin", FLOAT, "r").any():
            raise InputError(f"{quoted(path)}: all weights of column {name} are 0 (training needs positive weights)")


def _write_set(
    text_set: TextSet, options: PrepareOptions, pipeline: Pipeline, folder: Path, held_out: NDArray[np.uint64] | None
) -> tuple[SetFacts, dict[str, Any]]:
    """Write a set's ids and columns, and the raw text of evaluation sets. Returns its facts, and its statistics for the report.

    held_out: keys of held-out pairs, which training pairs must not repeat
    """
    training, kinds = text_set.kind == "train", text_set.columns
    lengths = LengthFilter(options.min_length, options.max_length, options.max_ratio) if training else None
    drawn = training or text_set.hold_out > 0  # pairs can be dropped, because no other file has to stay aligned
    on_bad_line: BadLine = options.on_bad_line if drawn or options.on_bad_line == "error" else "replace"
    task = EncodeTask(pipeline, lengths, training and options.deduplicate, on_bad_line, tuple(kinds.values()), held_out)
    writer = SetWriter(folder, text_set.stem, pipeline.sizes, kinds)
    statistics = SetStatistics()
    raw: tuple[list[str], list[str]] = ([], [])
    workers = min(options.workers, -(-text_set.num_pairs // CHUNK_PAIRS))
    results = in_order(task, text_set.chunks(), workers)
    with closing(results), closing(writer):
        for encoded in without_duplicates(results, folder) if task.digests else results:
            writer.add(encoded.lengths, encoded.source, encoded.target, encoded.columns)
            statistics.add(encoded)
            for lines, more in zip(raw, encoded.raw, strict=True):
                lines += more
    _warn_about_text(text_set, options, pipeline, statistics, raw)
    if training:
        _check_training(text_set, statistics, folder)
    else:
        for side, lines in zip(SIDES, raw, strict=True):
            (folder / f"{text_set.stem}.{side}.txt").write_bytes("".join(line + "\n" for line in lines).encode())
    corpora = statistics.corpora_of(text_set) if training else []
    facts = SetFacts(text_set.kind, text_set.name, text_set.stem, writer.pairs, kinds, corpora)
    return facts, statistics.to_json(text_set)
