"""A glossary: terms and the translations that a translation of a text with them has to contain."""

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
SAME_SIGNS: Final = str.maketrans("’ʼ‑‐", "''--")  # apostrophes and hyphens


class Glossary:
    """Translations by term. A term in lower case is found in any case, any other as it is written; whole words only.

    terms: an empty translation stands for the term as the text has it; one of more than MAX_TERM_WORDS is not found
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        # By words in any case: the translations by the words as they are written, None for a term in lower case.
        self._terms: dict[tuple[str, ...], dict[tuple[str, ...] | None, str]] = {}
        for term, translation in terms.items():
            if words := tuple(word_pattern().findall(_composed(term))):
                of_words = self._terms.setdefault(tuple(map(str.casefold, words)), {})
                of_words[None if term.islower() else words] = translation
        self._lengths = sorted(set(map(len, self._terms)), reverse=True)

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """Read a file: a term, a tab and its translation on each line. Raises InputError for any other line, UserError."""
        terms: dict[str, str] = {}
        for number, raw in enumerate(raw_lines(path), 1):
            if not raw.strip():
                continue
            term, *texts = (" ".join(checked_line(path, number, column).split()) for column in raw.split(b"\t"))
            if not term or len(texts) != 1:
                raise InputError(
                    f"{quoted(path)}:{number}: {len(texts) + 1} columns; must be a term and its translation, divided by a tab"
                )
            if (num_words := len(word_pattern().findall(term))) > MAX_TERM_WORDS:
                raise InputError(
                    f"{quoted(path)}:{number}: a term of {num_words:,} words; at most {MAX_TERM_WORDS} are found in a text"
                )
            if terms.setdefault(term, texts[0]) != texts[0]:
                raise InputError(f"{quoted(path)}:{number}: a second translation of '{quoted(term)}'")
        return cls(terms)

    def phrases(self, text: str) -> tuple[str, ...]:
        """What the translation of a text has to contain, in the order of the terms; of terms that overlap the longest."""
        text = text.replace(HYPHENATION, "")
        # A placeholder or an address is no text: `{dog}` stays so.
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
        """The words of the longest term that a text begins with, and its translation; 0 without one."""
        folded = tuple(map(str.casefold, words))
        for length in (length for length in self._lengths if length <= len(words)):
            translations = self._terms.get(folded[:length], {})
            for written in (tuple(words[:length]), None):
                if written in translations:
                    return length, translations[written]
        return 0, ""


def _composed(text: str) -> str:
    """The text with each accented letter as one character, where there is one, and with one kind of apostrophe and hyphen."""
    return unicodedata.normalize("NFC", text).translate(SAME_SIGNS)
