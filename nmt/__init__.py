"""nmt: neural machine translation from the command line.

Plug-in authors need only `register`, `preset`, `opt`, `part` and `options_class`. `load` opens a model folder.
"""

import sys

if sys.orig_argv[1:3] == ["-m", "nmt"] and not sys.flags.safe_path:
    del sys.path[0]  # the working directory contains data, not modules

import importlib
from typing import Any

from nmt.errors import UserError
from nmt.options import Part, opt, options_class, part
from nmt.registry import preset, register
from nmt.version import __version__

__all__ = ["Part", "UserError", "__version__", "load", "opt", "options_class", "part", "preset", "register"]


def __getattr__(name: str) -> Any:
    """Import `nmt.load` on first use, because importing it is slow."""
    if name == "load":
        return importlib.import_module("nmt.translators").load
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
