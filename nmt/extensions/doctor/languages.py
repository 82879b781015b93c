"""Recognition of a line's script and language from its letters and function words; the tables are in languages.toml.

docs/reference/doctor.md describes what the check cannot recognise. Cavnar and Trenkle (1994) count all n-grams for the same
purpose, but people can read and correct a table of words.
"""

import re
import struct
import unicodedata
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nmt.text.languages import base_language

MIN_SCORE: Final = 2.0  # two words of one language, or more that several share; one word may be a name or title
# The best score must be this many times the second best, because related languages (da and sv, es and pt) share words, and
# a quotation adds a second language.
MIN_LEAD: Final = 2.0
# Without evidence for the expected language, less evidence is enough for another one, except in names and titles.
MIN_SCORE_ALONE: Final = 1.25
MIN_LEAD_ALONE: Final = 1.5
MIN_WORDS_ALONE: Final = 3
MIN_LETTERS: Final = 4  # shorter lines are names, units or chemical symbols

WORD: Final = re.compile(r"[^\W\d_]+")
WORD_BOUNDARIES: Final = "'’.,?!\"„“”«»:;"  # includes the apostrophe, because l'eau is two words
BEYOND_LATIN: Final = re.compile(
    r"[\u0370-\u1dff\u2c80-\ua71f\ua800-\ufaff\ufb07-\uff20\uff5b-\uffef\U00010000-\U0010ffff]"
)


class LanguageTables(msgspec.Struct):
    """The content of languages.toml. A list of words, letters or codes is one string, separated by spaces."""

    function_words: dict[str, str]
    letters: dict[str, str]
    scripts: dict[str, str]
    languages_of_scripts: dict[str, str]
    character_worth: dict[str, float]


@cache
def language_tables() -> LanguageTables:
    """The tables; they are read once."""
    return msgspec.toml.decode(Path(__file__).with_name("languages.toml").read_bytes(), type=LanguageTables)


# A word or letter has a score of 1, divided among its languages. The scores for all languages are packed into one integer
# with 32 bits for each, so one sum scores a line. A guess takes a few microseconds; a corpus may have 72 million lines.
SCORE_UNIT: Final = 1 << 12


class _Profiles(NamedTuple):
    """Function words and letters, with their scores for all languages."""

    languages: tuple[str, ...]
    scores: dict[str, int]
    known: frozenset[str]
    letters: re.Pattern[str]
    unpacker: struct.Struct


@cache
def _profiles() -> _Profiles:
    tables = language_tables()
    languages: defaultdict[str, set[str]] = defaultdict(set)
    for language, words in tables.function_words.items():
        for word in words.split():
            languages[word].add(language)
    for letter, codes in tables.letters.items():
        languages[letter] |= set(codes.split())
    shift = {language: 32 * i for i, language in enumerate(tables.function_words)}
    scores = {word: sum(SCORE_UNIT // len(codes) << shift[code] for code in codes) for word, codes in languages.items()}
    letters = re.compile(f"[{''.join(tables.letters)}]")
    return _Profiles(tuple(shift), scores, frozenset(scores), letters, struct.Struct(f"<{len(shift)}I"))


@cache
def is_profiled(language: str) -> bool:
    """Whether the tables contain function words of a language."""
    return base_language(language) in language_tables().function_words


def language_scores(text: str) -> dict[str, float]:
    """The evidence for each language in a text. A function word or letter found in only one language counts as 1."""
    profiles, lower = _profiles(), text.lower()
    for mark in WORD_BOUNDARIES:
        lower = lower.replace(mark, " ")
    evidence = profiles.known.intersection(lower.split())
    if not lower.isascii():
        evidence = evidence.union(profiles.letters.findall(lower))
    total = sum(map(profiles.scores.__getitem__, evidence))
    scores = profiles.unpacker.unpack(total.to_bytes(profiles.unpacker.size, "little"))
    return {language: score / SCORE_UNIT for language, score in zip(profiles.languages, scores, strict=True)}


def clear_language(scores: dict[str, float]) -> str | None:
    """The language that the scores clearly indicate; None if the evidence is too weak, as in most short lines."""
    second, best = sorted(scores.values())[-2:]
    is_clear = best >= MIN_SCORE and best >= MIN_LEAD * second
    return max(scores, key=scores.__getitem__) if is_clear else None


def judge_language(text: str, scores: dict[str, float], expected: str) -> str | None:
    """The language of a text whose expected language is in the tables; None if the evidence is too weak."""
    if (language := clear_language(scores)) is not None:
        return language
    if scores[expected] or len(text.split()) < MIN_WORDS_ALONE:
        return None
    second, best = sorted(scores.values())[-2:]
    is_clear = best >= MIN_SCORE_ALONE and best >= MIN_LEAD_ALONE * second
    return max(scores, key=scores.__getitem__) if is_clear else None


def guess_language(text: str) -> str | None:
    """The language of a text; None if the evidence is too weak, as in most short lines."""
    return clear_language(language_scores(text))


@cache
def _character_worth(language: str) -> float:
    """The number of Latin letters that carry about as much information as one character of a language."""
    return language_tables().character_worth.get(base_language(language), 1.0)


def text_size(text: str, language: str) -> float:
    """The number of Latin letters that would carry as much information as a text. Each Latin letter of the text counts as 1."""
    worth = _character_worth(language)
    return len(text) if worth == 1 or text.isascii() else len(text) + (worth - 1) * len(BEYOND_LATIN.findall(text))


@cache
def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts of a language; empty if the language is not in the tables."""
    code, rows = base_language(language), language_tables().languages_of_scripts.items()
    return next((tuple(scripts.split()) for scripts, codes in rows if code in codes.split()), ())


@cache
def _letters_of(scripts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(language_tables().scripts[name] for name in scripts)}]")


def foreign_script(text: str, scripts: tuple[str, ...]) -> str | None:
    """The script of a text, such as "cyrillic", if most of its letters belong to none of `scripts`; otherwise None."""
    if not scripts or (scripts[0] == "latin" and text.isascii()):
        return None
    if scripts == ("latin",) and not BEYOND_LATIN.search(text):
        return None
    letters = "".join(WORD.findall(text))
    if len(letters) < MIN_LETTERS:
        return None
    foreign = _letters_of(scripts).sub("", letters)
    if 2 * len(foreign) <= len(letters):
        return None
    return (
        unicodedata.name(foreign[0], "unknown").split()[0].lower()
    )  # "LATIN SMALL LETTER A" gives "latin"; "cjk" means Han
