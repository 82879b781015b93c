"""Program texts in JSON (i18next, vue-i18n, Flutter's ARB, messages of browser extensions): translates each string value.

Everything except these strings stays unchanged. In ARB, keys that start with @ describe a text. In browser extensions, each text
is an object with a `message`.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from nmt import register
from nmt.extensions.documents.document import (
    Unit,
    UnitDocument,
    UnitFormat,
    UnitState,
    damaged,
    decoded,
    is_language,
    line_ends,
)
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import Markers
from nmt.extensions.documents.pieces import Written
from nmt.formats.base import Languages

_TOKEN: Final = re.compile(r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|[{}\[\],:]|[^\s{}\[\],:"]+')
_DATE: Final = "(?:Y{2,4}|y{1,4}|M{1,4}|D{1,2}|d{1,4}|H{1,2}|h{1,2}|m{2}|s{2}|a|A|E{3,4})"
# A value that is not text: a colour, a date format, a path.
_CODE: Final = re.compile(
    rf"\#[0-9a-fA-F]{{3,8}}|(?:{_DATE}[-/.:, ]+)+{_DATE}|\.{{0,2}}/[\w./-]+"
    r"|[\w./-]+\.(?:css|gif|html?|jpe?g|json|js|md|pdf|png|svg|ts|webp)"
)
_MAX_LEVELS: Final = 200  # maximum nesting depth of objects and lists
_LOCALE: Final = "@@locale"  # declares the language of an ARB file


class _Value(NamedTuple):
    """A string value. keys: the keys of the objects around it; place: offset of its opening quotation mark"""

    keys: tuple[str, ...]
    place: int
    raw: str


class JsonDocument(UnitDocument):
    """A JSON file. Raises InputError if it is damaged."""

    def __init__(self, content: bytes, place: str) -> None:
        self._text, self._encoding = decoded(content, place, "file")
        try:
            value = json.loads(self._text, parse_int=str)  # Python refuses to convert numbers of 5,000 digits
            self._values = list(_values(self._text))
        except json.JSONDecodeError as error:
            raise damaged(place, "JSON", error.msg, error.lineno) from None
        except RecursionError:
            reason = f"its objects are nested more than {_MAX_LEVELS} levels deep"
            raise damaged(place, "JSON", reason) from None
        self._is_messages = _is_messages(value)
        self._is_ascii = self._text.isascii() and "\\u" in self._text
        self._written, self._line_ends = Written(self._text), line_ends(self._text)

    def units(self, languages: Languages) -> list[Unit]:
        """Each string value. Keys, numbers and descriptions of texts are kept."""
        for value in self._values:
            if value.keys == (_LOCALE,) and is_language(json.loads(value.raw), [languages.source]):
                self._replace(value, languages.target)
        return [self._unit(value) for value in self._values if self._is_text(value.keys)]

    def content(self) -> bytes:
        """The file in its original encoding."""
        return self._encoding.written(str(self._written))

    def _is_text(self, keys: tuple[str, ...]) -> bool:
        if keys[:1] and keys[0].startswith("@"):
            return False
        return keys[1:] == ("message",) if self._is_messages else True

    def _unit(self, value: _Value) -> Unit:
        markers = Markers()
        shown = json.loads(value.raw, strict=False)
        text = markers.mark_tags(shown)
        state: UnitState = "not to be translated" if _CODE.fullmatch(shown) else "open"
        line = bisect_left(self._line_ends, value.place) + 1
        return Unit(line, text, partial(self._write, value, markers), markers, state=state)

    def _write(self, value: _Value, markers: Markers, translation: str) -> None:
        self._replace(value, markers.restore(translation))

    def _replace(self, value: _Value, text: str) -> None:
        raw = json.dumps(text, ensure_ascii=self._is_ascii)
        self._written.replace(value.place, value.place + len(value.raw), raw)


def _is_messages(value: Any) -> bool:
    """Whether a file contains the messages of a browser extension."""
    objects = list(value.values()) if isinstance(value, dict) else []
    return bool(objects) and all(isinstance(item, dict) and isinstance(item.get("message"), str) for item in objects)


def _values(text: str) -> Iterator[_Value]:
    """The strings in well-formed JSON, except for keys. Raises RecursionError for more than _MAX_LEVELS levels."""
    keys: list[str | None] = []  # current key of each object around this place; None for a list
    tokens = list(_TOKEN.finditer(text))
    for number, token in enumerate(tokens):
        sign = token[0]
        if sign in ("{", "["):
            keys.append(None)
            if len(keys) > _MAX_LEVELS:
                raise RecursionError
        elif sign in ("}", "]"):
            keys.pop()
        elif token["string"] is None:
            continue
        elif number + 1 < len(tokens) and tokens[number + 1][0] == ":":
            keys[-1] = json.loads(sign, strict=False)
        else:
            yield _Value(tuple(key for key in keys if key is not None), token.start(), sign)


@register("format", "json", DocumentOptions)
class JsonFormat(UnitFormat):
    """JSON files with the texts of a program: translates each string value."""

    document = JsonDocument
