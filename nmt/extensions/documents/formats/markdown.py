"""Markdown (CommonMark with extensions such as tables and footnotes, parsed by markdown-it): translates each block in place.

Code, formulas and link addresses stay unchanged. A translation is written only if it has the Markdown structure of its source;
otherwise the text stays untranslated.
"""

import operator
import re
import textwrap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from nmt import register
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, decoded, line_ends
from nmt.extensions.documents.formats.html import html_parts, html_units
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markdown_inline import (
    PARTS_WITHOUT_TEXT,
    PlaceNotFound,
    hidden_texts,
    inline_pieces,
    plain_markdown,
)
from nmt.extensions.documents.markers import has_words
from nmt.extensions.documents.pieces import Block, Written
from nmt.extensions.texts.tags import ELEMENT_TAG, KEPT_AS_IT_IS
from nmt.formats.base import Languages
from nmt.text.languages import UNSPACED_LANGUAGES, base_language

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$^!&])")  # characters that may be Markdown syntax
_LINE_START: Final = re.compile(
    r"^(?=[-+=:])|(?<=^\d)(?=[.)])|(?<=^\d\d)(?=[.)])", re.MULTILINE
)  # an escape here prevents a list or heading
_ESCAPED: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_BOX_TITLE: Final = re.compile(r"[\s>]*:{3,}\s*(?:[\w-]+|\{[\w-]+\})(?:\s*\[([^\[\]]+)\]|\s+([^\s\[{=][^{}=]*?)\s*$)")
_LABEL_TITLE: Final = re.compile(  # title in a link reference definition
    r"^[ >]*\[([^\[\]\n]+)\]:[ \t]*(?:<[^<>\n]*>|[^\s<]\S*)[ \t]*\n?[ \t]+\"([^\"\\\n]+)\"[ \t\r]*$", re.MULTILINE
)
_NOTE_NAME: Final = re.compile(r"\[\^([^\]\s]+)\]")
_CELL: Final = re.compile(r"(?:[^|\\]|\\.)+")
_ROW_START: Final = re.compile(r"[\s>]*(?:[-+*]\s+)?\|?")
_FRONT_TEXT: Final = re.compile(
    r"^(?:title|description|summary|subtitle|excerpt)(?::[ \t]+|[ \t]*=[ \t]*(?=[\"']))"
    r"(?:\"([^\"\\\n]+)\"|'([^'\n]+)'|([^\s\"'\[{&*!|>%@`#][^\n#]*?))[ \t\r]*$",
    re.MULTILINE,
)
_TOML: Final = re.compile(r"\+\+\+[ \t]*\n(?:.*\n)*?\+\+\+[ \t]*(?:\n|\Z)")
_TOML_LITERAL: Final = 4  # in TOML, a value in single quotation marks cannot contain one
_MDX_CODE: Final = re.compile(
    r"import\s(?:[^;]*?\sfrom\s+)?[\"'][^\"']+[\"']|export\s+(?:const|default|function|let|\{)\s"
)
_MIN_WIDTH: Final = 60  # minimum width of the lines of a wrapped paragraph
_NO_SPACE: Final = "\x1f"  # stands for a space where a line must not break
_TEXT_TOKENS: Final = {"text", "text_special", "softbreak"}


class MarkdownDocument(UnitDocument):
    """A Markdown text. Raises InputError if it is not UTF-8."""

    def __init__(self, content: bytes, place: str) -> None:
        self._text, self._encoding = decoded(content, place, "text")
        self._edits: list[tuple[int, int, Any]] = []  # replacements for the characters from start to end

    def units(self, languages: Languages) -> list[Unit]:
        """Each block that has words."""
        return list(_Reader(self._text, self._edits, languages).units())

    def content(self) -> bytes:
        """The text in its original encoding."""
        parts, at = [], 0
        for start, end, new in sorted(self._edits, key=lambda edit: edit[:2]):
            if start >= at:  # skip edits inside another edit
                parts += [self._text[at:start], str(new)]
                at = end
        return self._encoding.written("".join(parts) + self._text[at:])


