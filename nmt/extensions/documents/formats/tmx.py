"""TMX 1.4 (LISA): translation memories. Each unit gets a variant in the target language."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from lxml import etree

from nmt import register
from nmt.extensions.documents.document import (
    Unit,
    UnitDocument,
    UnitFormat,
    UnitState,
    damaged,
    is_language,
    warn_of_language,
)
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import Markers
from nmt.extensions.documents.safe_xml import (
    XML_LANG,
    XML_SPACE,
    XmlFile,
    child,
    children,
    inherited,
    inline_text,
    is_empty,
    local_name,
    new_after,
    set_inline_text,
    texts_in_codes,
)
from nmt.formats.base import Languages
from nmt.version import __version__

TMX_PAIRS: Final = {"hi"}  # inline elements that contain text; others contain codes of the original format


class TmxDocument(XmlFile, UnitDocument):
    """A translation memory."""

    def __init__(self, content: bytes, place: str) -> None:
        super().__init__(content, "TMX", place)
        if local_name(self.root) != "tmx":
            raise damaged(place, "TMX", f"the root element is <{local_name(self.root)}>, not <tmx>")

    def units(self, languages: Languages) -> list[Unit]:
        """The units with a variant in the source language."""
        header = child(self.root, "header")
        declared = "" if header is None else header.get("srclang", "")
        warn_of_language(self._place, "source", declared, languages.source)
        units = []
        for element in self.root.iter("{*}tu"):
            variants = list(_variants(element))
            source = next((variant for code, variant in variants if is_language(code, [languages.source])), None)
            target = next((variant for code, variant in variants if is_language(code, [languages.target])), None)
            is_translated = target is not None and not is_empty(child(target, "seg"), TMX_PAIRS)
            if source is None or source is target:
                continue
            segment, markers = child(source, "seg"), Markers()
            keep_lines = inherited(segment, XML_SPACE, "default") == "preserve"
            text = inline_text(segment, markers, TMX_PAIRS, keep_lines)
            write = partial(self._write, source, target, markers, languages.target.replace("_", "-"))
            state: UnitState = "already translated" if is_translated else "open"
            units += texts_in_codes(segment)
            units.append(Unit(segment.sourceline, text, write, markers, state=state))
        return units

    def _write(self, source: Any, target: Any, markers: Markers, language: str, translation: str) -> None:
        if target is None:
            segment = child(source, "seg")
            target = new_after(source, "tuv")
            target.set(XML_LANG, language)
            etree.SubElement(target, segment.tag).tail = segment.tail
            target.text = source.text
        target.set("creationtool", "nmt")
        target.set("creationtoolversion", __version__)
        set_inline_text(child(target, "seg"), translation, markers)
        self.changed = True


def _variants(element: Any) -> Iterator[tuple[str, Any]]:
    """The language and the element of each variant of a unit, except variants without a segment."""
    for variant in children(element, "tuv"):
        if child(variant, "seg") is not None:
            yield variant.get(XML_LANG) or variant.get("lang") or "", variant


@register("format", "tmx", DocumentOptions)
class TmxFormat(UnitFormat):
    """Translation memories: adds a variant in the target language to each unit."""

    document = TmxDocument
