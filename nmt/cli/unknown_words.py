"""Errors of a command line: what means nothing, and what is missing, with what was probably meant."""

import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from nmt import registry
from nmt.cli.parameters import LETTER, flags_of
from nmt.cli.settings import OptionTable
from nmt.errors import UserError, nearest, quoted, unknown
from nmt.options import REQUIRED, Option, flag_of

PEERS_FILE: Final = Path(__file__).with_name("peers.toml")
YES_OR_NO: Final = ("no", "false", "0", "off", "yes", "true", "on")


def unknown_flag(command: str, word: str, words: Sequence[str], table: OptionTable) -> UserError:
    """The error for a flag that the command does not have. word: with its value, if that is attached; words: all of them"""
    if error := _flag_of_peers(command, words):
        return error
    flag = _flag_in(word)
    if len(claims := table.claims.get(flag, ())) > 1:
        flags = " or ".join(flag_of(claim.option.path_key) for claim in claims)
        return UserError(f"flag '{flag}' is ambiguous (write {flags})")
    if inner := [option.flag for option in table.options if "." in option.path and flag in option.spellings()]:
        return UserError(f"unknown flag '{flag}' (write {' or '.join(inner)})")
    if parts := _parts_with(flag, table):
        return UserError(f"unknown flag '{flag}' (it belongs to {', '.join(parts)})")
    if LETTER.match(word):
        long = sorted({option.flag for option in table.options if option.flag.startswith(f"-{flag.lower()}")})
        hint = f"write a flag in full: {', '.join(long)}" if long else f"`nmt help {command}` lists the flags"
        return UserError(f"unknown flag '{flag}' ({hint})")
    error, near = unknown("flag", flag, table.flags, f"nmt help {command}"), nearest(flag, table.flags)
    if len(near) == 1:
        corrected = [near[0] + word.removeprefix(flag) if other == word else other for other in words]
        error = UserError(f"{error}: {_line(command, corrected)}")
    return error


def yes_or_no(command: str, word: str, words: Sequence[str], table: OptionTable) -> UserError | None:
    """The error for a word that says yes or no after a flag that takes no value; None for any other word."""
    before = words[max(0, words.index(word) - 1)]
    switches = (option for option in table.options if option.type is bool and before in option.spellings())
    if word.lower() not in YES_OR_NO or (option := next(switches, None)) is None:
        return None
    return UserError(f"unexpected argument '{word}' (write {option.flag} for yes, --no-{option.flag[2:]} for no)")


def stray_word(command: str, word: str, words: Sequence[str], table: OptionTable, more_words: str = "") -> UserError:
    """The error for a word too many. more_words: what to write in its place, if the command says so"""
    if error := _flag_of_peers(command, words):
        return error
    given, at = {_flag_in(each) for each in words}, words.index(word)
    lacking = [
        o for o in table.options if o.default is REQUIRED and not o.positional and given.isdisjoint(o.spellings())
    ]
    twice = [
        o.flag for o in table.options if o.positional and o.count is not None and not given.isdisjoint(o.spellings())
    ]
    if twice:
        hint = f"{twice[0]} is given too: drop one of them"
    elif more_words:
        hint = more_words
    elif len(lacking) == 1:
        hint = f"did you mean {_line(command, [*words[:at], lacking[0].flag, *words[at:]])}?"
    else:
        labels = " ".join(each.label for each in table.options if each.positional)
        hint = f"{_line(command, labels.split())} takes no further word; `nmt help {command}` lists the flags"
    return UserError(f"unexpected argument '{quoted(word)}' ({hint})")


def missing(
    command: str, options: Sequence[Option], words: Sequence[str], plain: Sequence[str], table: OptionTable
) -> UserError:
    """The error for required options that nobody has set, with the command line that sets them too.

    words: all of the command line; plain: those without a flag
    """
    *others, last = (option.label for option in options)
    labels = f"{', '.join(others)} and {last}" if others else last
    what = f"{labels} is missing: {options[0].help}" if len(options) == 1 else f"{labels} are missing"
    given = {_flag_in(word) for word in words}
    letters = [
        f"{flag} is {other.flag}"  # fairseq's -s is a language, and ours a file
        for other in table.options
        if any(option.flag.startswith(other.flag + "-") for option in options)
        for flag in other.spellings()
        if flag in given and len(flag) == 2
    ]
    if letters:
        return UserError("; ".join([what, *letters]))
    folder = next((word for word in plain if word in words and Path(word).is_dir()), None)
    if folder is not None and any(option.name == "model" for option in options):
        at = words.index(folder)
        return UserError(f"{what} (write {_line(command, [*words[:at], '--model', *words[at:]])})")
    after = max((words.index(word) + 1 for word in plain if word in words), default=0)
    flags = [word for option in options if not option.positional for word in (option.flag, option.name.upper())]
    line = [*words[:after], *(option.label for option in options if option.positional), *words[after:], *flags]
    return UserError(f"{what} (write {_line(command, line)})")


def _line(command: str, words: Sequence[str]) -> str:
    """A command line as a shell takes it, for a message."""
    return f"`{quoted(shlex.join(['nmt', command, *words]))}`"


def _flag_in(word: str) -> str:
    """The flag of a word that may have its value attached: `--beam-size=4`, `-b4`."""
    return word[:2] if LETTER.match(word) else word.partition("=")[0]


def name_of_peers(error: UserError) -> UserError | None:
    """The error in place of one that quotes another toolkit's name of a component or preset; None if it quotes none."""
    names = peers()["names"]
    given = next((name for name in names if f"'{name}'" in str(error)), None)
    return UserError(f"unknown name '{given}' (here: {names[given]})") if given else None


def unknown_command(name: str, words: Sequence[str], known: Iterable[str]) -> UserError:
    """The error for a command that there is not. words: those after it"""
    if answer := peers()["commands"].get(name):
        return UserError(f"unknown command '{name}' (here: {answer})")
    error, near = unknown("command", name, known, "nmt help"), nearest(name, known)
    return UserError(f"{error}: {_line(near[0], words)}") if len(near) == 1 and words else error


@cache
def peers() -> dict[str, dict[str, str]]:
    """Words of other toolkits, each with what says the same here: "commands", "names" of components, and flags by our command."""
    import tomllib

    tables = tomllib.loads(PEERS_FILE.read_text(encoding="utf-8"))
    phrases = tables.pop("phrases")
    return {
        command: {flag: answer.format(**phrases) for flag, answer in table.items()} for command, table in tables.items()
    }


def _flag_of_peers(command: str, words: Sequence[str]) -> UserError | None:
    for word in words:
        flag = _flag_in(word)
        if word.startswith("-") and (answer := peers().get(command, {}).get(flag)):
            return UserError(f"unknown flag '{flag}' (here: {answer})")
    return None


def _parts_with(flag: str, table: OptionTable) -> list[str]:
    """The components that were not chosen and would have a flag, as flags that choose them."""
    return [
        f"{chooser.flag} {name}"
        for chooser in table.options
        if chooser.kind
        for name in registry.names(chooser.kind)
        if any(
            flag in flags_of([option])
            for option in registry.options_within(chooser.kind, name, registry.choice_from(), chooser.path_key)
        )
    ]
