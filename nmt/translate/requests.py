"""A line of input: the text to translate, and the constraints on its translation."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from nmt.errors import quoted
from nmt.text.context import DocumentLines
from nmt.text.corpus import clean, visible_line

DIVIDER: Final = "|||"
Form = Literal["text", "prefix", "phrases", "json"]


class Request(msgspec.Struct, frozen=True):
    """A line to translate, as text.

    prefix: the beginning of the translation
    phrases: texts that it contains
    avoid: texts that it does not contain as whole words
    others: further fields of a JSON object, which are copied to the output
    context: the sentences before it in its document; None, those of the requests before it (`in_context`)
    error: the reason why the line cannot be read
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    others: dict[str, Any] = {}
    error: str = ""
    context: tuple[str, ...] | None = None


class _Fields(msgspec.Struct):
    """The fields of a JSON object, by Sockeye's names. text: the name of `source` before version 0.2"""

    source: str | None = None
    text: str | None = None
    target_prefix: str = ""
    constraints: list[str] = []
    avoid: list[str] = []
    source_context: list[str] | None = None


MAX_LINE_BYTES: Final = 1 << 22  # of a line with more than a text
MAX_NESTED_LEVELS: Final = 100  # of lists and objects: Python's stack bounds those that can be written
RESERVED: Final = frozenset(
    (*_Fields.__struct_fields__, "translation", "candidates", "error")
)  # fields that are read or written here


def read_request(line: str, form: Form) -> Request:
    """Parse a line: all text, `text ||| prefix`, `text ||| phrase ||| phrase` (as in Moses), or a JSON object."""
    if form == "text":
        return Request(line)
    if form == "json":
        return _read_json(line)
    text, *others = (part.strip() for part in line.split(DIVIDER))
    if form == "phrases":
        return Request(text, phrases=tuple(filter(None, others)))
    if len(others) > 1:
        return Request("", error=f"{len(others)} times {DIVIDER}, where one divides a text from its prefix")
    return Request(text, prefix="".join(others))


def _read_json(line: str) -> Request:
    """Parse a JSON object; an empty line is a text without tokens."""
    if not line.strip():
        return Request("")
    others: dict[str, Any] = {}
    try:
        value = msgspec.json.decode(line.encode())
        if isinstance(value, dict):
            others = {key: field for key, field in value.items() if key not in RESERVED}
        nested = [key for key, field in others.items() if _is_nested(field, MAX_NESTED_LEVELS)]
        for key in nested:
            del others[key]
        if nested:
            error = f"fields are nested more than {MAX_NESTED_LEVELS} deep: {quoted(nested[0])}"
            return Request("", others=others, error=error)
        fields = msgspec.convert(value, _Fields)
        source = fields.text if fields.source is None else fields.source
        if source is None:
            return Request("", others=others, error="not an object with a source: the field `source` is missing")
    except msgspec.ValidationError as error:
        return Request("", others=others, error=f"not an object with a source and its constraints: {quoted(error)}")
    except (ValueError, RecursionError) as error:
        limit = f" (a line has {MAX_LINE_BYTES >> 20} MiB at most)" if len(line) >= MAX_LINE_BYTES // 4 else ""
        return Request("", error=f"not JSON: {quoted(error)}{limit}")
    constraints = fields.target_prefix, fields.constraints, fields.avoid
    return replace(cleaned_request(visible_line(source), *constraints, fields.source_context), others=others)


def cleaned_request(
    text: str, prefix: str, phrases: Sequence[str], avoid: Sequence[str], context: Sequence[str] | None
) -> Request:
    """A request of the fields of a JSON object, of which those besides the text become one line each, without empty ones."""
    lines, others = (tuple(filter(None, map(clean, texts))) for texts in (phrases, avoid))
    sentences = None if context is None else tuple(filter(None, map(visible_line, context)))
    return Request(text, clean(prefix), lines, others, context=sentences)


def _is_nested(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested deeper than a number of levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_nested(item, levels - 1) for item in inner if isinstance(item, dict | list))


def in_context(requests: Sequence[Request], document: DocumentLines) -> Sequence[Request]:
    """Consecutive requests with their contexts; those that have one keep it, and those that cannot be read are skipped.

    document: the lines before them, to which they are added
    """
    if not document.size:
        return requests
    contexts = [() if request.error else document.context_of(request.text) for request in requests]
    return [
        replace(request, context=context) if request.context is None else request
        for request, context in zip(requests, contexts, strict=True)
    ]
