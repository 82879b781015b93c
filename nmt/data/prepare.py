"""Prepared data from parallel text: `nmt prepare` as one call.

Everything written is a function of the texts, the settings and the seed; the number of workers changes nothing
("Text" in docs/reference/contract.md).
"""

import os
import re
import select
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from nmt import opt, options_class
from nmt.artefact import check_output, new_folder
from nmt.data.duplicates import without_duplicates
from nmt.data.encode import CHUNK_PAIRS, BadLine, CountTask, EncodeTask, FilePair, TextTask, count_words
from nmt.data.learn import SubwordSettings, learn_apart, sum_counts
from nmt.data.row_files import LENGTH, SIDES, SetWriter, id_type, write_links
from nmt.data.sets import CorpusOptions, SetStatistics, TextSet, text_sets, with_counts
from nmt.data.shards import DATA_KIND, REPORT_FILE, SetFacts, named_pipeline, write_facts
from nmt.data.word_alignment import AlignmentModel, PairIds
from nmt.data.workers import LOOK_SECONDS, in_order
from nmt.errors import InputError, UserError, expecting, is_utf8, naming, quoted
from nmt.extensions.vocabularies.extension import extended, given_entries
from nmt.files import read_bytes, to_json
from nmt.log import log
from nmt.options import REQUIRED, as_dict, flag_of
from nmt.signals import Signals
from nmt.symbols import SYMBOLS
from nmt.text.context import SEPARATOR
from nmt.text.pipeline import PIPELINE_FOLDER, Pipeline, Side, SideSettings, TextPreparer
from nmt.text.sentencepiece_file import SPACE_MARK
from nmt.text.steps import TOKENIZERS, TokenizerName, Truecaser, UnicodeForm, count_casings
from nmt.text.vocabulary import PIECE_MARK, CodesVocabulary, Merges, SubwordName, Vocabulary, WordVocabulary

STDIN_COPY: Final = "stdin.tsv"  # in the folder that is made, until it is
STDIN_BLOCK_BYTES: Final = 1 << 20
PIECES_SHARE: Final = 0.1  # of the lines, above which a text is one of pieces
NOT_OF_THE_RESULT: Final = {"output", "workers", "overwrite", "json"}
ALIGNMENT_COLUMN: Final = "alignment"
SIDE_OPTIONS: Final = tuple(  # the options of both sides' text
    field.name for field in fields(SideSettings) if field.name not in ("language", "right_to_left", "context")
)
TEXT_SETTINGS: Final = (  # options that --vocabulary decides
    *(name for name in SIDE_OPTIONS if name != "user_symbols"),
    "target_subword", "vocab_size", "min_frequency", "joint_vocabulary", "character_coverage", "byte_fallback",
    "subword_sample", "codes",
)  # fmt: skip
REAL_TOKENIZERS: Final = " or ".join(name for name in TOKENIZERS if name != "none")

MAX_VOCABULARY: Final = 10_000_000
MAX_CONTEXT: Final = 100  # sentences


