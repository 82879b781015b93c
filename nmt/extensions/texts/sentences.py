"""Splits a paragraph into sentences, based on punctuation, abbreviations and the next word.

A full stop after an abbreviation, an initial or an ordinal number does not end a sentence, unless the next word is a
common first word. List marks (`1.`, `b)`, `-`) become separate parts, so that they stay unchanged.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

from nmt.extensions.texts.abbreviations import Abbreviations, abbreviations
from nmt.text.languages import base_language

Span = tuple[int, int]  # start and end, in characters

MAX_CHARACTERS: Final = 1000  # limit per sentence; longer ones are divided
CONTEXT_CHARACTERS: Final = 100  # number of characters before a space to examine for the end of a sentence
CLOSING_MARKS: Final = "\"'”’»›)\\]}*_」』）】〉》"
OTHER_CLOSING_MARKS: Final = "“‘«‹"  # marks that end quotations in German and Danish, but start them elsewhere
OPENING: Final = "\"'“‘«‹„‚(\\[{¿¡*_•·▪●◦‣–—-"  # the hyphen is last, as character classes require
DASHES: Final = "-–—"  # may be list marks
DIRECTIONS: Final = "\u200e\u200f\u061c"  # invisible marks that set the writing direction
WIDE: Final = "。！？｡।॥؟۔။។"  # marks that need no space after them
WIDE_END: Final = re.compile(f"[{WIDE}]+[{CLOSING_MARKS}]*$")
EAST_ASIAN: Final = "\u3040-\u30ff\u3400-\u9fff"  # kana and Chinese characters, which need no spaces around Latin marks
BREAK: Final = re.compile(
    rf"(?<=\S)\s+(?=\S)|(?<=[{WIDE}{CLOSING_MARKS}])(?=[^\s{WIDE}{CLOSING_MARKS}])"
    rf"|(?<=[{EAST_ASIAN}][.!?])(?=[{EAST_ASIAN}])"
)
END: Final = re.compile(
    rf"(?P<mark>[.?!…{WIDE}։።]+)[{DIRECTIONS}]*(?P<closing>(?:[{CLOSING_MARKS}{OTHER_CLOSING_MARKS}]|\s[»›])*)$"
)
START: Final = re.compile(rf"(?:[\s{DIRECTIONS}{OPENING}]|[»›](?=\w)){{0,20}}(?P<word>\w+['’]?(?=(?P<stop>\.)?)|\S)")
QUOTED_IN_SENTENCE: Final = re.compile(
    "[」』][とっなのをはがに]"
)  # end of a Japanese quotation before the rest of its sentence
LAST_WORD: Final = re.compile(r"\S+$")
SPACED_WORD: Final = re.compile(r"(?:(?<!\S)[^\W\d_]{1,2}\.\s?)+[^\W\d_]{1,4}$")  # `z. B`, `p. m`, `v. Chr`
ET_AL: Final = "et al"
ACRONYM: Final = re.compile(r"(?:\w\.)+\w?")  # an acronym without its last full stop: `U.S`
ROMAN_NUMBER: Final = re.compile("[IVX]{1,5}")
ORDINAL: Final = re.compile(r"\d{1,2}|[IVX]{1,5}")
NUMBER_LIKE: Final = re.compile(r"\d.*|[IVXLC]+|[^\W\d_]")  # 5, IV, B
CONSONANTS: Final = re.compile(r"[bcdfghjklmnpqrstvwxz]{2,5}", re.IGNORECASE)
LIST_MARK: Final = re.compile(
    r"(?:[-–—*•·▪●◦‣]|\((?:\d{1,3}|[^\W\d_]|[ivx]{2,4})\)|(?P<name>\d{1,3}|[^\W\d_]|[ivx]{2,4})(?P<end>[.)]))(?=\s)"
)
SPACE: Final = re.compile(r"\s+")
WORD: Final = re.compile(r"\S+")
SENTENCE_MARKS: Final = (".", "?", "!", "…", ":", ";")
DIVISION: Final = re.compile(r"(?<=[;:,])\s+(?=\S)|(?<=[；：，、])\s*(?=\S)")


def sentences(text: str, language: str) -> list[Span]:
    """The sentences of a text, without the white space between them. A line break ends a sentence.

    language: code of the language for abbreviations, such as "en"
    """
    if base_language(language) == "el":
        text = text.replace(";", "?")
    spans, start, rules = list[Span](), len(text) - len(text.lstrip()), _Rules(text, abbreviations(language))
    end, begins_line = len(text.rstrip()), True
    for found in BREAK.finditer(text, start, end):
        mark = LIST_MARK.match(text, start)
        is_mark = mark is not None and mark.end() == found.start() and rules.is_list_mark(mark, begins_line)
        before = text[max(start, found.start() - CONTEXT_CHARACTERS) : found.start()]
        if is_mark or "\n" in found[0] or rules.ends_sentence(before, found[0], found.end()):
            spans.append((start, found.start()))
            start, begins_line = found.end(), "\n" in found[0]
    if start < end:
        spans.append((start, end))
    return [part for span in spans for part in _divided(text, *span)]


class _Rules:
    """The rules for one text. known: the abbreviations of its language"""

    def __init__(self, text: str, known: Abbreviations) -> None:
        self._text, self._known = text, known

    def is_list_mark(self, mark: re.Match[str], begins_line: bool) -> bool:
        """Whether a sentence starts with a list mark: a bullet or number on a new line, or one with a neighbour in the text."""
        name = mark["name"]
        if name is None:
            return begins_line or mark[0] not in DASHES
        if mark["end"] == ")" or self._has_neighbour(name):
            return True
        after = START.match(self._text, mark.end())
        return begins_line and name.isdigit() and (not self._known.has_ordinals or _is_starter(after, self._known))

    def _has_neighbour(self, name: str) -> bool:
        """Whether the text contains the previous or next item of a list with numbers or small letters."""
        if name.isdigit():
            return not self._listed.isdisjoint((str(int(name) - 1), str(int(name) + 1)))
        is_letter = len(name) == 1 and name.islower()
        return is_letter and not self._listed.isdisjoint((chr(ord(name) - 1), chr(ord(name) + 1)))

    @cached_property
    def _listed(self) -> frozenset[str]:
        """The words with a full stop (`3.`) at the start of the text, of a line or of a sentence. The full stop is left out."""
        listed, before, at = list[str](), "", 0  # before: last character of the previous word
        for word in WORD.finditer(self._text):
            begins = not word.start() or before in SENTENCE_MARKS or "\n" in self._text[at : word.start()]
            if begins and word[0].endswith(".") and word.end() < len(self._text):
                listed.append(word[0][:-1])
            before, at = word[0][-1], word.end()
        return frozenset(listed)

    def ends_sentence(self, before: str, space: str, place: int) -> bool:
        """Whether a sentence ends here.

        before: the last characters of the sentence
        space: white space after the sentence
        place: position of the following text
        """
        if (end := END.search(before)) is None:
            return False
        if WIDE_END.search(before):
            return not QUOTED_IN_SENTENCE.match(self._text, place - len(space) - 1)
        if not space:
            return self._text[place - 1] in ".!?"
        after = START.match(self._text, place)
        if after is None:
            return False
        first = after["word"][0]
        if not (first.isdigit() or (first.isalpha() and not first.islower())):
            mark = LIST_MARK.match(self._text, place)
            return mark is not None and self.is_list_mark(mark, False)
        if end["mark"] in ("…", "...", "....") and not first.isupper():  # the sentence may continue
            return False
        if end["mark"] != "." or (end["closing"] and not set(end["closing"]) & set(")]")):
            return True
        words, known = LastWords.of(before[: end.start()]), self._known
        return not words.forms & known.inner and (
            _is_starter(after, known) or not words.continues(after["word"], known)
        )


def _is_starter(after: re.Match[str] | None, known: Abbreviations) -> bool:
    """Whether the next word often starts sentences and is not an initial."""
    if after is None or (after["stop"] and len(after["word"]) == 1):
        return False
    word = after["word"].replace("’", "'")
    return word in known.starters or word.rstrip("'") in known.starters


class LastWords(NamedTuple):
    """The last words of a text before a full stop.

    earlier: the word before the last
    forms: the last word, its part after a hyphen, and an abbreviation written with spaces, with the spaces removed
    """

    earlier: str
    forms: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "LastWords":
        earlier, word = ["", "", *text.rsplit(None, 2)][-2:]
        word = word.lstrip("\"'“‘«‹„‚([{")
        spaced = SPACED_WORD.search(text)
        more = [SPACE.sub("", spaced[0])] if spaced else [ET_AL] if text.endswith(f" {ET_AL}") else []
        return cls(earlier, frozenset((word, re.split("[-’'/]", word)[-1], *more)))

    def continues(self, after: str, known: Abbreviations) -> bool:
        """Whether the sentence probably continues after the full stop. after: the next word, which is not a starter"""
        if any(f"{form}.{after}" in known.beginnings for form in self.forms):
            return True
        if self.forms & known.final:
            return False
        if any(len(form) > 1 for form in self.forms & known.numbers):
            return NUMBER_LIKE.fullmatch(after) is not None
        if self.forms & known.usual or ET_AL in self.forms:
            return True
        return any(map(ACRONYM.fullmatch, self.forms)) or self._is_ordinal(known) or self._is_short(known)

    def _is_ordinal(self, known: Abbreviations) -> bool:
        """Whether the last word is the ordinal number of a day or a king, not the number of a figure."""
        if self.earlier.rstrip(".") in known.numbers:
            return False
        pattern = ORDINAL if known.has_noun_capitals else ROMAN_NUMBER
        return known.has_ordinals and any(map(pattern.fullmatch, self.forms))

    def _is_short(self, known: Abbreviations) -> bool:
        """Whether the word looks like an initial or an abbreviation made of consonants. After a number, it is a unit instead."""
        if self.earlier[-1:].isdigit() or self.earlier.rstrip(".") in known.numbers:
            return False
        if any(sum(map(str.isalpha, form)) == 1 and not any(map(str.isdigit, form)) for form in self.forms):
            return True
        shorts = [form for form in self.forms if CONSONANTS.fullmatch(form) and not form.isupper()]
        return bool(shorts) and not known.has_syllables_without_vowels


def clauses(text: str, start: int, end: int, min_characters: int) -> list[Span]:
    """Divide a sentence at possible ends of clauses into parts of at least `min_characters`."""
    spans = []
    for found in DIVISION.finditer(text, start + min_characters, end - min_characters):
        if found.start() - start >= min_characters:
            spans.append((start, found.start()))
            start = found.end()
    return [*spans, (start, end)]


def _divided(text: str, start: int, end: int) -> Iterator[Span]:
    """Divide a sentence into parts of at most MAX_CHARACTERS, preferably at punctuation, otherwise at a space."""
    while end - start > MAX_CHARACTERS:
        limit = start + MAX_CHARACTERS
        places = [*DIVISION.finditer(text, start + 1, limit)] or [*SPACE.finditer(text, start + 1, limit)]
        yield start, places[-1].start() if places else limit
        start = places[-1].end() if places else limit
        if space := SPACE.match(text, start):  # white space that continues beyond the limit
            start = space.end()
    yield start, end
