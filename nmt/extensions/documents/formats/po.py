"""Gettext PO files, read with the Translate Toolkit. Translations are marked fuzzy to request a review."""

import gettext
import re
from functools import partial
from typing import Any, Final

from translate.lang.data import get_language
from translate.storage import pypo

from nmt import register
from nmt.errors import InputError
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, check_charset, damaged, warn_of_language
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import Markers, found_tags
from nmt.extensions.texts.placeholders import found_placeholders
from nmt.formats.base import Languages
from nmt.text.corpus import BOM

MESSAGE: Final = re.compile(rb"^[ \t\r\f\v]*(?:#~[ \t\r\f\v]*)?msgid\b", re.MULTILINE)
PLURAL_FORMS: Final = re.compile(r"\s*nplurals\s*=\s*(\d{1,9})\s*;\s*plural\s*=\s*([^;]+)")
GERMANIC_PLURAL: Final = (2, "(n != 1)")  # default for languages that the library does not know
NEW_HEADER: Final = {
    "MIME-Version": "1.0",
    "Content-Type": "text/plain; charset=UTF-8",
    "Content-Transfer-Encoding": "8bit",
}
MAX_ACCELERATED_CHARACTERS: Final = 200
MAX_PLURAL_FORMS: Final = 6  # Arabic has six


class PoDocument(UnitDocument):
    """A PO file or a template (POT). Raises InputError if it is damaged or not in the encoding that its header declares."""

    def __init__(self, content: bytes, place: str) -> None:
        self._content, self._place, self._is_changed = content, place, False
        self._store = pypo.pofile()
        try:
            self._store.parse(content)
        except ValueError as error:  # the library's message includes the line number
            raise damaged(place, "PO", error) from None
        # The library raises these errors for missing or unexpected plural forms.
        except (AttributeError, LookupError, TypeError):
            raise damaged(place, "PO", "the plural forms of a message and of its translation do not match") from None
        self._store.units.sort(key=lambda entry: not entry.isheader())  # the header comes first
        try:
            check_charset(self._store.encoding, place)
            content.decode(self._store.encoding)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{place}: the file is not in the encoding that its header declares: {error} (fix the charset)"
            ) from None
        if len(MESSAGE.findall(content.removeprefix(BOM))) != sum(bool(entry.msgid) for entry in self._store.units):
            raise damaged(place, "PO", "the last message has no msgstr")  # the library skips such a message

    def units(self, languages: Languages) -> list[Unit]:
        """One unit per message, or per plural form of a message."""
        header = self._store.parseheader()
        warn_of_language(self._place, "target", header.get("Language"), languages.target)
        accelerator = header.get("X-Accelerator-Marker") or "&"
        num_forms, expression = _plural_forms(header, languages.target)
        self._fields = {"Language": header.get("Language") or languages.target}
        if not PLURAL_FORMS.match(header.get("Plural-Forms", "")):
            self._fields["Plural-Forms"] = f"nplurals={num_forms}; plural={expression};"
        singular = _singular_form(num_forms, expression)
        units = []
        for entry in self._store.unit_iter():
            if not entry.istranslatable():
                continue
            done = _translations(entry)
            if not entry.hasplural():
                units.append(self._unit(entry, str(entry.source), accelerator, any(done)))
            for form in range(num_forms if entry.hasplural() else 0):
                text = entry.source.strings[form != singular]
                units.append(self._unit(entry, text, accelerator, any(done[form : form + 1]), form))
        return units

    def content(self) -> bytes:
        """The bytes of the file; they are unchanged unless something was translated. Missing header fields are added."""
        if not self._is_changed:
            return self._content
        header = self._store.parseheader()
        if not header:
            entry = self._store.create_unit()
            entry.source, entry.target = "", "".join(f"{name}: {value}\n" for name, value in NEW_HEADER.items())
            self._store.units.insert(0, entry)
        lacks_field = any(header.get(name) != value for name, value in self._fields.items())
        if lacks_field or "charset=CHARSET" in header.get("Content-Type", ""):
            self._store.updateheader(
                add=True, **{name.replace("-", "_"): value for name, value in self._fields.items()}
            )
        written: bytes = bytes(self._store)
        return written

    def _unit(self, entry: Any, source: str, accelerator: str, done: object, form: int | None = None) -> Unit:
        """The unit of a message, or of one of its plural forms. done: whether it has a translation"""
        text, key = split_accelerator(source, accelerator)
        markers = Markers()
        write = partial(self._write, entry, form, markers, accelerator, key)
        suggest = partial(self._suggest, entry)
        return Unit(
            entry.line_number,
            markers.mark_tags(text),
            write,
            markers,
            suggest,
            "already translated" if done else "open",
        )

    def _write(
        self, entry: Any, form: int | None, markers: Markers, accelerator: str, key: str, translation: str
    ) -> None:
        text = markers.restore(translation)
        if key:
            text = insert_accelerator(text, accelerator, key)
        if form is None:
            entry.target = text
        else:
            forms = _translations(entry)
            forms += [""] * (form + 1 - len(forms))
            forms[form] = text
            entry.target = forms
        entry.markfuzzy()
        self._is_changed = True

    def _suggest(self, entry: Any, text: str, reason: str) -> None:
        """Add a translator comment, because PO files have no place for suggestions."""
        note = f"machine translation, not used because {reason}: {text}"
        if note not in entry.getnotes("translator"):
            entry.addnote(note, "translator")
            self._is_changed = True


