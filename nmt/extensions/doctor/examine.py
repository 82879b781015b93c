"""Checks of pairs of lines, in chunks that worker processes can share."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.duplicates import Keys
from nmt.data.encode import KEPT, REASONS, Chunk, LengthFilter
from nmt.data.row_files import SIDES
from nmt.data.sets import zero_counts
from nmt.extensions.doctor.findings import CHECKS, FindingCounts, SideName
from nmt.extensions.doctor.lengths import LengthHistograms
from nmt.extensions.doctor.pairs import SIDE_NUMBERS, Fault, LinePair
from nmt.extensions.doctor.repeats import keys_of
from nmt.text.corpus import is_invisible
from nmt.text.pipeline import Pipeline, Side

NOT_WORDS: Final = re.compile(r"[\W_]+")


DETECTORS: Final = {name: check.detect for name, check in CHECKS.items() if check.detect is not None}
SHARES_OF_JUDGED: Final = (
    "swapped",
    "wrong-language",
    "numbers-differ",
)  # the shares of these checks count only lines that could be judged


def _no_keys() -> Any:
    return field(default_factory=lambda: keys_of(()))


@dataclass
class ExaminedPairs:
    """The findings and figures of N pairs.

    tokens, words, characters: (2,) counts for both sides; tokens are 0 without a vocabulary
    unknown: for each side, the count of each character that has no entry in the vocabulary
    pair_keys, source_keys: (N,) keys of the exact texts
    loose_keys: (N,) keys of the source that ignore case, spaces and punctuation, because copies of a corpus differ in these
    """

    num_pairs: int
    counts: FindingCounts
    lengths: LengthHistograms = field(default_factory=LengthHistograms)
    tokens: NDArray[np.int64] = zero_counts(2)
    words: NDArray[np.int64] = zero_counts(2)
    characters: NDArray[np.int64] = zero_counts(2)
    unknown: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    pair_keys: Keys = _no_keys()
    source_keys: Keys = _no_keys()
    loose_keys: Keys = _no_keys()

    def merge(self, later: "ExaminedPairs") -> None:
        """Add the counts of later pairs, but not their keys."""
        self.num_pairs += later.num_pairs
        self.counts.merge(later.counts)
        self.lengths.merge(later.lengths)
        self.tokens += later.tokens
        self.words += later.words
        self.characters += later.characters
        for own, other in zip(self.unknown, later.unknown, strict=True):
            own.update(other)


@dataclass(frozen=True)
class ExaminePairs:
    """Worker task: examine the pairs of a chunk.

    languages: codes of source and target
    pipeline: None skips the checks that need a vocabulary
    length_filter: for training pairs; None for other sets
    max_examples: maximum number of examples for each finding
    loose: whether to compute loose keys
    """

    languages: tuple[str, str]
    pipeline: Pipeline | None
    length_filter: LengthFilter | None
    max_examples: int
    loose: bool

    def __call__(self, lines: Chunk) -> ExaminedPairs:
        examined = ExaminedPairs(len(lines.numbers), FindingCounts(self.max_examples))
        texts: tuple[list[str], list[str]] = [], []
        for i in range(len(lines.numbers)):
            pair = pair_of(lines, i, self.languages)
            self._check(lines, i, pair, examined.counts)
            for side in SIDE_NUMBERS:
                texts[side].append(pair.texts[side])
        self._measure(lines, texts, examined)
        full = [("", "") if is_invisible(s) or is_invisible(t) else (s, t) for s, t in zip(*texts, strict=True)]
        examined.pair_keys = keys_of(f"{s}\n{t}" if s else "" for s, t in full)
        examined.source_keys = keys_of(s for s, _ in full)
        if self.loose:
            examined.loose_keys = keys_of(NOT_WORDS.sub("", text.casefold()) for text in texts[0])
        return examined

    def _check(self, lines: Chunk, i: int, pair: LinePair, counts: FindingCounts) -> None:
        """Count the faults of pair i."""
        for check, detect in DETECTORS.items():
            for fault in detect(pair):
                name: SideName = "pair" if fault.side is None else SIDES[fault.side]
                if check in SHARES_OF_JUDGED:
                    counts.of[check, name] += 1
                if fault.found:
                    counts.add(check, name, fault_place(lines, i, fault), *fault_texts(pair, fault))

    def _measure(self, lines: Chunk, texts: tuple[list[str], list[str]], examined: ExaminedPairs) -> None:
        """Measure lengths. With a vocabulary, also count tokens, unknown tokens, and pairs that the filter would drop."""
        characters = np.array([list(map(len, side)) for side in texts], dtype=np.int64).T
        examined.characters += characters.sum(axis=0)
        if self.pipeline is None:
            lengths = np.array([[len(text.split()) for text in side] for side in texts], dtype=np.int64).T
            examined.words += lengths.sum(axis=0)
            examined.lengths.add(lengths, characters)
            return
        sides = self.pipeline.source, self.pipeline.target
        encoded = [side.encode_batch(list(text)) for side, text in zip(sides, texts, strict=True)]
        lengths = np.stack([side.lengths for side in encoded], axis=1).astype(np.int64)
        examined.tokens += lengths.sum(axis=0)
        examined.words += [int(side.words.sum()) for side in encoded]
        examined.lengths.add(lengths, characters)
        for i, side in enumerate(sides):
            for row, text in enumerate(texts[i] if side.prepare.alters else ()):
                if altered := side.prepare.alterations([text]):
                    names = " ".join(name for name in altered if name != "lines")
                    examined.counts.add(
                        "altered", SIDES[i], f"{lines.files.paths[i]}:{lines.numbers[row]}", f"({names}) {text}"
                    )
            examined.counts.of["unknown-tokens", SIDES[i]] += int(lengths[:, i].sum())
            for row in np.flatnonzero(encoded[i].unknown).tolist():
                text = texts[i][row]
                example = text
                if side.settings.subword != "none":
                    missing = _characters_without_entry(side, text)
                    examined.unknown[i].update(missing)
                    example = f"({' '.join(sorted(missing))}) {text}"
                place, times = f"{lines.files.paths[i]}:{lines.numbers[row]}", int(encoded[i].unknown[row])
                examined.counts.add("unknown-tokens", SIDES[i], place, example, times=times)
        if self.length_filter is not None:
            reasons = self.length_filter.reasons(lengths, characters)
            for i in np.flatnonzero(reasons != KEPT).tolist():
                place = f"{lines.files.paths[0]}:{lines.numbers[i]}"
                examined.counts.add("dropped", "pair", place, texts[0][i], texts[1][i], detail=REASONS[reasons[i]])


def pair_of(lines: Chunk, i: int, languages: tuple[str, str]) -> LinePair:
    """Pair i of a chunk."""
    return LinePair(languages, (lines.source[i], lines.target[i]), lines.numbers[i] == 1)


def fault_place(lines: Chunk, i: int, fault: Fault) -> str:
    """The place of a fault in pair i of a chunk: FILE:LINE, or FILE:LINE:BYTE."""
    side = fault.side or 0
    place = f"{lines.files.paths[side]}:{lines.numbers[i]}"
    return place if fault.column is None else f"{place}:{fault.column + (lines.target_start(i) if side else 0)}"


def fault_texts(pair: LinePair, fault: Fault) -> tuple[str, ...]:
    """The texts that are shown as an example of a fault."""
    if fault.text is not None:
        return (fault.text,)
    return pair.texts if fault.side is None else (pair.texts[fault.side],)


def _characters_without_entry(side: Side, text: str) -> Counter[str]:
    """Count those characters of a line that have no entry in the vocabulary."""
    counts = Counter("".join(side.prepare([text])).replace(" ", ""))
    characters = list(counts)
    unknown = side.vocabulary.encode_batch(characters).unknown
    return Counter({character: counts[character] for character, n in zip(characters, unknown, strict=True) if n})
