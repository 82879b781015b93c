"""Prepared data from parallel text: `nmt prepare` as one call.

Everything written is a function of the texts, the settings and the seed; the number of workers changes nothing
(docs/contract.md, rules 6 and 7).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from nmt.artefact import Artefact, check_output, new_folder, to_json, write_file
from nmt.data.batching import Indices
from nmt.data.duplicates import without_duplicates
from nmt.data.encode import CHUNK_PAIRS, BadLine, Chunk, CountTask, Encoded, EncodeTask, FilePair, TextTask, chunks
from nmt.data.learn import count_words, learn_apart
from nmt.data.shards import KIND, SetFacts, SetWriter, write_facts
from nmt.data.statistics import SetStatistics
from nmt.data.workers import in_order
from nmt.errors import InputError, UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, as_dict, opt
from nmt.signals import Signals
from nmt.text.corpus import misaligned, open_text, text_exists
from nmt.text.filter import LengthFilter
from nmt.text.normalize import Form
from nmt.text.pipeline import FOLDER, Pipeline, Side, SideSettings, TextPreparer
from nmt.text.subword import SubwordName, SubwordSettings
from nmt.text.tokenize import TokenizerName
from nmt.text.vocabulary import Vocabulary, Words

HELD_OUT: Final = "held-out"
READ_AT_ONCE: Final = 1 << 20
NOT_OF_THE_RESULT: Final = {"output", "workers", "overwrite", "json"}
TEXT_SETTINGS: Final = (
    "subword", "vocab_size", "min_frequency", "joint_vocabulary", "character_coverage", "byte_fallback", "subword_sample",
    "normalization", "normalize_punctuation", "lowercase", "tokenizer",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """What to prepare, and how."""

    source_lang: str = opt(REQUIRED, "source language, and the ending of the files of a prefix: en")
    target_lang: str = opt(REQUIRED, "target language, and the ending of the files of a prefix: de")
    output: str = opt(REQUIRED, "folder of the prepared data", aliases=("o", "destdir"))
    train: tuple[str, ...] = opt(
        (), "prefixes of training files: PREFIX.en and PREFIX.de, or PREFIX.en.gz", aliases=("trainpref",)
    )
    valid: tuple[str, ...] = opt((), "prefixes of development sets, a set each", aliases=("validpref",))
    test: tuple[str, ...] = opt((), "prefixes of test sets, a set each", aliases=("testpref",))
    hold_out: int = opt(0, "every Nth training pair becomes a development set, 'held-out'; 0 is none (fairseq: 100)")
    source: tuple[str, ...] = opt(
        (), "training files of the source language, plain or gzip, beside or instead of --train", aliases=("s",)
    )
    target: tuple[str, ...] = opt((), "training files of the target language, in the order of --source", aliases=("t",))
    valid_source: tuple[str, ...] = opt((), "files of development sets, a set each")
    valid_target: tuple[str, ...] = opt((), "their translations, in the order of --valid-source")
    test_source: tuple[str, ...] = opt((), "files of test sets, a set each")
    test_target: tuple[str, ...] = opt((), "their translations, in the order of --test-source")
    vocabulary: str | None = opt(None, "a model or prepared-data folder whose text pipeline is used; nothing is learnt")
    subword: SubwordName = opt("bpe", "bpe or unigram (sentencepiece), or none: words as they stand between spaces")
    vocab_size: int = opt(
        8000, "entries of a vocabulary, the 4 control symbols counted; 0 with --subword none: all words"
    )
    min_frequency: int = opt(1, "with --subword none: a word that occurs less often is unknown")
    joint_vocabulary: bool = opt(
        True, "one vocabulary for both languages", aliases=("shared-vocab", "joined-dictionary")
    )
    character_coverage: float = opt(1.0, "share of the characters that get an entry; the rarest others are unknown")
    byte_fallback: bool = opt(
        False, "spell characters without an entry in bytes (256 entries), so that none is unknown"
    )
    subword_sample: int = opt(1_000_000, "pairs, evenly spaced, that subwords are learnt from at most; 0 takes all")
    normalization: Literal["auto", "nfc", "nfkc", "none"] = opt(
        "auto", "Unicode form of text: nfc, nfkc or none; auto is nfkc, and none with --subword none"
    )
    normalize_punctuation: bool = opt(False, "Moses' normalisation of punctuation (sacremoses)")
    lowercase: bool = opt(False, "lower-case all text")
    tokenizer: TokenizerName = opt("none", "none or moses (sacremoses); what comes out of the model is detokenised")
    min_length: int = opt(1, "shortest side of a training pair, in tokens after subwords")
    max_length: int = opt(
        256, "longest side of a training pair, in tokens after subwords; 0 is any (256: tensor2tensor)"
    )
    max_ratio: float = opt(0.0, "longer side by shorter side of a training pair, in tokens, at most; 0 is any")
    deduplicate: bool = opt(False, "leave out a training pair that was there before")
    on_bad_line: BadLine = opt(
        "error", "bytes that are not UTF-8: error, skip (the pair; evaluation sets replace) or replace (by U+FFFD)"
    )
    workers: int = opt(1, "processes; their number changes no result")
    seed: int = opt(1, "of the choice of the pairs that subwords are learnt from")
    overwrite: bool = opt(False, "replace prepared data that is there")

    def __post_init__(self) -> None:
        for name, least in (
            ("workers", 1),
            ("min_length", 1),
            ("max_length", 0),
            ("min_frequency", 1),
            ("subword_sample", 0),
            ("hold_out", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        if self.hold_out == 1:
            raise ValueError("--hold-out is 1: no training pair would be left")
        if self.max_ratio and self.max_ratio < 1:
            raise ValueError(f"--max-ratio is {self.max_ratio}; it must be at least 1, or 0 for any")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"--character-coverage is {self.character_coverage}; it must be above 0 and at most 1")
        if self.vocab_size < 5 and (self.subword != "none" or self.vocab_size):
            raise ValueError(f"--vocab-size is {self.vocab_size}; it must be at least 5")
        if not (
            self.train
            or self.source
            or (self.vocabulary and (self.valid or self.valid_source or self.test or self.test_source))
        ):
            raise ValueError("nothing to prepare: give --train PREFIX, or --source FILE and --target FILE")
        for name in ("", "valid_", "test_"):
            sources, targets = getattr(self, f"{name}source"), getattr(self, f"{name}target")
            if len(sources) != len(targets):
                flag = "--" + name.replace("_", "-")
                raise ValueError(
                    f"{flag}source names {len(sources)} files, {flag}target {len(targets)}; they are pairs"
                )

    def side(self, language: str) -> SideSettings:
        """How text of a language is treated."""
        automatic: Form = "none" if self.subword == "none" else "nfkc"
        form: Form = automatic if self.normalization == "auto" else self.normalization
        return SideSettings(language, form, self.normalize_punctuation, self.lowercase, self.tokenizer, self.subword)


@dataclass(frozen=True)
class _Set:
    """A set of pairs to prepare: the training pairs of all files, or one evaluation set."""

    kind: Literal["train", "valid", "test"]
    name: str
    files: Sequence[FilePair]
    hold_out: int = 0  # every such pair of the files is not of the training set, but of the held-out one
    num_lines: int = 0  # of each side of the files

    @property
    def num_pairs(self) -> int:
        held_out = self.num_lines // self.hold_out if self.hold_out else 0
        return held_out if self.hold_out and self.kind != "train" else self.num_lines - held_out

    def wanted(self, i: Indices) -> NDArray[np.bool_]:
        """Which of the pairs i (N,), counted from 0 over all files, are of this set."""
        held_out = (i + 1) % self.hold_out == 0 if self.hold_out else np.zeros(len(i), dtype=bool)
        return np.asarray(held_out == (self.hold_out > 0 and self.kind != "train"))

    def chunks(self) -> Iterator[Chunk]:
        return chunks(self.files, self.wanted if self.hold_out else None)

    def sample(self, size: int, seed: int) -> Iterator[Chunk]:
        """About `size` of its pairs, evenly spaced over all files; the seed says where the spacing begins."""
        total = self.num_lines
        phase = int(np.random.Generator(np.random.Philox(seed)).integers(total))

        def chosen(i: Indices) -> NDArray[np.bool_]:
            return (((i + 1) * size + phase) // total > (i * size + phase) // total) & self.wanted(i)

        return chunks(self.files, chosen)

    @property
    def stem(self) -> str:
        return self.name if self.kind == "train" else f"{self.kind}.{self.name}"


def prepare(options: PrepareOptions) -> dict[str, Any]:
    """Make a prepared-data folder and return its report. Nothing is left behind when it fails or is interrupted.

    Raises InputError for text that cannot be used, Interrupted when a signal asked to stop.
    """
    output = Path(options.output)
    check_output(output, options.overwrite)
    facts: dict[str, Any] = {"settings": _settings_hash(options), "seed": options.seed}
    with Signals() as signals, new_folder(output, KIND, facts) as folder:
        counts: dict[FilePair, int] = {}
        sets = [_counted(given, counts, signals) for given in _sets(options)]
        pipeline = _pipeline(options, sets, signals)
        (folder / FOLDER).mkdir()
        pipeline.save(folder / FOLDER)
        done = [_encode(given, options, pipeline, folder, signals) for given in sets]
        facts_of_sets = [row for row, _ in done]
        if not facts_of_sets or facts_of_sets[0].kind != "train":  # there always is one, if an empty one
            SetWriter(folder, "train", pipeline.source.size, pipeline.target.size).close()
            facts_of_sets.insert(0, SetFacts("train", "train", "train", 0))
        write_facts(folder, facts_of_sets)
        report = _report(options, pipeline, [statistics for _, statistics in done])
        write_file(folder / "report.json", to_json(report))
        facts["vocabulary"] = pipeline.hash
    return report


def _settings_hash(options: PrepareOptions) -> str:
    settings = {key: value for key, value in as_dict(options).items() if key not in NOT_OF_THE_RESULT}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _sets(options: PrepareOptions) -> list[_Set]:
    """What there is to prepare, the training pairs first. Raises UserError for a missing file or two sets of one name."""
    languages = options.source_lang, options.target_lang
    files = [_of_prefix(prefix, *languages) for prefix in options.train]
    files += [FilePair(Path(s), Path(t)) for s, t in zip(options.source, options.target, strict=True)]
    sets = [_Set("train", "train", files, options.hold_out)] if files else []
    kinds: tuple[Literal["valid", "test"], ...] = ("valid", "test")
    for kind in kinds:
        prefixes = getattr(options, kind)
        found = [_Set(kind, Path(prefix).name, [_of_prefix(prefix, *languages)]) for prefix in prefixes]
        if kind == "valid" and options.hold_out:
            found.append(_Set(kind, HELD_OUT, files, options.hold_out))
        for source, target in zip(getattr(options, f"{kind}_source"), getattr(options, f"{kind}_target"), strict=True):
            name = Path(source).name.removesuffix(".gz").removesuffix(".sgm").removesuffix(f".{options.source_lang}")
            found.append(_Set(kind, name, [FilePair(Path(source), Path(target))]))
        for name, count in Counter(given.name for given in found).items():
            if count > 1:
                raise UserError(
                    f"{count} {kind} sets have the name '{quoted(name)}' (rename the files, or link to them)"
                )
        sets += found
    for path in (path for given in sets for pair in given.files for path in (pair.source, pair.target)):
        if path.exists() and not path.is_file():
            raise UserError(
                f"{quoted(path)}: is not a regular file, and text is read more than once (write it to a file)"
            )
    return sets


def _of_prefix(prefix: str, source_lang: str, target_lang: str) -> FilePair:
    return FilePair(_of_language(prefix, source_lang), _of_language(prefix, target_lang))


def _of_language(prefix: str, language: str) -> Path:
    plain, packed = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    found = next((path for path in (plain, packed) if text_exists(path)), None)
    if found is None:
        raise UserError(f"{quoted(plain)}: no such file, nor {quoted(packed.name)}")
    return found


def _counted(given: _Set, counts: dict[FilePair, int], signals: Signals) -> _Set:
    """The set with its number of lines. counts: lines of the files that were counted already.

    Raises InputError when two files differ in length or there is nothing in a set.
    """
    for pair in given.files:
        if pair not in counts:
            num_source, num_target = _count(pair.source, signals), _count(pair.target, signals)
            if num_source != num_target:
                raise misaligned(pair.source, pair.target, num_source, num_target)
            counts[pair] = num_source
    found = replace(given, num_lines=sum(counts[pair] for pair in given.files))
    if not found.num_lines:
        raise InputError(f"{quoted(given.files[0].source)}: has no lines")
    if not found.num_pairs:
        raise InputError(f"--hold-out {given.hold_out}: the training files have {found.num_lines:,} pairs only")
    return found


def _count(path: Path, signals: Signals) -> int:
    """The lines of a file, without looking at them."""
    count, last = 0, b""
    with open_text(path) as file:
        while block := file.read(READ_AT_ONCE):
            count, last = count + block.count(b"\n"), block[-1:]
            signals.check()
    return count + (last not in (b"", b"\n"))


def _pipeline(options: PrepareOptions, sets: Sequence[_Set], signals: Signals) -> Pipeline:
    """The pipeline that was named, or one learnt from the training pairs."""
    if options.vocabulary is not None:
        return _reused(options, options.vocabulary)
    source, target = options.side(options.source_lang), options.side(options.target_lang)
    preparers = TextPreparer(source), TextPreparer(target)
    if options.joint_vocabulary:
        joint = _learn(options, sets[0], *preparers, signals)
        return Pipeline(Side(source, joint), Side(target, joint), joint=True)
    ours, theirs = (
        _learn(options, sets[0], preparers[0], None, signals),
        _learn(options, sets[0], None, preparers[1], signals),
    )
    return Pipeline(Side(source, ours), Side(target, theirs), joint=False)


def _reused(options: PrepareOptions, name: str) -> Pipeline:
    pipeline = Pipeline.load(Artefact(Path(name), "model", "checkpoint", KIND))
    languages, wanted = (pipeline.source_lang, pipeline.target_lang), (options.source_lang, options.target_lang)
    if languages != wanted:
        raise UserError(f"{quoted(name)}: translates {'-'.join(languages)}; the data is {'-'.join(wanted)}")
    given = [key for key in TEXT_SETTINGS if getattr(options, key) != getattr(type(options), key)]
    if given:
        raise UserError(
            f"--{given[0].replace('_', '-')} and --vocabulary: the text is treated as {quoted(name)} does it"
        )
    return pipeline


def _learn(
    options: PrepareOptions, train: _Set, source: TextPreparer | None, target: TextPreparer | None, signals: Signals
) -> Vocabulary:
    """A vocabulary of the sides whose preparer is given."""
    task = TextTask(source, target, options.on_bad_line)
    if options.subword == "none":
        with closing(in_order(CountTask(task), train.chunks(), options.workers, signals)) as found:
            return Words.learn(count_words(found), options.vocab_size, options.min_frequency)
    settings = SubwordSettings(options.subword, options.vocab_size, options.character_coverage, options.byte_fallback)
    size = min(options.subword_sample or train.num_lines, train.num_lines)
    log.info(f"learning {options.subword} from {min(size, train.num_pairs):,} of {train.num_pairs:,} pairs")
    with closing(in_order(task, train.sample(size, options.seed), options.workers, signals)) as texts:
        learnt = learn_apart(texts, settings, signals)
    if learnt.size < options.vocab_size:
        log.warn(f"the text gives a vocabulary of {learnt.size:,} entries only, --vocab-size is {options.vocab_size:,}")
    return learnt


def _encode(
    given: _Set, options: PrepareOptions, pipeline: Pipeline, folder: Path, signals: Signals
) -> tuple[SetFacts, SetStatistics]:
    """Write a set's ids and, of evaluation sets, its raw text."""
    training = given.kind == "train"
    lengths = LengthFilter(options.min_length, options.max_length, options.max_ratio) if training else None
    on_bad_line: BadLine = options.on_bad_line if training or options.on_bad_line == "error" else "replace"
    task = EncodeTask(pipeline, lengths, training and options.deduplicate, on_bad_line)
    writer = SetWriter(folder, given.stem, pipeline.source.size, pipeline.target.size)
    statistics = SetStatistics(given.kind, given.name)
    raw: tuple[list[str], list[str]] = ([], [])
    workers = min(options.workers, -(-given.num_pairs // CHUNK_PAIRS))
    results = in_order(task, given.chunks(), workers, signals)
    with closing(results), closing(writer), log.progress() as progress:
        pairs = _watched(results, progress, given.stem, given.num_pairs)
        for encoded in without_duplicates(pairs, folder, signals.check) if task.digests else pairs:
            writer.add(encoded.lengths, encoded.source, encoded.target)
            statistics.add(encoded)
            for lines, more in zip(raw, encoded.raw, strict=True):
                lines += more
    if not training:
        for side, lines in zip(("source", "target"), raw, strict=True):
            write_file(folder / f"{given.stem}.{side}.txt", "".join(line + "\n" for line in lines).encode())
    if training and not statistics.kept:
        raise InputError(f"{quoted(given.files[0].source)}: no training pair is left ({statistics.told_dropped()})")
    return SetFacts(given.kind, given.name, given.stem, writer.pairs), statistics


def _watched(results: Iterable[Encoded], progress: Progress, name: str, total: int) -> Iterator[Encoded]:
    bar = progress.add_task(name, total=total)
    for encoded in results:
        progress.advance(bar, encoded.read)
        yield encoded


def _report(options: PrepareOptions, pipeline: Pipeline, sets: Sequence[SetStatistics]) -> dict[str, Any]:
    vocabulary = {
        "joint": pipeline.joint,
        "source": pipeline.source.size,
        "target": pipeline.target.size,
        "sha256": pipeline.hash,
    }
    settings = {key: value for key, value in as_dict(options).items() if key not in NOT_OF_THE_RESULT}
    return {"vocabulary": vocabulary, "sets": [statistics.to_json() for statistics in sets], "settings": settings}
