"""Reads the tags of a text: which ones open, close, stand alone or end a sentence, and what is code rather than text.

Malformed tags are not an error: they are kept where they are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nmt.extensions.texts.messages import CHOICE_START, MESSAGE_START, closing_brace, message_at
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.placeholders import WIDTHLESS

MAX_NESTED_ELEMENTS: Final = 100  # maximum depth of nesting; deeper tags become markers
MAX_ATTRIBUTE_PARTS: Final = 1000  # maximum number of quoted values and other characters in a tag; longer tags are text
MAX_BROKEN_MESSAGES: Final = 10  # limit per text; all later messages count as broken without being searched
# Code that ends only at its own end mark: comments, code and templates. They may contain tags, and may be inside tags.
ENDS: Final = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<%": "%>", "{%": "%}", "{{": "}}", "{#": "#}"}
DOCTYPE: Final = r"""<!DOCTYPE(?:"[^"]*"|'[^']*'|[^"'<>\[\]])*+(?:\[(?:(?!<!DOCTYPE)[^\]])*+\]\s*+)?>"""
FORMULA: Final = r"(?<!\w)[A-Z][A-Za-z]{0,3}(?:<sub>[\d+-]{1,4}</sub>[A-Za-z]{0,4}){1,9}"
CLOSED_CODE: Final = re.compile(
    rf"<!--|<!\[CDATA\[|<\?|<%|\{{%|\{{\{{|\{{\#(?=\s)|(?P<whole>{DOCTYPE}|{FORMULA})|(?P<message>{MESSAGE_START.pattern})"
    rf"|(?P<choice>{CHOICE_START.pattern})"
)
ELEMENT_TAG: Final = (
    r"<(?P<close>/?)(?P<name>[A-Za-z_][\w:.-]*+|\d{1,3}(?=/?>))"  # <0> is a react-i18next tag
    rf"(?P<attributes>(?:\"[^\"]*\"|'[^']*'|[^'\"<>]){{0,{MAX_ATTRIBUTE_PARTS}}}+)>"
)
REFERENCE: Final = r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z_][\w.-]{0,60};"  # an XML entity that the document declares
# Marks in texts of any format: Markdown's links and bold text, BBCode, and subtitle styles.
WRITTEN_MARKS: Final = (
    r"(?P<link>!?\[(?=[^\[\]\n]{1,500}\]\([^()\s<>]{0,1000}(?:\s+\"[^\"<>]*\")?\)))"
    r"|(?P<link_end>(?<=[^\[\]\n])\]\([^()\s<>]{0,1000}(?:\s+\"[^\"<>]*\")?\))"
    r"|(?P<bold>\*\*(?=\S[^*\n]{0,300}\*\*)|(?<=\S)\*\*)"
    r"|\[(?P<bb_close>/?)(?P<bb>b|i|u|s|url|quote|color|size|center|list)(?:=[^\[\]\n]{0,200})?\]"
    r"|\{\\(?P<style>[a-zA-Z]*+)(?P<value>[^{}\s]{0,200}+)\}"
)
WRITTEN_BREAK: Final = r"(?<!\b[A-Za-z]:)(?<=[.!?:;,>])\\{1,2}[nrt]|\\{1,2}[nrt](?=[A-Z\W]|\Z)"  # but not in paths
TAG_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "html": re.compile(rf"(?P<code><[!?][^<>]*+>)|(?P<cut>{WRITTEN_BREAK})|{ELEMENT_TAG}|{WRITTEN_MARKS}"),
    "xml": re.compile(
        rf"(?P<code><[!?][^<>]*+>|{REFERENCE})|(?P<cut>{WRITTEN_BREAK}|\t+|\n[ \t]*\n\s*)|{ELEMENT_TAG}|{WRITTEN_MARKS}"
    ),
}
# HTML elements without an end tag, elements without text, and tags that end a sentence.
VOID: Final = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
NO_TEXT: Final = re.compile("script|style|code|pre|kbd|samp|var|textarea|svg|math")
BLOCK: Final = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|h[1-6]|head|header|hr|html|legend|li|main|menu|nav|ol|optgroup|option|p|section|select|summary|table|tbody|td|tfoot|th|"
    "thead|title|tr|ul"
)
# Block tags of DocBook, DITA, TEI, JATS, office documents and translation files, and the inline tags of these formats.
XML_BLOCK: Final = re.compile(
    f"{BLOCK.pattern}|ab|abstract|bookmark|cell|chapter|description|entry|example|footnote|formalpara|heading|item|itemizedlist|"
    "informaltable|l|label|lb|lg|line|list-?item|list|message|note|orderedlist|pagebreak|para|paragraph|pb|plural|row|sec|seg|"
    "segment|sheet|simpara|simplelist|sli?|source|step|string|string-array|subtitle|tab|target|tgroup|trans-unit|tu|unit|value|verse"
)
INLINE: Final = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|emphasis|font|g|hi|i|ins|it|kbd|link|mark|mrk|pc|ph|phrase|q|quote|r|ref|"
    "s|samp|small|span|strike|strong|sub|sup|superscript|subscript|t|term|time|tt|u|ulink|uri|var|w|x|xref|\\d+"
)
# Single tags of XLIFF and TMX that form pairs: the opening tag, the closing tag, and the attributes that identify the pair.
PAIR_TAGS: Final = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
PAIR_NAME: Final = re.compile(r"""\s(?:startRef|rid|i|id)\s*=\s*["']([^"']*)""")
OPEN_SIDE: Final = re.compile(r"""\spos\s*=\s*["'](?:open|begin)["']""")
KEPT_AS_IT_IS: Final = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)
SENTENCE_END: Final = re.compile(r"(?:[^\W\d_]{3}\.|[!?…。！？।؟])[\"'”’»)\]]*\Z")