@options_class
class PrepareOptions(CorpusOptions):
    """The texts to prepare, and how."""

    source_lang: str = opt(REQUIRED, "source language, and the ending of the files of a prefix: en")
    target_lang: str = opt(REQUIRED, "target language, and the ending of the files of a prefix: de")
    output: str = opt(REQUIRED, "folder of the prepared data", aliases=("o", "destdir"))
    column: tuple[str, ...] = opt(
        (),
        "NAME=FILE: data of the training pairs for a criterion, a line a pair, a file for each pair of training files; "
        "NAME:KIND=FILE with KIND pair (a number a line), target (a number a target word) or links (alignments 0-0 2-1)",
    )
    align: bool = opt(
        False,
        "learn links between the tokens of the training pairs from these, as the column 'alignment' for --criterion "
        "guided-alignment",
    )
    hold_out: int = opt(
        0, "every Nth training pair becomes a development set, 'held-out'; 0 is none (fairseq: 100)", minimum=0
    )
    vocabulary: str | None = opt(None, "a model, run or prepared data whose text pipeline is used; nothing is learnt")
    extend: int = opt(
        0,
        "with --vocabulary: learn up to this many further entries of a vocabulary from the training text; its own keep their ids",
        minimum=0,
        maximum=MAX_VOCABULARY,
    )
    extend_with: str | None = opt(
        None, "with --vocabulary: a file of words to be further entries, such as tags and names, one a line"
    )
    subword: SubwordName = opt(
        "bpe",
        "bpe, unigram or char (characters), by sentencepiece; subword-nmt, by --codes; or none: words as they stand between "
        "spaces",
    )
    user_symbols: tuple[str, ...] = opt(
        (),
        'words that are never altered nor split, "<2de> <formal>": tags of languages or domains; each is an entry of the '
        "vocabulary; sentencepiece also cuts one off the beginning of a longer word",
    )
    codes: tuple[str, ...] = opt(
        (), "with --subword subword-nmt: its file of merges, for both languages, or one for each, SOURCE and TARGET"
    )
    target_subword: Literal["same"] | SubwordName = opt(
        "same", "subwords of the target where they differ, with --no-joint-vocabulary: none for labels or codes"
    )
    vocab_size: int = opt(
        8000,
        "entries of a vocabulary, the 4 control symbols counted; 0 with --subword none and subword-nmt: all words or pieces",
        minimum=0,
        maximum=MAX_VOCABULARY,
    )
    min_frequency: int = opt(1, "with --subword none: a word that occurs less often is unknown", minimum=1)
    joint_vocabulary: bool = opt(
        True, "one vocabulary for both languages", aliases=("shared-vocab", "joined-dictionary")
    )
    character_coverage: float = opt(
        1.0, "share of the characters that get an entry; the rarest others are unknown", minimum=0.98, maximum=1
    )
    byte_fallback: bool = opt(
        False, "spell characters without an entry in bytes (256 entries), so that none is unknown"
    )
    subword_sample: int = opt(
        1_000_000, "pairs, evenly spaced, that subwords and casings are learnt from at most; 0 takes all", minimum=0
    )
    normalization: Literal["auto"] | UnicodeForm = opt(
        "auto", "Unicode form of text: nfc, nfkc or none; auto is nfkc, and none with --subword none"
    )
    normalize_punctuation: bool = opt(False, "Moses' normalisation of punctuation (sacremoses)")
    lowercase: bool = opt(False, "lower-case all text")
    tokenizer: TokenizerName = opt(
        "none", f"{' or '.join(TOKENIZERS)} (sacremoses); what comes out of the model is detokenised"
    )
    truecase: bool = opt(
        False,
        "write the first word of a sentence as it is mostly written inside one (Moses); "
        f"with --tokenizer {REAL_TOKENIZERS}",
    )
    right_to_left: bool = opt(
        False,
        "for a model that reads and writes the target from its end to its beginning, to rank the candidates of others "
        "(nmt translate --rerank); with --vocabulary too",
        aliases=("right-left",),
    )
    context: int = opt(
        0,
        "sentences before a source line that are read with it, at most; a blank line ends a document; with --vocabulary too",
        minimum=0,
        maximum=MAX_CONTEXT,
    )
    deduplicate: bool = opt(False, "leave out a training pair that equals an earlier one")
    on_bad_line: BadLine = opt(
        "error", "bytes that are not UTF-8: error, skip (the pair; evaluation sets replace) or replace (by U+FFFD)"
    )
    seed: int = opt(1, "seed of the choice of the pairs that subwords are learnt from", minimum=0)
    overwrite: bool = opt(False, "replace prepared data that is there")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_out == 1:
            raise ValueError("--hold-out 1: must be 0 or above 1, or no training pair would be left")
        if (self.hold_out or self.column or self.align) and not self.names_training:
            flag = "--hold-out" if self.hold_out else "--column" if self.column else "--align"
            raise ValueError(f"{flag} is about training pairs, and none are named (--train, or --source and --target)")
        if self.align and any(re.match(f"{ALIGNMENT_COLUMN}[:=]", column) for column in self.column):
            raise ValueError(f"--align and --column {ALIGNMENT_COLUMN}: both give this column (leave one out)")
        kinds = {self.subword, self.subword if self.target_subword == "same" else self.target_subword}
        if self.vocab_size < 5 and (not kinds <= {"none", "subword-nmt"} or self.vocab_size):
            raise ValueError(f"--vocab-size {self.vocab_size}: must be at least 5")
        if bool(self.codes) != ("subword-nmt" in kinds):
            raise ValueError("--codes and --subword subword-nmt: belong together (give both, or neither)")
        if len(self.codes) > (1 if self.joint_vocabulary else 2):
            files = "one with a joint vocabulary, or two with --no-joint-vocabulary, SOURCE and TARGET"
            raise ValueError(f"--codes: {len(self.codes)} files are named; must be {files}")
        for symbol in self.symbols:
            if symbol in SYMBOLS or SPACE_MARK in symbol or symbol.endswith(PIECE_MARK) or not is_utf8(symbol):
                marks = f"a control symbol, with {SPACE_MARK} in it, or with {PIECE_MARK} at its end"
                raise ValueError(f"--user-symbols '{quoted(symbol)}': must not be {marks}")
        if len(kinds) > 1 and self.joint_vocabulary:
            raise ValueError(f"--target-subword {self.target_subword}: needs --no-joint-vocabulary")
        if self.truecase and (self.tokenizer == "none" or self.lowercase):
            raise ValueError(f"--truecase needs words: give --tokenizer {REAL_TOKENIZERS}, and not --lowercase")
        if (self.extend or self.extend_with) and self.vocabulary is None:
            flag = "--extend" if self.extend else "--extend-with"
            raise ValueError(f"{flag}: needs a vocabulary to add entries to (give --vocabulary MODEL)")
        if self.extend and not self.names_training:
            raise ValueError(
                f"--extend {self.extend}: learns from training text, and none is named (give --train PREFIX)"
            )
        if listed := next((symbol for symbol in self.symbols if ">,<" in symbol), None):
            raise ValueError(f"--user-symbols {quoted(listed)}: has a comma between tags (put spaces between several)")
        if not self.names_training and not (self.vocabulary and self.names_evaluation):
            raise ValueError("nothing to prepare: give --train PREFIX, or --source FILE and --target FILE")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The user symbols, each once, and that of a context."""
        given = " ".join(self.user_symbols).split()
        return tuple(dict.fromkeys([*given, SEPARATOR] if self.context else given))

    @property
    def for_target(self) -> "PrepareOptions":
        """The same options with the subwords of the target for both sides."""
        subword = self.subword if self.target_subword == "same" else self.target_subword
        codes = self.codes[-1:] if subword == "subword-nmt" else ()
        if (subword, codes) == (self.subword, self.codes):
            return self
        return replace(self, subword=subword, target_subword="same", codes=codes)

    def sample_size(self, train: TextSet) -> int:
        """Pairs that vocabularies and casings are learnt from."""
        return min(self.subword_sample or train.num_pairs, train.num_pairs)

    def side(self, language: str) -> SideSettings:
        """The settings of the text of a language."""
        values = {name: getattr(self, name) for name in SIDE_OPTIONS}
        if self.normalization == "auto":
            values["normalization"] = "none" if self.subword == "none" else "nfkc"
        return SideSettings(language, **values | {"user_symbols": self.symbols})

    @property
    def settings(self) -> dict[str, Any]:
        """The options that the result depends on."""
        return {key: value for key, value in as_dict(self).items() if key not in NOT_OF_THE_RESULT}


def prepare(options: PrepareOptions) -> dict[str, Any]:
    """Make a prepared-data folder and return its report. Nothing is left behind when it fails or is interrupted.

    Raises InputError for text that cannot be used, Interrupted when a signal asked to stop.
    """
    output = Path(options.output)
    check_output(output, DATA_KIND, options.overwrite)
    manifest: dict[str, Any] = {"seed": options.seed}
    with Signals() as signals, new_folder(output, DATA_KIND, manifest) as folder:
        counts: dict[FilePair, int] = {}
        stdin = folder / STDIN_COPY
        if options.reads_stdin:
            _keep_stdin(stdin, signals)
        named = text_sets(options, options.hold_out, options.column, stdin)
        sets = [with_counts(text_set, counts, signals) for text_set in named]
        _check_context(options, sets, options.context)
        pipeline = _pipeline(options, sets, signals)
        if options.right_to_left:
            pipeline = pipeline.right_to_left()
        if options.context:
            pipeline = pipeline.with_context(options.context)
        sets = [replace(text_set, context=pipeline.context) for text_set in sets]
        _check_context(options, sets, pipeline.context)
        (folder / PIPELINE_FOLDER).mkdir()
        pipeline.save(folder / PIPELINE_FOLDER)
        # Faults of evaluation sets are told before training text is encoded.
        evaluation_first = sorted(sets, key=lambda text_set: text_set.kind == "train")
        rows = {
            text_set.stem: _write_set(text_set, options, pipeline, folder, signals) for text_set in evaluation_first
        }
        written = [rows[text_set.stem] for text_set in sets]
        facts = [row for row, _ in written]
        if options.align:
            _align(folder, facts[0], pipeline, signals)
            written[0][1]["columns"] = facts[0].columns
        if not facts or facts[0].kind != "train":  # every folder has a training set, even if it is empty
            SetWriter(folder, "train", pipeline.sizes).finish()
            facts.insert(0, SetFacts("train", "train", "train", 0))
        write_facts(folder, facts)
        sizes: dict[str, int] = dict(zip(SIDES, pipeline.sizes, strict=True))
        report = {
            "vocabulary": {"joint": pipeline.joint, **sizes, "sha256": pipeline.hash},
            "sets": [row for _, row in written],
            "settings": options.settings,
        }
        stdin.unlink(missing_ok=True)
        (folder / REPORT_FILE).write_bytes(to_json(report))
        manifest["vocabulary"] = pipeline.hash
    return report


def _check_context(options: PrepareOptions, sets: Sequence[TextSet], context: int) -> None:
    """Raise UserError for options that have no meaning with a context. context: sentences, at most"""
    if context and any(options.align or "links" in text_set.columns.values() for text_set in sets):
        raise UserError("--context: a context has no links to its translation (leave --align and columns of links out)")
    if context and options.hold_out:
        raise UserError(
            f"--hold-out {options.hold_out} and --context: held-out lines are no document (name a set with --valid)"
        )


def _align(folder: Path, train: SetFacts, pipeline: Pipeline, signals: Signals) -> None:
    """Learn the links of the training pairs, and write them as a column."""
    lengths = np.fromfile(folder / f"{train.stem}.lengths.bin", LENGTH).reshape(-1, 2)
    ids = [
        np.memmap(folder / f"{train.stem}.{side}.bin", id_type(size), "r")
        for side, size in zip(SIDES, pipeline.sizes, strict=True)
    ]
    pairs = PairIds(lengths, ids[0], ids[1], pipeline.target.settings.right_to_left)
    model = AlignmentModel(pairs, pipeline.sizes, signals.check)
    write_links(folder, f"{train.stem}.{ALIGNMENT_COLUMN}", model.links())
    train.columns = {**train.columns, ALIGNMENT_COLUMN: "links"}


def _keep_stdin(path: Path, signals: Signals) -> None:
    """Write stdin to a file, since text is read more than once. Raises UserError when it is closed."""
    if sys.stdin is None:
        raise UserError("--train-tsv -: stdin is closed (give it text, or name a file)")
    pipe, block = sys.stdin.fileno(), b"\n"
    with naming(path), path.open("wb") as file:
        while block:
            signals.check()
            if select.select([pipe], [], [], LOOK_SECONDS)[0]:  # a read alone would not end at a signal
                block = os.read(pipe, STDIN_BLOCK_BYTES)
                file.write(block)


def _pipeline(options: PrepareOptions, sets: Sequence[TextSet], signals: Signals) -> Pipeline:
    """The pipeline that was named, or one learnt from the training pairs."""
    if options.vocabulary is not None:
        pipeline = _reused(options, options.vocabulary)
        extends = options.extend or options.extend_with or options.context
        return _extended(options, pipeline, sets, signals) if extends else pipeline
    train = sets[0]
    source, target = options.side(options.source_lang), options.for_target.side(options.target_lang)
    casings: list[Truecaser | None] = [None, None]
    for side, settings in enumerate((source, target) if options.truecase else ()):
        texts = TextTask({side: TextPreparer(settings).without_symbols}, options.on_bad_line)
        task = CountTask(texts, count_casings)
        sample = train.sample(options.sample_size(train), options.seed)
        casings[side] = Truecaser.learn(sum_counts(in_order(task, sample, options.workers, signals)))
    both = {0: TextPreparer(source, casings[0]), 1: TextPreparer(target, casings[1])}
    parts = [both] if options.joint_vocabulary else [{side: preparer} for side, preparer in both.items()]
    vocabularies = [
        _learn_vocabulary(of_side, train, TextTask(part, options.on_bad_line), signals)
        for of_side, part in zip((options, options.for_target), parts, strict=False)
    ]
    sides = Side(source, vocabularies[0], casings[0]), Side(target, vocabularies[-1], casings[1])
    return Pipeline(*sides, options.joint_vocabulary)


def _reused(options: PrepareOptions, name: str) -> Pipeline:
    """The pipeline of a model, run or prepared data; UserError when options of text are given beside it."""
    pipeline = named_pipeline(Path(name), options.languages)
    given = [key for key in TEXT_SETTINGS if getattr(options, key) != getattr(type(options), key)]
    known = pipeline.source.settings.user_symbols
    for symbol in options.symbols:
        if symbol not in known and not (options.context and symbol == SEPARATOR):
            have = f"it has {', '.join(map(quoted, known))}" if known else "it has none"
            have += "; --extend-with FILE adds entries"
            raise UserError(f"--user-symbols '{quoted(symbol)}': is no user symbol of {quoted(name)} ({have})")
    if given:
        raise UserError(
            f"{flag_of(given[0])} and --vocabulary: the text is treated as {quoted(name)} does it (leave one out)"
        )
    return pipeline


def _extended(options: PrepareOptions, pipeline: Pipeline, sets: Sequence[TextSet], signals: Signals) -> Pipeline:
    """The pipeline with more entries in its vocabularies, given or learnt from the training pairs."""
    given = given_entries(Path(options.extend_with), pipeline) if options.extend_with else []
    both = {0: pipeline.source, 1: pipeline.target}
    vocabularies = []
    for sides in [both] if pipeline.joint else [{number: side} for number, side in both.items()]:
        counts: Counter[str] = Counter()
        if options.extend:
            task = TextTask({number: side.prepare for number, side in sides.items()}, options.on_bad_line)
            counts = sum_counts(in_order(CountTask(task, count_words), sets[0].chunks(), options.workers, signals))
        old = next(iter(sides.values())).vocabulary
        more = [SEPARATOR] if options.context and 0 in sides else []
        vocabularies.append(extended(old, [*given, *more], counts, options.extend))
        if added := vocabularies[-1].size - old.size:
            log.info(f"{quoted(options.vocabulary)}: {added:,} entries added to {old.size:,}")
    source, target = (
        Side(side.settings, vocabulary, side.prepare.truecaser)
        for side, vocabulary in ((pipeline.source, vocabularies[0]), (pipeline.target, vocabularies[-1]))
    )
    return Pipeline(source, target, pipeline.joint)


def _learn_vocabulary(options: PrepareOptions, train: TextSet, task: TextTask, signals: Signals) -> Vocabulary:
    """A vocabulary of the text that `task` gives."""
    if options.subword in ("none", "subword-nmt"):
        codes = _read_codes(Path(options.codes[0])) if options.subword == "subword-nmt" else None
        counts = sum_counts(in_order(CountTask(task, count_words), train.chunks(), options.workers, signals))
        if codes is not None:
            return CodesVocabulary.learn(codes, counts, options.vocab_size, options.symbols)
        return WordVocabulary.learn(counts, options.vocab_size, options.min_frequency, options.symbols)
    limits = options.vocab_size, options.character_coverage, options.byte_fallback
    settings = SubwordSettings(options.subword, *limits, options.symbols)
    size = options.sample_size(train)
    log.info(f"learning {options.subword} from {size:,} of {train.num_pairs:,} pairs")
    with closing(in_order(task, train.sample(size, options.seed), options.workers, signals)) as texts:
        learnt = learn_apart(texts, settings, signals, train.files[0].name)
    if learnt.size < options.vocab_size and options.subword != "char":
        log.warn(f"the text gives a vocabulary of {learnt.size:,} entries only, --vocab-size is {options.vocab_size:,}")
    return learnt


def _read_codes(path: Path) -> str:
    with expecting("merges of subword-nmt", path):
        codes = read_bytes(path).decode("utf-8-sig")  # a BOM would hide the version in the first line
        Merges(codes)
    return codes


def _warn_of_text(
    text_set: TextSet,
    options: PrepareOptions,
    pipeline: Pipeline,
    statistics: SetStatistics,
    raw: tuple[list[str], list[str]],
) -> None:
    """Warn of tags that the vocabulary lacks, and of an evaluation set that is cut into pieces. raw: lines of such a set"""
    if count := statistics.num_unknown_tags:
        known = ", ".join(map(quoted, pipeline.source.prepare.tags))
        mend = "--user-symbols names more" if options.vocabulary is None else "--extend-with FILE adds entries"
        log.warn(
            f"{statistics.first_unknown_tag} is no tag of this vocabulary, and is read as text (it has {known}; {mend}); "
            f"{text_set.name} has {count:,} line{'s' if count > 1 else ''} with such a tag"
        )
    if PIECES_SHARE * sum(map(len, raw)) < sum(f"{PIECE_MARK} " in line for lines in raw for line in lines):
        log.warn(
            f"{quoted(text_set.files[0].source)}: words are cut into pieces ('{PIECE_MARK} '); give raw text, else BLEU and "
            "translations are those of pieces"
        )


def _write_set(
    text_set: TextSet, options: PrepareOptions, pipeline: Pipeline, folder: Path, signals: Signals
) -> tuple[SetFacts, dict[str, Any]]:
    """Write a set's ids and columns and, of evaluation sets, its raw text; its facts, and its counts for the report."""
    training, kinds = text_set.kind == "train", text_set.columns
    lengths = options.length_filter if training else None
    on_bad_line: BadLine = options.on_bad_line if training or options.on_bad_line == "error" else "replace"
    task = EncodeTask(pipeline, lengths, training and options.deduplicate, on_bad_line, tuple(kinds.values()))
    writer = SetWriter(folder, text_set.stem, pipeline.sizes, kinds)
    statistics = SetStatistics()
    raw: tuple[list[str], list[str]] = ([], [])
    workers = min(options.workers, -(-text_set.num_pairs // CHUNK_PAIRS))
    results = in_order(task, text_set.chunks(), workers, signals)
    with closing(results), closing(writer):
        for encoded in without_duplicates(results, folder, signals.check) if task.digests else results:
            writer.add(encoded.lengths, encoded.source, encoded.target, encoded.columns)
            statistics.add(encoded)
            for lines, more in zip(raw, encoded.raw, strict=True):
                lines += more
        writer.finish()
    _warn_of_text(text_set, options, pipeline, statistics, raw)
    if not training:
        for side, lines in zip(SIDES, raw, strict=True):
            (folder / f"{text_set.stem}.{side}.txt").write_bytes("".join(line + "\n" for line in lines).encode())
    if training and not statistics.kept:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in statistics.dropped.items()) or "none dropped"
        raise InputError(f"{text_set.files[0].name}: no training pair is left ({dropped})")
    corpora = statistics.corpora_of(text_set) if training else []
    facts = SetFacts(text_set.kind, text_set.name, text_set.stem, writer.pairs, kinds, corpora)
    return facts, statistics.to_json(text_set)
