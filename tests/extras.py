"""The optional packages of pyproject.toml, and those that a message names."""

import re
import shlex
import tomllib
from typing import Final

from pages import ROOT

EXTRAS: Final[dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def named_packages(message: object) -> list[str]:
    """The words after `pip install` in a message, as a shell reads them; [] if it has none."""
    command = re.search(r"`pip install ([^`]*)`", str(message))
    return shlex.split(command[1]) if command else []
