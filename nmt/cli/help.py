"""The text of `nmt COMMAND --help`: every flag whole, however narrow the terminal is."""

import shutil
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from nmt.options import REQUIRED, Option

FLAG_COLUMNS: Final = 30
MIN_TEXT_COLUMNS: Final = 30
MAX_COLUMNS: Final = 110


def show_help(name: str, summary: str, groups: Mapping[str, Sequence[Option]], values: Mapping[str, Any]) -> None:
    """Print a command's help to stdout.

    groups: options by heading
    values: of a preset and of settings files by path key, shown as defaults
    """
    console = Console(highlight=False, soft_wrap=True)
    columns = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
    words = "".join(f" [{option.label}]" for options in groups.values() for option in options if option.positional)
    lines = [Text(f"usage: nmt {name}{words} [OPTIONS]"), Text(), *map(Text, wrap(summary, columns))]
    for heading, options in groups.items():
        lines += [Text(), Text(heading, style="bold")] if options else []
        for option in options:
            lines += _rows(option, values.get(option.path_key, option.default), columns)
    for line in lines:
        console.print(line)


def _rows(option: Option, default: Any, columns: int) -> list[Text]:
    """An option as lines: its flag at the left, its help beside it, or below where the flag is too long."""
    shown = "required" if default is REQUIRED else f"default: {_shown(default)}"
    spellings = option.spellings(option.key.rpartition(".")[0])
    letters = [flag for flag in spellings if len(flag) == 2]
    others = [
        flag
        for flag, negated in spellings.items()
        if flag not in (option.flag, *letters) and not (negated and not default)  # --no-x is for what is on
    ]
    also = f"; also {', '.join(others)}" if others else ""
    text = wrap(f"{option.help} [{shown}{also}]", max(columns - FLAG_COLUMNS, MIN_TEXT_COLUMNS), break_on_hyphens=False)
    left = f"  {option.label if option.positional else ', '.join([option.flag, *letters])}"
    if option.type is not bool and not option.positional:
        left += f" {option.type_name}"
    rows = [Text(left, style="cyan")]
    if len(left) <= FLAG_COLUMNS - 2:
        rows[0].append(" " * (FLAG_COLUMNS - len(left)) + text.pop(0), style="default")
    return [*rows, *(Text(" " * FLAG_COLUMNS + line) for line in text)]


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, tuple | list):
        return " ".join(map(str, default))
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)
