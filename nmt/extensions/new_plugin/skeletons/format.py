"""A document format: lines of `key = text`, in which only the texts are translated.

nmt translate --plugin my_format.py --format my-format --model RUN --input DOCUMENT --output TRANSLATED
nmt describe --plugin my_format.py format my-format
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from nmt import options_class, register
from nmt.formats.base import Format, Languages
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.results import Translation


@options_class
class MyFormatOptions:  # CHANGE: the file name extensions that select this format without --format
    endings: ClassVar[Mapping[str, Sequence[str]]] = {"my-format": (".my_format",)}


class MyFormatDocument:
    """The lines of a document."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.found = [
            (i, match)
            for i, line in enumerate(self.lines)
            if (match := re.fullmatch(r"(\s*[\w.]+\s*=\s*)(.*\S.*)", line))
        ]

    def texts(self, languages: Languages) -> list[str]:
        """The texts to translate, in order."""  # CHANGE: which parts are texts
        return [match[2] for _, match in self.found]

    def write(self, translations: Sequence[Translation], warnings: LineWarnings) -> str:
        """Put the translations of these texts into the document. Returns a summary for the log."""
        for (i, match), translation in zip(self.found, translations, strict=True):
            self.lines[i] = match[1] + translation.text
        return f"translated {len(translations):,} texts"

    def content(self) -> bytes:
        """The document as it is now."""
        return "\n".join(self.lines).encode()


@register("format", "my-format", MyFormatOptions)
class MyFormat(Format):
    """Lines of `key = text`."""

    def read(self, path: Path) -> MyFormatDocument:
        """Read a whole document."""
        return MyFormatDocument(path.read_text(encoding="utf-8"))
