"""The training and evaluation sets that a command works on, named by prefix or by two files, and the statistics of a set."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.data.batching import Indices
from nmt.data.encode import REASONS, Chunk, Encoded, FilePair, chunks
from nmt.data.options import CorpusOptions, TrainingFiles, split_name
from nmt.errors import InputError, UserError, is_utf8, quoted
from nmt.log import log
from nmt.storages.base import text_exists
from nmt.storages.streams import COMPRESSED_ENDINGS
from nmt.text.corpus import text_name

HELD_OUT: Final = "held-out"
COLUMN: Final = re.compile(r"([a-z][a-z0-9_-]*)(?::([\w-]+))?=(.+)", re.DOTALL)  # NAME=FILE, NAME:KIND=FILE
RESERVED_NAMES: Final = ("source", "target", "lengths")  # names that other files of a set use
STORAGE: Final = ("", *COMPRESSED_ENDINGS)  # possible suffixes of a prefix's files, after the language

Kind = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class TextSet:
    """The training pairs of all files, or one evaluation set.

    hold_out: N if every Nth pair of the files belongs to the held-out set instead of the training set; 0 for none
    columns: kind of each column, by name
    num_lines: number of lines on each side of the files
    context: maximum context of a pair, in source lines
    """

    kind: Kind
    name: str
    files: Sequence[FilePair]
    hold_out: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    num_lines: int = 0
    context: int = 0

    @property
    def num_pairs(self) -> int:
        held_out = self.num_lines // self.hold_out if self.hold_out else 0
        return held_out if self.hold_out and self.kind != "train" else self.num_lines - held_out

    def holds(self, indices: Indices) -> NDArray[np.bool_]:
        """(N,) whether each pair belongs to this set. indices: (N,) pair indices, counted from 0 over all files"""
        held_out = (indices + 1) % self.hold_out == 0 if self.hold_out else np.zeros(len(indices), dtype=bool)
        return np.asarray(held_out == (self.hold_out > 0 and self.kind != "train"))

    def chunks(self) -> Iterator[Chunk]:
        """Read all pairs of the set, with a progress bar."""
        pairs = chunks(self.files, self.holds if self.hold_out else None, self.context)
        return _with_progress(pairs, self.stem, self.num_pairs)

    def sample(self, size: int, seed: int) -> Iterator[Chunk]:
        """Read `size` evenly spaced pairs of the set. seed: determines the offset of the first pair"""
        total = self.num_pairs
        phase = int(np.random.Generator(np.random.Philox(seed)).integers(total))

        def select(i: Indices) -> NDArray[np.bool_]:
            place = i - i // self.hold_out if self.hold_out else i  # position among the training pairs
            return evenly_spaced(place, size, total, phase) & self.holds(i)

        return _with_progress(chunks(self.files, select), f"sample of {self.stem}", size)

    @property
    def stem(self) -> str:
        """The start of the names of this set's files in a data folder."""
        return self.name if self.kind == "train" else f"{self.kind}.{self.name}"


