"""nmt: neural machine translation from a shell. What is imported here is all that a plug-in's author needs."""

from nmt.errors import UserError
from nmt.options import opt
from nmt.registry import preset, register

__version__ = "0.1.0"
__all__ = ["UserError", "opt", "preset", "register"]