class TextPiece(NamedTuple):
    """A tag, or a text between tags.

    kind: text, open, close, marker, break (which ends a passage), or a kind of `Kept`
    raw: original form
    """

    kind: str
    raw: str
    name: str = ""


def pieces_of(text: str, markup: MarkupName) -> Iterator[TextPiece]:
    """Yield the tags of a text and the texts between them. An element that must not be translated becomes a marker."""
    # For an element that must not be translated: its position, its first tag, and its open elements.
    at, hidden, first, names = 0, -1, ("", ""), list[str]()
    closed = {found[1].lower() for found in re.finditer(r"</([\w:.-]+)", text)}
    for start, end, piece, attributes in _tags(text, markup):
        kind, name = piece.kind, piece.name
        if kind == "break" and name.lower() in closed:  # a block that may be untranslatable
            kind = "close" if piece.raw.startswith("</") else "open"
        if hidden < 0:
            if start > at:
                yield TextPiece("text", text[at:start])
            if kind != "open" or attributes.endswith("/") or not _is_hidden(name, attributes, markup):
                yield piece
                at = end
                continue
            hidden, first = start, (name, f"{attributes}/")
        at = end
        if kind == "open" and len(names) < MAX_NESTED_ELEMENTS:
            names.append(name)
        elif kind == "close" and name in names:
            while names.pop() != name:
                pass
        if not names:
            kind, name = (markup == "xml" and _single_of_pair(*first)) or ("marker", "")
            yield TextPiece(kind, text[hidden:end], name)
            hidden = -1
    if hidden >= 0:
        yield TextPiece("marker", text[hidden:])
    elif at < len(text):
        yield TextPiece("text", text[at:])


def _tags(text: str, markup: MarkupName) -> Iterator[tuple[int, int, TextPiece, str]]:
    """Yield the tags and other code of a text, with their start, end and attributes."""
    code = list(closed_code(text))
    blank, at = list[str](), 0
    for start, end, _ in code:
        blank += [text[at:start], "X" * (end - start)]
        at = end
    tags = TAG_PATTERNS[markup].finditer("".join([*blank, text[at:]]))
    rows = [(start, end, TextPiece(kind, text[start:end]), "") for start, end, kind in code]
    rows += [(*tag.span(), _tag_piece(tag, text[slice(*tag.span())], markup), tag["attributes"] or "") for tag in tags]
    at = 0
    for row in sorted(rows, key=lambda row: row[:2]):
        if row[0] >= at and row[2].kind != "text":  # not inside another match
            yield row
        at = max(at, row[1])


