"""The interface of formats: whole documents of which a translator sees the texts only.

A registered format is built as `cls(options)`. The options are those of `nmt translate`, which are an instance of the options
class of the format too. That class declares the endings of file names by formats: `endings = {"po": (".po",)}`.
Lines of text are no such document: they are read, translated and written one after another.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from nmt import registry
from nmt.installation import missing_package
from nmt.text.corpus import text_name

if TYPE_CHECKING:  # help does not need what they import
    from nmt.translate.line_warnings import LineWarnings
    from nmt.translate.results import Translation

LINES: Final = "text"  # the value of --format that names no format of documents


class Languages(NamedTuple):
    """The codes of the model's languages: "en", "de"."""

    source: str
    target: str


class Document(Protocol):
    """A document that was read whole."""

    def texts(self, languages: Languages) -> list[str]:
        """The texts to translate."""
        ...

    def write(self, translations: "Sequence[Translation]", warnings: "LineWarnings") -> object:
        """Put the translations of `texts` into the document. warnings: receives what is not as it should be

        returns: how many texts were translated and why others were not, in words for the user; nothing if it does not count them
        """
        ...

    def content(self) -> bytes:
        """The document as it is now."""
        ...


class Format(ABC):
    """A format of documents.

    settings: options of the translator that its texts need
    """

    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def read(self, path: Path) -> Document:
        """Read a document. Raises InputError if it is damaged, ArtefactError if it is hostile."""


def format_of(names: Sequence[str]) -> str:
    """The format of the first document among some files, by the ending of its name; LINES if there is none."""
    tables: list[Mapping[str, Sequence[str]]] = registry.declared("format", "endings")
    formats = {ending: format for table in tables for format, endings in table.items() for ending in endings}
    endings = (Path(text_name(Path(name))).suffix.lower() for name in names)
    return next((formats[ending] for ending in endings if ending in formats), LINES)


def open_format(name: str, options: Any) -> Format:
    """The format of that name. Raises UserError if a package that it needs is missing."""
    try:
        built: Format = registry.find("format", name).cls(options)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "nmt":
            raise
        raise missing_package(f"--format {name}", "formats", error) from None
    return built
