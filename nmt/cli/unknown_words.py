"""Errors for words of a command line that mean nothing, with what was probably meant."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from nmt import registry
from nmt.cli.parameters import flags_of
from nmt.cli.settings import OptionTable
from nmt.errors import UserError, quoted, unknown
from nmt.options import REQUIRED, flag_of

PEERS_FILE: Final = Path(__file__).with_name("peers.toml")


def unknown_flag(command: str, flag: str, words: Sequence[str], table: OptionTable) -> UserError:
    """The error for a flag that the command does not have. words: all words that belong to no flag"""
    if error := _flag_of_peers(command, words):
        return error
    if flag in table.ambiguous:
        flags = " or ".join(flag_of(option.path_key) for option in table.ambiguous[flag])
        return UserError(f"flag '{flag}' is ambiguous (write {flags})")
    positional = [option for option in table.options if option.positional]
    if flag in [option.flag for option in positional]:
        labels = " ".join(option.label for option in positional)
        return UserError(f"unknown flag '{flag}' (its value is given without a flag: nmt {command} {labels})")
    if inner := [option.flag for option in table.options if "." in option.path and flag in option.spellings()]:
        return UserError(f"unknown flag '{flag}' (write {' or '.join(inner)})")
    if parts := _parts_with(flag, table):
        return UserError(f"unknown flag '{flag}' (it belongs to {', '.join(parts)})")
    return unknown("flag", flag, table.flags, "--help")


def stray_word(command: str, word: str, words: Sequence[str], table: OptionTable) -> UserError:
    """The error for a word that is no flag and no value."""
    if error := _flag_of_peers(command, words):
        return error
    if any(option.positional for option in table.options):
        return UserError(f"'{quoted(word)}' is a word too many (`nmt {command} --help` shows what it takes)")
    if word.lower() in ("no", "false", "0", "off", "yes", "true", "on") and (flag := _before(word, words, table)):
        return UserError(f"'{word}' stands without a flag (write {flag} for yes, --no-{flag[2:]} for no)")
    given = {flag.partition("=")[0] for flag in words}
    inputs = [o for o in table.options if o.default is REQUIRED and o.name != "output"]
    needed = [o.flag for o in inputs if given.isdisjoint(o.spellings())]
    hint = f"write {needed[0]} {quoted(word)}" if needed else f"`nmt {command} --help` lists the flags"
    return UserError(f"'{quoted(word)}' stands without a flag ({hint})")


def _before(word: str, words: Sequence[str], table: OptionTable) -> str | None:
    """The flag before a word, if it says yes or no."""
    before = words[max(0, words.index(word) - 1)]
    switches = (option for option in table.options if option.type is bool and before in option.spellings())
    return next((option.flag for option in switches), None)


def name_of_peers(error: UserError) -> UserError | None:
    """The error in place of one that quotes another toolkit's name of a part or preset; None if it quotes none."""
    names = peers()["names"]
    given = next((name for name in names if f"'{name}'" in str(error)), None)
    return UserError(f"unknown name '{given}' (here: {names[given]})") if given else None


def unknown_command(name: str, known: Iterable[str]) -> UserError:
    """The error for a command that there is not."""
    if answer := peers()["commands"].get(name):
        return UserError(f"unknown command '{name}' (here: {answer})")
    return unknown("command", name, known)


@cache
def peers() -> dict[str, dict[str, str]]:
    """Words of other toolkits, each with what says the same here: "commands", "names" of parts, and flags by our command."""
    import tomllib

    tables = tomllib.loads(PEERS_FILE.read_text(encoding="utf-8"))
    phrases = tables.pop("phrases")
    return {
        command: {flag: answer.format(**phrases) for flag, answer in table.items()} for command, table in tables.items()
    }


def _flag_of_peers(command: str, words: Sequence[str]) -> UserError | None:
    for word in words:
        flag = word.partition("=")[0]
        if word.startswith("-") and (answer := peers().get(command, {}).get(flag)):
            return UserError(f"unknown flag '{flag}' (here: {answer})")
    return None


def _parts_with(flag: str, table: OptionTable) -> list[str]:
    """The parts that were not chosen and would have a flag, as flags that choose them."""
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
