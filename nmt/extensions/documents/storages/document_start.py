"""Warns if a text that is read line by line looks like a document, and refuses binary files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nmt import register
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import NoOptions
from nmt.storages.base import Storage
from nmt.storages.streams import Stream

START_BYTES: Final = 4096
# Patterns for the first bytes, keyed by the format names of `nmt translate`
DOCUMENT_STARTS: Final[Mapping[str, bytes]] = {
    "po": rb'\s*(?:#[^\n]*\n\s*)*(?:msgctxt "[^\n]*\n\s*)?msgid(?:_plural)? "',
    "srt": rb"(?:\d+\s*\n)?\s*\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*\d",
    "tmx": rb"(?s)\s*<(?:[?!].*<)?tmx\b",
    "xliff": rb"(?s)\s*<(?:[?!].*<)?xliff\b",
}
BINARY_STARTS: Final[Mapping[bytes, str]] = {
    rb"%PDF-": "a PDF file (convert it to plain text or to a Word document)",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document from an old Office version (convert it: soffice --convert-to docx FILE)",
    rb"\{\\rtf": "an RTF file (convert it: soffice --convert-to docx FILE)",
    rb"\xde\x12\x04\x95|\x95\x04\x12\xde": "a compiled message file (use the .po file that it was compiled from)",
}


@register("storage", "document-start", NoOptions)
class DocumentStart(Storage):
    """Warns about documents that are read line by line, and refuses binary files."""

    def text_of(self, content: Stream, path: Path) -> Stream:
        start = content.peek(START_BYTES)[:START_BYTES]
        for pattern, what in BINARY_STARTS.items():
            if re.match(pattern, start):
                raise UserError(f"{quoted(content.place)}: this is {what}")
        start = start.removeprefix(b"\xef\xbb\xbf")
        if format := next((format for format, pattern in DOCUMENT_STARTS.items() if re.match(pattern, start)), None):
            place = quoted(content.place)
            log.warn(
                f"{place}: this looks like {format}, but is read line by line (add --format {format} to translate the document)"
            )
        elif re.match(rb"\s*<\?xml\b", start):
            log.warn(
                f"{quoted(content.place)}: this looks like XML, but is read line by line (add --markup xml to keep tags)"
            )
        return content
