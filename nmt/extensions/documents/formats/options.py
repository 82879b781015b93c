"""The options of documents. Without torch, so that `--help` answers at once."""

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

    retranslate: bool = opt(False, "with --format: also translate what has a translation, which is replaced")

    def __post_init__(self) -> None:
        options: Any = self
        if options.format == "text" and self.retranslate:
            raise ValueError("--retranslate works only on documents (add --format, or drop --retranslate)")
        if options.format == "docx" and options.output == "-":
            raise ValueError("--format docx: is no text that stdout could show (give --output FILE.docx)")


_TO_DOCX: Final = "convert it: soffice --convert-to docx FILE"
_TO_PO: Final = "convert it to PO and back, such as by {} of the translate-toolkit"
# What to do with a document that nmt does not read, by the ending of its name.
ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys((".doc", ".dot", ".odt", ".ott", ".fodt", ".rtf", ".wpd"), _TO_DOCX),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".fods"), "save its sheets as CSV"),
    **dict.fromkeys((".ppt", ".pptx", ".odp", ".fodp", ".epub"), "export its text as HTML"),
    **dict.fromkeys((".ass", ".ssa", ".sbv", ".sub", ".smi", ".ttml", ".dfxp"), "convert it: ffmpeg -i FILE FILE.srt"),
    **dict.fromkeys((".yaml", ".yml"), _TO_PO.format("yaml2po")),
    **dict.fromkeys((".properties", ".strings"), _TO_PO.format("prop2po")),
    ".pdf": "convert it to text, or to a document of Word",
    ".resx": _TO_PO.format("resx2po"),
    ".ts": _TO_PO.format("ts2po"),
    ".idml": _TO_PO.format("idml2po"),
    ".ini": _TO_PO.format("ini2po"),
    ".rc": _TO_PO.format("rc2po"),
    ".ftl": _TO_PO.format("moz2po"),
    ".stringsdict": "convert it to XLIFF, as Xcode exports it",
    ".xcstrings": "convert it to XLIFF, as Xcode exports it",
    ".mo": "give the .po file that it was made of",
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
        "with --format csv: the columns to translate, by their names in the first row, or by numbers from 1 if that is text "
        "too; NAME is replaced, SOURCE:TARGET fills another column; by default those named like the model's languages, or source "
        "and target",
    )
