"""What is looked for in each pair of lines, in chunks that any process may take."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.duplicates import Keys
from nmt.doctor.findings import FindingCounts, SideName
from nmt.doctor.languages import CHARACTER_WORTH, base_language, foreign_script, guess_language, is_profiled, scripts_of
from nmt.doctor.lengths import Lengths
from nmt.doctor.repeats import keys_of
from nmt.text.corpus import decode_line
from nmt.text.filter import KEPT, REASONS, LengthFilter
from nmt.text.pipeline import Pipeline, Side

SIDES: Final[tuple[SideName, SideName]] = ("source", "target")

# A sentence of 256 tokens, nmt prepare's --max-length, has about 1,100 characters at 1.3 pieces a word.
LONG_LINE: Final = 1500
# Translations between European languages differ by a fifth on the average; three times is beyond free translation, but
# for short lines, where one word more is much.
UNLIKE: Final = 3.0
UNLIKE_FROM: Final = 30  # characters of the longer side

# Control characters but the tab, C1 and the separators U+2028 and U+2029: what rule 4 of docs/contract.md makes a space.
CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
MARKUP: Final = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{2,7}|#x[0-9A-Fa-f]{2,6});|</?[A-Za-z][^<>]{0,200}>")
# UTF-8 read as Latin-1 or Windows-1252 gives a letter of C2 or C3 and then one that stands for 80 to BF; U+FFFD stands
# where bytes were lost before.
MOJIBAKE: Final = re.compile("[ÂÃ][\x80-\xbfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]|â€[\x80-\xbf™œžš¦“”˜¢]|\ufffd")
SUSPECT: Final = re.compile("[&<ÂÃâ\ufffd]")  # one of these is in all that MARKUP and MOJIBAKE find
DIGIT: Final = re.compile(r"\d")
NOT_WORDS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Lines:
    """Some lines of both sides. places: what a line is named by, FILE of FILE:LINE; numbers: (N,) counted from 1."""

    places: tuple[str, str]
    numbers: Sequence[int]
    source: list[bytes]
    target: list[bytes]


@dataclass
class Examined:
    """What was found in some pairs.

    tokens, words, characters: (2,) of both sides; tokens are 0 without a vocabulary
    unknown: how often each character that the vocabulary lacks stands there, on either side
    pair_keys, source_keys: (N,) exact; loose_keys: (N,) of the source without case, spaces and punctuation
    """

    pairs: int
    tally: FindingCounts
    lengths: Lengths = field(default_factory=Lengths)
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    characters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    unknown: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    pair_keys: Keys = field(default_factory=lambda: keys_of(()))
    source_keys: Keys = field(default_factory=lambda: keys_of(()))
    loose_keys: Keys = field(default_factory=lambda: keys_of(()))

    def merge(self, later: "Examined") -> None:
        """Add what was found after all that is here, but for the keys."""
        self.pairs += later.pairs
        self.tally.merge(later.tally)
        self.lengths.merge(later.lengths)
        self.tokens += later.tokens
        self.words += later.words
        self.characters += later.characters
        for ours, theirs in zip(self.unknown, later.unknown, strict=True):
            ours.update(theirs)


@dataclass(frozen=True)
class Examine:
    """Lines -> what is found in them.

    languages: codes of source and target; pipeline: None leaves out what needs a vocabulary; lengths: the filter of
    training pairs, None for other sets; limit: examples of each finding; loose: whether loose keys are wanted
    """

    languages: tuple[str, str]
    pipeline: Pipeline | None
    lengths: LengthFilter | None
    limit: int
    loose: bool

    def __call__(self, lines: Lines) -> Examined:
        found = Examined(len(lines.numbers), FindingCounts(self.limit))
        texts = self._side(lines, 0, found.tally), self._side(lines, 1, found.tally)
        self._pairs(lines, texts, found.tally)
        self._measure(lines, texts, found)
        found.pair_keys = keys_of(f"{s}\n{t}" if s.strip() and t.strip() else "" for s, t in zip(*texts, strict=True))
        found.source_keys = keys_of(s if s.strip() and t.strip() else "" for s, t in zip(*texts, strict=True))
        if self.loose:
            found.loose_keys = keys_of(loosely(text) for text in texts[0])
        return found

    def _side(self, lines: Lines, side: int, tally: FindingCounts) -> list[str]:
        """The texts of a side; what can be seen on one side alone is counted."""
        name, place, scripts = SIDES[side], lines.places[side], scripts_of(self.languages[side])
        texts = []
        rows = (lines.source, lines.target)[side]
        any_control = CONTROL.search(b"".join(rows).replace(b"\r\n", b"\n").decode(errors="replace"))
        for number, raw in zip(lines.numbers, rows, strict=True):
            line = decode_line(raw, number == 1)
            text = line.text
            texts.append(text)
            if line.bad_byte is not None:
                tally.add("not-utf8", name, f"{place}:{number}:{line.bad_byte}", text)
                text = text.replace("\ufffd", "")  # counted as what it is, and not as damage of before too
            if any_control and CONTROL.search(
                shown := raw.decode(errors="replace").removesuffix("\n").removesuffix("\r")
            ):
                tally.add("control-characters", name, f"{place}:{number}", shown)
            if len(text) > LONG_LINE:
                tally.add("long-line", name, f"{place}:{number}", text)
            if SUSPECT.search(text):
                if MARKUP.search(text):
                    tally.add("markup", name, f"{place}:{number}", text)
                if MOJIBAKE.search(text):
                    tally.add("mojibake", name, f"{place}:{number}", text)
            if script := foreign_script(text, scripts):
                tally.add("wrong-script", name, f"{place}:{number}", f"({script}) {text}")
        return texts

    def _pairs(self, lines: Lines, texts: tuple[list[str], list[str]], tally: FindingCounts) -> None:
        """What can be seen of two lines together."""
        worth = [CHARACTER_WORTH.get(base_language(language), 1.0) for language in self.languages]
        guessing = self._guessing()
        for number, source, target in zip(lines.numbers, *texts, strict=True):
            place = f"{lines.places[0]}:{number}"
            if not source.strip() or not target.strip():
                if source.strip() or target.strip():
                    blank = int(bool(source.strip()))
                    tally.add("blank-one-side", SIDES[blank], f"{lines.places[blank]}:{number}", source + target)
                else:
                    tally.add("blank-both-sides", "pair", place)
                continue
            sizes = len(source) * worth[0], len(target) * worth[1]
            if max(sizes) >= UNLIKE_FROM and max(sizes) > UNLIKE * min(sizes):
                tally.add("unlike-lengths", "pair", place, source, target)
            if len(source) == len(target) and source.lower() == target.lower() and any(map(str.isalpha, source)):
                tally.add("copy", "pair", place, source)
            elif guessing:
                self._languages(lines, number, source, target, tally)
            digits = DIGIT.findall(source), DIGIT.findall(target)
            if digits[0] and digits[1]:  # where one side has none, the number is most often written as a word
                tally.of["numbers-differ", "pair"] += 1
                if digits[0] != digits[1] and sorted(map(int, digits[0])) != sorted(map(int, digits[1])):
                    tally.add("numbers-differ", "pair", place, source, target)

    def _guessing(self) -> bool:
        """Whether the languages can be told apart at all."""
        one, other = map(base_language, self.languages)
        return one != other and (is_profiled(one) or is_profiled(other))

    def _languages(self, lines: Lines, number: int, source: str, target: str, tally: FindingCounts) -> None:
        """Count a pair that is swapped, or else each side that is in another language."""
        own = base_language(self.languages[0]), base_language(self.languages[1])
        guesses = guess_language(source), guess_language(target)
        if all(map(is_profiled, own)) and None not in guesses:
            tally.of["swapped", "pair"] += 1
            if guesses == own[::-1]:
                tally.add("swapped", "pair", f"{lines.places[0]}:{number}", source, target)
                return
        for side, (language, guess) in enumerate(zip(own, guesses, strict=True)):
            if guess is None or not is_profiled(language):
                continue
            tally.of["wrong-language", SIDES[side]] += 1
            if guess != language:
                text = f"({guess}) {(source, target)[side]}"
                tally.add("wrong-language", SIDES[side], f"{lines.places[side]}:{number}", text)

    def _measure(self, lines: Lines, texts: tuple[list[str], list[str]], found: Examined) -> None:
        """Lengths; with a vocabulary in tokens, and what it lacks and what the filter would drop."""
        characters = np.array([list(map(len, side)) for side in texts], dtype=np.int64).T
        found.characters += characters.sum(axis=0)
        if self.pipeline is None:
            lengths = np.array([[len(text.split()) for text in side] for side in texts], dtype=np.int64).T
            found.words += lengths.sum(axis=0)
            found.lengths.add(lengths, characters)
            return
        sides = self.pipeline.source, self.pipeline.target
        ids = [side.encode_batch(list(text)) for side, text in zip(sides, texts, strict=True)]
        lengths = np.stack([one.lengths for one in ids], axis=1).astype(np.int64)
        found.tokens += lengths.sum(axis=0)
        found.words += [int(one.words.sum()) for one in ids]
        found.lengths.add(lengths, characters)
        for side in (0, 1):
            self._unknown(lines, side, texts[side], ids[side].unknown, found)
        found.tally.of.update({("unknown-tokens", name): int(lengths[:, i].sum()) for i, name in enumerate(SIDES)})
        if self.lengths is not None:
            reasons = self.lengths.reasons(lengths[:, 0], lengths[:, 1])
            for i in np.flatnonzero(reasons != KEPT).tolist():
                place = f"{lines.places[0]}:{lines.numbers[i]}"
                found.tally.add("dropped", "pair", place, texts[0][i], texts[1][i], detail=REASONS[reasons[i]])

    def _unknown(self, lines: Lines, side: int, texts: list[str], unknown: NDArray[Any], found: Examined) -> None:
        """Count the tokens that are unknown, and the characters that make them so. unknown: (N,) tokens of each line."""
        pipeline = (self.pipeline.source, self.pipeline.target)[side] if self.pipeline else None
        assert pipeline is not None
        for i in np.flatnonzero(unknown).tolist():
            place = f"{lines.places[side]}:{lines.numbers[i]}"
            text, told = texts[i], texts[i]
            if pipeline.settings.subword != "none":
                lacking = _lacking(pipeline, text)
                found.unknown[side].update(lacking)
                told = f"({' '.join(sorted(lacking))}) {text}"
            found.tally.add("unknown-tokens", SIDES[side], place, told, times=int(unknown[i]))


def loosely(text: str) -> str:
    """text without case, spaces and punctuation, as a sentence is recognised across copies of a corpus."""
    return NOT_WORDS.sub("", text.casefold())


def _lacking(side: Side, text: str) -> Counter[str]:
    """The characters of a line that the vocabulary has no entry for."""
    counts = Counter("".join(side.prepare([text])).replace(" ", ""))
    characters = list(counts)
    unknown = side.vocabulary.encode_batch(characters).unknown
    return Counter(
        {character: counts[character] for character, n in zip(characters, unknown.tolist(), strict=True) if n}
    )
