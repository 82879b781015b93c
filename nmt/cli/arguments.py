"""The words of a command line in one form, `--flag=value`, in whichever form they were given."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from nmt.errors import UserError, quoted
from nmt.options import Option

FLAG: Final = re.compile(r"-[^\d.]")  # what begins so is a flag; -, -1 and -.5 are values


def one_form(argv: Sequence[str], options: Iterable[Option], greedy: bool) -> list[str]:
    """argv with every known flag and its value as one word: `-cFILE`, `-c=FILE` and `-c FILE` become `--config=FILE`.

    `--train A B` becomes `--train=A --train=B`; of a flag with a fixed number of values the last wins, as of one with a
    single value. Flags that are not among the options stay as they are. Raises UserError for a flag without its value.
    greedy: whether a flag of any number of values takes all words that follow; where words without a flag mean something
    too it takes one.
    """
    known = {spelling: option for option in options for spelling in option.spellings}
    words, result = deque(argv), list[str]()
    while words:
        word = words.popleft()
        if word == "--":
            return [*result, word, *words]
        flag, attached = _divided(word)
        option = known.get(flag)
        if option is None:
            result.append(word)
        elif option.type is bool:
            result.append(flag if flag == option.spellings[-1] else option.flag)
            if attached is not None and flag.startswith("--"):
                raise UserError(f"{flag} takes no value, and was given '{quoted(attached)}'")
            if attached is not None:  # -qcFILE is -q -cFILE
                words.appendleft(f"-{attached}")
        else:
            most = option.count or (len(words) if greedy else 1)
            values = _taken(words, most) if attached is None else [attached]
            if not values:
                raise UserError(f"{option.flag} needs a value: {option.type_name} ({option.help})")
            if option.count is not None:
                result = [earlier for earlier in result if not earlier.startswith(f"{option.flag}=")]
            result += [f"{option.flag}={value}" for value in values]
    return result


def _divided(word: str) -> tuple[str, str | None]:
    """A word as a flag and the value attached to it, if any."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag, value if equals else None
    if FLAG.match(word) and len(word) > 2:
        return word[:2], word[2:].removeprefix("=")
    return word, None


def _taken(words: deque[str], most: int) -> list[str]:
    """The words up to the next flag, `most` at most, taken away from `words`."""
    values: list[str] = []
    while words and len(values) < most and not FLAG.match(words[0]):
        values.append(words.popleft())
    return values


def given(argv: Sequence[str], flag: str) -> list[str]:
    """The values of a flag among words of one form, in order."""
    return [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
