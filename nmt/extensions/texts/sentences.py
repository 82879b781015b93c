"""Sentences of a paragraph, by punctuation, the case of the next word, and Moses' lists of abbreviations (sacremoses)."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from nmt.text.languages import base_language

Span = tuple[int, int]  # (start, end) of characters

MAX_CHARACTERS: Final = 1000  # of a sentence; a longer one is divided
CONTEXT_CHARACTERS: Final = 100  # before a space, that say whether a sentence ends there
MORE_ABBREVIATIONS: Final = {"de": {"Hr", "Fr", "Hrn", "Frl"}}  # that Moses' lists lack
NUMBER_FOLLOWS: Final = "#NUMERIC_ONLY#"  # marks an abbreviation that only a number follows
CLOSING_MARKS: Final = "\"'”’»›)\\]}*_」』）】〉》"
OTHER_CLOSING_MARKS: Final = "“‘«‹"  # German and Danish quotation marks end so, and others begin
OPENING: Final = "\"'“‘«‹„‚(\\[{¿¡*_–—-"  # the hyphen last, as in a class of characters
DIRECTIONS: Final = "\u200e\u200f\u061c"  # marks of the direction of writing, which nobody sees
WIDE_END: Final = f"[。！？｡]+[{CLOSING_MARKS}]*"  # which no space needs to follow
BREAK: Final = re.compile(rf"(?<=\S)\s+(?=\S)|(?<=[。！？｡{CLOSING_MARKS}])(?=[^\s。！？｡{CLOSING_MARKS}])")
END: Final = re.compile(
    rf"(?P<mark>[.?!…。！？｡؟۔।॥։።။។]+)[{DIRECTIONS}]*(?P<closing>(?:[{CLOSING_MARKS}{OTHER_CLOSING_MARKS}]|\s[»›])*)$"
)
START: Final = re.compile(rf"[\s{DIRECTIONS}{OPENING}]{{0,20}}(\S)")
LAST_WORD: Final = re.compile(r"\S+$")
ACRONYM: Final = re.compile(r"(\w\.)+\w?")  # without its last full stop: `U.S`
SPACE: Final = re.compile(r"\s+")
DIVISION: Final = re.compile(r"(?<=[;:,])\s+(?=\S)|(?<=[；：，、])\s*(?=\S)")


def sentences(text: str, language: str) -> list[Span]:
    """The sentences of a text, without the white space between them; a line break ends one.

    language: whose abbreviations are known: "en"
    """
    spans, start = [], len(text) - len(text.lstrip())
    end = len(text.rstrip())
    for found in BREAK.finditer(text, start, end):
        before = text[max(start, found.start() - CONTEXT_CHARACTERS) : found.start()]
        if "\n" in found[0] or _ends_sentence(before, found[0], text, found.end(), language):
            spans.append((start, found.start()))
            start = found.end()
    if start < end:
        spans.append((start, end))
    return [part for span in spans for part in _divided(text, *span)]


def _ends_sentence(before: str, space: str, text: str, place: int, language: str) -> bool:
    """Whether a sentence ends here. before: its last characters; space: after it; place: of what follows in the text"""
    if (end := END.search(before)) is None:
        return False
    if re.search(rf"{WIDE_END}$", before):
        return True
    if not space:
        return False
    after = START.match(text, place)
    if after is None or not (after[1].isdigit() or (after[1].isalpha() and not after[1].islower())):
        return False
    if end["mark"] != ".":
        return not after[1].isdigit() or end["mark"] not in ("…", "...")
    word = _last_word(before[: end.start()])
    if end["closing"]:  # a bracket or quotation mark behind the full stop
        return True
    numbered = word in _abbreviations(language, numbers=True) and after[1].isdigit()
    return not (numbered or word in _abbreviations(language) or ACRONYM.fullmatch(word))


def _last_word(text: str) -> str:
    found = LAST_WORD.search(text)
    return found[0].lstrip("\"'“‘«‹„‚([{") if found else ""


@cache
def _abbreviations(language: str, numbers: bool = False) -> frozenset[str]:
    """Words whose full stop ends no sentence. numbers: those that only a number follows"""
    from sacremoses.corpus import NonbreakingPrefixes  # imported when used: it takes half a second

    base = base_language(language)
    words = [word.partition(" ") for word in NonbreakingPrefixes().words(base)]
    known = frozenset(word for word, _, mark in words if (mark.strip() == NUMBER_FOLLOWS) == numbers)
    return known if numbers else known | MORE_ABBREVIATIONS.get(base, set())


def clauses(text: str, start: int, end: int, min_characters: int) -> list[Span]:
    """A sentence divided where a clause may end, in parts of at least some characters."""
    spans = []
    for found in DIVISION.finditer(text, start + min_characters, end - min_characters):
        if found.start() - start >= min_characters:
            spans.append((start, found.start()))
            start = found.end()
    return [*spans, (start, end)]


def _divided(text: str, start: int, end: int) -> Iterator[Span]:
    """A sentence in parts of at most MAX_CHARACTERS, divided at punctuation, else at a space, else anywhere."""
    while end - start > MAX_CHARACTERS:
        limit = start + MAX_CHARACTERS
        places = [*DIVISION.finditer(text, start + 1, limit)] or [*SPACE.finditer(text, start + 1, limit)]
        yield start, places[-1].start() if places else limit
        start = places[-1].end() if places else limit
        if space := SPACE.match(text, start):  # that goes on beyond the limit
            start = space.end()
    yield start, end
