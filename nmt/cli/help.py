"""The help of commands: `-h` lists the common flags, `--help` lists all flags, and `nmt --help` lists the commands."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from nmt.cli.command import Command
from nmt.cli.commands import GROUPS, commands
from nmt.cli.settings import OptionTable
from nmt.options import REQUIRED, Option

DEFAULT_COLUMNS: Final = 80  # width if stdout is not a terminal
MAX_COLUMNS: Final = 110  # longer lines are hard to read
MIN_TEXT_COLUMNS: Final = 30
MAX_FLAG_COLUMNS: Final = 28  # width of the flag column; the help of a longer flag is printed below the flag
INDENT: Final = "  "


def commands_help() -> str:
    """The text of `nmt --help`: every command with its summary, by group."""
    known = commands()
    width = max(map(len, known)) + 2
    lines = ["Neural machine translation, from parallel text to a translation", "", "Usage: nmt COMMAND [FLAGS]"]
    for group, heading in GROUPS.items():
        rows = [(name, file.summary) for name, file in known.items() if file.group == group]
        lines += ["", _bold(heading)] if rows else []
        for name, summary in rows:
            lines += _row(name, summary, width)
    forms = {
        "nmt COMMAND -h": "the flags that people use, with examples",
        "nmt COMMAND --help": "all flags",
        "nmt --version": "the versions of nmt and of what it uses",
        "nmt --install-completion": "complete words with TAB in this shell",
    }
    lines += ["", _bold("More")]
    for form, says in forms.items():
        lines += _row(form, says, max(map(len, forms)) + 2)
    return "\n".join(lines) + "\n"


def show_help(
    command: Command,
    sections: Mapping[str, Sequence[Option]],
    values: Mapping[str, Any],
    kinds: Sequence[str] | None,
) -> None:
    """Print the help of a command.

    sections: options by heading
    values: values from a preset or settings files by path key, shown as defaults
    kinds: the kinds of components whose options `--help KIND` lists; None for the short help, which lists the options that
        are `common`, one line each
    """
    lines = [*wrap(command.summary, _columns()), ""]
    lines += wrap(f"Usage: {usage(command, sections)}", _columns(), subsequent_indent=" " * 7)
    lines += ["", _bold("Examples"), *(INDENT + example for example in command.examples)] if command.examples else []
    if kinds is None:
        lines += [*_short_rows(sections, values), "", f"`nmt {command.name} --help` lists all flags."]
    else:
        lines += _full_rows(sections, values)
    if kinds:
        more = f"Options of the chosen components: {', '.join(f'`--help {kind}`' for kind in kinds)}."
        lines += ["", *wrap(f"{more} `nmt list KIND` names the others.", _columns())]
    print("\n".join(lines))


def show_component_help(table: OptionTable, kind: str, values: Mapping[str, Any]) -> None:
    """Print all options of the chosen component of a kind, and of the components inside it. values: see `show_help`"""
    parts = {heading: options for heading, options in table.groups.items() if options and options[0].path}
    of_kind = {heading: options for heading, options in parts.items() if f"{options[0].path}.".startswith(f"{kind}.")}
    lines = _full_rows(of_kind, values) or ["", f"{kind} {table.chosen[kind]} has no options."]
    print("\n".join(lines[1:]))


def command_sections(groups: Mapping[str, Sequence[Option]], headings: Sequence[str]) -> dict[str, list[Option]]:
    """The options of a command's help by heading.

    groups: options by heading, as in an OptionTable; headings: the first headings, in order; those of the groups follow
    An option of a chosen component is listed only if its heading is one of `headings`, and one of an inner component never.
    """
    sections: dict[str, list[Option]] = {heading: [] for heading in headings}
    for heading, options in groups.items():
        for option in options:
            if not option.path or (option.group in headings and "." not in option.path):
                sections.setdefault(option.group or heading, []).append(option)
    *_, last = groups
    sections[last] = sections.pop(last)
    return sections


def _short_rows(sections: Mapping[str, Sequence[Option]], values: Mapping[str, Any]) -> list[str]:
    shown = {heading: [option for option in options if option.common] for heading, options in sections.items()}
    labels = [_switch_label(option) for options in shown.values() for option in options]
    width, lines = min(max(map(len, labels), default=0), MAX_FLAG_COLUMNS) + 2, [""]
    for heading, options in shown.items():
        lines += [_bold(heading)] if options else []
        for option in options:
            default = _shown(values.get(option.path_key, option.default))
            lines += _row(_switch_label(option), option.help + (f" [{default}]" if default else ""), width)
    return lines


def _full_rows(sections: Mapping[str, Sequence[Option]], values: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for heading, options in sections.items():
        lines += ["", _bold(heading)] if options else []
        for option in options:
            lines += _row(_label(option), _full_text(option, values), MAX_FLAG_COLUMNS + 2)
    return lines


def usage(command: Command, sections: Mapping[str, Sequence[Option]]) -> str:
    """The usage line of a command, with its arguments and required flags: `nmt train DATA --output RUN [FLAGS]`."""
    options = [option for options in sections.values() for option in options if option.name not in command.inferred]
    words = [
        _short_label(option) if option.default is REQUIRED else f"[{_short_label(option)}]"
        for option in options
        if option.positional
    ]
    flags = [
        f"{option.flag} {_value(option)}" for option in options if option.default is REQUIRED and not option.positional
    ]
    return " ".join(["nmt", command.name, *words, *flags, "[FLAGS]"])


def _row(label: str, text: str, width: int) -> list[str]:
    """A label with its text to the right, or below it if the label is too long or the terminal too narrow."""
    columns, fits = _columns() - len(INDENT), len(label) <= width - 2
    if columns - width < MIN_TEXT_COLUMNS:
        width, fits = 4, False
    lines = wrap(text, max(columns - width, MIN_TEXT_COLUMNS), break_on_hyphens=False, break_long_words=False) or [""]
    first = [f"{INDENT}{_bold(label)}{' ' * (width - len(label))}{lines.pop(0)}" if fits else INDENT + _bold(label)]
    return [*first, *(INDENT + " " * width + line for line in lines)]


def _short_label(option: Option) -> str:
    """A flag with its one-letter form and its value: `-o, --output RUN`."""
    if option.positional:
        return option.label + ("..." if option.words is None else "")
    letters = [f"-{alias}, " for alias in option.aliases if len(alias) == 1 and not option.path]
    value = "" if option.type is bool else f" {_value(option)}"
    return "".join(letters[:1]) + option.flag + value


def _switch_label(option: Option) -> str:
    """A flag as in `_short_label`, or `--[no-]page` if it is on by default."""
    return f"--[no-]{option.flag[2:]}" if option.default is True else _short_label(option)


def _value(option: Option) -> str:
    """The placeholder for a value: the metavar or, without one, N for an integer, X for a number, `NAME` for `--valid-name`."""
    if option.metavar:
        return option.metavar + ("..." if option.count is None else "")
    kind = option.type_name.removesuffix("|none") if option.default is None else option.type_name
    word = option.name.rpartition("_")[2].upper()
    if kind.islower() and "|" in kind:
        return word
    return kind.replace("INT", "N").replace("FLOAT", "X").replace("TEXT", word).replace(" ...", "...")


def _label(option: Option) -> str:
    """A flag as in `_short_label`, but with all choices for its value, for `--help`."""
    choices = "" if option.positional or option.type is bool else option.type_name
    if option.metavar or not (choices.islower() and "|" in choices):
        return _short_label(option)
    return _short_label(option).rpartition(" ")[0] + f" {choices}"


def _full_text(option: Option, values: Mapping[str, Any]) -> str:
    """An option's help, its default, the flag that turns it off, and the options that it needs or excludes."""
    default = values.get(option.path_key, option.default)
    notes = ["required"] if default is REQUIRED else [f"default: {_shown(default)}"] if _shown(default) else []
    notes += [f"off: --no-{option.flag[2:]}"] if default is True else []
    notes += [f"also {option.flag}"] if option.positional else []
    notes += [option.relations.removeprefix("; ")] if option.relations else []
    return option.help + (f" [{'; '.join(notes)}]" if notes else "")


def _shown(default: Any) -> str:
    """A default as text; empty if the option is off."""
    if isinstance(default, bool):
        return "on" if default else ""
    if default in (None, "none", REQUIRED):
        return ""
    return " ".join(map(str, default)) if isinstance(default, tuple | list) else str(default)


def _columns() -> int:
    """The width of a line of help in characters."""
    return min(shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns, MAX_COLUMNS)


def _bold(text: str) -> str:
    """The text in bold if stdout is a terminal that supports it; otherwise unchanged."""
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if is_plain else f"\x1b[1m{text}\x1b[0m"
