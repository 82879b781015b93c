"""Detectors for the faults of a single pair of lines. `nmt doctor` counts these faults and `nmt clean` removes them.

A detector takes a LinePair and yields its faults. The thresholds for a whole corpus are in the table of checks in findings.py.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from typing import Final, Literal, NamedTuple

from nmt.extensions.doctor.languages import (
    MIN_SCORE,
    foreign_script,
    is_profiled,
    judge_language,
    language_scores,
    scripts_of,
    text_size,
)
from nmt.text.corpus import decode_line, is_invisible
from nmt.text.forms import folded
from nmt.text.languages import UNSPACED_LANGUAGES, base_language

# A sentence of 256 tokens, the default of nmt prepare --max-length, has about 1,100 characters at 1.3 tokens per word.
LONG_LINE_CHARACTERS: Final = 1500
# Translations between European languages differ in length by a fifth on average. A ratio of three exceeds that of any
# free translation, except in short lines, where a single word matters.
UNLIKE_RATIO: Final = 3.0
MIN_UNLIKE_CHARACTERS: Final = 30  # minimum length of the longer side
# A side without final punctuation is truncated if the other has it and the length ratio is below this (docs/measurements.md).
TRUNCATED_RATIO: Final = 0.6
MIN_WHOLE_CHARACTERS: Final = 12  # minimum length of the complete side
MIN_COPIED_WORDS: Final = 3  # shorter lines are names and titles, which may be the same in both languages
MIN_RUNNING_WORDS: Final = 4  # minimum number of ordinary words in a copied line without final punctuation

DAILY_LETTERS: Final = set("\u0e33\u0eb3\u0587")  # Thai and Lao AM, Armenian EW: usually written as one character
# Characters other than the tab that nmt reads as spaces (docs/reference/contract.md): control characters, C1, U+2028, U+2029.
CONTROL_BYTES: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
CHARACTER_REFERENCE: Final = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{2,7}|#x[0-9A-Fa-f]{2,6});")
HTML_TAG: Final = re.compile(r"</?[A-Za-z][A-Za-z0-9:_-]*(?:\s[^<>]{0,200}=[^<>]{0,200})?\s*/?>")
# UTF-8 decoded as Latin-1 or Windows-1252 gives one letter for the first byte and one character (80 to BF) for each further byte.
# Most letters of the Latin script start with C2 or C3. The first bytes of other scripts count only before a control character,
# or if two such sequences follow each other, because "É»" is also French. U+FFFD replaces lost bytes.
LATER_BYTE: Final = "[\x80-\xbfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]"
MOJIBAKE: Final = re.compile(
    f"[ÂÃ]{LATER_BYTE}|[Ä-ï][\x80-\x9f]|(?:[Ä-ß]{LATER_BYTE}){{2}}|(?:[à-ï]{LATER_BYTE}{{2}}){{2}}|â€[\x80-\xbf™œžš¦“”˜¢]|\ufffd"
)
DIGIT: Final = re.compile(r"\d")
NOT_PROSE: Final = re.compile(r"[\d_@/\\:.=<>{}#$&%]")  # occurs in addresses, numbers and code
AROUND_WORDS: Final = "\"'’“”„«»‹›()[]¿¡.,;:!?…。、！？।؟،؛"
# The marks that end a sentence in the scripts of languages.toml, with closing quotes and brackets. Thai and Lao have none.
FINAL_MARK: Final = re.compile(r"[.!?…。．！？｡।॥۔؟։።၊။។][\s\"'’”“»«)\]}」』）〉》›‹]*$")
UNMARKED_LANGUAGES: Final = frozenset(("th", "lo"))
UNFINISHED: Final = re.compile(r"[^\W_][\u0300-\u036f\u0900-\u0dff\u1000-\u109f]*[,،、-]?\s*$")


class Fault(NamedTuple):
    """The result of a detector for a pair.

    side: 0 for the source, 1 for the target, None for both
    found: False if the line was judged and has no fault; the shares of some checks count only judged lines
    text: the example to show; None shows the text of the side, or of both sides
    column: position of a faulty byte in the line, counted from 1
    """

    side: Literal[0, 1] | None = None
    found: bool = True
    text: str | None = None
    column: int | None = None


class LinePair:
    """A line and its translation, with properties that several detectors need. Each property is computed once.

    languages: codes of source and target
    lines, texts: both sides, decoded and cleaned
    """

    def __init__(self, languages: tuple[str, str], raw: tuple[bytes, bytes], is_first: bool) -> None:
        """raw: the lines as in the files, with or without LF; is_first: whether they are the first lines"""
        self.languages, self._raw = languages, raw
        self.lines = decode_line(raw[0], is_first), decode_line(raw[1], is_first)
        self.texts = self.lines[0].text, self.lines[1].text

    @cached_property
    def has_control(self) -> tuple[bool, bool]:
        """Whether each side has control characters, which are removed from the cleaned text."""
        source, target = (
            CONTROL_BYTES.search(raw.removesuffix(b"\n").removesuffix(b"\r")) is not None for raw in self._raw
        )
        return source, target

    @cached_property
    def decoded(self) -> tuple[str, str]:
        """Both sides, decoded but with their control characters."""
        source, target = (
            raw.decode(errors="replace").rstrip("\r\n") if has_control else text
            for raw, text, has_control in zip(self._raw, self.texts, self.has_control, strict=True)
        )
        return source, target

    @cached_property
    def blank(self) -> tuple[bool, bool]:
        return is_invisible(self.texts[0]) is not None, is_invisible(self.texts[1]) is not None

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """The length of each side in Latin letters (see `text_size`); 0 for a blank side."""
        source, target = (
            0.0 if blank else text_size(text, language)
            for text, blank, language in zip(self.texts, self.blank, self.languages, strict=True)
        )
        return source, target

    @cached_property
    def expected(self) -> tuple[str, str] | None:
        """The languages without region; None if they are the same or a side is blank."""
        source, target = map(base_language, self.languages)
        return (source, target) if source != target and not any(self.blank) else None

    @cached_property
    def is_copy(self) -> bool:
        """Whether both sides are the same text, apart from case, and contain letters."""
        source, target = self.texts
        return len(source) == len(target) and source.lower() == target.lower() and any(map(str.isalpha, source))

    @cached_property
    def scores(self) -> tuple[dict[str, float], dict[str, float]]:
        return language_scores(self.texts[0]), language_scores(self.texts[1])

    @cached_property
    def order(self) -> float:
        """The evidence that each side is in the expected language; negative if the sides are swapped, 0 if it is unclear.

        Names, and words that both languages share, do not count. A single word is enough if nothing contradicts it.
        """
        if self.expected is None or self.is_copy or not all(map(is_profiled, self.expected)):
            return 0.0
        source, target = self.expected
        evidence = self.scores[0][source] - self.scores[0][target], self.scores[1][target] - self.scores[1][source]
        is_clear = abs(sum(evidence)) >= MIN_SCORE and min(evidence) * max(evidence) >= 0
        return sum(evidence) if is_clear else 0.0


Detector = Callable[[LinePair], Iterable[Fault]]
SIDE_NUMBERS: Final[tuple[Literal[0], Literal[1]]] = 0, 1


def not_utf8(pair: LinePair) -> Iterator[Fault]:
    for side in SIDE_NUMBERS:
        if (byte := pair.lines[side].bad_byte) is not None:
            yield Fault(side, column=byte)


def blank_on_both_sides(pair: LinePair) -> Iterable[Fault]:
    return [Fault(text="")] if all(pair.blank) else ()


def blank_on_one_side(pair: LinePair) -> Iterable[Fault]:
    source, target = pair.blank
    return [Fault(0 if source else 1, text="".join(pair.texts))] if source != target else ()


def control_characters(pair: LinePair) -> Iterable[Fault]:
    return [Fault(side, text=pair.decoded[side]) for side in SIDE_NUMBERS if pair.has_control[side]]


def not_nfc(pair: LinePair) -> Iterator[Fault]:
    for side in SIDE_NUMBERS:
        if not unicodedata.is_normalized("NFC", text := pair.texts[side]):
            yield Fault(side, text=_naming(Counter(text) - Counter(unicodedata.normalize("NFC", text)), text))


def compatibility(pair: LinePair) -> Iterator[Fault]:
    """Characters that NFKC would replace, except letters in daily use, such as Thai and Lao AM."""
    for side in SIDE_NUMBERS:
        if found := set(filter(_is_compatibility, pair.texts[side])) - DAILY_LETTERS:
            yield Fault(side, text=_naming(found, pair.texts[side]))


def invisible(pair: LinePair) -> Iterator[Fault]:
    """Characters that `folded` removes: zero-width characters, and joiners without a meaning."""
    for side in SIDE_NUMBERS:
        found = Counter(filter(_is_left_out, text := pair.texts[side]))
        if found and not is_invisible(text) and (lost := found - Counter(folded(text))):
            yield Fault(side, text=_naming(lost, text))


@cache
def _is_compatibility(character: str) -> bool:
    return unicodedata.normalize("NFKC", character) != unicodedata.normalize("NFC", character)


@cache
def _is_left_out(character: str) -> bool:
    return not folded(character)


def _naming(characters: Iterable[str], text: str) -> str:
    """A text, preceded by the code points of some of its characters, which may be invisible."""
    names = " ".join(f"U+{ord(character):04X}" for character in sorted(characters) if not character.isascii())
    return f"({names}) {text}" if names else text


def mojibake(pair: LinePair) -> Iterator[Fault]:
    for side in SIDE_NUMBERS:
        text = pair.decoded[side]
        if not text.isascii():
            if pair.lines[side].bad_byte is not None:
                text = text.replace("\ufffd", "")  # `not_utf8` reports these
            if MOJIBAKE.search(text):
                yield Fault(side)


def markup(pair: LinePair) -> Iterator[Fault]:
    for side in SIDE_NUMBERS:
        text = pair.texts[side]
        if ("&" in text and CHARACTER_REFERENCE.search(text)) or ("<" in text and HTML_TAG.search(text)):
            yield Fault(side)


def wrong_script(pair: LinePair) -> Iterator[Fault]:
    for side in SIDE_NUMBERS:
        if script := foreign_script(pair.texts[side], scripts_of(pair.languages[side])):
            yield Fault(side, text=f"({script}) {pair.texts[side]}")


def copy(pair: LinePair) -> Iterable[Fault]:
    """Prose that was copied instead of translated. Names, titles, addresses and code may be the same in both languages."""
    if not pair.is_copy or pair.expected is None:
        return ()
    text = pair.texts[0]
    words = [
        word for word in (word.strip(AROUND_WORDS) for word in text.split()) if word and any(map(str.isalpha, word))
    ]
    num_running = sum(len(word) > 1 and word == word.lower() and not NOT_PROSE.search(word) for word in words)
    num_words = len(words)
    if not UNSPACED_LANGUAGES.isdisjoint(pair.expected) and not text.isascii():
        num_words = num_running = sum(map(str.isalpha, text)) // 4
    enough = 2 if FINAL_MARK.search(text) else MIN_RUNNING_WORDS
    is_prose = num_words >= MIN_COPIED_WORDS and num_running >= enough and 2 * num_running >= num_words
    return [Fault(text=text)] if is_prose else ()


def swapped(pair: LinePair) -> Iterable[Fault]:
    return [Fault(found=pair.order < 0)] if pair.order else ()


def wrong_language(pair: LinePair) -> Iterator[Fault]:
    if pair.expected is None or pair.is_copy or pair.order < 0:
        return
    for side in SIDE_NUMBERS:
        expected, text = pair.expected[side], pair.texts[side]
        guess = judge_language(text, pair.scores[side], expected) if is_profiled(expected) else None
        if guess is not None:
            yield Fault(side, guess != expected, f"({guess}) {text}")


def long_line(pair: LinePair) -> Iterable[Fault]:
    return [Fault(side) for side in SIDE_NUMBERS if len(pair.texts[side]) > LONG_LINE_CHARACTERS]


def unlike_lengths(pair: LinePair) -> Iterable[Fault]:
    shorter, longer = sorted(pair.sizes)
    return [Fault()] if longer >= MIN_UNLIKE_CHARACTERS and longer > UNLIKE_RATIO * shorter > 0 else ()


def truncated(pair: LinePair) -> Iterator[Fault]:
    """A side that ends in mid-sentence although the other side is longer and ends with a punctuation mark."""
    if any(pair.blank) or not UNMARKED_LANGUAGES.isdisjoint(map(base_language, pair.languages)):
        return
    for side in SIDE_NUMBERS:
        size, whole_size = pair.sizes[side], pair.sizes[1 - side]
        if whole_size < MIN_WHOLE_CHARACTERS or size > TRUNCATED_RATIO * whole_size:
            continue
        if FINAL_MARK.search(pair.texts[1 - side]) and UNFINISHED.search(pair.texts[side]):
            yield Fault()


def numbers_differ(pair: LinePair) -> Iterator[Fault]:
    """Digits that differ, whatever their order. Pairs with digits on only one side are skipped: the other may spell them out."""
    source, target = map(DIGIT.findall, pair.texts)
    if source and target and not any(pair.blank):
        yield Fault(found=source != target and sorted(map(int, source)) != sorted(map(int, target)))
