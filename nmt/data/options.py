"""The options that name parallel text, and those of `nmt prepare`."""

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal

from nmt import opt, options_class, registry
from nmt.data.encode import BadLine, LengthFilter
from nmt.errors import is_utf8, quoted
from nmt.options import MAX_PROCESSES, REQUIRED, as_dict, choice, flag_of
from nmt.storages.base import text_exists
from nmt.symbols import SYMBOLS
from nmt.text.context import SEPARATOR
from nmt.text.forms import UnicodeForm
from nmt.text.languages import base_language
from nmt.text.pipeline import SideSettings
from nmt.text.steps import DOTTED_I
from nmt.text.vocabulary import PIECE_MARK, SPACE_MARK

NOT_OF_THE_RESULT: Final = {"output", "workers", "overwrite", "json"}
SIDE_OPTIONS: Final = tuple(  # the options of both sides' text
    field.name
    for field in fields(SideSettings)
    if field.name not in ("language", "right_to_left", "context", "language_case")
)

MAX_VOCABULARY: Final = 10_000_000
MAX_CONTEXT: Final = 100  # sentences
NAMED_PREFIX: Final = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)  # of --train, --valid and --test


@options_class
class TrainingFiles:
    """Files of training text that are translations of each other."""

    source_lang: str | None = opt(None, "source language, and the ending of the files of a prefix: en")
    target_lang: str | None = opt(None, "target language, and the ending of the files of a prefix: de")
    train: tuple[str, ...] = opt(
        (),
        "prefixes of training files: PREFIX.en and PREFIX.de, or compressed, PREFIX.en.gz; NAME=PREFIX names the corpus, whose "
        "default name is that of its file",
        aliases=("trainpref",),
    )
    train_tsv: tuple[str, ...] = opt(
        (),
        "files of training pairs, SOURCE TAB TARGET in a line, plain or compressed, with --train or instead of it; NAME=FILE "
        "names the corpus; - is stdin of nmt prepare",
    )
    source: tuple[str, ...] = opt(
        (),
        "training files of the source language, plain or compressed, with --train or instead of it",
        aliases=("s",),
    )
    target: tuple[str, ...] = opt((), "training files of the target language, in the order of --source", aliases=("t",))
    workers: int = opt(1, "processes; their number changes no result", minimum=1, maximum=MAX_PROCESSES)

    def __post_init__(self) -> None:
        self._check_names("train", "")
        if sum(map(is_stdin, self.train_tsv)) > 1:
            raise ValueError("--train-tsv: - is given twice, but stdin is one text (name a file for one of them)")

    def _check_names(self, prefixes: str, sides: str) -> None:
        """Raise ValueError for stdin, and for sides of unequal number. prefixes: option; sides: start of the options"""
        for name in (prefixes, f"{sides}source", f"{sides}target"):
            if "-" in getattr(self, name):
                raise ValueError(f"{flag_of(name)} -: text is read more than once, so not from stdin (name a file)")
        sources, targets = getattr(self, f"{sides}source"), getattr(self, f"{sides}target")
        if len(sources) != len(targets):
            flag = flag_of(sides)
            raise ValueError(
                f"{flag}source names {len(sources)} files, {flag}target {len(targets)}: must be as many, they are pairs"
            )

    @property
    def names_training(self) -> bool:
        return bool(self.train or self.source or self.train_tsv)

    @property
    def reads_stdin(self) -> bool:
        return any(map(is_stdin, self.train_tsv))

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target; ValueError unless both are given."""
        if self.source_lang is None or self.target_lang is None:
            raise ValueError("--source-lang and --target-lang are missing (en, de)")
        return self.source_lang, self.target_lang


@options_class
class CorpusOptions(TrainingFiles):
    """Training and evaluation pairs, and which of the training pairs to use."""

    valid: tuple[str, ...] = opt(
        (),
        "prefixes of development sets, a set each; NAME=PREFIX names the set, by default by its file",
        aliases=("validpref",),
    )
    test: tuple[str, ...] = opt((), "prefixes of test sets, a set each, as for --valid", aliases=("testpref",))
    valid_source: tuple[str, ...] = opt((), "files of development sets, a set each")
    valid_target: tuple[str, ...] = opt((), "their translations, in the order of --valid-source")
    test_source: tuple[str, ...] = opt((), "files of test sets, a set each")
    test_target: tuple[str, ...] = opt((), "their translations, in the order of --test-source")
    min_length: int = opt(1, "shortest side of a training pair, in tokens after subwords", minimum=1)
    max_length: int = opt(
        256, "longest side of a training pair, in tokens after subwords; 0 is any (256: tensor2tensor)", minimum=0
    )
    max_ratio: float = opt(0.0, "longer side by shorter side of a training pair, in tokens, at most; 0 is any")

    def __post_init__(self) -> None:
        if self.max_ratio and not 1 <= self.max_ratio < math.inf:
            raise ValueError(f"--max-ratio {self.max_ratio}: must be at least 1, or 0 for any")
        if 0 < self.max_length < self.min_length:
            raise ValueError(f"--min-length {self.min_length}: must not be above --max-length {self.max_length}")
        super().__post_init__()
        self._check_names("valid", "valid_")
        self._check_names("test", "test_")

    @property
    def names_evaluation(self) -> bool:
        return bool(self.valid or self.valid_source or self.test or self.test_source)

    @property
    def length_filter(self) -> LengthFilter:
        return LengthFilter(self.min_length, self.max_length, self.max_ratio)


@registry.open_options_class("preparation", "subword", "tokenizer")
class PrepareOptions(CorpusOptions):
    """What to prepare and how, with the options of preparations, subwords and tokenizers."""

    source_lang: str = opt(REQUIRED, "source language, and the ending of the files of a prefix: en")
    target_lang: str = opt(REQUIRED, "target language, and the ending of the files of a prefix: de")
    output: str = opt(REQUIRED, "folder of the prepared data", aliases=("o", "destdir"))
    column: tuple[str, ...] = opt(
        (),
        "NAME=FILE: a number per training pair for a criterion, one line per pair, one file per pair of training files; "
        "NAME:KIND=FILE: other data per pair, such as a number per target word (nmt list column)",
    )
    hold_out: int = opt(
        0,
        "every Nth training pair goes into the development set 'held-out', and pairs that repeat these are dropped; "
        "0: none (fairseq: 100)",
        minimum=0,
    )
    vocabulary: str | None = opt(None, "a model, run or prepared data whose text pipeline is used; nothing is learnt")
    subword: str = choice(
        "subword", "bpe", "what the tokens are: subwords, characters or words (nmt list subword)", able="can_learn"
    )
    user_symbols: tuple[str, ...] = opt(
        (),
        'words that are never altered nor split, "<2de> <formal>": tags of languages or domains; each is an entry of the '
        "vocabulary; sentencepiece also cuts one off the beginning of a longer word",
    )
    target_subword: str = choice(
        "subword",
        "same",
        "subwords of the target where they differ, with --no-joint-vocabulary: none for labels or codes",
        able="can_learn",
    )
    vocab_size: int = opt(
        8000,
        "entries of a vocabulary, the 4 control symbols counted; 0 with words, --subword none, or given merges: all of them",
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
        "auto",
        "Unicode form of both sides; auto: folded for the source, exact for the target, none with --subword none",
    )
    target_normalization: Literal["auto"] | UnicodeForm = opt(
        "auto", "Unicode form of the target alone: nfc if it mixes composed and decomposed characters"
    )
    normalize_punctuation: bool = opt(False, "Moses' normalisation of punctuation (sacremoses)")
    lowercase: bool = opt(False, "lower-case all text")
    tokenizer: str = choice(
        "tokenizer", "none", "separates words before subwords (nmt list tokenizer); translations are detokenised"
    )
    reversible: bool = opt(
        True, "with a --tokenizer: do not split words that it cannot restore, such as times, tags and addresses"
    )
    truecase: bool = opt(
        False,
        "write the first word of a sentence as it is usually written inside one (Moses); needs a --tokenizer",
    )
    right_to_left: bool = opt(
        False,
        "the model reads and writes the target from right to left, to rank the candidates of other models; works with "
        "--vocabulary too",
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
        "error",
        "invalid UTF-8: error, skip (drops the pair; evaluation sets replace) or replace (by U+FFFD); skip also drops pairs with "
        "an invalid line in a column",
    )
    seed: int = opt(1, "seed of the choice of the pairs that subwords are learnt from", minimum=0)
    overwrite: bool = opt(False, "replace prepared data that is there")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_out == 1:
            raise ValueError("--hold-out 1: must be 0 or above 1, or no training pair would be left")
        if (self.hold_out or self.column) and not self.names_training:
            flag = "--hold-out" if self.hold_out else "--column"
            raise ValueError(f"{flag} is about training pairs, and none are named (--train, or --source and --target)")
        if self.vocab_size < 5 and (self.vocab_size or not all(map(_takes_all, self.subwords))):
            raise ValueError(f"--vocab-size {self.vocab_size}: must be at least 5")
        for symbol in self.symbols:
            if symbol in SYMBOLS or SPACE_MARK in symbol or symbol.endswith(PIECE_MARK) or not is_utf8(symbol):
                marks = f"a control symbol, with {SPACE_MARK} in it, or with {PIECE_MARK} at its end"
                raise ValueError(f"--user-symbols '{quoted(symbol)}': must not be {marks}")
        if len(set(self.subwords)) > 1 and self.joint_vocabulary:
            raise ValueError(f"--target-subword {self.target_subword}: needs --no-joint-vocabulary")
        if self.truecase and (self.tokenizer == "none" or self.lowercase):
            known = " or ".join(name for name in registry.names("tokenizer") if name != "none")
            raise ValueError(f"--truecase needs words: give --tokenizer {known}, and not --lowercase")
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
    def subwords(self) -> tuple[str, str]:
        """The subwords of source and target."""
        return self.subword, self.subword if self.target_subword == "same" else self.target_subword

    def side(self, number: int) -> SideSettings:
        """The settings of the text of the source, 0, or of the target, 1."""
        values = {name: getattr(self, name) for name in SIDE_OPTIONS}
        values |= {"subword": self.subwords[number], "user_symbols": self.symbols}
        values["reversible"] &= self.tokenizer != "none"
        values["language_case"] = self.lowercase and base_language(self.languages[number]) in DOTTED_I
        if number and self.target_normalization != "auto":
            values["normalization"] = self.target_normalization
        elif self.normalization == "auto":
            values["normalization"] = "none" if values["subword"] == "none" else ("folded", "exact")[number]
        return SideSettings(self.languages[number], **values)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that the result depends on."""
        return {key: value for key, value in as_dict(self).items() if key not in NOT_OF_THE_RESULT}


def _takes_all(subword: str) -> bool:
    """Whether a vocabulary of such subwords may have all words or pieces of the text."""
    return bool(registry.find("subword", subword).cls.takes_all)  # type: ignore[attr-defined]


def is_stdin(text: str) -> bool:
    """Whether a word of `--train-tsv` is - or NAME=-."""
    return split_name(text, [""])[1] == "-"


def split_name(text: str, endings: Sequence[str]) -> tuple[str, str]:
    """The name, "" without one, and the path of NAME=PATH or PATH, which a file has with one of these endings."""
    match = NAMED_PREFIX.fullmatch(text)
    if match is None or any(text_exists(Path(f"{text}{ending}")) for ending in endings):
        return "", text
    return match[1], match[2]
