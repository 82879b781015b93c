"""The text steps between Unicode forms (nmt.text.forms) and subwords: tokenizers, and truecasing as in Moses.

To add a tokenizer, write a class with the methods of `Tokenizer` and name it in `TOKENIZERS`. sentencepiece's own normalisation
is switched off, so that no other file alters text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from nmt.errors import expecting
from nmt.text.languages import base_language

NOT_TEXT_BUT_LF: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # nmt.text.corpus.NOT_TEXT without LF
SENTENCE_ENDS: Final = frozenset(".:?!")  # the next word begins a sentence
# A sentence begins after these.
OPENING_MARKS: Final = frozenset(("(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"))


class Tokenizer(Protocol):
    """A tokenizer of one language. It is pickled for worker processes."""

    def tokenize(self, text: str) -> str:
        """A line of text with one space between its words."""

    def detokenize(self, text: str) -> str:
        """The line as it is written, of one that was tokenised."""


@dataclass(frozen=True)
class NoTokenizer:
    """Words are what stands between spaces."""

    language: str

    def tokenize(self, text: str) -> str:
        return text

    def detokenize(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class MosesTokenizer:
    """The Moses tokenizer (sacremoses).

    is_aggressive: whether hyphens inside words are split off as @-@, and characters with a meaning in HTML are escaped, as
        by `tokenizer.perl -a`, and in data that fairseq's scripts prepare
    """

    language: str
    is_aggressive: bool = False

    def tokenize(self, text: str) -> str:
        more = self.is_aggressive
        return str(self._moses[0].tokenize(text, aggressive_dash_splits=more, escape=more, return_str=True))

    def detokenize(self, text: str) -> str:
        return str(self._moses[1].detokenize(text.split(" "), unescape=self.is_aggressive))

    @cached_property
    def _moses(self) -> tuple[Any, Any]:
        import sacremoses  # imported when used: it takes a second

        language = base_language(self.language)  # it knows no code with a region
        return sacremoses.MosesTokenizer(lang=language), sacremoses.MosesDetokenizer(lang=language)


TOKENIZERS: Final[Mapping[str, Callable[[str], Tokenizer]]] = {
    "none": NoTokenizer,
    "moses": MosesTokenizer,
    "moses-aggressive": partial(MosesTokenizer, is_aggressive=True),
}
if TYPE_CHECKING:
    TokenizerName = str
else:
    TokenizerName = Literal[tuple(TOKENIZERS)]  # the choices of `--tokenizer`


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
    def undo(text: str) -> str:
        """A tokenised text with a capital at the start of each sentence."""
        return " ".join(word[:1].title() + word[1:] if start else word for word, start in _words_with_starts(text))

    @classmethod
    def from_bytes(cls, content: bytes, place: object) -> "Truecaser":
        """The truecaser of a file's content. Raises ArtefactError, which names `place`, for anything else."""
        with expecting("a truecaser", place):
            return cls(line.split(" ") for line in content.decode().split("\n")[:-1])

    def to_bytes(self) -> bytes:
        return "".join(" ".join(row) + "\n" for row in self._casings).encode()
