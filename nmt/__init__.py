"""nmt: neural machine translation from a shell. What is imported here is all that a plug-in's author needs."""

from nmt.errors import UserError
from nmt.options import opt, options_class
from nmt.registry import preset, register
from nmt.version import __version__

__all__ = ["UserError", "__version__", "opt", "options_class", "preset", "register"]
