"""Document formats that nmt cannot read. They are refused by file name, with advice, and never read as lines of text."""

from pathlib import Path
from typing import NoReturn

from nmt import register
from nmt.errors import UserError, quoted
from nmt.extensions.documents.formats.options import ADVICE, UnreadOptions
from nmt.formats.base import Format
from nmt.text.corpus import text_name


@register("format", "unread", UnreadOptions)
class UnreadFormat(Format):
    """Documents that nmt cannot translate. The error says how to convert them."""

    def read(self, path: Path) -> NoReturn:
        ending = Path(text_name(path)).suffix.lower()
        advice = ADVICE.get(ending, "convert it to a format that `nmt list format` lists")
        raise UserError(
            f"{quoted(path)}: nmt cannot read this document format ({advice}; if it is plain text, add --format text)"
        )
