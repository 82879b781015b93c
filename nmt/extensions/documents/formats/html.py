"""HTML pages: translates the text of each block and of visible attributes. Scripts, styles and comments are kept."""

import html
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from nmt import register
from nmt.errors import InputError
from nmt.extensions.documents.document import (
    BYTE_ORDER_MARKS,
    Unit,
    UnitDocument,
    UnitFormat,
    check_charset,
    is_language,
)
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import Tag, TagKind, has_words
from nmt.extensions.documents.pieces import Block, Written
from nmt.extensions.texts.markup import HTML_ENTITY
from nmt.extensions.texts.passages import escaped
from nmt.extensions.texts.tags import ELEMENT_TAG, KEPT_AS_IT_IS, TextPiece, pieces_of
from nmt.formats.base import Languages

_SPACES: Final = re.compile(r"[ \t\r\n\f]+")
_CHARSET: Final = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]{1,40})|<\?xml[^>]{0,100}encoding=["']([\w:.-]{1,40})""", re.I
)
_CHARSET_BYTES: Final = 1024  # a page must declare its encoding within these first bytes
_ATTRIBUTE: Final = re.compile(r"""\s([A-Za-z][\w:-]*)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_SEEN: Final = {"alt", "title", "placeholder", "aria-label", "aria-description", "label"}  # visible attributes
_SEEN_META: Final = {"description", "keywords", "og:title", "og:description", "twitter:title", "twitter:description"}
_NO_WORD: Final = re.compile(
    r"<(?:!--|(?:area|br|col|embed|hr|img|input|link|meta|script|source|style|track|wbr)\b)", re.IGNORECASE
)
# Visible text that is counted but kept untranslated.
_KEPT_TEXT: Final = re.compile(r"<(?:pre|textarea|svg|math)\b", re.IGNORECASE)
_BUTTONS: Final = {"submit", "button", "reset"}  # inputs whose value is text


class HtmlDocument(UnitDocument):
    """A page or a part of one. Raises InputError if it is not in the declared encoding (by default UTF-8)."""

    def __init__(self, content: bytes, place: str) -> None:
        self._encoding = _encoding(content, place)
        try:
            text = content.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{place}: not valid {self._encoding}: {error} (convert the page, or fix its charset)"
            ) from None
        self.parts: list[Written | Block] = html_parts(text)

    def units(self, languages: Languages) -> list[Unit]:
        """Each block that has words, and each visible attribute."""
        return list(html_units(self.parts, languages))

    def content(self) -> bytes:
        """The page in its original encoding."""
        return "".join(map(str, self.parts)).encode(self._encoding, "xmlcharrefreplace")


def _encoding(content: bytes, place: str) -> str:
    for mark, name in BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return name
    named = _CHARSET.search(content[:_CHARSET_BYTES])
    name = (named[1] or named[2]).decode().lower() if named else "utf-8"
    check_charset(name, place)
    return name


def html_parts(text: str) -> list[Written | Block]:
    """Split a page into its blocks and the tags between them."""
    parts, block = list[Written | Block](), list[TextPiece]()

    def end_block() -> None:
        first, last = _space_around(block)
        parts.extend([Written(first), Block(map(_tag, block), _plain), Written(last)])
        block.clear()

    for piece in pieces_of(text, "html"):
        if piece.kind == "break":
            end_block()
            parts.append(Written(piece.raw))
        else:
            block.append(piece)
    end_block()
    return parts


def _tag(piece: TextPiece) -> str | Tag:
    """A piece of a block. Code and other unchanged parts become tags that stand for a word."""
    if piece.kind in ("text", "message", "problem"):
        return piece.raw
    kinds: dict[str, TagKind] = {"open": "open", "close": "close"}
    kind = kinds.get(piece.kind, "alone" if _NO_WORD.match(piece.raw) else "word")
    return Tag(Written(piece.raw), kind, piece.name)


def _space_around(block: list[TextPiece]) -> tuple[str, str]:
    """Remove the white space from both ends of a block. Returns the removed parts."""
    first = last = ""
    if block and block[0].kind == "text":
        text = block[0].raw.lstrip()
        first, block[0] = block[0].raw.removesuffix(text), block[0]._replace(raw=text)
    if block and block[-1].kind == "text":
        text = block[-1].raw.rstrip()
        last, block[-1] = block[-1].raw.removeprefix(text), block[-1]._replace(raw=text)
    return first, last


def html_units(parts: list[Written | Block], languages: Languages, line: int = 1) -> Iterator[Unit]:
    """The texts of blocks and tags. line: number of the first line"""
    for part in parts:
        for tag in part.tags if isinstance(part, Block) else [part]:
            yield from _attributes(tag, languages, line)
            first = re.match(ELEMENT_TAG, tag.raw)
            if _KEPT_TEXT.match(tag.raw) or (first and KEPT_AS_IT_IS.search(first["attributes"])):
                text = html.unescape(re.sub("<[^<>]*>", "", tag.raw))
                yield from [Unit(line, text, lambda _: None, state="not to be translated")] * has_words(text)
        if isinstance(part, Block) and has_words(part.text):
            yield Unit(line, part.text, partial(_write, part), part.markers)
        line += str(part).count("\n")


def _write(block: Block, translation: str) -> None:
    block.parts = block.written_in(translation, _written)


def _written(text: str) -> str:
    return escaped(text).replace("\N{NO-BREAK SPACE}", "&nbsp;")


def _plain(raw: str) -> str:
    """The displayed text: entities are decoded, and white space becomes a single space."""
    return HTML_ENTITY.sub(lambda found: html.unescape(found[0]), _SPACES.sub(" ", raw))


def _attributes(tag: Written, languages: Languages, line: int) -> Iterator[Unit]:
    """The visible attributes of a tag. The declared language of a page becomes the target language."""
    found = re.match(ELEMENT_TAG, tag.raw)
    if found is None or KEPT_AS_IT_IS.search(found["attributes"]):
        return
    name, values = found["name"].lower(), dict[str, tuple[str, re.Match[str]]]()
    for attribute in _ATTRIBUTE.finditer(tag.raw, *found.span("attributes")):
        values[attribute[1].lower()] = attribute[2] if attribute[2] is not None else attribute[3], attribute
    kind = {key: values[key][0].lower() for key in ("name", "property", "type") if key in values}
    seen = set(_SEEN)
    if name == "meta" and _SEEN_META & {kind.get("name"), kind.get("property")}:
        seen.add("content")
    if name == "input" and kind.get("type") in _BUTTONS:
        seen.add("value")
    for key, (value, attribute) in values.items():
        group = 2 if attribute[2] is not None else 3
        if key in seen and has_words(html.unescape(value)):
            yield Unit(line, html.unescape(value), partial(_write_attribute, tag, *attribute.span(group)))
        elif key in ("lang", "xml:lang") and name == "html" and is_language(value, [languages.source]):
            tag.replace(*attribute.span(group), languages.target.replace("_", "-"))


def _write_attribute(tag: Written, start: int, end: int, translation: str) -> None:
    tag.replace(start, end, html.escape(translation))


@register("format", "html", DocumentOptions)
class HtmlFormat(UnitFormat):
    """HTML pages: translates the text of each block and of visible attributes."""

    document = HtmlDocument
