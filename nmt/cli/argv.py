"""A command line, word by word: which words are flags, which are their values, and which belong to no flag."""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nmt.cli.parameters import Flag
from nmt.errors import UserError
from nmt.options import Option

FLAG: Final = re.compile(r"-[^\d.]")  # a word that begins so is a flag; -, -1 and -.5 are values
LETTER: Final = re.compile(r"-[^-\d.]")  # a flag of one letter, perhaps with its value attached
HELP: Final = ("--help", "-h")


class Given(NamedTuple):
    """What a command line gives.

    values: of options by path key: a text, a list of texts, or whether a flag without a value is on; "help" is one of them
    unknown: the words that look like flags of other options
    words: those that belong to no option
    """

    values: dict[str, Any]
    unknown: list[str]
    words: list[str]


def read_argv(
    argv: Sequence[str], options: Iterable[Option], flags: Mapping[str, Flag], greedy: bool, unfinished: bool = False
) -> Given:
    """Read a command line. Flags of other options may be in it, too; the words after them belong to no flag.

    options: words without a flag give the positional ones, in this order
    flags: by spelling
    greedy: whether a flag of any number of values takes all words up to the next flag, or one word
    unfinished: whether the last flag may be without its value, which a shell is about to complete
    Raises UserError for a flag without its value, and for a value that a flag does not take.
    """
    words, values, unknown, plain = deque(argv), dict[str, Any](), list[str](), list[str]()
    while words and words[0] != "--":
        word = words.popleft()
        spelling, attached = flag_in(word)
        if spelling in HELP:
            values["help"] = True
        elif not FLAG.match(word):
            plain.append(word)
        elif spelling not in flags:
            unknown.append(word)
        elif (option := flags[spelling].option).type is bool:
            values[option.path_key] = not flags[spelling].negated
            if attached and LETTER.match(word):
                words.appendleft(f"-{attached}")  # -qh is -q -h
            elif attached is not None:
                raise UserError(
                    f"flag '{spelling}' does not take a value (write {option.flag} or --no-{option.flag[2:]})"
                )
        else:
            count = option.count or (len(words) if greedy else 1)
            texts = [attached] if attached is not None else _values(words, count)
            if texts and option.count is None:
                values.setdefault(option.path_key, []).extend(texts)
            elif texts:
                values[option.path_key] = ",".join(texts)
            elif words or not unfinished:
                raise UserError(f"{option.flag} needs a value: {option.type_name} ({option.help})")
    plain += [*words][1:]  # all words after --
    return Given(values, unknown, _give_words(plain, options, values))


def flag_in(word: str) -> tuple[str, str | None]:
    """The flag of a word, and the value that may be attached: `--beam-size=4`, `-b4`, `-b=4`."""
    if LETTER.match(word):
        return word[:2], word[2:].removeprefix("=") if word[2:] else None
    flag, equals, value = word.partition("=")
    return flag, value if equals else None


def _values(words: deque[str], count: int) -> list[str]:
    """Take up to `count` words from the front, as far as there is no flag."""
    values: list[str] = []
    while words and len(values) < count and not FLAG.match(words[0]):
        values.append(words.popleft())
    return values


def _give_words(plain: Sequence[str], options: Iterable[Option], values: dict[str, Any]) -> list[str]:
    """Set the values of positional options, in their order, and return the words that are left."""
    left = [*plain]
    twice: list[str] = []  # words for options whose one value a flag gives
    for option in options:
        if not option.positional:
            continue
        count = len(left) if option.words is None else 1
        taken, left = left[:count], left[count:]
        if taken and option.count is None:
            values[option.path_key] = [*values.get(option.path_key, ()), *taken]
        elif option.path_key in values:
            twice += taken
        elif taken:
            values[option.path_key] = taken[0]
    return [*twice, *left]
