"""Words from other toolkits, and their equivalents in nmt. Only errors and the page about other toolkits use them."""

import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

PEERS_FILE: Final = Path(__file__).with_name("peers.toml")
VALUE_PLACEHOLDER: Final = re.compile(r"\{([A-Z]+)(?:\.\.\.)?\}")
PATTERNS: Final = {
    "N": r"\d[\d.,e+-]*",
    "LANG": r"[a-z]{2,3}(?:[-_]\w+)?",
}  # what some placeholders stand for; the others stand for any word


class Answer(NamedTuple):
    """The answer to a word from another toolkit.

    text: advice on what to do, for the error
    words: the words that replace the flag and its values; None if only the user can choose them
    num_values: how many values belong to the flag
    is_same: whether the replacement means exactly the same thing
    """

    text: str
    words: Sequence[str] | None
    num_values: int
    is_same: bool


@cache
def tables() -> dict[str, dict[str, str]]:
    """The tables of the file by name: "commands", and one table of flags per command. Phrases are filled in."""
    import tomllib

    found: dict[str, Any] = tomllib.loads(PEERS_FILE.read_text(encoding="utf-8"))
    phrases = found.pop("phrases")

    def filled(text: str) -> str:
        return re.sub(r"\{([a-z_]+)\}", lambda match: phrases[match[1]], text)

    return {name: {word: filled(text) for word, text in table.items()} for name, table in found.items()}


def readable(text: str) -> str:
    """A word or an answer from the file, without the markers that only `answer` needs."""
    return VALUE_PLACEHOLDER.sub(r"\1", text.removeprefix("= ")).replace("drop: ", "no equivalent: ")


def answer(command: str, flag: str, values: Sequence[str]) -> Answer | None:
    """The answer to a flag of another toolkit; None if the flag is unknown. values: the words after it, up to the next flag"""
    rows = _by_flag(command).get(flag if len(flag) == 2 else long_flag(flag), ())
    for patterns, text in rows:
        if (named := _match(patterns, values)) is not None:
            return _answer(text, named, len(patterns) if "..." not in "".join(patterns) else len(values))
    return _answer(rows[-1][1], {}, 0)._replace(words=None) if rows else None


def long_flag(flag: str) -> str:
    """A flag as nmt spells it: `-beam_size` becomes `--beam-size`."""
    return f"--{flag.lstrip('-').replace('_', '-')}"


def has(command: str, flag: str) -> bool:
    """Whether there is an answer to a long flag."""
    return long_flag(flag) in _by_flag(command)


@cache
def _by_flag(command: str) -> dict[str, list[tuple[list[str], str]]]:
    """The answers to each flag, with patterns for the flag's values, in the order of the file."""
    rows: dict[str, list[tuple[list[str], str]]] = {}
    for key, text in tables().get(command, {}).items():
        flag, *patterns = key.split()
        flag = flag if len(flag) == 2 else long_flag(flag)
        rows.setdefault(flag, []).append((patterns, text))
    return rows


def _match(patterns: Sequence[str], values: Sequence[str]) -> dict[str, list[str]] | None:
    """The values that placeholders stand for, by name; None if the patterns do not match."""
    named: dict[str, list[str]] = {}
    if len(values) < len(patterns):
        return None
    for number, pattern in enumerate(patterns):
        if pattern.endswith("...}"):
            named[pattern.strip("{.}")] = list(values[number:])
            break
        names = VALUE_PLACEHOLDER.findall(pattern)
        parts = [re.escape(part) for part in re.split(r"\{[A-Z]+\}", pattern)]
        groups = [f"({PATTERNS.get(name, '.+')})" for name in names]
        expression = parts[0] + "".join(group + part for group, part in zip(groups, parts[1:], strict=True))
        if (found := re.fullmatch(expression, values[number])) is None:
            return None
        if "LANG" in names and Path(values[number]).exists():
            return None
        named |= {name: [value] for name, value in zip(names, found.groups(), strict=True)}
    return named


def _answer(text: str, named: dict[str, list[str]], num_values: int) -> Answer:
    head, separator, remark = text.removeprefix("= ").partition("; ")
    words = list[str]()
    if head.startswith("-"):
        for word in head.split():
            if word.endswith("...}"):
                words += named.get(word.strip("{.}"), [word.strip("{}")])
            else:
                words.append(VALUE_PLACEHOLDER.sub(lambda match: named.get(match[1], [match[1]])[0], word))
        told = f"use {shlex.join(words)}{separator}{remark}"
    else:
        told = VALUE_PLACEHOLDER.sub(r"\1", text).replace("drop: ", "drop it: ")
    return Answer(told, None if head.startswith("use ") else words, num_values, text.startswith("= "))