def _translations(entry: Any) -> list[str]:
    """The translation of a message, or the translations of its plural forms."""
    return list(
        getattr(entry.target, "strings", [str(entry.target)])
    )  # in a damaged file, a plural has only one translation


def _plural_forms(header: dict[str, str], language: str) -> tuple[int, str]:
    """The number of plural forms and the C expression that selects one, from the header or else by language."""
    declared = PLURAL_FORMS.match(header.get("Plural-Forms", ""))
    if declared and 1 <= int(declared[1]) <= MAX_PLURAL_FORMS:
        return int(declared[1]), declared[2].strip()
    known = get_language(language) or get_language(language.replace("-", "_").partition("_")[0])
    return (known[1], known[2]) if known else GERMANIC_PLURAL


def _singular_form(num_forms: int, expression: str) -> int | None:
    """The plural form for the number 1; None if all numbers have the same form.

    Python's `gettext` accepts only numbers, n and operators in the expression, because .mo files are untrusted too.
    """
    if num_forms == 1:
        return None
    try:
        return int(gettext.c2py(expression)(1))
    except (ValueError, ArithmeticError, RecursionError):
        return 0


def split_accelerator(text: str, marker: str) -> tuple[str, str]:
    """Remove the marker of an accelerator key ("E&xit"). Returns the text and the key (empty if there is none).

    Only a short text can be a label with a key. The character is not a marker in HTML entities, addresses and names such as AT&T.
    """
    if len(text) > MAX_ACCELERATED_CHARACTERS:
        return text, ""
    place = re.compile(rf"(?<![{re.escape(marker)}]){re.escape(marker)}(\w)")
    found = place.search(text)
    if found is None or text.count(marker) > 1 or re.match(rf"{re.escape(marker)}#?\w+[;=]", text[found.start() :]):
        return text, ""
    if found.start() and text[found.start() - 1].isupper() and found[1].isupper():
        return text, ""
    return text[: found.start()] + text[found.start() + len(marker) :], found[1]


def insert_accelerator(text: str, marker: str, key: str) -> str:
    """Insert a marker before the key, preferably at the start of a word. Without the key, insert it before the first letter."""
    kept = [(start, end) for start, end, _ in found_tags(text)] + list(found_placeholders(text))
    taken = {i for span in kept for i in range(*span)}
    free = [i for i, c in enumerate(text) if c.isalnum() and i not in taken]
    same = [i for i in free if text[i].lower() == key.lower()]
    starts = [i for i in same if i == 0 or not text[i - 1].isalnum()]
    place = next(iter([*starts, *same, *free]), 0)
    return text[:place] + marker + text[place:]


@register("format", "po", DocumentOptions)
class PoFormat(UnitFormat):
    """Gettext PO files and templates: translates messages and marks them fuzzy."""

    document = PoDocument
