"""XLIFF 1.2 and 2.0 (OASIS), including inline elements, segments and states.

A translation gets a state that asks for a review. In 1.2 this is `needs-review-translation` with the qualifier `leveraged-mt`;
in 2.0 it is `translated`, the state before `reviewed`.
"""

import copy
from functools import partial
from typing import Any, Final, NamedTuple

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
    original_codes,
    qualified,
    set_inline_text,
    texts_in_codes,
)
from nmt.formats.base import Languages

XLIFF_PAIRS: Final = {
    "g",
    "mrk",
    "pc",
}  # inline elements that contain text; others contain codes of the original format
# States of a target that is only a copy of its source, in 2.0 and in 1.2.
UNTRANSLATED: Final = {"initial"}, {"new", "needs-translation"}
LOCKED: Final = {"true", "1", "yes", "locked"}


class XliffDocument(XmlFile, UnitDocument):
    """An XLIFF document."""

    def __init__(self, content: bytes, place: str) -> None:
        super().__init__(content, "XLIFF", place)
        root = self.root
        if local_name(root) != "xliff" or root.get("version", "")[:2] not in ("1.", "2."):
            raise damaged(
                place, "XLIFF", f"the root element is <{local_name(root)} version='{root.get('version', '')}'>"
            )
        self._is_first = root.get("version").startswith("1.")
        # The elements that declare the languages, each with the names of its attributes.
        self._language_attributes: list[tuple[Any, str, str]] = [(root, "srcLang", "trgLang")]
        if self._is_first:
            self._language_attributes = [(f, "source-language", "target-language") for f in children(root, "file")]

    def units(self, languages: Languages) -> list[Unit]:
        """In 1.2, the units, or the segments that a tool has split them into; in 2.0, the segments."""
        for element, source, target in self._language_attributes:
            warn_of_language(self._place, "source", element.get(source), languages.source)
            warn_of_language(self._place, "target", element.get(target), languages.target)
        self._target = languages.target.replace("_", "-")
        units, around = list[Unit](), None
        for element in self.root.iter("{*}trans-unit" if self._is_first else "{*}segment"):
            if element.getparent() is not around:
                around = element.getparent()
                self._codes = original_codes(element)
            source, cut = child(element, "source"), child(element, "seg-source")
            segments, targets = _segments(cut), _segments(child(element, "target"))
            statuses = _statuses(element) if segments else {}
            for segment in segments.values():
                number = segment.get("mid", "")
                units.append(self._unit(element, segment, cut, _Segment(number, targets, statuses.get(number))))
            units += [] if source is None else texts_in_codes(source)
            if source is not None and not segments:
                units.append(self._unit(element, source, source if cut is None else cut))
        return units

    def content(self) -> bytes:
        """The document. It declares the target language if it has a new translation."""
        for element, _, target in self._language_attributes if self.changed else ():
            if not element.get(target):
                element.set(target, self._target)
        return super().content()

    def _unit(self, element: Any, text: Any, last: Any, segment: "_Segment | None" = None) -> Unit:
        """A unit.

        text: the element with its text
        last: the element that the target must follow
        segment: None for a whole unit
        """
        markers = Markers()
        keep_lines = inherited(text, XML_SPACE, "default") == "preserve" and segment is None
        source = inline_text(text, markers, XLIFF_PAIRS, keep_lines, self._codes)
        write = partial(self._write, element, last, segment, markers)
        suggest = partial(self._suggest, element) if self._is_first else None
        return Unit(text.sourceline, source, write, markers, suggest, self._state(element, text, segment))

    def _state(self, element: Any, text: Any, segment: "_Segment | None") -> UnitState:
        """Whether a unit or segment must be translated."""
        is_locked = _is_locked(element) or (segment is not None and _is_locked(segment.status))
        if is_locked or inherited(text, "translate", "yes") == "no":
            return "not to be translated"
        target = child(element, "target") if segment is None else segment.targets.get(segment.number)
        if target is None or is_empty(target, XLIFF_PAIRS):
            return "open"
        state = (child(element, "target") if self._is_first else element).get("state")
        if element.get("approved") != "yes" and state in UNTRANSLATED[self._is_first]:
            return "open"
        return "already translated"

    def _write(self, element: Any, last: Any, segment: "_Segment | None", markers: Markers, translation: str) -> None:
        """Write a target, or one segment of it; see `_unit` for the arguments."""
        target = child(element, "target")
        if target is None:
            target = new_after(last, "target")
        place = target
        if segment is not None:
            if segment.number not in segment.targets:
                _copy_segments(last, target)
                segment.targets.update(_segments(target))
            place = segment.targets[segment.number]
        set_inline_text(place, translation, markers)
        if segment is not None and segment.status is not None:  # only SDL tools record a status
            segment.status.set("conf", "Draft")
            segment.status.set("origin", "mt")
        if self._is_first:
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "leveraged-mt")
            if element.get("approved"):
                element.set("approved", "no")
        else:
            element.set("state", "translated")
            element.attrib.pop("subState", None)
        self.changed = True

    def _suggest(self, element: Any, text: str, reason: str) -> None:
        """Add an alternative translation (1.2, section 2.4). reason: why it was rejected"""
        last = next(part for part in ("target", "seg-source", "source") if child(element, part) is not None)
        alternative = new_after(child(element, last), "alt-trans")
        alternative.set("origin", "machine translation")
        target = etree.SubElement(alternative, qualified(element, "target"))
        target.set("state-qualifier", "mt-suggestion")
        target.set(XML_LANG, inherited(element, "target-language", self._target))
        target.text = text
        self.changed = True


class _Segment(NamedTuple):
    """A segment of a unit.

    targets: the segments of the unit's target, by number; all segments of a unit share it
    status: see `_statuses`; None if there is none
    """

    number: str
    targets: dict[str, Any]
    status: Any


def _segments(element: Any) -> dict[str, Any]:
    """The segments of a `seg-source`, or of a target copied from one, by number."""
    marks = [] if element is None else element.iter("{*}mrk")
    return {mark.get("mid", ""): mark for mark in marks if mark.get("mtype") == "seg"}


def _copy_segments(source: Any, target: Any) -> None:
    """Copy the segments of a `seg-source` into a target, without their text. The existing segments of the target are kept."""
    old = _segments(target)
    target.text = source.text
    target[:] = copy.deepcopy(list(source))
    for number, segment in _segments(target).items():
        tail = segment.tail
        kept = old.get(number)
        segment[:] = [] if kept is None else list(kept)
        segment.text = None if kept is None else kept.text
        segment.tail = tail


def _statuses(element: Any) -> dict[str | None, Any]:
    """The status that SDL tools record for each segment, `sdl:seg`, by number. The first of a number counts."""
    return {status.get("id"): status for status in reversed(element.findall("{*}seg-defs/{*}seg"))}


def _is_locked(element: Any) -> bool:
    """Whether a tool (SDL, memoQ, Memsource) has locked a unit through an attribute in its own namespace."""
    attributes = {} if element is None else element.attrib
    return any(etree.QName(name).localname == "locked" and value in LOCKED for name, value in attributes.items())


@register("format", "xliff", DocumentOptions)
class XliffFormat(UnitFormat):
    """XLIFF 1.2 and 2.0: translates units and segments, and keeps inline elements."""

    document = XliffDocument