class _Parser:
    """The markdown-it parser, and the references that it found in a document, which links and notes need."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        for plugin in (admon_plugin, deflist_plugin, dollarmath_plugin, footnote_plugin, front_matter_plugin):
            self._markdown.use(plugin)
        self._markdown.use(container_plugin, "any", validate=lambda *_: True)
        self._markdown.disable(["text_join", "footnote_inline"])  # these rules hide the written form of the text

    def document(self, text: str) -> list[Token]:
        return self._markdown.parse(text, self.found)

    def inline(self, text: str) -> list[Token]:
        return self._markdown.parseInline(text, self._environment(text))[0].children or []

    def read(self, text: str, is_paragraph: bool) -> tuple[list[str], str]:
        """Return the structure and the words of a text. is_paragraph: whether to parse it as blocks rather than as inline text"""
        blocks = self._markdown.parse(text, self._environment(text)) if is_paragraph else []
        inline = [child for token in blocks for child in token.children or ()] if is_paragraph else self.inline(text)
        before = ["", *(token.markup * token.nesting for token in inline)]  # the text of an autolink is its address
        shown = [
            " " if token.type == "softbreak" else token.content
            for token, markup in zip(inline, before, strict=False)
            if token.type in _TEXT_TOKENS and markup != "autolink"
        ]
        return sorted(token.type for token in [*blocks, *inline] if token.type not in _TEXT_TOKENS), _words(
            "".join(shown)
        )

    def has_reference(self, label: str) -> bool:
        return normalizeReference(label) in self.found.get("references", {})

    def _environment(self, text: str) -> dict[str, Any]:
        """The references that the document defines, and those of its notes that the text refers to."""
        refs = self.found.get("footnotes", {}).get("refs", {})
        notes = {"refs": {f":{name}": -1 for name in _NOTE_NAME.findall(text) if f":{name}" in refs}}
        return {"references": self.found.get("references", {}), "footnotes": notes}


class _Flow:
    """A block within the document's lines. Each line starts with a prefix, such as `> `."""

    def __init__(self, block: Block, prefixes: Sequence[str], newline: str, parser: _Parser, context: str) -> None:
        """context: type of the token around the text"""
        self.block, self._prefixes, self._newline, self._parser = block, prefixes, newline, parser
        self._is_paragraph, self._is_cell = context == "paragraph_open", context in ("td_open", "th_open")
        source = str(block)
        self._structure, _ = parser.read(source, self._is_paragraph)
        self._escapes = set(_ESCAPED.findall(source))
        rows = source.split("\n")
        is_filled = any(not row.endswith(("  ", "\\")) for row in rows[:-1])  # some lines end without a hard break
        self._width = max(_MIN_WIDTH, *map(len, rows)) if is_filled else None
        self._lines: list[str] | None = None  # lines of the translation

    def problem(self, translation: str) -> str:
        """The reason why a translation cannot be written into the document; empty if it can be."""
        return (
            ""
            if self._accepted(translation) is not None
            else "its punctuation would change the structure of the Markdown"
        )

    def write(self, translation: str) -> None:
        self._lines = self._accepted(translation)

    def _accepted(self, translation: str) -> list[str] | None:
        """The lines of a translation if it has the structure of its source; otherwise None."""
        words = _words(self.block.words_of(translation))
        for written in (self._like_source, self._escaped):
            lines = self._laid_out(self.block.written_in(translation, written))
            if self._parser.read("\n".join(lines), self._is_paragraph) == (self._structure, words):
                return lines
        return None

    def _like_source(self, text: str) -> str:
        """Escape the characters of a text that are escaped in the source."""
        return "".join(
            "\\" + sign if sign in self._escapes or (self._is_cell and sign == "|") else sign for sign in text
        )

    def _escaped(self, text: str) -> str:
        return _LINE_START.sub(r"\\", _SPECIAL.sub(r"\\\1", text))

    def _laid_out(self, parts: Sequence[str | Written]) -> list[str]:
        """Break a text into lines. If the source has several lines, no new line is wider than they are."""
        raw = "".join(
            part if isinstance(part, str) else (part.in_translation or str(part)).replace(" ", _NO_SPACE)
            for part in parts
        )
        lines = []
        for row in raw.split("\n"):
            fitting = (
                textwrap.wrap(row, self._width, break_long_words=False, break_on_hyphens=False)
                if self._width
                else [row]
            )
            lines += fitting or [row]
        return [line.replace(_NO_SPACE, " ") for line in lines]

    def __str__(self) -> str:
        lines = str(self.block).split("\n") if self._lines is None else self._lines
        prefixes = ["", *self._prefixes[1:]]
        prefixes += [self._prefixes[-1]] * (len(lines) - len(prefixes))
        return self._newline.join(map(operator.add, prefixes, lines))


