"""WebVTT subtitles (W3C). Cues are like SubRip's, but may have entities, voice tags and timestamps. Notes and styles are kept."""

import html
import re
from typing import Final

from nmt import register
from nmt.extensions.documents.document import UnitFormat
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.formats.srt import SrtDocument
from nmt.extensions.documents.markers import Markers, Tag, TagKind
from nmt.extensions.documents.pieces import Written
from nmt.extensions.texts.passages import escaped

_VTT_TIME: Final = r"(?:\d{2,}:)?\d\d:\d\d\.\d{3}"
_VTT_TAG: Final = re.compile(r"<(?P<close>/?)(?P<name>[a-z]*)(?:[.\s][^<>]*)?>|<[\d:.]+>")
_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|lrm|rlm|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});")


class VttDocument(SrtDocument):
    """WebVTT subtitles."""

    name, first_word = "WebVTT", "WEBVTT"
    timing = re.compile(rf"\s*{_VTT_TIME}\s*-->\s*{_VTT_TIME}(?=\s|$)")

    def _end_of_text(self, lines: list[str], first: int) -> int:
        """The line that ends a cue: an empty line or the next timing."""
        end = first
        while end < len(lines) and lines[end].strip("\r") and "-->" not in lines[end]:
            end += 1
        return end

    def _marked(self, text: str, markers: Markers) -> str:
        pieces: list[str | Tag] = []
        at = 0
        for found in _VTT_TAG.finditer(text):
            kind: TagKind = "alone" if found["name"] is None else "close" if found["close"] else "open"
            pieces += [_shown(text[at : found.start()]), Tag(Written(found[0]), kind, found["name"] or "")]
            at = found.end()
        return markers.mark([*pieces, _shown(text[at:])])

    def _restored(self, text: str, markers: Markers) -> str:
        return "".join(escaped(part) if kind == "text" else str(part) for kind, part in markers.restored(text))


def _shown(raw: str) -> str:
    return _ENTITY.sub(lambda found: html.unescape(found[0]), raw)


@register("format", "vtt", DocumentOptions)
class VttFormat(UnitFormat):
    """WebVTT subtitles: translates the text of each cue."""

    document = VttDocument
