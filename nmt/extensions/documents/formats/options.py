"""The options of documents. Without torch, so that `--help` answers at once."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nmt import opt, options_class


@options_class
class DocumentOptions:
    endings: ClassVar[Mapping[str, Sequence[str]]] = {
        "docx": (".docx", ".docm", ".dotx", ".dotm"),
        "po": (".po", ".pot"),
        "srt": (".srt",),
        "tmx": (".tmx",),
        "xliff": (".xlf", ".xliff", ".mxliff", ".mqxliff", ".sdlxliff", ".txlf"),
    }

    retranslate: bool = opt(False, "with --format: also translate what has a translation, which is replaced")

    def __post_init__(self) -> None:
        options: Any = self
        if options.format == "text" and self.retranslate:
            raise ValueError("--retranslate works only on documents (add --format, or drop --retranslate)")
        if options.format == "docx" and options.output == "-":
            raise ValueError("--format docx: is no text that stdout could show (give --output FILE.docx)")


@options_class
class TableOptions:
    columns: tuple[str, ...] = opt(
        (),
        "with --format csv: the columns of texts, by the names in the first row (or by numbers from 1, if there are none): NAME, which is "
        "replaced, or SOURCE:TARGET; by default those of the model's languages, or source and target",
    )
