"""Splits the content of a Markdown block into text and tags as written, guided by the tokens of markdown-it."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from markdown_it.token import Token

from nmt.extensions.documents.markers import Tag, written_tags
from nmt.extensions.documents.pieces import Written

_SOFT_BREAK: Final = re.compile(r"[ \t]*\n[ \t]*")
_HARD_BREAK: Final = re.compile(r"( {2,}|\\)\n[ \t]*")
_SPACE: Final = re.compile(r"[ \t]*")
_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LABEL: Final = re.compile(r"\[((?:[^\[\]\\]|\\.)*)\]", re.DOTALL)
_ADDRESS: Final = re.compile(  # address of a link, with its title
    r"""\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)
    (?:\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?\s*\)""",
    re.DOTALL | re.VERBOSE,
)
# Parts that are not text: task boxes, types of GitHub alerts, attributes, Hugo shortcodes, emoji names.
PARTS_WITHOUT_TEXT: Final = re.compile(
    r"(^\[[ xX]\](?=\s)|^\[![A-Za-z]+\][+-]?(?:[ \t]*\n)?|\{[:#.][^{}\n]*\}|\{\{[<%](?:(?!\{\{[<%]).)*?[%>]\}\}"
    r"|(?<!\S):[a-z0-9_+-]+:(?!\S))"
)
_ESCAPE: Final = re.compile(r"\\([!-/:-@\[-`{-~])|(&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});)")
_PAIRS: Final = {f"{name}_{kind}": (name, kind) for name in ("em", "strong", "s") for kind in ("open", "close")}


class PlaceNotFound(Exception):
    """A token of the parser was not found in the written text."""


def plain_markdown(raw: str, joint: str) -> str:
    """The displayed text of a part of a block. joint: replacement for a line break"""
    text = _SOFT_BREAK.sub(joint, raw)
    return _ESCAPE.sub(lambda found: found[1] or html.unescape(found[0]), text)


def inline_pieces(raw: str, tokens: Sequence[Token], has_reference: Callable[[str], bool]) -> Iterator[str | Tag]:
    """The text of a block, as written, and its tags. Raises PlaceNotFound.

    tokens: tokens of the parser
    has_reference: tells whether a label refers to an address
    """
    at, rest, texts, labels = 0, iter(tokens), list[str](), list[int]()
    for token in rest:
        if (text := _text_of(token, raw, at)) is not None:
            texts.append(text)
            at += len(text)
            continue
        yield from _divided("".join(texts))
        texts = []
        tag = _tag(token, raw, at, has_reference)
        if token.type == "link_open" and token.markup != "autolink":
            labels.append(at + 1)
        elif token.type == "link_close" and tag.original.raw in ("]", "][]"):  # the text itself is the label
            tag.original.in_translation = f"][{_SOFT_BREAK.sub(' ', raw[labels[-1] : at])}]"
        if token.markup == "autolink":
            next(rest), next(rest)  # skip the text and the end of the link
        yield tag
        at += len(tag.original.raw)
        labels = labels[:-1] if token.type == "link_close" else labels
        if token.type == "hardbreak":
            at += len(_matched(_SPACE, raw, at))
    yield from _divided("".join(texts))
    if raw[at:].strip():
        raise PlaceNotFound


def _text_of(token: Token, raw: str, at: int) -> str | None:
    """The written form of a text token; None for other tokens."""
    if token.type == "softbreak":
        return _matched(_SOFT_BREAK, raw, at)
    if token.type not in ("text", "text_special"):
        return None
    shown = token.markup if token.type == "text_special" else token.content
    space = "" if raw.startswith(shown, at) else _matched(_SPACE, raw, at)
    if not raw.startswith(shown, at + len(space)):
        raise PlaceNotFound
    return space + shown


def _tag(token: Token, raw: str, at: int, has_reference: Callable[[str], bool]) -> Tag:
    if token.type in _PAIRS:
        name, kind = _PAIRS[token.type]
        return Tag(Written(token.markup), "open" if kind == "open" else "close", name)
    if token.markup == "autolink":
        return Tag(Written(raw[at : raw.index(">", at) + 1]), "word")
    if token.type == "link_open":
        return Tag(Written("["), "open", "link")
    if token.type == "link_close":
        return Tag(Written("]" + _target(raw, at + 1, has_reference)), "close", "link")
    if token.type == "image":
        start = f"![{token.content}]"
        return Tag(Written(start + _target(raw, at + len(start), has_reference)), "alone")
    if token.type == "hardbreak":
        return Tag(Written(_matched(_HARD_BREAK, raw, at).rstrip(" \t")), "break")
    if token.type == "code_inline":
        return Tag(Written(_matched(_CODE, raw, at)), "word")
    if token.type == "footnote_ref":
        return Tag(Written(_matched(_LABEL, raw, at)), "alone")
    if token.type.startswith("math_inline"):
        return Tag(Written(token.markup + token.content + token.markup), "word")
    if token.type == "html_inline":
        (tag,) = written_tags(token.content)
        return tag._replace(original=Written(token.content)) if isinstance(tag, Tag) else Tag(Written(tag), "alone")
    raise PlaceNotFound


def _target(raw: str, at: int, has_reference: Callable[[str], bool]) -> str:
    """What follows the text of a link: an address, a label, or nothing."""
    if found := _ADDRESS.match(raw, at):
        return found[0]
    found = _LABEL.match(raw, at)
    return found[0] if found and (not found[1] or has_reference(found[1])) else ""


def hidden_texts(tag: str) -> Iterator[tuple[int, int]]:
    """The positions of texts in a tag: the description of an image and the title of a link."""
    if found := re.match(r"!\[([^\[\]`*_<\\]+)\]", tag):
        yield found.span(1)
    found = re.search(r"\s\"([^\"\\]+)\"\s*\)$", tag)
    if found and "](" in re.split("[\"']", tag[: found.start()])[-1]:
        yield found.span(1)


def _divided(text: str) -> Iterator[str | Tag]:
    """Split a text into plain text and parts that are not text."""
    for number, part in enumerate(PARTS_WITHOUT_TEXT.split(text)):
        if part:
            yield Tag(Written(part), "alone") if number % 2 else part


def _matched(pattern: re.Pattern[str], raw: str, at: int) -> str:
    found = pattern.match(raw, at)
    if found is None:
        raise PlaceNotFound
    return found[0]