class _Joined(list[Any]):
    """The parts of an HTML block in Markdown."""

    def __str__(self) -> str:
        return "".join(map(str, self))


class _Reader:
    """Finds the texts of a document. edits: receives their replacements"""

    def __init__(self, text: str, edits: list[tuple[int, int, Any]], languages: Languages) -> None:
        self._text, self._edits, self._languages = text, edits, languages
        self._line_ends = line_ends(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._rows = text.replace("\r\n", "\n").split("\n")
        self._starts = list(accumulate((len(row) + len(self._newline) for row in self._rows), initial=0))
        self._joint = "" if base_language(languages.source) in UNSPACED_LANGUAGES else " "
        self._parser = _Parser()
        self._cells: dict[int, Iterator[re.Match[str]]] = {}  # cells of each row that have not been read yet

    def units(self) -> Iterator[Unit]:
        context, kept = "", ""  # kept: name of an element that must not be translated
        text = "\n".join(self._rows)
        if found := _TOML.match(text):
            end = found[0].rstrip("\n").count("\n") + 1
            yield from self._front_matter(0, end)
            text = "\n" * end + "\n".join(self._rows[end:])
        for token in self._parser.document(text):
            if token.type == "html_block" and token.map:
                opening = None if kept else re.match(ELEMENT_TAG, token.content.strip())
                if opening and KEPT_AS_IT_IS.search(opening["attributes"]):
                    kept = opening["name"].lower()
                if f"</{kept}" in token.content.lower():
                    kept = ""
                elif kept:
                    continue
                yield from self._html(token, *token.map)
            elif token.type == "inline" and token.map and (kept or _MDX_CODE.match(token.content)):
                yield Unit(token.map[0] + 1, token.content, lambda _: None, state="not to be translated")
            elif token.type == "front_matter" and token.map:
                yield from self._front_matter(*token.map)
            elif (
                token.type == "container_any_open" and token.map and (box := _BOX_TITLE.match(self._rows[token.map[0]]))
            ):
                start, end = box.span(1 if box[1] else 2)
                yield self._title(self._starts[token.map[0]] + start, self._starts[token.map[0]] + end)
            elif token.type == "inline" and token.map:
                yield from self._inline(token, token.map[0], context)
            context = token.type

        for label in _LABEL_TITLE.finditer(self._text):
            if self._parser.has_reference(label[1]):
                yield self._title(*label.span(2))

    def _title(self, start: int, end: int) -> Unit:
        """A text without tags between two positions."""
        value = Written(self._text[start:end])
        self._edits.append((start, end, value))
        line = bisect_left(self._line_ends, start) + 1
        return Unit(line, value.raw, partial(_write_hidden, value, 0, end - start))

    def _html(self, token: Token, first: int, end: int) -> Iterator[Unit]:
        content = [line.strip() for line in token.content.rstrip("\n").split("\n")]
        if [row.strip() for row in self._rows[first:end]][: len(content)] != content:
            if has_words(token.content):
                yield _kept(first, token.content, "HTML inside a quotation or a list is not translated")
            return
        span = self._starts[first], self._starts[end] - len(self._newline)
        parts = _Joined(html_parts(self._text[slice(*span)]))
        self._edits.append((*span, parts))
        yield from html_units(parts, self._languages, first + 1)

    def _front_matter(self, first: int, end: int) -> Iterator[Unit]:
        """The title and similar values in the YAML or TOML front matter."""
        for found in _FRONT_TEXT.finditer(self._text, self._starts[first], self._starts[end]):
            group = next(number for number in (1, 2, 3) if found[number])
            span = found.span(group)
            value = Written(found[group])
            group = _TOML_LITERAL if group == 2 and self._rows[first].startswith("+++") else group
            self._edits.append((*span, value))
            line = bisect_left(self._line_ends, found.start()) + 1
            yield Unit(line, value.raw, partial(_write_yaml, value, group))

    def _inline(self, token: Token, row: int, context: str) -> Iterator[Unit]:
        if not token.content.strip():
            return
        try:
            is_cell = context in ("td_open", "th_open")
            raw, span, prefixes = self._cell(row) if is_cell else self._lines_of(token, row, context)
            children = self._parser.inline(raw) if is_cell else token.children or []
            pieces = list(inline_pieces(raw, children, self._parser.has_reference))
        except PlaceNotFound:
            if context != "admonition_title_open":  # titles that the parser added have no position
                yield _kept(row, token.content, "its position in the file was not found")
            return
        block = Block(pieces, partial(plain_markdown, joint=self._joint))
        flow = _Flow(block, prefixes, self._newline, self._parser, context)
        self._edits.append((*span, flow))
        for tag in block.tags:
            for start, end in hidden_texts(tag.raw):
                yield Unit(row + 1, tag.raw[start:end], partial(_write_hidden, tag, start, end))
        yield Unit(row + 1, block.text, flow.write, block.markers, problem=flow.problem)

    def _lines_of(self, token: Token, row: int, context: str) -> tuple[str, tuple[int, int], list[str]]:
        """The text of a token as written, its position in the document, and the prefix of each of its lines."""
        lines = token.content.split("\n")
        places = [self._rows[row + number].rfind(line) for number, line in enumerate(lines)]
        if (
            context == "admonition_title_open"
        ):  # a title is in quotation marks; without one, the parser uses the type of the box
            places = [self._rows[row].rfind(f'"{lines[0]}"') + 1 or -1]
        if -1 in places:
            raise PlaceNotFound
        prefixes = [self._rows[row + number][:place] for number, place in enumerate(places)]
        end = self._starts[row + len(lines) - 1] + places[-1] + len(lines[-1])
        return token.content, (self._starts[row] + places[0], end), prefixes

    def _cell(self, row: int) -> tuple[str, tuple[int, int], list[str]]:
        """Like `_lines_of`, but for the next cell in a table row."""
        if row not in self._cells:
            start_of_row = _ROW_START.match(self._rows[row])
            self._cells[row] = _CELL.finditer(self._rows[row], start_of_row.end() if start_of_row else 0)
        found = next(self._cells[row], None)
        if found is None:
            raise PlaceNotFound
        raw = found[0]
        start = self._starts[row] + found.start() + len(raw) - len(raw.lstrip())
        return raw.strip(), (start, start + len(raw.strip())), [""]


def _words(text: str) -> str:
    return "".join(PARTS_WITHOUT_TEXT.sub("", text).split())


def _kept(row: int, text: str, reason: str) -> Unit:
    """A unit that stays untranslated. reason: text of the warning"""
    return Unit(row + 1, text, lambda _: None, problem=lambda _: reason)


def _write_hidden(tag: Written, start: int, end: int, translation: str) -> None:
    tag.replace(start, end, re.sub(r"[\[\]\"\\]", "'", translation))


def _write_yaml(value: Written, group: int, translation: str) -> None:
    """Write a YAML value. group: 1 for a value in double quotation marks, 2 for single ones, 3 for none"""
    if group == 3 and re.search(r": |:$|\s#|^[-?:,\[\]{}#&*!|>'\"%@`]", translation):
        translation, group = f"'{translation.replace(chr(39), chr(39) * 2)}'", 0
    quotes = {1: ('"', '\\"'), 2: ("'", "''"), _TOML_LITERAL: ("'", "’")}.get(group, ("", ""))
    text = translation.replace("\\", "\\\\") if group == 1 else translation
    value.replace(0, len(value.raw), text.replace(*quotes) if quotes[0] else text)


@register("format", "markdown", DocumentOptions)
class MarkdownFormat(UnitFormat):
    """Markdown: translates paragraphs, headings, lists, tables, notes and HTML; code and addresses are kept."""

    document = MarkdownDocument