def closed_code(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of each comment, declaration, template and message; plain text has the kind text."""
    at, missing, num_broken = 0, set[str](), 0
    while (found := CLOSED_CODE.search(text, at)) is not None:
        start, at = found.start(), found.end()
        if found["choice"]:
            end = closing_brace(text, start + 1) if num_broken < MAX_BROKEN_MESSAGES else -1
            num_broken += end < 0
            yield start, at if end < 0 else end + 1, "problem"
            at = max(at, end + 1)
        elif found["message"]:
            message = message_at(text, start) if num_broken < MAX_BROKEN_MESSAGES else None
            num_broken += message is None
            at = message.end if message else at
            yield start, at, "message" if message else "problem"
        elif found["whole"]:
            yield start, at, "marker" if found["whole"].startswith("<!") else "code"
        elif found[0] not in missing:
            mark = ENDS[found[0]]
            end = text.find(mark, at)
            if end < 0 and not text.startswith("<?php", start):
                missing.add(found[0])
                continue
            at = len(text) if end < 0 else end + len(mark)
            at += text.startswith("}", at) if mark == "}}" else 0  # {{{x}}}
            yield start, at, _code_kind(text[start:at])


def _code_kind(raw: str) -> str:
    if WIDTHLESS.fullmatch(raw):
        return "marker"
    return "code" if re.search("[<>&]", raw) else "text"


def _tag_piece(found: re.Match[str], raw: str, markup: MarkupName) -> TextPiece:
    """A tag as a piece. found: match in a text in which other code is blanked out"""
    name, attributes = (found["name"] or ""), found["attributes"] or ""
    local = name.lower().rpartition(":")[2]
    if found["code"] is not None:
        return TextPiece("marker", raw)
    if found["cut"] is not None:
        return TextPiece("break", raw)
    if found["bold"]:
        return TextPiece(
            "open" if re.match(r"\*\*\S", found.string[found.start() : found.end() + 1]) else "close", raw, "**"
        )
    if found["link"] or found["link_end"]:
        return TextPiece("open" if found["link"] else "close", raw, "[")
    if found["bb"]:
        return TextPiece("close" if found["bb_close"] else "open", raw, f"[{found['bb']}")
    if found["style"] is not None:
        return TextPiece("close" if found["value"] in ("", "0") else "open", raw, f"\\{found['style']}")
    if (XML_BLOCK if markup == "xml" else BLOCK).fullmatch(local):
        return TextPiece("break", raw, name.lower() if markup == "html" else name)
    if markup == "xml" and (pair := _single_of_pair(local, attributes)):
        return TextPiece(pair[0], raw, pair[1])
    name = name.lower() if markup == "html" else name
    if found["close"]:
        return TextPiece("close", raw, name)
    if attributes.endswith("/") or (markup == "html" and VOID.fullmatch(name)):
        return TextPiece("code" if markup == "xml" and local == "ph" else "marker", raw, name)
    return TextPiece("open", raw, name)


def _single_of_pair(name: str, attributes: str) -> tuple[str, str] | None:
    """Whether a single tag of a translation file opens or closes a pair, and the pair's name; None for other tags."""
    if not attributes.endswith("/"):
        return None
    own = PAIR_NAME.search(attributes)
    if name == "it":
        return ("open" if OPEN_SIDE.search(attributes) else "close"), "it/"
    for opening, closing in PAIR_TAGS.items():
        if name in (opening, closing):
            return ("open" if name == opening else "close"), f"{opening}/{own[1] if own else ''}"
    return None


def with_breaks(pieces: Sequence[TextPiece], markup: MarkupName) -> list[TextPiece]:
    """Add breaks where tags separate texts without a space between them.

    This happens at a tag between the end of a sentence and a capital letter. In XML with an unknown vocabulary, it also happens
    at a line break between two tags, and between the end of one element and the start of another.
    """
    result = list[TextPiece]()
    run = list[TextPiece]()  # the tags since the last text
    text = ""
    for piece in pieces:
        if piece.kind == "text" and not piece.raw.isspace():
            result += _divided(text, run, piece.raw, markup)
            result.append(piece)
            run, text = [], piece.raw
        elif piece.kind in ("break", "code", "message", "problem"):
            result += [*run, piece]
            run, text = [], ""
        else:
            run.append(piece)
    return [*result, *run]


def _divided(before: str, run: Sequence[TextPiece], after: str, markup: MarkupName) -> list[TextPiece]:
    """The tags between two texts. If they mark the end of a word or sentence, a break is added or a line break becomes one."""
    tags = [i for i, piece in enumerate(run) if piece.kind in ("open", "close")]
    names = [run[i].name.lower().rpartition(":")[2] for i in tags]
    is_unknown = [not INLINE.fullmatch(name) and name[:1].isalpha() and "/" not in name for name in names]
    if markup == "xml" and any(is_unknown) and any("\n" in piece.raw for piece in run if piece.kind == "text"):
        return [piece._replace(kind="break") if piece.kind == "text" and "\n" in piece.raw else piece for piece in run]
    is_spaced = before[-1:].isspace() or after[:1].isspace() or any(piece.kind == "text" for piece in run)
    if not before or is_spaced or not tags:
        return list(run)
    closes = [i for i in tags if run[i].kind == "close"]
    opens = [i for i in tags if run[i].kind == "open" and (not closes or i > closes[-1])]
    is_sentence = SENTENCE_END.search(before) and after[:1].isalpha() and not after[:1].islower()
    if not is_sentence and not (markup == "xml" and any(is_unknown) and closes and opens):
        return list(run)
    place = opens[0] if opens else closes[-1] + 1
    return [*run[:place], TextPiece("break", ""), *run[place:]]


def _is_hidden(name: str, attributes: str, markup: MarkupName) -> bool:
    """Whether an element must not be translated."""
    if KEPT_AS_IT_IS.search(attributes):
        return True
    return bool(NO_TEXT.fullmatch(name) if markup == "html" else name in ("bpt", "ept", "it"))
