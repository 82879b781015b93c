"""Options that name parallel text, and the options of `nmt prepare`."""

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal

from nmt import opt, options_class, registry
from nmt.errors import is_utf8, quoted
from nmt.options import MAX_PROCESSES, REQUIRED, as_dict, choice, flag_of
from nmt.storages.base import text_exists
from nmt.symbols import PIECE_MARK, SEPARATOR, SPACE_MARK, SYMBOLS
from nmt.text.forms import UnicodeForm
from nmt.text.languages import base_language
from nmt.text.settings import SideSettings
from nmt.text.steps import DOTTED_I

NO_EFFECT_ON_RESULT: Final = {"output", "workers", "overwrite", "json"}
SIDE_OPTIONS: Final = tuple(  # the text options that both sides have
    field.name
    for field in fields(SideSettings)
    if field.name not in ("language", "right_to_left", "context", "language_case")
)

BadLine = Literal["error", "skip", "replace"]
MAX_VOCABULARY: Final = 10_000_000
MAX_CONTEXT: Final = 100  # maximum number of sentences
NAMED_PREFIX: Final = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)  # NAME=PREFIX, as in --train, --valid and --test


@options_class
class TrainingFiles:
    """Files of parallel training text."""

    source_lang: str | None = opt(
        None, "source language; also used as the file extension", group="Languages", common=True, metavar="LANG"
    )
    target_lang: str | None = opt(
        None, "target language; also used as the file extension", group="Languages", common=True, metavar="LANG"
    )
    train: tuple[str, ...] = opt(
        (),
        "prefixes of training files: PREFIX.en, PREFIX.de",
        group="Input and output",
        common=True,
        aliases=("trainpref",),
        metavar="PREFIX",
    )
    train_tsv: tuple[str, ...] = opt(
        (),
        "files that contain one training pair per line: source, tab, target; - reads stdin",
        group="Input and output",
        metavar="FILE",
    )
    source: tuple[str, ...] = opt(
        (),
        "training files in the source language",
        group="Input and output",
        common=True,
        aliases=("s",),
        metavar="FILE",
    )
    target: tuple[str, ...] = opt(
        (),
        "training files in the target language, in order",
        group="Input and output",
        common=True,
        aliases=("t",),
        metavar="FILE",
    )
    workers: int = opt(
        1,
        "number of worker processes; no effect on results",
        group="Speed and memory",
        common=True,
        minimum=1,
        maximum=MAX_PROCESSES,
    )

    def __post_init__(self) -> None:
        self._check_names("train", "")
        if sum(map(is_stdin, self.train_tsv)) > 1:
            raise ValueError("--train-tsv: only one of the files can be - (stdin)")

    def _check_names(self, prefixes: str, sides: str) -> None:
        """Raise ValueError if stdin is named, or if the two sides have different numbers of files.

        prefixes: name of the option for prefixes
        sides: prefix of the names of the options for each side, such as `valid_`
        """
        for name in (prefixes, f"{sides}source", f"{sides}target"):
            if "-" in getattr(self, name):
                raise ValueError(
                    f"{flag_of(name)} cannot read stdin, because text is read more than once (name a file)"
                )
        sources, targets = getattr(self, f"{sides}source"), getattr(self, f"{sides}target")
        if len(sources) != len(targets):
            flag = flag_of(sides)
            raise ValueError(
                f"{flag}source names {len(sources)} files, but {flag}target names {len(targets)}; each source file needs a "
                "target file"
            )

    @property
    def names_training(self) -> bool:
        return bool(self.train or self.source or self.train_tsv)

    @property
    def reads_stdin(self) -> bool:
        return any(map(is_stdin, self.train_tsv))

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language. Raises ValueError if either is missing."""
        if self.source_lang is None or self.target_lang is None:
            raise ValueError("--source-lang and --target-lang are required (add --source-lang en --target-lang de)")
        return self.source_lang, self.target_lang


@options_class
class CorpusOptions(TrainingFiles):
    """Files of training and evaluation pairs, and limits on the training pairs to use."""

    valid: tuple[str, ...] = opt(
        (),
        "prefixes of validation sets, one set per prefix",
        group="Held-out data",
        common=True,
        aliases=("validpref",),
        metavar="PREFIX",
    )
    test: tuple[str, ...] = opt(
        (),
        "prefixes of test sets, one set per prefix",
        group="Held-out data",
        common=True,
        aliases=("testpref",),
        metavar="PREFIX",
    )
    valid_source: tuple[str, ...] = opt(
        (), "source files of validation sets, one set per file", group="Held-out data", metavar="FILE"
    )
    valid_target: tuple[str, ...] = opt(
        (),
        "target files of validation sets, in the same order as --valid-source",
        group="Held-out data",
        metavar="FILE",
    )
    test_source: tuple[str, ...] = opt(
        (), "source files of test sets, one set per file", group="Held-out data", metavar="FILE"
    )
    test_target: tuple[str, ...] = opt(
        (), "target files of test sets, in the order of --test-source", group="Held-out data", metavar="FILE"
    )
    min_length: int = opt(1, "minimum tokens on each side of a training pair", group="Faulty lines", minimum=1)
    max_length: int = opt(256, "maximum tokens per side; 0 for no limit", group="Faulty lines", common=True, minimum=0)
    max_ratio: float = opt(
        0.0,
        "maximum ratio of a pair's longer side to its shorter side, in tokens; 0 for no limit",
        group="Faulty lines",
    )

    def __post_init__(self) -> None:
        if self.max_ratio and not 1 <= self.max_ratio < math.inf:
            raise ValueError(f"--max-ratio {self.max_ratio}: the ratio must be at least 1, or 0 for no limit")
        if 0 < self.max_length < self.min_length:
            raise ValueError(f"--min-length {self.min_length} must not exceed --max-length {self.max_length}")
        super().__post_init__()
        self._check_names("valid", "valid_")
        self._check_names("test", "test_")

    @property
    def names_evaluation(self) -> bool:
        return bool(self.valid or self.valid_source or self.test or self.test_source)


@registry.open_options_class("preparation", "subword", "tokenizer")
class PrepareOptions(CorpusOptions):
    """What to prepare and how, including the options of preparations, subwords and tokenizers."""

    source_lang: str = opt(
        REQUIRED, "source language; also used as the file extension", group="Languages", common=True, metavar="LANG"
    )
    target_lang: str = opt(
        REQUIRED, "target language; also used as the file extension", group="Languages", common=True, metavar="LANG"
    )
    output: str = opt(
        REQUIRED,
        "data folder to create",
        group="Input and output",
        common=True,
        metavar="FOLDER",
        aliases=("o", "destdir"),
    )
    column: tuple[str, ...] = opt(
        (),
        "extra data, one line per training pair: NAME=FILE or NAME:KIND=FILE (kinds: nmt list column)",
        group="Input and output",
        metavar="NAME=FILE",
    )
    hold_out: int = opt(
        0, "use every Nth pair for validation; 0 for none", group="Held-out data", common=True, minimum=0
    )
    vocabulary: str | None = opt(
        None,
        "use the vocabulary of a model, run or data folder",
        group="Subwords and vocabulary",
        common=True,
        metavar="FOLDER",
    )
    subword: str = choice(
        "subword",
        "bpe",
        "kind of tokens: subwords, characters or words",
        group="Subwords and vocabulary",
        common=True,
        able="can_learn",
    )
    user_symbols: tuple[str, ...] = opt(
        (),
        'words that are never split, such as language or domain tags: "<2de> <formal>"',
        group="Subwords and vocabulary",
        metavar="SYMBOL",
    )
    target_subword: str = choice(
        "subword",
        "same",
        "kind of target tokens, if it differs from --subword (needs --no-joint-vocabulary)",
        group="Subwords and vocabulary",
        able="can_learn",
    )
    vocab_size: int = opt(
        8000,
        "vocabulary size, including 4 control symbols",
        group="Subwords and vocabulary",
        common=True,
        minimum=0,
        maximum=MAX_VOCABULARY,
    )
    min_frequency: int = opt(
        1,
        "for --subword none: minimum count of a word; rarer words become unknown",
        group="Subwords and vocabulary",
        minimum=1,
    )
    joint_vocabulary: bool = opt(
        True,
        "use one vocabulary for both languages",
        group="Subwords and vocabulary",
        common=True,
        aliases=("shared-vocab", "joined-dictionary"),
    )
    character_coverage: float = opt(
        1.0,
        "share of the text's characters that the vocabulary covers; rarer ones become unknown",
        group="Subwords and vocabulary",
        minimum=0.98,
        maximum=1,
    )
    byte_fallback: bool = opt(
        False,
        "encode characters outside the vocabulary as bytes instead of UNK; takes 256 vocabulary entries",
        group="Subwords and vocabulary",
    )
    subword_sample: int = opt(
        1_000_000,
        "maximum number of training pairs to learn subwords and casing from; 0 for all",
        group="Speed and memory",
        minimum=0,
    )
    normalization: Literal["auto"] | UnicodeForm = opt(
        "auto", "Unicode normalisation; auto means folded for the source and exact for the target", group="Text"
    )
    target_normalization: Literal["auto"] | UnicodeForm = opt(
        "auto", "Unicode normalisation of the target; auto follows --normalization", group="Text"
    )
    normalize_punctuation: bool = opt(False, "normalise punctuation with the rules of Moses (sacremoses)", group="Text")
    lowercase: bool = opt(False, "lower-case all text", group="Text")
    tokenizer: str = choice(
        "tokenizer",
        "none",
        "tokenizer to apply before subwords; translations are detokenised (nmt list tokenizer)",
        group="Text",
    )
    reversible: bool = opt(
        True,
        "do not split words that --tokenizer could not restore, such as times, tags and addresses",
        group="Text",
    )
    truecase: bool = opt(
        False, "write the first word of each sentence in its usual case (Moses); needs --tokenizer", group="Text"
    )
    right_to_left: bool = opt(
        False,
        "prepare the target for a model that reads and writes it from right to left",
        group="Text",
        aliases=("right-left",),
    )
    context: int = opt(
        0,
        "number of previous sentences to read with each source line; a blank line ends a document",
        group="Text",
        minimum=0,
        maximum=MAX_CONTEXT,
    )
    deduplicate: bool = opt(False, "drop training pairs that repeat an earlier one", group="Faulty lines", common=True)
    on_bad_line: BadLine = opt(
        "error", "on invalid UTF-8: error, skip or replace", group="Faulty lines", common=True, metavar="ACTION"
    )
    seed: int = opt(
        1, "random seed for sampling the text that subwords are learnt from", group="Speed and memory", minimum=0
    )
    overwrite: bool = opt(False, "replace an existing data folder", group="Input and output", common=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_out == 1:
            raise ValueError("--hold-out 1 would leave no training pairs (use a larger number, or 0 for none)")
        if (self.hold_out or self.column) and not self.names_training:
            flag = "--hold-out" if self.hold_out else "--column"
            raise ValueError(f"{flag} needs training pairs (add --train, or --source and --target)")
        if self.vocab_size < 5 and (self.vocab_size or not all(map(_takes_all, self.subwords))):
            raise ValueError(f"--vocab-size {self.vocab_size}: the size must be at least 5")
        for symbol in self.symbols:
            if symbol in SYMBOLS or SPACE_MARK in symbol or symbol.endswith(PIECE_MARK) or not is_utf8(symbol):
                rule = f"not be a control symbol, contain {SPACE_MARK} or end in {PIECE_MARK}"
                raise ValueError(f"--user-symbols '{quoted(symbol)}': a user symbol must {rule}")
        if len(set(self.subwords)) > 1 and self.joint_vocabulary:
            raise ValueError(f"--target-subword {self.target_subword} needs --no-joint-vocabulary")
        if self.truecase and (self.tokenizer == "none" or self.lowercase):
            known = " or ".join(name for name in registry.names("tokenizer") if name != "none")
            raise ValueError(f"--truecase needs --tokenizer {known}, and cannot be combined with --lowercase")
        if listed := next((symbol for symbol in self.symbols if ">,<" in symbol), None):
            raise ValueError(f"--user-symbols {quoted(listed)}: tags must be separated by spaces, not commas")
        if not self.names_training and not (self.vocabulary and self.names_evaluation):
            raise ValueError("nothing to prepare: add --train PREFIX, or --source FILE and --target FILE")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The user symbols without duplicates, including the separator if there is a context."""
        given = " ".join(self.user_symbols).split()
        return tuple(dict.fromkeys([*given, SEPARATOR] if self.context else given))

    @property
    def subwords(self) -> tuple[str, str]:
        """The kinds of subwords of source and target."""
        return self.subword, self.subword if self.target_subword == "same" else self.target_subword

    def side(self, number: int) -> SideSettings:
        """The text settings of one side. number: 0 for the source, 1 for the target"""
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
        """The options that affect the result."""
        return {key: value for key, value in as_dict(self).items() if key not in NO_EFFECT_ON_RESULT}


def _takes_all(subword: str) -> bool:
    """Whether a vocabulary of these subwords may contain all words or pieces of the text."""
    return bool(registry.find("subword", subword).cls.takes_all)  # type: ignore[attr-defined]


def is_stdin(text: str) -> bool:
    """Whether a value of `--train-tsv` is - or NAME=-."""
    return split_name(text, [""])[1] == "-"


def split_name(text: str, endings: Sequence[str]) -> tuple[str, str]:
    """Split NAME=PATH, or PATH alone, into the name ("" if there is none) and the path.

    endings: endings of file names; if the whole text plus one of them names a file, the text is a path that contains `=`
    """
    match = NAMED_PREFIX.fullmatch(text)
    if match is None or any(text_exists(Path(f"{text}{ending}")) for ending in endings):
        return "", text
    return match[1], match[2]


def set_label(kind: str, name: str) -> str:
    """The name of a set in messages: its kind, followed by its name unless the name adds nothing."""
    return kind if kind in ("train", name) else f"{kind} {quoted(name)}"
