"""Words with the parts of the meaning that they express, which determine the word alignment of two languages."""

from collections.abc import Iterable
from functools import cache

Links = set[tuple[int, int]]


class Word(str):
    """A word of a sentence.

    expresses: names of the parts of the meaning that it stands for
    supports: names of the parts that another word expresses with its help
    """

    expresses: frozenset[str]
    supports: frozenset[str]

    def __new__(cls, text: str, expresses: Iterable[str] = (), supports: Iterable[str] = ()) -> "Word":
        word = super().__new__(cls, text)
        word.expresses, word.supports = frozenset(expresses), frozenset(supports)
        return word


@cache
def _word(text: str, part: str) -> Word:
    return Word(text, [part])


def expressing(part: str, *words: str) -> list[str]:
    """Words that express a part of the meaning."""
    return [_word(word, part) for word in words]


def supporting(part: str, *words: str) -> list[str]:
    """Words that support a part of the meaning: "to" of "to see"."""
    return [Word(word, supports=[part]) for word in words]


def expressing_also(part: str, word: str) -> str:
    """A copy of a word that expresses one more part."""
    assert isinstance(word, Word)
    return Word(word, word.expresses | {part}, word.supports)


def within(name: str, words: list[str]) -> list[str]:
    """Prefix the parts of words with the name of their clause, subject, etc."""
    return [
        _word_within(name, word, word.expresses, word.supports) if isinstance(word, Word) else word for word in words
    ]


@cache
def _word_within(name: str, text: str, expresses: frozenset[str], supports: frozenset[str]) -> Word:
    return Word(text, (f"{name} {part}" for part in expresses), (f"{name} {part}" for part in supports))


def adverbial(part: str, text: str) -> list[str]:
    """A time or place, "in front of the house". Its first word, its article and its noun express different parts."""
    first, *middle = text.split()
    words = expressing(f"first {part}", first)
    if first in ("im", "am"):  # in dem, an dem
        words = [expressing_also(f"article {part}", words[0])]
    if not middle:
        return [expressing_also(f"noun {part}", words[0])]
    *more, noun = middle
    if more:
        words += [*supporting(f"first {part}", *more[:-1]), *expressing(f"article {part}", more[-1])]
    return [*words, *expressing(f"noun {part}", noun)]


def links(source: list[str], target: list[str]) -> tuple[Links, Links]:
    """The word alignment of two sentences: the sure pairs, and all possible ones, as (source, target) from 0.

    Sure pairs express the same part of the meaning. Possible pairs express and support it. Commas belong to the word
    before them.
    """
    sides = [[word for word in words if isinstance(word, Word) and word != ","] for words in (source, target)]
    sure, possible = set(), set()
    for i, s in enumerate(sides[0]):
        for j, t in enumerate(sides[1]):
            if s.expresses & t.expresses:
                sure.add((i, j))
            if s.expresses & (t.expresses | t.supports) or s.supports & t.expresses:
                possible.add((i, j))
    return sure, possible
