"""The interface for document formats. A translator sees only the texts in a document.

A registered format is built as `cls(options)`. `options` is the options object of `nmt translate`, also an instance of the
format's options class. That class declares file name endings by format: `endings = {"po": (".po",)}`.
Plain lines of text are not a document: they are read, translated and written one after another.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from nmt import registry
from nmt.installation import missing_package
from nmt.text.corpus import text_name

if TYPE_CHECKING:  # these imports are slow, and help does not need them
    from nmt.translate.line_warnings import LineWarnings
    from nmt.translate.results import Translation

LINES: Final = "text"  # the value of --format for plain lines of text


class Languages(NamedTuple):
    """The codes of the model's source and target language, such as "en" and "de"."""

    source: str
    target: str


class Document(Protocol):
    """A document, read completely."""

    def texts(self, languages: Languages) -> list[str]:
        """The texts to translate."""
        ...

    def write(self, translations: "Sequence[Translation]", warnings: "LineWarnings") -> object:
        """Put the translations of `texts` into the document.

        warnings: receives warnings about the translations
        returns: a message about how many texts were translated, and why others were not; None if they are not counted
        """
        ...

    def content(self) -> bytes:
        """The document's current content."""
        ...


class Format(ABC):
    """A document format.

    settings: translator options that its texts need
    """

    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def read(self, path: Path) -> Document:
        """Read a document. Raises InputError if it is damaged, or ArtefactError if it is hostile."""


def format_of(names: Sequence[str]) -> str:
    """The format of the first file that is a document, judging by file name endings; LINES if there is none."""
    tables: list[Mapping[str, Sequence[str]]] = registry.declared("format", "endings")
    formats = {ending: format for table in tables for format, endings in table.items() for ending in endings}
    endings = (Path(text_name(Path(name))).suffix.lower() for name in names)
    return next((formats[ending] for ending in endings if ending in formats), LINES)


def open_format(name: str, options: Any) -> Format:
    """Build a format by name. Raises UserError if a package that it needs is missing."""
    try:
        built: Format = registry.find("format", name).cls(options)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "nmt":
            raise
        raise missing_package(f"--format {name}", "formats", error) from None
    return built
