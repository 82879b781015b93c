"""`nmt clean` as one call: copies a corpus without the pairs that fail checks of `nmt doctor`.

The corpus is read twice: first to judge each pair, then to copy those that are kept. This takes about 100 MB of memory plus a
few bytes per pair, and a temporary file of 16 bytes per pair that is used to find repeated pairs.
"""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from nmt import signals
from nmt.data.duplicates import find_repeated
from nmt.data.encode import Chunk, FilePair, chunks, digests_of
from nmt.data.options import TrainingFiles
from nmt.data.sets import check_regular, training_files
from nmt.data.workers import in_order
from nmt.errors import InputError, UserError, naming, quoted, unknown
from nmt.extensions.doctor.examine import DETECTORS, fault_place, fault_texts, pair_of
from nmt.extensions.doctor.findings import CHECKS, Example, FindingCounts
from nmt.extensions.doctor.pairs import Fault
from nmt.files import are_same, check_output_file, new_output
from nmt.log import log
from nmt.options import opt, options_class
from nmt.text.corpus import BOM, bad_bytes

RULES: Final = tuple(name for name, check in CHECKS.items() if check.clean is not None)
DEFAULT_RULES: Final = tuple(name for name in RULES if CHECKS[name].clean)
REPEATED: Final = "duplicate-pairs"  # the only rule that compares pairs with each other
ALL_RULES: Final = "all"
NO_RULE: Final = 255  # index for pairs that break no rule


