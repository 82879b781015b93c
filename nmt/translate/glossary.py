"""A glossary: terms and the translations that a translation of a text with them has to contain."""

import re
from collections.abc import Mapping
from pathlib import Path

from nmt.errors import InputError, quoted
from nmt.text.corpus import checked_line, raw_lines


class Glossary:
    """Translations by term. A term in lower case is found in any case, any other as it is written; whole words only.

    terms: an empty translation stands for the term as the text has it
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        terms = {term: text for term, text in terms.items() if term.strip()}
        self._translations = {(term.casefold() if term.islower() else term): text for term, text in terms.items()}
        longest_first = "|".join(map(re.escape, sorted(terms, key=len, reverse=True)))
        self._terms = re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)", re.IGNORECASE) if terms else None

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
            if terms.setdefault(term, texts[0]) != texts[0]:
                raise InputError(f"{quoted(path)}:{number}: a second translation of '{quoted(term)}'")
        return cls(terms)

    def phrases(self, text: str) -> tuple[str, ...]:
        """What the translation of a text has to contain, in the order of the terms; overlapping terms: the longest."""
        found = [] if self._terms is None else [match[0] for match in self._terms.finditer(text)]
        phrases = [(term, self._translations.get(term, self._translations.get(term.casefold()))) for term in found]
        return tuple(dict.fromkeys(text or term for term, text in phrases if text is not None))
