"""The interface of viewers, which see each translation of `nmt translate` before it is printed.

A registered viewer is built as `cls(options)` when one of its options is given. The options are those of `nmt translate`, which
are an instance of the options class of the viewer too. That class may have `written`, the names of options that are output files.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from nmt import registry
from nmt.errors import needing_torch

if TYPE_CHECKING:  # help does not need what they import
    from nmt.translate.requests import Request
    from nmt.translate.results import Candidate, Translation
    from nmt.translate.translator import Translator


class Viewer:
    """Sees or adds to what is printed of each translation. By default it does nothing.

    order: the viewer with the lowest order sees a translation first
    settings: options of the translator that it needs
    """

    order: ClassVar[int] = 0
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, options: Any) -> None:
        """Called before models are loaded. Raises UserError for options that cannot work."""

    def begin(self, translator: "Translator") -> None:
        """Called before the first line. Raises UserError for a search that it cannot show."""

    def see(self, number: int, request: "Request", translation: "Translation") -> None:
        """Called for each line, in order. number: of the line, from 0"""

    def columns(self, candidate: "Candidate") -> list[str]:
        """What is printed after a candidate, each after `|||`."""
        return []

    def fields(self, candidate: "Candidate") -> dict[str, Any]:
        """Further fields of a candidate in JSON."""
        return {}

    def end(self) -> None:
        """Called after the last line."""


def open_viewers(options: Any) -> list[Viewer]:
    """The active viewers, in their order. Raises UserError if one needs torch and torch is missing."""
    found: list[Viewer] = []
    for name in registry.active_names("viewer", options):
        with needing_torch(", ".join(registry.given_flags("viewer", name, options))):
            found.append(registry.find("viewer", name).cls(options))
    return sorted(found, key=lambda viewer: viewer.order)


def written_files() -> list[str]:
    """The names of all viewers' options that are output files."""
    return [name for written in registry.declared("viewer", "written") for name in written]
