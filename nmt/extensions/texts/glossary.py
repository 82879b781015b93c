"""Glossaries: terms and their required translations."""

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nmt.errors import InputError, quoted
from nmt.extensions.texts.placeholders import PLACEHOLDER
from nmt.extensions.texts.words import word_pattern
from nmt.text.corpus import checked_line, raw_lines

MAX_TERM_WORDS: Final = 50
HYPHENATION: Final = "\u00ad"
SAME_SIGNS: Final = str.maketrans("’ʼ‑‐", "''--")  # variants of apostrophes and hyphens


class Glossary:
    """Required translations by term. Terms match whole words; a term in lower case matches in any case.

    terms: an empty translation keeps the term as it is in the text; terms of more than MAX_TERM_WORDS words never match
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        # The outer key is the term in lower case. The inner key is the term as written, or None if it is in lower case.
        self._terms: dict[tuple[str, ...], dict[tuple[str, ...] | None, str]] = {}
        for term, translation in terms.items():
            if words := tuple(word_pattern().findall(_composed(term))):
                translations = self._terms.setdefault(tuple(map(str.casefold, words)), {})
                translations[None if term.islower() else words] = translation
        self._lengths = sorted(set(map(len, self._terms)), reverse=True)

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """Read a file of `TERM TAB TRANSLATION` lines. Raises UserError for an unreadable file, InputError for invalid lines."""
        terms: dict[str, str] = {}
        for number, raw in enumerate(raw_lines(path), 1):
            if not raw.strip():
                continue
            term, *texts = (" ".join(checked_line(path, number, column).split()) for column in raw.split(b"\t"))
            if not term or len(texts) != 1:
                raise InputError(
                    f"{quoted(path)}:{number}: {len(texts) + 1} columns instead of 2 (put a tab between term and translation)"
                )
            if (num_words := len(word_pattern().findall(term))) > MAX_TERM_WORDS:
                raise InputError(
                    f"{quoted(path)}:{number}: this term has {num_words:,} words, but at most {MAX_TERM_WORDS} are allowed"
                )
            if terms.setdefault(term, texts[0]) != texts[0]:
                raise InputError(
                    f"{quoted(path)}:{number}: '{quoted(term)}' already has a different translation (keep one)"
                )
        return cls(terms)

    def phrases(self, text: str) -> tuple[str, ...]:
        """The phrases that a text's translation must contain, in order. Of overlapping terms, the longest wins."""
        text = text.replace(HYPHENATION, "")
        # Placeholders and addresses are not text: `{dog}` stays unchanged.
        words = list(word_pattern().finditer(PLACEHOLDER.sub(lambda found: " " * len(found[0]), text)))
        composed = [_composed(word[0]) for word in words]
        phrases, at = [], 0
        while at < len(words):
            length, translation = self._longest(composed[at : at + MAX_TERM_WORDS])
            if length:
                phrases.append(translation or text[words[at].start() : words[at + length - 1].end()])
            at += length or 1
        return tuple(dict.fromkeys(phrases))

    def _longest(self, words: Sequence[str]) -> tuple[int, str]:
        """The longest term that a text starts with, as its number of words (0 for no term) and its translation."""
        folded = tuple(map(str.casefold, words))
        for length in (length for length in self._lengths if length <= len(words)):
            translations = self._terms.get(folded[:length], {})
            for written in (tuple(words[:length]), None):
                if written in translations:
                    return length, translations[written]
        return 0, ""


def _composed(text: str) -> str:
    """The text with composed accented letters if possible, and with a single kind of apostrophe and hyphen."""
    return unicodedata.normalize("NFC", text).translate(SAME_SIGNS)
