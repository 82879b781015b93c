"""Text steps around the tokenizer: lower-casing, and truecasing as in Moses. nmt.text.forms has the Unicode forms.

sentencepiece's own normalisation is switched off, so that only this module, the Unicode forms and tokenizers alter text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nmt.errors import expecting
from nmt.text.languages import base_language

NOT_TEXT_BUT_LF: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # nmt.text.corpus.NOT_TEXT without LF
SENTENCE_ENDS: Final = frozenset(".:?!")  # after these, the next word starts a sentence
# If a sentence starts with one of these, the next word also counts as its start.
OPENING_MARKS: Final = frozenset(("(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"))

DOTTED_I: Final = (
    "az",
    "crh",
    "gag",
    "tr",
)  # languages in which \u0130 is the capital of i, and I is the capital of \u0131
CAPITALS: Final = dict.fromkeys(DOTTED_I, ("i", "\u0130")) | {"nl": ("ij", "IJ"), "hy": ("\u0587", "\u0535\u057e")}


def lowered(text: str, language: str) -> str:
    """Lower-case a text according to the rules of its language."""
    if base_language(language) in DOTTED_I:
        text = text.replace("I\u0307", "i").replace("\u0130", "i").replace("I", "\u0131")
    return text.lower()


def capitalized(word: str, language: str) -> str:
    """Capitalise the start of a word (in title case) according to the rules of its language."""
    small, capital = CAPITALS.get(base_language(language), ("", ""))
    return capital + word[len(small) :] if small and word.startswith(small) else word[:1].title() + word[1:]


def _words_with_starts(text: str, start: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield each word of a tokenised text, and whether it starts a sentence. start: whether the first word starts one"""
    for word in text.split(" "):
        yield word, start
        start = word in SENTENCE_ENDS or (start and word in OPENING_MARKS)


def count_casings(texts: Iterable[str]) -> Counter[str]:
    """Count the cased words that do not start a sentence. texts: tokenised texts"""
    return Counter(
        word for text in texts for word, start in _words_with_starts(text) if not start and word.lower() != word.upper()
    )


class Truecaser:
    """Gives the first word of a sentence the case that it usually has inside sentences.

    Works like Moses' train-truecaser.perl and truecase.perl.
    """

    suffix = ".case"

    def __init__(self, casings: Iterable[list[str]]) -> None:
        """casings: one list per word, with its most frequent casing first. Raises ValueError for other lists."""
        self._casings = list(casings)
        if any(not all(row) or len({word.lower() for word in row}) != 1 for row in self._casings):
            raise ValueError("each list must contain casings of one word")
        self._best: Final = {row[0].lower(): row[0] for row in self._casings}
        self._known: Final = frozenset(word for row in self._casings for word in row)

    @classmethod
    def learn(cls, counts: Mapping[str, int]) -> "Truecaser":
        """Build a truecaser from counts of casings. Ties are broken by code point."""
        rows: dict[str, list[str]] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            rows.setdefault(word.lower(), []).append(word)
        return cls(rows[word] for word in sorted(rows))

    def __call__(self, text: str, starts_sentence: bool = True) -> str:
        """Give sentence starts, and words in an unknown casing, their most frequent casing.

        text: tokenised; starts_sentence: whether the text starts a sentence
        """
        return " ".join(
            self._best.get(word.lower(), word) if start or word not in self._known else word
            for word, start in _words_with_starts(text, starts_sentence)
        )

    @staticmethod
    def undo(text: str, language: str = "") -> str:
        """Capitalise the start of each sentence of a tokenised text."""
        return " ".join(capitalized(word, language) if start else word for word, start in _words_with_starts(text))

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> "Truecaser":
        """Load a truecaser from a file's content. Raises ArtefactError if it is invalid. place: location, for messages"""
        with expecting("a truecaser", place):
            return cls(line.split(" ") for line in content.decode().split("\n")[:-1])

    def to_bytes(self) -> bytes:
        return "".join(" ".join(row) + "\n" for row in self._casings).encode()
