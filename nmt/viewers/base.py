"""The interface of viewers, which receive each translation of `nmt translate` before it is printed.

A registered viewer is built as `cls(options)` if one of its options is set. `options` are those of `nmt translate`, which are
also an instance of the viewer's options class. That class may define `written`, the names of the options that name output files.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from nmt import registry
from nmt.errors import needing_torch

if TYPE_CHECKING:  # not imported at run time, which keeps the help fast
    from nmt.translate.requests import Request
    from nmt.translate.results import Candidate, Translation
    from nmt.translate.translator import Translator


class Viewer:
    """Receives each translation, and may add to its printed form. By default it does nothing.

    order: the viewer with the lowest order receives a translation first
    settings: the translator options that the viewer needs
    """

    order: ClassVar[int] = 0
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, options: Any) -> None:
        """Called before models are loaded. Raises UserError if the options cannot be used."""

    def begin(self, translator: "Translator") -> None:
        """Called before the first line. Raises UserError if the viewer does not support the search."""

    def see(self, number: int, request: "Request", translation: "Translation") -> None:
        """Called for each line, in order. number: line number, from 0"""

    def columns(self, candidate: "Candidate") -> list[str]:
        """Texts to print after a candidate, each preceded by `|||`."""
        return []

    def fields(self, candidate: "Candidate") -> dict[str, Any]:
        """Further fields for a candidate in JSON."""
        return {}

    def end(self) -> None:
        """Called after the last line."""


def open_viewers(options: Any) -> list[Viewer]:
    """Open the active viewers, in their order. Raises UserError if one of them needs torch but torch is missing."""
    found: list[Viewer] = []
    for name in registry.active_names("viewer", options):
        with needing_torch(", ".join(registry.given_flags("viewer", name, options))):
            found.append(registry.find("viewer", name).cls(options))
    return sorted(found, key=lambda viewer: viewer.order)


def written_files() -> list[str]:
    """The names of all viewers' options that name output files."""
    return [name for written in registry.declared("viewer", "written") for name in written]
