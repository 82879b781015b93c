"""Warnings about the lines of a text. The first of each kind are logged, and all are counted."""

from collections.abc import Callable, Sequence
from typing import Final

from nmt.log import log
from nmt.translate.results import (
    BROKEN,
    REPAIRED,
    RETRIED,
    TRUNCATED,
    TRUNCATED_TEXT,
    UNCHANGED,
    UNKNOWN_TAG,
    UNKNOWN_TOKENS,
    WITHHELD,
    Translation,
)

MAX_LOGGED: Final = 10  # maximum number of logged messages of one kind
NOT_UTF8: Final = "not UTF-8"
NOT_TRANSLATED: Final = "not translated"
LOST_MARKUP: Final = "left untranslated"  # document segments whose translation lacks a tag or placeholder
COUNTED: Final = {  # kinds whose lines are counted at the end, and how the counts are worded
    NOT_UTF8: NOT_UTF8,
    TRUNCATED: TRUNCATED,
    TRUNCATED_TEXT: "with too many characters",
    UNKNOWN_TOKENS: f"with {UNKNOWN_TOKENS}",
    UNKNOWN_TAG: f"with an {UNKNOWN_TAG}",
    NOT_TRANSLATED: NOT_TRANSLATED,
    REPAIRED: "translated again",
    BROKEN: "with a translation that looks broken",
    LOST_MARKUP: LOST_MARKUP,
    UNCHANGED: UNCHANGED,
    WITHHELD: f"{WITHHELD} because of low confidence",
}


class RateLimitedWarnings:
    """Messages of one kind. The first ones are logged, and all are counted. write: logs a message"""

    def __init__(self, write: Callable[[str], None], max_logged: int = MAX_LOGGED) -> None:
        self.count = 0
        self._write, self._max_logged = write, max_logged

    def add(self, message: str) -> None:
        self.count += 1
        if self.count <= self._max_logged:
            is_last = self.count == self._max_logged
            self._write(message + (" (further lines of this kind are only counted)" if is_last else ""))


class LineWarnings:
    """Warnings about the lines of one text, by kind.

    place: name of the text in messages
    length_flag: the flag that sets the maximum length, for messages about truncated lines; empty if there is none
    """

    def __init__(self, place: str, length_flag: str = "--max-source-length") -> None:
        self.place, self._length_hint = place, f" ({length_flag})" if length_flag else ""
        self._kinds = {kind: RateLimitedWarnings(log.warn) for kind in (*COUNTED, RETRIED)}
        self._kinds[UNKNOWN_TOKENS] = RateLimitedWarnings(log.warn, max_logged=1)
        self._kinds[NOT_TRANSLATED] = RateLimitedWarnings(log.error)

    @property
    def num_failed(self) -> int:
        """The number of lines without a translation."""
        return self._kinds[NOT_TRANSLATED].count

    @property
    def num_withheld(self) -> int:
        """The number of lines with a withheld translation."""
        return self._kinds[WITHHELD].count

    def add(self, kind: str, position: object, message: str) -> None:
        """Log or count a warning. position: line number, from 1, with the byte if known: `5` or `5:12`"""
        self._kinds[kind].add(f"{self.place}:{position}: {message}{self._length_hint if kind == TRUNCATED else ''}")

    def add_translations(self, translations: Sequence[Translation], first: int = 1) -> None:
        """Log or count the warnings and failures of translations. first: line number of the first translation"""
        for number, translation in enumerate(translations, first):
            for kind, message in translation.warnings.items():
                self.add(kind, number, message)
            if translation.error:
                self.add(NOT_TRANSLATED, number, f"not translated: {translation.error}")

    def log_counts(self) -> None:
        """Log the number of lines of each kind, if there are any."""
        counts = {words: self._kinds[kind].count for kind, words in COUNTED.items()}
        if any(counts.values()):
            named = ", ".join(f"{count:,} {words}" for words, count in counts.items() if count)
            log.warn(f"{self.place}: affected lines: {named}")
