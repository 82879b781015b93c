"""The text of `nmt COMMAND --help`: a panel for each part, with every flag whole, however narrow the terminal is."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from nmt.options import REQUIRED, Option

FLAG_COLUMNS: Final = 30
MIN_TEXT_COLUMNS: Final = 26
MAX_COLUMNS: Final = 110
BORDER_COLUMNS: Final = 4  # of a panel, left and right


def show_help(name: str, summary: str, groups: Mapping[str, Sequence[Option]], values: Mapping[str, Any]) -> None:
    """Print a command's help to stdout.

    groups: options by heading
    values: of a preset and of settings files by path key, shown as defaults
    """
    console = Console(highlight=False)
    columns = max(min(console.width, MAX_COLUMNS) - BORDER_COLUMNS, MIN_TEXT_COLUMNS)
    words = "".join(
        f" [{option.label}]{'...' if option.words is None else ''}"
        for options in groups.values()
        for option in options
        if option.positional
    )
    panels = {
        heading: [
            row for option in options for row in _rows(option, values.get(option.path_key, option.default), columns)
        ]
        for heading, options in groups.items()
    }
    width = max(columns, *(len(row) for rows in panels.values() for row in rows)) + BORDER_COLUMNS
    console.width = max(console.width, width)
    console.print(Text(f"\n Usage: nmt {name}{words} [OPTIONS]\n"))
    console.print(*(Text(f" {line}\n") for line in wrap(summary, columns)), sep="")
    for heading, rows in panels.items():
        if rows:
            console.print(Panel(Group(*rows), title=Text(heading), title_align="left", border_style="dim", width=width))


def _rows(option: Option, default: Any, columns: int) -> list[Text]:
    """An option as lines: its flag at the left, its help to the right, or below where the flag is too long."""
    shown = "required" if default is REQUIRED else f"default: {_shown(default)}"
    spellings = option.spellings(option.key.rpartition(".")[0])
    letters = [flag for flag in spellings if len(flag) == 2]
    shown_first = [] if option.positional else [option.flag, *letters]
    others = [
        flag
        for flag, negated in spellings.items()
        if flag not in shown_first and not (negated and not default)  # --no-x is for what is on
    ]
    also = f"; also {', '.join(others)}" if others else ""
    text = f"{option.help} [{shown}{also}{option.relations}]"
    lines = wrap(text, max(columns - FLAG_COLUMNS, MIN_TEXT_COLUMNS), break_on_hyphens=False)
    left = option.label if option.positional else ", ".join(shown_first)
    if option.type is not bool and not option.positional:
        left += f" {option.type_name}"
    rows = [Text(left, style="bold cyan")]
    if len(left) <= FLAG_COLUMNS - 2:
        rows[0].append(" " * (FLAG_COLUMNS - len(left)) + lines.pop(0), style="default")
    return [*rows, *(Text(" " * FLAG_COLUMNS + line) for line in lines)]


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, tuple | list):
        return " ".join(map(str, default))
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)
