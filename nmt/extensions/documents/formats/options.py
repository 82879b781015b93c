"""Options of the document formats. This module does not import torch, so that `--help` is fast."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from nmt import opt, options_class


@options_class
class DocumentOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {
        "docx": (".docx", ".docm", ".dotx", ".dotm"),
        "html": (".html", ".htm", ".xhtml"),
        "json": (".json", ".arb"),
        "markdown": (".md", ".markdown", ".mdx"),
        "po": (".po", ".pot"),
        "srt": (".srt",),
        "tmx": (".tmx",),
        "vtt": (".vtt",),
        "xliff": (".xlf", ".xliff", ".mxliff", ".mqxliff", ".sdlxliff", ".txlf"),
    }

    retranslate: bool = opt(
        False,
        "translate all texts of a document again, even those that already have a translation",
        group="Documents and markup",
    )

    def __post_init__(self) -> None:
        options: Any = self
        if options.format == "text" and self.retranslate:
            raise ValueError("--retranslate works only on documents (add --format, or drop --retranslate)")
        if options.format == "docx" and options.output == "-":
            raise ValueError("--format docx cannot be written to stdout (add --output FILE.docx)")


_TO_DOCX: Final = "convert it: soffice --convert-to docx FILE"
_TO_PO: Final = "convert it to PO and back, for example with {} from the Translate Toolkit"
# What to do with a document that nmt cannot read, by file name extension.
ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys((".doc", ".dot", ".odt", ".ott", ".fodt", ".rtf", ".wpd"), _TO_DOCX),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".fods"), "save each sheet as CSV"),
    **dict.fromkeys((".ppt", ".pptx", ".odp", ".fodp", ".epub"), "export its text as HTML"),
    **dict.fromkeys((".ass", ".ssa", ".sbv", ".sub", ".smi", ".ttml", ".dfxp"), "convert it: ffmpeg -i FILE FILE.srt"),
    **dict.fromkeys((".yaml", ".yml"), _TO_PO.format("yaml2po")),
    **dict.fromkeys((".properties", ".strings"), _TO_PO.format("prop2po")),
    ".pdf": "convert it to plain text or to a Word document (.docx)",
    ".resx": _TO_PO.format("resx2po"),
    ".ts": _TO_PO.format("ts2po"),
    ".idml": _TO_PO.format("idml2po"),
    ".ini": _TO_PO.format("ini2po"),
    ".rc": _TO_PO.format("rc2po"),
    ".ftl": _TO_PO.format("moz2po"),
    ".stringsdict": "export it as XLIFF from Xcode",
    ".xcstrings": "export it as XLIFF from Xcode",
    ".mo": "use the .po file that it was compiled from",
    **dict.fromkeys((".rst", ".tex", ".adoc", ".asciidoc", ".org"), "convert it: pandoc FILE -t markdown -o FILE.md"),
}


@options_class
class UnreadOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {"unread": tuple(ADVICE)}


@options_class
class TableOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {"csv": (".csv", ".tsv")}

    columns: tuple[str, ...] = opt(
        (),
        "table columns to translate, by name or number; SOURCE:TARGET writes into another column",
        group="Documents and markup",
        metavar="COLUMN",
    )
