"""The sets of pairs that a command is asked to work on: files by prefix or side by side, for training and evaluation."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from nmt.data.batching import Indices
from nmt.data.encode import Chunk, FilePair, chunks
from nmt.errors import InputError, UserError, quoted
from nmt.log import log
from nmt.options import opt
from nmt.signals import Signals
from nmt.text.corpus import count_lines, misaligned, text_exists, text_name
from nmt.text.filter import LengthFilter

HELD_OUT: Final = "held-out"

Kind = Literal["train", "valid", "test"]


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Texts that are translations of each other, and which of their pairs are to be trained on."""

    source_lang: str | None = opt(None, "source language, and the ending of the files of a prefix: en")
    target_lang: str | None = opt(None, "target language, and the ending of the files of a prefix: de")
    train: tuple[str, ...] = opt(
        (), "prefixes of training files: PREFIX.en and PREFIX.de, or PREFIX.en.gz", aliases=("trainpref",)
    )
    valid: tuple[str, ...] = opt((), "prefixes of development sets, a set each", aliases=("validpref",))
    test: tuple[str, ...] = opt((), "prefixes of test sets, a set each", aliases=("testpref",))
    source: tuple[str, ...] = opt(
        (), "training files of the source language, plain or compressed, beside or instead of --train", aliases=("s",)
    )
    target: tuple[str, ...] = opt((), "training files of the target language, in the order of --source", aliases=("t",))
    valid_source: tuple[str, ...] = opt((), "files of development sets, a set each")
    valid_target: tuple[str, ...] = opt((), "their translations, in the order of --valid-source")
    test_source: tuple[str, ...] = opt((), "files of test sets, a set each")
    test_target: tuple[str, ...] = opt((), "their translations, in the order of --test-source")
    min_length: int = opt(1, "shortest side of a training pair, in tokens after subwords")
    max_length: int = opt(
        256, "longest side of a training pair, in tokens after subwords; 0 is any (256: tensor2tensor)"
    )
    max_ratio: float = opt(0.0, "longer side by shorter side of a training pair, in tokens, at most; 0 is any")
    workers: int = opt(1, "processes; their number changes no result")

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("min_length", 1), ("max_length", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        if self.max_ratio and self.max_ratio < 1:
            raise ValueError(f"--max-ratio is {self.max_ratio}; it must be at least 1, or 0 for any")
        for name in ("", "valid_", "test_"):
            sources, targets = getattr(self, f"{name}source"), getattr(self, f"{name}target")
            if len(sources) != len(targets):
                flag = "--" + name.replace("_", "-")
                raise ValueError(
                    f"{flag}source names {len(sources)} files, {flag}target {len(targets)}; they are pairs"
                )

    @property
    def names_training(self) -> bool:
        return bool(self.train or self.source)

    @property
    def names_evaluation(self) -> bool:
        return bool(self.valid or self.valid_source or self.test or self.test_source)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target; ValueError unless both are given."""
        if self.source_lang is None or self.target_lang is None:
            raise ValueError("--source-lang and --target-lang are missing (en, de)")
        return self.source_lang, self.target_lang

    @property
    def length_filter(self) -> LengthFilter:
        return LengthFilter(self.min_length, self.max_length, self.max_ratio)


@dataclass(frozen=True)
class TextSet:
    """The training pairs of all files, or one evaluation set."""

    kind: Kind
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
        """All its pairs, with a progress bar."""
        return _watched(chunks(self.files, self.wanted if self.hold_out else None), self.stem, self.num_pairs)

    def sample(self, size: int, seed: int) -> Iterator[Chunk]:
        """`size` of its pairs, evenly spaced; the seed says where the spacing begins."""
        total = self.num_pairs
        phase = int(np.random.Generator(np.random.Philox(seed)).integers(total))

        def chosen(i: Indices) -> NDArray[np.bool_]:
            own = i - i // self.hold_out if self.hold_out else i  # counted over the training pairs alone
            return (((own + 1) * size + phase) // total > (own * size + phase) // total) & self.wanted(i)

        return _watched(chunks(self.files, chosen), f"sample of {self.stem}", size)

    @property
    def stem(self) -> str:
        return self.name if self.kind == "train" else f"{self.kind}.{self.name}"


def _watched(given: Iterator[Chunk], name: str, total: int) -> Iterator[Chunk]:
    """The chunks, with a progress bar of their pairs and an estimate of the time left."""
    with log.progress() as progress:
        bar = progress.add_task(name, total=total)
        for chunk in given:
            yield chunk
            progress.advance(bar, len(chunk.numbers))


def text_sets(options: CorpusOptions, hold_out: int = 0) -> list[TextSet]:
    """The sets that are named, the training pairs first. Raises UserError for a missing file or two sets of one name.

    hold_out: every such training pair is a development set of its own; 0 is none
    """
    languages = options.languages
    files = [_of_prefix(prefix, *languages) for prefix in options.train]
    files += [FilePair(Path(s), Path(t)) for s, t in zip(options.source, options.target, strict=True)]
    sets = [TextSet("train", "train", files, hold_out)] if files else []
    kinds: tuple[Kind, Kind] = ("valid", "test")
    for kind in kinds:
        prefixes = getattr(options, kind)
        found = [TextSet(kind, Path(prefix).name, [_of_prefix(prefix, *languages)]) for prefix in prefixes]
        if kind == "valid" and hold_out:
            found.append(TextSet(kind, HELD_OUT, files, hold_out))
        for source, target in zip(getattr(options, f"{kind}_source"), getattr(options, f"{kind}_target"), strict=True):
            name = text_name(Path(source)).removesuffix(f".{languages[0]}")
            found.append(TextSet(kind, name, [FilePair(Path(source), Path(target))]))
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


def counted(given: TextSet, counts: dict[FilePair, int], signals: Signals) -> TextSet:
    """The set with its number of lines. counts: lines of the files that were counted already.

    Raises InputError when two files differ in length or there is nothing in a set.
    """
    for pair in given.files:
        if pair not in counts:
            num_source, num_target = count_lines(pair.source, signals.check), count_lines(pair.target, signals.check)
            if num_source != num_target:
                raise misaligned(pair.source, pair.target, num_source, num_target)
            counts[pair] = num_source
    found = replace(given, num_lines=sum(counts[pair] for pair in given.files))
    if not found.num_lines:
        raise InputError(f"{quoted(given.files[0].source)}: has no lines")
    if not found.num_pairs:
        raise InputError(f"--hold-out {given.hold_out}: the training files have {found.num_lines:,} pairs only")
    return found
