"""nmt: neural machine translation from a shell.

`register`, `preset`, `opt` and `options_class` are all that a plug-in's author needs; `load` opens a model folder.
"""

import importlib
from typing import Any

from nmt.errors import UserError
from nmt.options import opt, options_class
from nmt.registry import preset, register
from nmt.version import __version__

__all__ = ["UserError", "__version__", "load", "opt", "options_class", "preset", "register"]


def __getattr__(name: str) -> Any:
    """`nmt.load`, imported when it is first used, because it imports torch."""
    if name == "load":
        return importlib.import_module("nmt.translate.open").load
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
