"""Words that know what they say of a meaning, and by that which words of two languages translate each other."""

from collections.abc import Iterable

Links = set[tuple[int, int]]


class Word(str):
    """A word. says: the parts of the meaning that it stands for, by name; helps: those it only helps another to say."""

    says: frozenset[str]
    helps: frozenset[str]

    def __new__(cls, text: str, says: Iterable[str] = (), helps: Iterable[str] = ()) -> "Word":
        word = super().__new__(cls, text)
        word.says, word.helps = frozenset(says), frozenset(helps)
        return word


def saying(part: str, *words: str) -> list[str]:
    """Words that say a part of the meaning."""
    return [Word(word, [part]) for word in words]


def helping(part: str, *words: str) -> list[str]:
    """Words without which others do not say their part: "to" of "to see"."""
    return [Word(word, helps=[part]) for word in words]


def also(part: str, word: str) -> str:
    """A word that says one part more."""
    assert isinstance(word, Word)
    return Word(word, word.says | {part}, word.helps)


def under(name: str, words: list[str]) -> list[str]:
    """The words of a part of the meaning, within which names are its own."""

    def within(parts: frozenset[str]) -> list[str]:
        return [f"{name} {part}" for part in parts]

    return [Word(word, within(word.says), within(word.helps)) if isinstance(word, Word) else word for word in words]


def adverb(part: str, text: str) -> list[str]:
    """A time or a place, "in front of the house": its first word, its article and its noun have names of their own."""
    first, *middle = text.split()
    words = saying(f"first {part}", first)
    if first in ("im", "am"):  # in dem, an dem
        words = [also(f"article {part}", words[0])]
    if not middle:
        return [also(f"noun {part}", words[0])]
    *more, noun = middle
    if more:
        words += [*helping(f"first {part}", *more[:-1]), *saying(f"article {part}", more[-1])]
    return [*words, *saying(f"noun {part}", noun)]


def links(source: list[str], target: list[str]) -> tuple[Links, Links]:
    """Pairs of words that translate each other, (source, target) counted from 0: the sure ones, and all possible ones.

    Sure: both say the same part of the meaning. Possible: one says it, and the other helps to. Commas do not count as
    words: they belong to the word before them.
    """
    sides = [[word for word in words if isinstance(word, Word) and word != ","] for words in (source, target)]
    sure, possible = set(), set()
    for i, one in enumerate(sides[0]):
        for j, other in enumerate(sides[1]):
            if one.says & other.says:
                sure.add((i, j))
            if one.says & (other.says | other.helps) or one.helps & other.says:
                possible.add((i, j))
    return sure, possible