def evenly_spaced(places: Indices, size: int, total: int, phase: int = 0) -> NDArray[np.bool_]:
    """(N,) whether positions are among `size` evenly spaced ones out of `total`. phase: offset, less than `total`"""
    return np.asarray(((places + 1) * size + phase) // total > (places * size + phase) // total)


def _with_progress(stream: Iterator[Chunk], name: str, total: int) -> Iterator[Chunk]:
    """Pass chunks through, with a progress bar that counts pairs."""
    with log.progress(name, total, "pairs") as bar:
        for chunk in stream:
            yield chunk
            bar.advance(len(chunk.numbers))


def text_sets(
    options: CorpusOptions, hold_out: int = 0, columns: Sequence[str] = (), stdin: Path | None = None
) -> list[TextSet]:
    """The sets that the options name, starting with the training set.

    hold_out: N if every Nth training pair goes into the validation set `held-out`; 0 for none
    columns: `NAME:KIND=FILE` for the training files (see `parse_columns`)
    stdin: file with the content of stdin, for `--train-tsv -`
    Raises UserError for a missing file, two sets with the same name, or a column that does not fit the files.
    """
    languages = options.languages
    files = training_files(options, stdin)
    column_kinds, paths_of_columns = parse_columns(columns, len(files))
    files = [replace(pair, columns=paths) for pair, paths in zip(files, paths_of_columns, strict=True)]
    sets = [TextSet("train", "train", files, hold_out, column_kinds)] if files else []
    kinds: tuple[Kind, Kind] = ("valid", "test")
    for kind in kinds:
        prefixes = [_split_prefix(text, languages) for text in getattr(options, kind)]
        named = [TextSet(kind, name or Path(prefix).name, [_of_prefix(prefix, languages)]) for name, prefix in prefixes]
        if kind == "valid" and hold_out:
            named.append(TextSet(kind, HELD_OUT, files, hold_out, column_kinds))
        for source, target in zip(getattr(options, f"{kind}_source"), getattr(options, f"{kind}_target"), strict=True):
            named.append(TextSet(kind, _set_name(source, languages[0]), [FilePair(Path(source), Path(target))]))
        for name, count in Counter(text_set.name for text_set in named).items():
            if not is_utf8(name):  # the name is written to a JSON file
                raise UserError(f"the name of the {kind} set '{quoted(name)}' is not UTF-8 (rename or link the files)")
            if count > 1:
                fix = f"name each set with `--{kind} NAME=PREFIX`, or rename the files"
                raise UserError(f"{count} {kind} sets have the same name '{quoted(name)}' ({fix})")
        sets += named
    check_regular(pair for text_set in sets for pair in text_set.files)
    return sets


def parse_columns(given: Sequence[str], num_files: int) -> tuple[dict[str, str], list[tuple[Path, ...]]]:
    """Parse `NAME=FILE` and `NAME:KIND=FILE` into the kind of each column, and the columns' files.

    num_files: number of training file pairs; the result has a tuple for each of them, with one file per column
    Raises UserError for other values, and if a column lacks a file for a pair of training files.
    """
    kinds: dict[str, str] = {}
    files: dict[str, list[Path]] = {}
    known = registry.names("column")
    for text in given:
        match = COLUMN.fullmatch(text)
        if match is None or match[1] in RESERVED_NAMES:
            raise UserError(
                f"--column {quoted(text)}: expected NAME=FILE or NAME:KIND=FILE (NAME consists of a-z 0-9 - _ and must not be "
                f"{', '.join(RESERVED_NAMES)})"
            )
        name, kind = match[1], match[2] or "pair"
        if kind not in known:
            raise UserError(f"--column {quoted(text)}: unknown kind '{kind}' (choose from {', '.join(known)})")
        if kinds.setdefault(name, kind) != kind:
            raise UserError(f"--column {quoted(text)}: this column was already given with kind {kinds[name]}")
        files.setdefault(name, []).append(Path(match[3]))
    for name, paths in files.items():
        if len(paths) != num_files:
            raise UserError(
                f"--column {name} names {len(paths)} files for {num_files} pairs of training files (name one file per pair, in "
                "the order --train, --source, --train-tsv)"
            )
    return kinds, list(zip(*files.values(), strict=True)) or [()] * num_files


def training_files(options: TrainingFiles, stdin: Path | None = None) -> list[FilePair]:
    """The training files that the options name. stdin: file with the content of stdin, for `--train-tsv -`"""
    languages = options.languages
    prefixes = (_split_prefix(text, languages) for text in options.train)
    files = [_of_corpus(_of_prefix(prefix, languages), name, Path(prefix).name) for name, prefix in prefixes]
    files += [
        _of_corpus(FilePair(Path(source), Path(target)), "", _set_name(source, languages[0]))
        for source, target in zip(options.source, options.target, strict=True)
    ]
    return [*files, *(_of_tsv(text, stdin) for text in options.train_tsv)]


def check_regular(files: Iterable[FilePair]) -> None:
    """Raise UserError for existing paths that are not regular files."""
    for path in (path for pair in files for path in pair.paths):
        if path.exists() and not path.is_file():
            raise UserError(
                f"{quoted(path)} is not a regular file, but text must be read more than once (write it to a file)"
            )


def _set_name(source: str, language: str) -> str:
    """The name of a set, derived from the name of its source file."""
    return text_name(Path(source)).removesuffix(f".{language}")


def _of_corpus(files: FilePair, name: str, default: str) -> FilePair:
    """Set the name of the corpus of a file pair. name: the user's choice, or ""; default: used if there is none"""
    return replace(files, corpus=name or re.sub(r"[^\w.-]+", "_", default), is_named=bool(name))


def _of_tsv(text: str, stdin: Path | None) -> FilePair:
    """The file of a `--train-tsv` value, NAME=FILE or FILE. stdin: file with the content of stdin, for `-`"""
    name, file = split_name(text, [""])
    if file == "-" and stdin is not None:
        return _of_corpus(FilePair(stdin, stdin, is_tsv=True, label="stdin"), name, "stdin")
    path = Path(file)
    if not text_exists(path):
        raise UserError(f"--train-tsv {quoted(file)}: no such file")
    return _of_corpus(FilePair(path, path, is_tsv=True), name, _set_name(file, "tsv"))


def _split_prefix(text: str, languages: tuple[str, str]) -> tuple[str, str]:
    """Split NAME=PREFIX, or PREFIX alone, into the name ("" if there is none) and the prefix."""
    return split_name(text, [f".{language}{storage}" for language in languages for storage in STORAGE])


def _of_prefix(prefix: str, languages: tuple[str, str]) -> FilePair:
    return FilePair(_of_language(prefix, languages[0]), _of_language(prefix, languages[1]))


def _of_language(prefix: str, language: str) -> Path:
    """The file of a prefix for one language, plain or compressed."""
    for storage in STORAGE:
        if text_exists(path := Path(f"{prefix}.{language}{storage}")):
            return path
    several = " (separate several prefixes with spaces)" if "," in prefix else ""
    raise UserError(
        f"{quoted(f'{prefix}.{language}')}: no such file, with or without {', '.join(COMPRESSED_ENDINGS)}{several}"
    )


def with_counts(text_set: TextSet, counts: dict[FilePair, int]) -> TextSet:
    """The set with its number of lines filled in. counts: line counts of the files counted so far; updated here

    Raises InputError if files differ in length or a set is empty.
    """
    for pair in text_set.files:
        if pair not in counts:
            with log.progress(f"counting lines of {text_set.stem}"):
                lines = pair.count_lines()
            if error := pair.unequal(lines):
                raise error
            counts[pair] = lines[0]
    counted = replace(text_set, num_lines=sum(counts[pair] for pair in text_set.files))
    if not counted.num_lines:
        raise InputError(f"{text_set.files[0].name} is empty (use files that contain text)")
    if not counted.num_pairs:
        raise InputError(f"--hold-out {text_set.hold_out} is too large for {counted.num_lines:,} training pairs")
    return counted


def zero_counts(*shape: int) -> Any:
    """A dataclass field for an array of counts, initially 0."""
    return field(default_factory=lambda: np.zeros(shape, dtype=np.int64))


@dataclass
class SetStatistics:
    """Statistics of `nmt prepare` for a set.

    read, kept, dropped: numbers of pairs; num_replaced: lines with replaced bytes; num_empty: pairs with an empty side
    num_unknown_tags, first_unknown_tag: number of lines with a tag that the vocabulary lacks, and the first one
    counts: (3, 2) number of tokens, words and unknown tokens of source and target, in kept pairs
    longest: (2,) tokens of the longest source and target, in kept pairs
    corpora: name and number of kept pairs of each corpus, in the order of the pairs; a name can occur several times
    altered: see Encoded
    """

    read: int = 0
    kept: int = 0
    num_replaced: int = 0
    num_empty: int = 0
    num_unknown_tags: int = 0
    first_unknown_tag: str = ""
    dropped: Counter[str] = field(default_factory=Counter)
    counts: NDArray[np.int64] = zero_counts(3, 2)
    longest: NDArray[np.int64] = zero_counts(2)
    corpora: list[tuple[str, int]] = field(default_factory=list)
    altered: Counter[tuple[int, str, str]] = field(default_factory=Counter)

    def add(self, encoded: Encoded) -> None:
        self.read += encoded.read
        self.kept += len(encoded.lengths)
        if not self.corpora or self.corpora[-1][0] != encoded.corpus:
            self.corpora.append((encoded.corpus, 0))
        self.corpora[-1] = encoded.corpus, self.corpora[-1][1] + len(encoded.lengths)
        self.num_replaced += encoded.num_replaced
        self.num_empty += int((encoded.lengths == 0).any(axis=1).sum())
        self.num_unknown_tags += len(encoded.unknown_tags)
        self.first_unknown_tag = self.first_unknown_tag or next(iter(encoded.unknown_tags), "")
        self.dropped.update(encoded.dropped)
        self.altered.update(encoded.altered)
        self.counts += [of.sum(axis=0, dtype=np.int64) for of in (encoded.lengths, encoded.words, encoded.unknown)]
        self.longest = np.maximum(self.longest, encoded.lengths.max(axis=0, initial=0).astype(np.int64))

    def corpora_of(self, text_set: TextSet) -> list[tuple[str, int]]:
        """The corpora to save; none if there is only one, unless the user named it."""
        is_named = any(pair.is_named for pair in text_set.files)
        return self.corpora if is_named or len(self.corpora) > 1 else []

    def to_json(self, text_set: TextSet) -> dict[str, Any]:
        """The statistics for report.json. `read` equals `kept` plus the sum of `dropped`."""
        columns: dict[str, Any] = {"columns": text_set.columns} if text_set.columns else {}
        if corpora := self.corpora_of(text_set):
            columns["corpora"] = corpora
        return {
            "kind": text_set.kind,
            "name": text_set.name,
            **columns,
            "read": self.read,
            "kept": self.kept,
            "dropped": {reason: self.dropped[reason] for reason in REASONS},
            "lines_with_replaced_bytes": self.num_replaced,
            "pairs_with_an_empty_side": self.num_empty,
            "source": self._side(0),
            "target": self._side(1),
        }

    def _side(self, side: int) -> dict[str, Any]:
        tokens, words, unknown = self.counts[:, side].tolist()
        altered: dict[str, dict[str, int]] = {}
        for (of, file, key), count in self.altered.most_common():
            if of == side:
                altered.setdefault(file, {})[key] = count
        return {
            "tokens": tokens,
            "tokens_per_sentence": round(tokens / max(self.kept, 1), 3),
            "longest": int(self.longest[side]),
            "unknown": unknown,
            "unknown_percent": round(100 * unknown / max(tokens, 1), 4),
            "words": words,
            "tokens_per_word": round(tokens / max(words, 1), 4),
            "altered": altered,
        }
