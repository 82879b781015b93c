"""Documents of other kinds, by their names: refused at once, with what to convert them to, and never read as lines of text."""

from pathlib import Path
from typing import NoReturn

from nmt import register
from nmt.errors import UserError, quoted
from nmt.extensions.documents.formats.options import ADVICE, UnreadOptions
from nmt.formats.base import Format
from nmt.text.corpus import text_name


@register("format", "unread", UnreadOptions)
class UnreadFormat(Format):
    """Documents that nmt does not translate: an error says what to convert them to."""

    def read(self, path: Path) -> NoReturn:
        ending = Path(text_name(path)).suffix.lower()
        advice = ADVICE.get(ending, "convert it to a format of `nmt list format`")
        raise UserError(
            f"{quoted(path)}: a document that nmt does not read ({advice}; lines of text are --format text)"
        )
