"""The version of nmt."""

from typing import Final

__version__: Final = "0.1.0"
