"""Warns of a text that is read line by line, but looks like a document; refuses one of bytes that are no text."""

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
# Patterns of the first bytes, by the name of a format of `nmt translate`
DOCUMENT_STARTS: Final[Mapping[str, bytes]] = {
    "po": rb'\s*(?:#[^\n]*\n\s*)*(?:msgctxt "[^\n]*\n\s*)?msgid(?:_plural)? "',
    "srt": rb"(?:\d+\s*\n)?\s*\d+:\d\d:\d\d[,.]\d{1,3}\s*-->\s*\d",
    "tmx": rb"(?s)\s*<(?:[?!].*<)?tmx\b",
    "xliff": rb"(?s)\s*<(?:[?!].*<)?xliff\b",
}
BINARY_STARTS: Final[Mapping[bytes, str]] = {
    rb"%PDF-": "PDF (convert it to text, or to a document of Word)",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old document of Office (convert it: soffice --convert-to docx FILE)",
    rb"\{\\rtf": "RTF (convert it: soffice --convert-to docx FILE)",
    rb"\xde\x12\x04\x95|\x95\x04\x12\xde": "compiled messages (give the .po file that they were made of)",
}


@register("storage", "document-start", NoOptions)
class DocumentStart(Storage):
    """Warns of a document that is read line by line, and refuses binary files."""

    def text_of(self, content: Stream, path: Path) -> Stream:
        start = content.peek(START_BYTES)[:START_BYTES]
        for pattern, what in BINARY_STARTS.items():
            if re.match(pattern, start):
                raise UserError(f"{quoted(content.place)}: is {what}")
        start = start.removeprefix(b"\xef\xbb\xbf")
        if format := next((format for format, pattern in DOCUMENT_STARTS.items() if re.match(pattern, start)), None):
            place = quoted(content.place)
            log.warn(
                f"{place}: looks like {format}, but is read line by line (to translate the document, use --format {format})"
            )
        elif re.match(rb"\s*<\?xml\b", start):
            log.warn(f"{quoted(content.place)}: looks like XML, but is read line by line (--markup xml keeps its tags)")
        return content
