"""Prepared data from parallel text: `nmt prepare` as one call.

Everything written is a function of the texts, the settings and the seed; the number of workers changes nothing
(docs/contract.md, rules 6 and 7).
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nmt.artefact import check_output, new_folder, to_json, write_file
from nmt.data.duplicates import without_duplicates
from nmt.data.encode import CHUNK_PAIRS, BadLine, CasingTask, CountTask, EncodeTask, FilePair, TextTask
from nmt.data.learn import count_words, learn_apart
from nmt.data.sets import CorpusOptions, TextSet, counted, text_sets
from nmt.data.shards import KIND, SetFacts, SetWriter, named_pipeline, write_facts
from nmt.data.statistics import SetStatistics
from nmt.data.workers import in_order
from nmt.errors import InputError, UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, as_dict, opt
from nmt.signals import Signals
from nmt.text.normalize import UnicodeForm
from nmt.text.pipeline import PIPELINE_FOLDER, Pipeline, Side, SideSettings, TextPreparer
from nmt.text.subword import SubwordName, SubwordSettings
from nmt.text.tokenize import TokenizerName
from nmt.text.truecase import Truecaser
from nmt.text.vocabulary import Vocabulary, WordVocabulary

NOT_OF_THE_RESULT: Final = {"output", "workers", "overwrite", "json"}
TEXT_SETTINGS: Final = (
    "subword", "vocab_size", "min_frequency", "joint_vocabulary", "character_coverage", "byte_fallback", "subword_sample",
    "normalization", "normalize_punctuation", "lowercase", "tokenizer", "truecase",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(CorpusOptions):
    """What to prepare, and how."""

    source_lang: str = opt(REQUIRED, "source language, and the ending of the files of a prefix: en")
    target_lang: str = opt(REQUIRED, "target language, and the ending of the files of a prefix: de")
    output: str = opt(REQUIRED, "folder of the prepared data", aliases=("o", "destdir"))
    hold_out: int = opt(0, "every Nth training pair becomes a development set, 'held-out'; 0 is none (fairseq: 100)")
    vocabulary: str | None = opt(None, "a model, run or prepared data whose text pipeline is used; nothing is learnt")
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
    subword_sample: int = opt(
        1_000_000, "pairs, evenly spaced, that subwords and casings are learnt from at most; 0 takes all"
    )
    normalization: Literal["auto"] | UnicodeForm = opt(
        "auto", "Unicode form of text: nfc, nfkc or none; auto is nfkc, and none with --subword none"
    )
    normalize_punctuation: bool = opt(False, "Moses' normalisation of punctuation (sacremoses)")
    lowercase: bool = opt(False, "lower-case all text")
    tokenizer: TokenizerName = opt("none", "none or moses (sacremoses); what comes out of the model is detokenised")
    truecase: bool = opt(
        False, "write the first word of a sentence as it is mostly written inside one (Moses); with --tokenizer moses"
    )
    right_to_left: bool = opt(
        False,
        "for a model that reads and writes the target from its end to its beginning, to rank what others say (nmt translate "
        "--rerank); with --vocabulary too",
        aliases=("right-left",),
    )
    deduplicate: bool = opt(False, "leave out a training pair that was there before")
    on_bad_line: BadLine = opt(
        "error", "bytes that are not UTF-8: error, skip (the pair; evaluation sets replace) or replace (by U+FFFD)"
    )
    seed: int = opt(1, "of the choice of the pairs that subwords are learnt from")
    overwrite: bool = opt(False, "replace prepared data that is there")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_frequency", "subword_sample", "hold_out"):
            least = int(name == "min_frequency")
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        if self.hold_out == 1:
            raise ValueError("--hold-out is 1: no training pair would be left")
        if self.hold_out and not self.names_training:
            raise ValueError("--hold-out takes training pairs, and none are named (--train, or --source and --target)")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"--character-coverage is {self.character_coverage}; it must be above 0 and at most 1")
        if self.vocab_size < 5 and (self.subword != "none" or self.vocab_size):
            raise ValueError(f"--vocab-size is {self.vocab_size}; it must be at least 5")
        if self.truecase and (self.tokenizer == "none" or self.lowercase):
            raise ValueError("--truecase needs words: --tokenizer moses, and not --lowercase")
        if not self.names_training and not (self.vocabulary and self.names_evaluation):
            raise ValueError("nothing to prepare: give --train PREFIX, or --source FILE and --target FILE")

    def sample_of(self, train: TextSet) -> int:
        """How many pairs vocabularies and casings are learnt from."""
        return min(self.subword_sample or train.num_pairs, train.num_pairs)

    def side(self, language: str) -> SideSettings:
        """How text of a language is treated."""
        automatic: UnicodeForm = "none" if self.subword == "none" else "nfkc"
        form: UnicodeForm = automatic if self.normalization == "auto" else self.normalization
        return SideSettings(
            language, form, self.normalize_punctuation, self.lowercase, self.tokenizer, self.subword, self.truecase
        )


def prepare(options: PrepareOptions) -> dict[str, Any]:
    """Make a prepared-data folder and return its report. Nothing is left behind when it fails or is interrupted.

    Raises InputError for text that cannot be used, Interrupted when a signal asked to stop.
    """
    output = Path(options.output)
    check_output(output, options.overwrite)
    facts: dict[str, Any] = {"settings": _settings_hash(options), "seed": options.seed}
    with Signals() as signals, new_folder(output, KIND, facts) as folder:
        counts: dict[FilePair, int] = {}
        sets = [counted(given, counts, signals) for given in text_sets(options, options.hold_out)]
        pipeline = _pipeline(options, sets, signals)
        if options.right_to_left:
            pipeline = pipeline.right_to_left()
        (folder / PIPELINE_FOLDER).mkdir()
        pipeline.save(folder / PIPELINE_FOLDER)
        done = [_encode(given, options, pipeline, folder, signals) for given in sets]
        facts_of_sets = [row for row, _ in done]
        if not facts_of_sets or facts_of_sets[0].kind != "train":  # there always is one, if an empty one
            SetWriter(folder, "train", pipeline.source.size, pipeline.target.size).finish()
            facts_of_sets.insert(0, SetFacts("train", "train", "train", 0))
        write_facts(folder, facts_of_sets)
        report = _report(options, pipeline, [statistics for _, statistics in done])
        write_file(folder / "report.json", to_json(report))
        facts["vocabulary"] = pipeline.hash
    return report


def _settings_hash(options: PrepareOptions) -> str:
    settings = {key: value for key, value in as_dict(options).items() if key not in NOT_OF_THE_RESULT}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _pipeline(options: PrepareOptions, sets: Sequence[TextSet], signals: Signals) -> Pipeline:
    """The pipeline that was named, or one learnt from the training pairs."""
    if options.vocabulary is not None:
        return _reused(options, options.vocabulary)
    train = sets[0]
    source, target = options.side(options.source_lang), options.side(options.target_lang)
    preparers = TextPreparer(source), TextPreparer(target)
    casings: tuple[Truecaser | None, Truecaser | None] = (None, None)
    if options.truecase:
        casings = (
            _learn_casings(options, train, TextTask(preparers[0], None, options.on_bad_line), signals),
            _learn_casings(options, train, TextTask(None, preparers[1], options.on_bad_line), signals),
        )
        preparers = TextPreparer(source, casings[0]), TextPreparer(target, casings[1])
    if options.joint_vocabulary:
        ours = theirs = _learn(options, train, *preparers, signals)
    else:
        ours = _learn(options, train, preparers[0], None, signals)
        theirs = _learn(options, train, None, preparers[1], signals)
    return Pipeline(Side(source, ours, casings[0]), Side(target, theirs, casings[1]), options.joint_vocabulary)


def _learn_casings(options: PrepareOptions, train: TextSet, texts: TextTask, signals: Signals) -> Truecaser:
    """How words are written inside the sentences that `texts` gives."""
    sample = train.sample(options.sample_of(train), options.seed)
    with closing(in_order(CasingTask(texts), sample, options.workers, signals)) as found:
        return Truecaser.learn(count_words(found))


def _reused(options: PrepareOptions, name: str) -> Pipeline:
    pipeline = named_pipeline(Path(name), options.languages)
    given = [key for key in TEXT_SETTINGS if getattr(options, key) != getattr(type(options), key)]
    if given:
        raise UserError(
            f"--{given[0].replace('_', '-')} and --vocabulary: the text is treated as {quoted(name)} does it"
        )
    return pipeline


def _learn(
    options: PrepareOptions, train: TextSet, source: TextPreparer | None, target: TextPreparer | None, signals: Signals
) -> Vocabulary:
    """A vocabulary of the sides whose preparer is given."""
    task = TextTask(source, target, options.on_bad_line)
    if options.subword == "none":
        with closing(in_order(CountTask(task), train.chunks(), options.workers, signals)) as found:
            return WordVocabulary.learn(count_words(found), options.vocab_size, options.min_frequency)
    settings = SubwordSettings(options.subword, options.vocab_size, options.character_coverage, options.byte_fallback)
    size = options.sample_of(train)
    log.info(f"learning {options.subword} from {size:,} of {train.num_pairs:,} pairs")
    with closing(in_order(task, train.sample(size, options.seed), options.workers, signals)) as texts:
        learnt = learn_apart(texts, settings, signals)
    if learnt.size < options.vocab_size:
        log.warn(f"the text gives a vocabulary of {learnt.size:,} entries only, --vocab-size is {options.vocab_size:,}")
    return learnt


def _encode(
    given: TextSet, options: PrepareOptions, pipeline: Pipeline, folder: Path, signals: Signals
) -> tuple[SetFacts, SetStatistics]:
    """Write a set's ids and, of evaluation sets, its raw text."""
    training = given.kind == "train"
    lengths = options.length_filter if training else None
    on_bad_line: BadLine = options.on_bad_line if training or options.on_bad_line == "error" else "replace"
    task = EncodeTask(pipeline, lengths, training and options.deduplicate, on_bad_line)
    writer = SetWriter(folder, given.stem, pipeline.source.size, pipeline.target.size)
    statistics = SetStatistics(given.kind, given.name)
    raw: tuple[list[str], list[str]] = ([], [])
    workers = min(options.workers, -(-given.num_pairs // CHUNK_PAIRS))
    results = in_order(task, given.chunks(), workers, signals)
    with closing(results), closing(writer):
        for encoded in without_duplicates(results, folder, signals.check) if task.digests else results:
            writer.add(encoded.lengths, encoded.source, encoded.target)
            statistics.add(encoded)
            for lines, more in zip(raw, encoded.raw, strict=True):
                lines += more
        writer.finish()
    if not training:
        for side, lines in zip(("source", "target"), raw, strict=True):
            write_file(folder / f"{given.stem}.{side}.txt", "".join(line + "\n" for line in lines).encode())
    if training and not statistics.kept:
        raise InputError(f"{quoted(given.files[0].source)}: no training pair is left ({statistics.told_dropped()})")
    return SetFacts(given.kind, given.name, given.stem, writer.pairs), statistics


def _report(options: PrepareOptions, pipeline: Pipeline, sets: Sequence[SetStatistics]) -> dict[str, Any]:
    vocabulary = {
        "joint": pipeline.joint,
        "source": pipeline.source.size,
        "target": pipeline.target.size,
        "sha256": pipeline.hash,
    }
    settings = {key: value for key, value in as_dict(options).items() if key not in NOT_OF_THE_RESULT}
    return {"vocabulary": vocabulary, "sets": [statistics.to_json() for statistics in sets], "settings": settings}
