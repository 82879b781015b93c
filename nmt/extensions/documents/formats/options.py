"""The options of documents. Without torch, so that `--help` answers at once."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nmt import opt, options_class


@options_class
class DocumentOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {
        "docx": (".docx", ".docm", ".dotx", ".dotm"),
        "html": (".html", ".htm", ".xhtml"),
        "json": (".json", ".arb"),
        "markdown": (".md", ".markdown"),
        "po": (".po", ".pot"),
        "srt": (".srt",),
        "tmx": (".tmx",),
        "vtt": (".vtt",),
        "xliff": (".xlf", ".xliff", ".mxliff", ".mqxliff", ".sdlxliff", ".txlf"),
    }

    retranslate: bool = opt(
        False, "also translate the texts of a document that already have a translation, and replace it"
    )

    def __post_init__(self) -> None:
        options: Any = self
        if options.format == "text" and self.retranslate:
            raise ValueError("--retranslate works only on documents (add --format, or drop --retranslate)")
        if options.format == "docx" and options.output == "-":
            raise ValueError("--format docx: is no text that stdout could show (give --output FILE.docx)")


@options_class
class TableOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {"csv": (".csv", ".tsv")}

    columns: tuple[str, ...] = opt(
        (),
        "columns of a table to translate, by name or number from 1; SOURCE:TARGET fills another column; default: those named "
        "like the model's languages, or source and target",
    )
