"""The words of a command line as values of options, in whichever form they are given."""

import re
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from nmt.errors import UserError, quoted
from nmt.options import Option

FLAG: Final = re.compile(r"-[^\d.]")  # a word that begins so is a flag; -, -1 and -.5 are values


class Flag(NamedTuple):
    """A spelling of an option. negated: it sets the option to no, as `--no-overwrite`"""

    option: Option
    negated: bool


@dataclass
class Arguments:
    """Values from a command line.

    values: by path key: a text, a list of texts where the option takes several, or a bool
    words: the words that belong to no known flag; after_dashes: those after `--`, never flags
    """

    values: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    after_dashes: list[str] = field(default_factory=list)

    def texts(self, key: str) -> list[str]:
        """The values of an option as a list."""
        value = self.values.get(key, [])
        return value if isinstance(value, list) else [value]


def flags_of(options: Iterable[Option], owner: str = "", taken: Container[str] = ()) -> dict[str, Flag]:
    """The flags of one owner's options by spelling; UserError where two options have one.

    owner: the name of the command or of the part, for the error
    taken: names that a path without the kind at its front must not begin with
    """
    flags: dict[str, Flag] = {}
    for option in options:
        short = option.path.partition(".")[2]
        paths = [option.path] if short.partition(".")[0] in taken else dict.fromkeys([option.path, short])
        for path in paths if not option.positional else ():
            for spelling, negated in option.spellings(path).items():
                if spelling in flags:
                    raise UserError(f"flag '{spelling}' of {owner} is also another option of it (rename one of them)")
                flags[spelling] = Flag(option, negated)
    return flags


def parse(argv: Sequence[str], flags: Mapping[str, Flag], greedy: bool) -> Arguments:
    """Read `--config FILE`, `--config=FILE`, `-c FILE`, `-c=FILE` and `-cFILE`; of a flag given twice the last counts.

    greedy: whether a flag of any number of values takes all words up to the next flag, `--train A B`, or one word,
        as it must where words without a flag have a meaning. Such a flag given twice collects all its values.
    Raises UserError for a flag without its value, and for a value of a flag that takes none.
    """
    arguments, words = Arguments(), deque(argv)
    while words:
        word = words.popleft()
        if word == "--":
            arguments.after_dashes = list(words)
            break
        spelling, attached = _divided(word)
        if spelling not in flags:
            arguments.words.append(word)
            continue
        option, negated = flags[spelling]
        key = option.path_key
        if option.type is bool:
            arguments.values[key] = not negated
            if attached is not None and spelling.startswith("--"):
                raise UserError(f"{spelling} takes no value, and was given '{quoted(attached)}'")
            if attached is not None:  # -qcFILE is -q -cFILE
                words.appendleft(f"-{attached}")
            continue
        count = option.count or (len(words) if greedy else 1)
        values = _take(words, count) if attached is None else [attached]
        if not values:
            raise UserError(f"{option.flag} needs a value: {option.type_name} ({option.help})")
        if option.count is None:
            values = [*arguments.texts(key), *values]
        arguments.values[key] = values[-1] if option.count == 1 else values
    return arguments


def _divided(word: str) -> tuple[str, str | None]:
    """A word as a flag and the value attached to it, if any."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag, value if equals else None
    if FLAG.match(word) and len(word) > 2:
        return word[:2], word[2:].removeprefix("=")
    return word, None


def _take(words: deque[str], count: int) -> list[str]:
    """Remove the words up to the next flag from the front of `words`, at most `count` of them."""
    values: list[str] = []
    while words and len(values) < count and not FLAG.match(words[0]):
        values.append(words.popleft())
    return values
