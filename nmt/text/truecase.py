"""Truecasing as Moses has it (train-truecaser.perl, truecase.perl): the first word of a sentence as it is written inside one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nmt.errors import ArtefactError, quoted

SENTENCE_ENDS: Final = frozenset(".:?!")  # the next word begins a sentence
STAY_AT_THE_START: Final = frozenset(("(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"))  # and these do not


def _with_starts(words: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each word, and whether it begins a sentence."""
    start = True
    for word in words:
        yield word, start
        if word in SENTENCE_ENDS:
            start = True
        elif word not in STAY_AT_THE_START:
            start = False


def count_casings(texts: Iterable[str]) -> Counter[str]:
    """How often each word that has a letter stands inside a sentence. texts: tokenised"""
    return Counter(
        word
        for text in texts
        for word, start in _with_starts(text.split(" "))
        if not start and word.lower() != word.upper()
    )


class Truecaser:
    """The casings of words that were met inside sentences, the most frequent of a word first."""

    suffix = ".case"

    def __init__(self, casings: Iterable[list[str]]) -> None:
        """casings: those of each word; ValueError where they are none or not of one word."""
        self._casings = list(casings)
        if any(not all(row) or len({word.lower() for word in row}) != 1 for row in self._casings):
            raise ValueError("casings that are not of one word")
        self._best: Final = {row[0].lower(): row[0] for row in self._casings}
        self._known: Final = frozenset(word for row in self._casings for word in row)

    @classmethod
    def learn(cls, counts: Mapping[str, int]) -> "Truecaser":
        """Of equals the first by code point is the best."""
        rows: dict[str, list[str]] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            rows.setdefault(word.lower(), []).append(word)
        return cls(rows[word] for word in sorted(rows))

    def __call__(self, text: str) -> str:
        """A tokenised text, truecased: the start of a sentence, and words of a casing never met."""
        return " ".join(
            self._best.get(word.lower(), word) if start or word not in self._known else word
            for word, start in _with_starts(text.split(" "))
        )

    @staticmethod
    def undo(text: str) -> str:
        """A tokenised text with a capital at the start of each sentence."""
        return " ".join(word[:1].upper() + word[1:] if start else word for word, start in _with_starts(text.split(" ")))

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> "Truecaser":
        try:
            return cls(line.split(" ") for line in content.decode().split("\n")[:-1])
        except ValueError as error:
            raise ArtefactError(f"{quoted(place)}: not a truecaser: {error}") from None

    def to_bytes(self) -> bytes:
        return "".join(" ".join(row) + "\n" for row in self._casings).encode()
