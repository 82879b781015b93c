"""The checks of pairs of lines, in chunks that any process may take."""

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
from nmt.doctor.findings import FindingCounts
from nmt.doctor.languages import character_worth, foreign_script, guess_language, is_profiled, scripts_of
from nmt.doctor.lengths import LengthHistograms
from nmt.doctor.repeats import keys_of
from nmt.text.corpus import decode_line, is_invisible
from nmt.text.languages import base_language
from nmt.text.pipeline import Pipeline, Side

# A sentence of 256 tokens, nmt prepare's --max-length, has about 1,100 characters at 1.3 pieces a word.
LONG_LINE_CHARACTERS: Final = 1500
# Translations between European languages differ in length by a fifth on average; a ratio of three is beyond free
# translation, except in short lines, where one word is much.
UNLIKE_RATIO: Final = 3.0
MIN_UNLIKE_CHARACTERS: Final = 30  # of the longer side

# Characters that docs/reference/contract.md makes a space, except the tab: control characters, C1 and U+2028 and U+2029.
CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
MARKUP: Final = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{2,7}|#x[0-9A-Fa-f]{2,6});|</?[A-Za-z][^<>]{0,200}>")
# UTF-8 decoded as Latin-1 or Windows-1252 gives the letter for C2 or C3, and then one for 80 to BF. U+FFFD stands in
# place of bytes that were lost before.
MOJIBAKE: Final = re.compile("[ÂÃ][\x80-\xbfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]|â€[\x80-\xbf™œžš¦“”˜¢]|\ufffd")
SUSPECT: Final = re.compile("[&<ÂÃâ\ufffd]")  # every match of MARKUP and MOJIBAKE has one of these
DIGIT: Final = re.compile(r"\d")
NOT_WORDS: Final = re.compile(r"[\W_]+")


def _no_keys() -> Any:
    return field(default_factory=lambda: keys_of(()))


