"""The text steps around a tokenizer that are no Unicode form (nmt.text.forms): casing, and truecasing as in Moses.

sentencepiece's own normalisation is switched off, so that no other file but those of forms and tokenizers alters text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nmt.errors import expecting
from nmt.text.languages import base_language

NOT_TEXT_BUT_LF: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # nmt.text.corpus.NOT_TEXT without LF
SENTENCE_ENDS: Final = frozenset(".:?!")  # the next word begins a sentence
# A sentence begins after these.
OPENING_MARKS: Final = frozenset(("(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"))

DOTTED_I: Final = ("az", "crh", "gag", "tr")  # languages in which \u0130 is the capital of i, and I that of \u0131
CAPITALS: Final = dict.fromkeys(DOTTED_I, ("i", "\u0130")) | {"nl": ("ij", "IJ"), "hy": ("\u0587", "\u0535\u057e")}


def lowered(text: str, language: str) -> str:
    """A text in lower case by the rules of its language."""
    if base_language(language) in DOTTED_I:
        text = text.replace("I\u0307", "i").replace("\u0130", "i").replace("I", "\u0131")
    return text.lower()


def capitalized(word: str, language: str) -> str:
    """A word with a capital at its start, that of a title, by the rules of its language."""
    small, capital = CAPITALS.get(base_language(language), ("", ""))
    return capital + word[len(small) :] if small and word.startswith(small) else word[:1].title() + word[1:]


def _words_with_starts(text: str, start: bool = True) -> Iterator[tuple[str, bool]]:
    """Each word of a tokenised text, and whether it begins a sentence. start: whether the first one does"""
    for word in text.split(" "):
        yield word, start
        start = word in SENTENCE_ENDS or (start and word in OPENING_MARKS)


def count_casings(texts: Iterable[str]) -> Counter[str]:
    """Counts of the words with letters inside sentences. texts: tokenised"""
    return Counter(
        word for text in texts for word, start in _words_with_starts(text) if not start and word.lower() != word.upper()
    )


class Truecaser:
    """The casings of each word that occurs inside sentences, the most frequent first, used as in Moses.

    train-truecaser.perl, truecase.perl: sentence starts get their casing inside sentences
    """

    suffix = ".case"

    def __init__(self, casings: Iterable[list[str]]) -> None:
        """casings: one list for each word. Raises ValueError for a list that is empty or of different words."""
        self._casings = list(casings)
        if any(not all(row) or len({word.lower() for word in row}) != 1 for row in self._casings):
            raise ValueError("casings that are not of one word")
        self._best: Final = {row[0].lower(): row[0] for row in self._casings}
        self._known: Final = frozenset(word for row in self._casings for word in row)

    @classmethod
    def learn(cls, counts: Mapping[str, int]) -> "Truecaser":
        """The truecaser of counted casings; of equal counts the first by code point is the best."""
        rows: dict[str, list[str]] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            rows.setdefault(word.lower(), []).append(word)
        return cls(rows[word] for word in sorted(rows))

    def __call__(self, text: str, begins: bool = True) -> str:
        """A tokenised text with sentence starts, and words in an unknown casing, in their best casing.

        begins: whether the text begins a sentence
        """
        return " ".join(
            self._best.get(word.lower(), word) if start or word not in self._known else word
            for word, start in _words_with_starts(text, begins)
        )

    @staticmethod
    def undo(text: str, language: str = "") -> str:
        """A tokenised text with a capital at the start of each sentence."""
        return " ".join(capitalized(word, language) if start else word for word, start in _words_with_starts(text))

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> "Truecaser":
        """The truecaser of a file's content. Raises ArtefactError, which names `place`, for anything else."""
        with expecting("a truecaser", place):
            return cls(line.split(" ") for line in content.decode().split("\n")[:-1])

    def to_bytes(self) -> bytes:
        return "".join(" ".join(row) + "\n" for row in self._casings).encode()