@options_class
class CleanOptions(TrainingFiles):
    """The corpus to clean, and what to remove."""

    output: str | None = opt(
        None,
        "prefix of the cleaned files: PREFIX.en, PREFIX.de",
        group="Input and output",
        common=True,
        aliases=("o",),
        metavar="PREFIX",
    )
    rejected: str | None = opt(
        None, "TSV file to write the removed pairs to", group="Input and output", common=True, metavar="FILE"
    )
    drop: tuple[str, ...] = opt((), "additional rules to apply, or 'all'", group="Rules", common=True, metavar="RULE")
    keep: tuple[str, ...] = opt(
        (), "rules to skip; 'all' leaves only those in --drop", group="Rules", common=True, metavar="RULE"
    )
    gzip: bool = opt(False, "compress the cleaned files with gzip", group="Input and output", common=True)
    examples: int = opt(3, "number of examples to report for each rule", group="Report", common=True, minimum=0)
    dry_run: bool = opt(
        False,
        "only report what would be removed",
        group="Input and output",
        common=True,
        excludes=("rejected",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.names_training:
            raise ValueError("no corpus given (add its PREFIX, or --source and --target)")
        if self.reads_stdin:
            raise ValueError("--train-tsv -: the corpus is read twice, so it cannot come from stdin (name a file)")
        if self.output is None and not self.dry_run:
            raise ValueError("--output is missing (name a prefix for the cleaned files, or add --dry-run)")
        if len(set(self.languages)) == 1:
            raise ValueError(
                f"--source-lang and --target-lang are both '{quoted(self.languages[0])}': they must differ"
            )
        _ = self.rules

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules to apply, in order."""
        drop, keep = ({name for word in words for name in word.split(",")} for words in (self.drop, self.keep))
        for name in sorted(drop | keep):
            if name not in (*RULES, ALL_RULES):
                raise unknown("rule", name, (*RULES, ALL_RULES))
        if both := sorted(drop & keep):
            raise ValueError(f"--drop and --keep both name '{both[0]}' (remove it from one of them)")
        chosen = set(RULES if ALL_RULES in drop else () if ALL_RULES in keep else DEFAULT_RULES)
        return tuple(name for name in RULES if name in (chosen | drop) - keep)

    @property
    def outputs(self) -> list[Path]:
        """The files to write: source, target and, if requested, the file of removed pairs."""
        if self.dry_run:
            return []
        ending = ".gz" if self.gzip else ""
        paths = [Path(f"{self.output}.{language}{ending}") for language in self.languages]
        return paths if self.rejected is None else [*paths, Path(self.rejected)]


@dataclass
class CleanReport:
    """The result of cleaning a corpus.

    read, kept: number of pairs
    removed: number of pairs by rule; each pair counts for the first rule that it breaks
    examples: the first examples for each rule
    """

    read: int
    kept: int
    removed: dict[str, int]
    examples: dict[str, list[Example]]

    def to_json(self) -> dict[str, Any]:
        examples = {rule: [vars(example) for example in examples] for rule, examples in self.examples.items()}
        return {"read": self.read, "kept": self.kept, "removed": self.removed, "examples": examples}


@dataclass
class Judged:
    """The verdicts on N pairs.

    rules: (N,) index of the first rule that each pair breaks, or NO_RULE
    digests: (N, 2) 128-bit digest of each kept pair; zeros for other pairs, or for all pairs if digests are not needed
    found: the count and the first examples for each rule
    """

    rules: NDArray[np.uint8]
    digests: NDArray[np.uint64]
    found: FindingCounts


@dataclass(frozen=True)
class JudgePairs:
    """Worker task: judge the pairs of a chunk. rules: names of the rules; max_examples: maximum number per rule"""

    languages: tuple[str, str]
    rules: Sequence[str]
    max_examples: int

    def __call__(self, chunk: Chunk) -> Judged:
        size = len(chunk.numbers)
        judged = Judged(
            np.full(size, NO_RULE, np.uint8), np.zeros((size, 2), np.uint64), FindingCounts(self.max_examples)
        )
        kept: list[tuple[str, str]] = []
        for i in range(size):
            pair = pair_of(chunk, i, self.languages)
            for line, name in zip(pair.lines, (chunk.files.name, quoted(chunk.files.target)), strict=True):
                if line.wide_encoding:
                    raise bad_bytes(name, 1, line)
            for rule, name in enumerate(self.rules):
                if name in DETECTORS and (fault := next((f for f in DETECTORS[name](pair) if f.found), None)):
                    judged.rules[i] = rule
                    texts = pair.texts if fault.side is None else fault_texts(pair, fault)
                    judged.found.add(name, "pair", fault_place(chunk, i, fault), *texts)
                    break
            else:
                kept.append(pair.texts)
        if REPEATED in self.rules and kept:
            judged.digests[judged.rules == NO_RULE] = digests_of(*zip(*kept, strict=True))
        return judged


def clean_corpus(options: CleanOptions) -> CleanReport:
    """Write the cleaned corpus and report what was removed. Raises Interrupted after a signal to stop.

    Raises InputError for unusable text; nothing is written in that case.
    """
    files = training_files(options)
    check_regular(files)
    _check_outputs(options.outputs, files)
    with signals.Signals(), ExitStack() as stack:
        rules, found = _judge(options, files)
        if options.outputs:
            streams = [stack.enter_context(new_output(path)) for path in options.outputs]
            _copy(streams, options, files, rules)
    counts = np.bincount(rules, minlength=NO_RULE + 1).tolist()
    removed = {name: counts[i] for i, name in enumerate(options.rules)}
    examples = {check: examples for (check, _, _), examples in found.examples.items() if examples}
    return CleanReport(len(rules), counts[NO_RULE], removed, examples)


def _check_outputs(outputs: Sequence[Path], files: Sequence[FilePair]) -> None:
    """Raise UserError if an output is a file of the corpus or the same as another output, ResourceError if it is not writable."""
    taken = [path for pair in files for path in pair.paths]
    for path in outputs:
        if any(are_same(path, other) for other in taken):
            raise UserError(
                f"{quoted(path)}: each output must differ from the files of the corpus and from other outputs (change --output)"
            )
        taken.append(path)
        check_output_file(path)


def _judge(options: CleanOptions, files: Sequence[FilePair]) -> tuple[NDArray[np.uint8], FindingCounts]:
    """Return the index (N,) of the first rule that each pair breaks, or NO_RULE, and the counts with examples."""
    task, found = JudgePairs(options.languages, options.rules, options.examples), FindingCounts(options.examples)
    folder = options.outputs[0].parent if options.outputs else Path(tempfile.gettempdir())
    verdicts: list[NDArray[np.uint8]] = []
    results = in_order(task, chunks(files), options.workers)
    with naming(folder), tempfile.TemporaryFile(dir=folder) as digests:
        with closing(results), log.progress("judging", None, "pairs") as bar:
            for judged in results:
                verdicts.append(judged.rules)
                found.merge(judged.found)
                if REPEATED in options.rules:
                    digests.write(judged.digests.tobytes())
                bar.advance(len(judged.rules))
        if not verdicts:
            raise InputError(f"{files[0].name}: the file is empty")
        rules = np.concatenate(verdicts)
        if REPEATED in options.rules:
            digests.flush()
            repeated = find_repeated(np.memmap(digests, "<u8", "r", shape=(len(rules), 2)))
            rules[repeated] = options.rules.index(REPEATED)
            _add_repeated(found, np.flatnonzero(repeated)[: options.examples], options, files)
    return rules, found


def _add_repeated(
    found: FindingCounts, rows: NDArray[np.int64], options: CleanOptions, files: Sequence[FilePair]
) -> None:
    """Add some repeated pairs as examples. rows: indices of the pairs, counted from 0 across all files"""

    def are_wanted(indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        signals.check()
        return np.isin(indices, rows)

    examples = ((chunk, i) for chunk in chunks(files, are_wanted) for i in range(len(chunk.numbers)))
    for chunk, i in islice(examples, len(rows)):  # stops reading after the last example
        found.add(REPEATED, "pair", fault_place(chunk, i, Fault()), *pair_of(chunk, i, options.languages).texts)


def _copy(
    streams: Sequence[BinaryIO],
    options: CleanOptions,
    files: Sequence[FilePair],
    rules: NDArray[np.uint8],
) -> None:
    """Copy the kept lines byte for byte, and write the removed pairs to the third stream if there is one."""
    first = 0
    with ExitStack() as stack:
        sides: list[Any] = list(streams[:2])
        if options.gzip:
            sides = [stack.enter_context(gzip.GzipFile("", "wb", 6, stream, mtime=0)) for stream in sides]
        with log.progress("copying", len(rules), "pairs") as bar:
            for chunk in chunks(files):
                signals.check()
                of_chunk = rules[first : first + len(chunk.numbers)]
                if len(of_chunk) < len(chunk.numbers):
                    break
                for stream, lines in zip(sides, _whole_lines(chunk), strict=True):
                    stream.write(b"".join(compress(lines, of_chunk == NO_RULE)))
                if len(streams) > 2:
                    streams[2].writelines(_rejected(chunk, of_chunk, options.rules))
                first += len(of_chunk)
                bar.advance(len(of_chunk))
            else:
                of_chunk = rules[first:first]
        if first < len(rules) or len(of_chunk):
            raise InputError(f"{files[0].name}: the corpus changed while it was being read (run the command again)")


def _whole_lines(chunk: Chunk) -> tuple[list[bytes], list[bytes]]:
    """The lines of both sides. A missing final LF is added; a byte order mark at the start of a file is removed."""
    for lines in (chunk.source, chunk.target):
        if chunk.numbers[0] == 1:
            lines[0] = lines[0].removeprefix(BOM)
        if not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
    return chunk.source, chunk.target


def _rejected(chunk: Chunk, rules: NDArray[np.uint8], names: Sequence[str]) -> Iterator[bytes]:
    """The rows of the removed pairs. Tabs within the text become spaces."""
    for i in np.flatnonzero(rules != NO_RULE).tolist():
        place = quoted(fault_place(chunk, i, Fault()))
        sides = (line.rstrip(b"\r\n").replace(b"\t", b" ") for line in (chunk.source[i], chunk.target[i]))
        yield b"\t".join([names[rules[i]].encode(), place.encode(), *sides]) + b"\n"
