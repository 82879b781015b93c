"""XLIFF 1.2 and 2.0 (OASIS), with inline elements, segments and states.

A translation gets the state that asks for a review: `needs-review-translation`, with the qualifier `leveraged-mt`, in 1.2;
`initial` in 2.0, which has no state for it.
"""

import copy
from functools import partial
from typing import Any, Final

from lxml import etree

from nmt import register
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, UnitState, damaged, warn_of_language
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
    qualified,
    set_inline_text,
)
from nmt.formats.base import Languages

XLIFF_PAIRS: Final = {"g", "mrk", "pc"}  # inline elements with text; the others hold codes of the original format
UNTRANSLATED: Final = {"new", "needs-translation"}  # states of 1.2 of a target that is a copy of its source


class XliffDocument(XmlFile, UnitDocument):
    """A document of XLIFF."""

    def __init__(self, content: bytes, place: str) -> None:
        super().__init__(content, "XLIFF", place)
        root = self.root
        if local_name(root) != "xliff" or root.get("version", "")[:2] not in ("1.", "2."):
            raise damaged(
                place, "XLIFF", f"the root element is <{local_name(root)} version='{root.get('version', '')}'>"
            )
        self._is_first = root.get("version").startswith("1.")
        # The elements that name the languages, each with the names of its attributes.
        self._language_attributes: list[tuple[Any, str, str]] = [(root, "srcLang", "trgLang")]
        if self._is_first:
            self._language_attributes = [(f, "source-language", "target-language") for f in children(root, "file")]

    def units(self, languages: Languages) -> list[Unit]:
        """The units, or the segments of those in 2.0."""
        for element, source, target in self._language_attributes:
            warn_of_language(self._place, "source", element.get(source), languages.source)
            warn_of_language(self._place, "target", element.get(target), languages.target)
        name = "trans-unit" if self._is_first else "segment"
        elements = self.root.iter("{*}" + name)
        self._target = languages.target.replace("_", "-")
        return [
            self._unit(element, self._state(element)) for element in elements if child(element, "source") is not None
        ]

    def content(self) -> bytes:
        """The document. It names the target language if it has a new translation."""
        for element, _, target in self._language_attributes if self.changed else ():
            if not element.get(target):
                element.set(target, self._target)
        return super().content()

    def _state(self, element: Any) -> UnitState:
        """Whether a unit or segment is to be translated."""
        if inherited(element, "translate", "yes") == "no":
            return "not to be translated"
        target = child(element, "target")
        if target is None or is_empty(target):
            return "open"
        if self._is_first and element.get("approved") != "yes" and target.get("state") in UNTRANSLATED:
            return "open"
        return "already translated"

    def _unit(self, element: Any, state: UnitState) -> Unit:
        """The unit of an element. The segments of a 1.2 unit that a tool has cut are its lines."""
        source, markers = child(element, "source"), Markers()
        cut = child(element, "seg-source")
        segments = [] if cut is None else _segments(cut)
        keep_lines = inherited(source, XML_SPACE, "default") == "preserve" and not segments
        texts = [inline_text(part, markers, XLIFF_PAIRS, keep_lines) for part in segments or [source]]
        write = partial(self._write, element, source if cut is None else cut, markers)
        suggest = partial(self._suggest, element) if self._is_first else None
        return Unit(source.sourceline, "\n".join(texts), write, markers, suggest, state)

    def _write(self, element: Any, source: Any, markers: Markers, translation: str) -> None:
        """Write a target. source: the `seg-source` if there is one, after which it stands"""
        target = child(element, "target")
        if target is None:
            target = new_after(source, "target")
        segments = _segments(source) if local_name(source) == "seg-source" else []
        if segments:
            target.text = source.text
            target[:] = copy.deepcopy(list(source))
            for segment, line in zip(_segments(target), translation.split("\n"), strict=True):
                set_inline_text(segment, line, markers)
        else:
            set_inline_text(target, translation, markers)
        if self._is_first:
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "leveraged-mt")
            if element.get("approved"):
                element.set("approved", "no")
        else:
            element.set("state", "initial")
            element.attrib.pop("subState", None)
        self.changed = True

    def _suggest(self, element: Any, text: str, reason: str) -> None:
        """Add an alternative translation (1.2, section 2.4). reason: why it is none"""
        last = next(part for part in ("target", "seg-source", "source") if child(element, part) is not None)
        alternative = new_after(child(element, last), "alt-trans")
        alternative.set("origin", "machine translation")
        target = etree.SubElement(alternative, qualified(element, "target"))
        target.set("state-qualifier", "mt-suggestion")
        target.set(XML_LANG, inherited(element, "target-language", self._target))
        target.text = text
        self.changed = True


def _segments(element: Any) -> list[Any]:
    """The segments of a `seg-source`, or of a target that is a copy of one."""
    return [mark for mark in element.iter("{*}mrk") if mark.get("mtype") == "seg"]


@register("format", "xliff", DocumentOptions)
class XliffFormat(UnitFormat):
    """XLIFF 1.2 and 2.0, with inline elements, segments and states."""

    document = XliffDocument
