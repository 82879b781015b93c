"""What `nmt COMMAND --help` shows: every flag whole, however narrow the terminal is."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from nmt.options import REQUIRED, Option

MARGIN: Final = 30  # columns of the flags
WIDEST: Final = 110


def show_help(
    name: str,
    summary: str,
    groups: Mapping[str, Sequence[Option]],
    positional: Collection[str],
    values: Mapping[str, Any],
) -> None:
    """Print a command's help to stdout. groups: options by heading; values: of a preset and files, which are defaults."""
    console = Console(highlight=False, soft_wrap=True)
    width = min(shutil.get_terminal_size().columns, WIDEST)
    words = "".join(f" [{word.upper()}]" for word in positional)
    lines = [Text(f"usage: nmt {name}{words} [OPTIONS]"), Text(), *map(Text, wrap(summary, width))]
    for heading, options in groups.items():
        lines += [Text(), Text(heading, style="bold")] if options else []
        for option in options:
            lines += _rows(option, option.name in positional, values, width)
    for line in lines:
        console.print(line)


def _rows(option: Option, positional: bool, values: Mapping[str, Any], width: int) -> list[Text]:
    """An option as lines: its flag at the left, what it means beside it, or below where the flag is too long."""
    default = values.get(option.name, option.default)
    shown = "required" if default is REQUIRED else f"default: {_shown(default)}"
    others = [flag for flag in option.spellings[1:] if len(flag) > 2]
    if option.type is bool and not default:
        others.pop()  # --no-x is for what is on
    also = f"; also {', '.join(others)}" if others else ""
    told = wrap(f"{option.help} [{shown}{also}]", max(width - MARGIN, 30), break_on_hyphens=False)
    flags = ", ".join([option.flag, *(flag for flag in option.spellings if len(flag) == 2)])
    left = f"  {option.name.upper() if positional else flags}"
    if option.type is not bool and not positional:
        left += f" {option.type_name}"
    rows = [Text(left, style="cyan")]
    if len(left) <= MARGIN - 2:
        rows[0].append(" " * (MARGIN - len(left)) + told.pop(0), style="default")
    return [*rows, *(Text(" " * MARGIN + line) for line in told)]


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, tuple | list):
        return " ".join(str(part) for part in default)
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)