@dataclass
class ExaminedPairs:
    """The findings and figures of N pairs.

    tokens, words, characters: (2,) of both sides; tokens are 0 without a vocabulary
    unknown: for each side the count of each character without an entry in the vocabulary
    pair_keys, source_keys: (N,) of the exact texts
    loose_keys: (N,) of the source without case, spaces and punctuation, which copies of a corpus differ in
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
        """Add later pairs, without their keys."""
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
    """The task of a worker: Chunk -> ExaminedPairs.

    languages: codes of source and target
    pipeline: None leaves out the checks that need a vocabulary
    length_filter: of training pairs; None for other sets
    max_examples: of each finding
    loose: whether loose keys are computed
    """

    languages: tuple[str, str]
    pipeline: Pipeline | None
    length_filter: LengthFilter | None
    max_examples: int
    loose: bool

    def __call__(self, lines: Chunk) -> ExaminedPairs:
        examined = ExaminedPairs(len(lines.numbers), FindingCounts(self.max_examples))
        texts = self._check_side(lines, 0, examined.counts), self._check_side(lines, 1, examined.counts)
        self._check_pairs(lines, texts, examined.counts)
        self._measure(lines, texts, examined)
        full = [("", "") if is_invisible(s) or is_invisible(t) else (s, t) for s, t in zip(*texts, strict=True)]
        examined.pair_keys = keys_of(f"{s}\n{t}" if s else "" for s, t in full)
        examined.source_keys = keys_of(s for s, _ in full)
        if self.loose:
            examined.loose_keys = keys_of(NOT_WORDS.sub("", text.casefold()) for text in texts[0])
        return examined

    def _check_side(self, lines: Chunk, side: int, counts: FindingCounts) -> list[str]:
        """Check the lines of one side alone; returns their texts."""
        name, place, scripts = SIDES[side], lines.files.paths[side], scripts_of(self.languages[side])
        texts = []
        rows = (lines.source, lines.target)[side]
        any_control = CONTROL.search(b"".join(rows).replace(b"\r\n", b"\n").decode(errors="replace"))
        for i, (number, raw) in enumerate(zip(lines.numbers, rows, strict=True)):
            line = decode_line(raw, number == 1)
            text = line.text
            texts.append(text)
            if line.bad_byte is not None:
                before = lines.target_start(i) if side else 0
                counts.add("not-utf8", name, f"{place}:{number}:{line.bad_byte + before}", text)
                text = text.replace("\ufffd", "")  # not counted as mojibake too
            if any_control:
                decoded = raw.decode(errors="replace").removesuffix("\n").removesuffix("\r")
                if CONTROL.search(decoded):
                    counts.add("control-characters", name, f"{place}:{number}", decoded)
            if len(text) > LONG_LINE_CHARACTERS:
                counts.add("long-line", name, f"{place}:{number}", text)
            if SUSPECT.search(text):
                if MARKUP.search(text):
                    counts.add("markup", name, f"{place}:{number}", text)
                if MOJIBAKE.search(text):
                    counts.add("mojibake", name, f"{place}:{number}", text)
            if script := foreign_script(text, scripts):
                counts.add("wrong-script", name, f"{place}:{number}", f"({script}) {text}")
        return texts

    def _check_pairs(self, lines: Chunk, texts: tuple[list[str], list[str]], counts: FindingCounts) -> None:
        """Compare the sides of each pair."""
        worth = [character_worth(language) for language in self.languages]
        source_language, target_language = map(base_language, self.languages)
        distinguishable = source_language != target_language and any(map(is_profiled, self.languages))
        for number, source, target in zip(lines.numbers, *texts, strict=True):
            place = f"{lines.files.paths[0]}:{number}"
            blank = [side for side, text in enumerate((source, target)) if is_invisible(text)]
            if len(blank) == 2:
                counts.add("blank-both-sides", "pair", place)
            elif blank:
                [side] = blank
                counts.add("blank-one-side", SIDES[side], f"{lines.files.paths[side]}:{number}", source + target)
            if blank:
                continue
            sizes = len(source) * worth[0], len(target) * worth[1]
            if max(sizes) >= MIN_UNLIKE_CHARACTERS and max(sizes) > UNLIKE_RATIO * min(sizes):
                counts.add("unlike-lengths", "pair", place, source, target)
            if len(source) == len(target) and source.lower() == target.lower() and any(map(str.isalpha, source)):
                counts.add("copy", "pair", place, source)
            elif distinguishable:
                self._check_languages(lines, number, source, target, counts)
            digits = DIGIT.findall(source), DIGIT.findall(target)
            if digits[0] and digits[1]:  # with digits on one side only, the other mostly has a number word
                counts.of["numbers-differ", "pair"] += 1
                if digits[0] != digits[1] and sorted(map(int, digits[0])) != sorted(map(int, digits[1])):
                    counts.add("numbers-differ", "pair", place, source, target)

    def _check_languages(self, lines: Chunk, number: int, source: str, target: str, counts: FindingCounts) -> None:
        """Count a swapped pair, or else each side that is in another language."""
        expected = base_language(self.languages[0]), base_language(self.languages[1])
        guesses = guess_language(source), guess_language(target)
        if all(map(is_profiled, expected)) and None not in guesses:
            counts.of["swapped", "pair"] += 1
            if guesses == expected[::-1]:
                counts.add("swapped", "pair", f"{lines.files.paths[0]}:{number}", source, target)
                return
        for side, (language, guess) in enumerate(zip(expected, guesses, strict=True)):
            if guess is None or not is_profiled(language):
                continue
            counts.of["wrong-language", SIDES[side]] += 1
            if guess != language:
                text = f"({guess}) {(source, target)[side]}"
                counts.add("wrong-language", SIDES[side], f"{lines.files.paths[side]}:{number}", text)

    def _measure(self, lines: Chunk, texts: tuple[list[str], list[str]], examined: ExaminedPairs) -> None:
        """Measure lengths; with a vocabulary count tokens, unknown ones, and the pairs that the filter would drop."""
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


def _characters_without_entry(side: Side, text: str) -> Counter[str]:
    """Counts of the characters of a line that the vocabulary has no entry for."""
    counts = Counter("".join(side.prepare([text])).replace(" ", ""))
    characters = list(counts)
    unknown = side.vocabulary.encode_batch(characters).unknown
    return Counter({character: counts[character] for character, n in zip(characters, unknown, strict=True) if n})
