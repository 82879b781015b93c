"""A line of input: the text to translate, and constraints on its translation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec

from nmt import registry
from nmt.errors import quoted, unknown
from nmt.registry import NO_VALUES
from nmt.text.context import DocumentLines
from nmt.text.corpus import clean, visible_line

DIVIDER: Final = "|||"
Form = Literal["text", "prefix", "phrases", "json"]


@dataclass(frozen=True, init=False)
class Request:
    """A line to translate, as text.

    prefix: the text with which the translation must start
    phrases: texts that the translation must contain
    filters: texts for filters (`nmt list filter`), by filter name; also accepted as keywords, as in `avoid=("hund",)`
    others: further fields of a JSON object, which are copied to the output
    context: the previous sentences of its document; None means the sentences of the previous requests (`in_context`)
    error: the reason why the line cannot be read, or empty
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    context: tuple[str, ...] | None = None

    def __init__(
        self,
        text: str,
        prefix: str = "",
        phrases: Sequence[str] = (),
        *,
        filters: Mapping[str, Sequence[str]] = NO_VALUES,
        others: Mapping[str, Any] = NO_VALUES,
        error: str = "",
        context: tuple[str, ...] | None = None,
        **more_filters: Sequence[str],
    ) -> None:
        """Raises UserError if a keyword is not the name of a filter."""
        fields = vars(self)  # faster than assignment, which matters for texts of many lines
        fields["text"], fields["prefix"], fields["phrases"] = text, prefix, tuple(phrases)
        fields["others"], fields["error"], fields["context"] = others or {}, error, context
        fields["filters"] = _filters_of(filters, more_filters) if filters or more_filters else {}


def _filters_of(filters: Mapping[str, Sequence[str]], more: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The texts for filters, without empty ones. Raises UserError if a keyword is not the name of a filter."""
    known = registry.names("filter") if more else []
    for name in more:
        if name not in known:
            raise unknown("field of a request", name, [*known, *Request.__dataclass_fields__])
    return {name: tuple(texts) for name, texts in {**filters, **more}.items() if texts}


class _Fields(msgspec.Struct):
    """The fields of a JSON object, with Sockeye's names. text: the name of `source` before version 0.2"""

    source: str | None = None
    text: str | None = None
    target_prefix: str = ""
    constraints: list[str] = []
    source_context: list[str] | None = None


MAX_LINE_BYTES: Final = 1 << 22  # limit for lines that contain more than a text
MAX_NESTED_LEVELS: Final = 100  # of lists and objects; Python's stack limits the depth that can be written
# Fields that are read or written here, in addition to those of filters.
RESERVED: Final = frozenset((*_Fields.__struct_fields__, "translation", "candidates", "error"))


def read_request(line: str, form: Form) -> Request:
    """Parse a line: a plain text, `text ||| prefix`, `text ||| phrase ||| phrase` (as in Moses), or a JSON object."""
    if form == "text":
        return Request(line)
    if form == "json":
        return _read_json(line)
    text, *others = (part.strip() for part in line.split(DIVIDER))
    if form == "phrases":
        return Request(text, phrases=tuple(filter(None, others)))
    if len(others) > 1:
        return Request(
            "", error=f"{DIVIDER} occurs {len(others)} times, but must occur once, between a text and its prefix"
        )
    return Request(text, prefix="".join(others))


def _read_json(line: str) -> Request:
    """Parse a JSON object. An empty line is a text without tokens."""
    if not line.strip():
        return Request("")
    others: dict[str, Any] = {}
    filters: dict[str, list[str]] = {}
    try:
        value = msgspec.json.decode(line.encode())
        if isinstance(value, dict):
            names = registry.names("filter")
            others = {key: field for key, field in value.items() if key not in RESERVED and key not in names}
            filters = msgspec.convert({name: value[name] for name in names if name in value}, dict[str, list[str]])
        nested = [key for key, field in others.items() if _is_nested(field, MAX_NESTED_LEVELS)]
        for key in nested:
            del others[key]
        if nested:
            error = f"field '{quoted(nested[0])}' is nested more than {MAX_NESTED_LEVELS} levels deep"
            return Request("", others=others, error=error)
        fields = msgspec.convert(value, _Fields)
        source = fields.text if fields.source is None else fields.source
        if source is None:
            return Request("", others=others, error="the field `source` is missing")
    except msgspec.ValidationError as error:
        return Request("", others=others, error=f"not a valid request: {quoted(error)}")
    except (ValueError, RecursionError) as error:
        limit = f" (a line may have up to {MAX_LINE_BYTES >> 20} MiB)" if len(line) >= MAX_LINE_BYTES // 4 else ""
        return Request("", error=f"not JSON: {quoted(error)}{limit}")
    constraints = fields.target_prefix, fields.constraints, filters
    return replace(cleaned_request(visible_line(source), *constraints, fields.source_context), others=others)


def cleaned_request(
    text: str,
    prefix: str,
    phrases: Sequence[str],
    filters: Mapping[str, Sequence[str]],
    context: Sequence[str] | None,
) -> Request:
    """Make a request from the fields of a JSON object. All texts but `text` become single lines; empty ones are dropped."""
    cleaned = {name: _lines(texts) for name, texts in filters.items()}
    sentences = None if context is None else tuple(filter(None, map(visible_line, context)))
    return Request(text, clean(prefix), _lines(phrases), filters=cleaned, context=sentences)


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, map(clean, texts)))


def _is_nested(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested deeper than this number of levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_nested(item, levels - 1) for item in inner if isinstance(item, dict | list))


def in_context(requests: Sequence[Request], document: DocumentLines) -> Sequence[Request]:
    """Add contexts to consecutive requests. A request that has a context keeps it; unreadable requests are skipped.

    document: the previous lines, to which these requests are added
    """
    if not document.size:
        return requests
    contexts = [() if request.error else document.context_of(request.text) for request in requests]
    return [
        replace(request, context=context) if request.context is None else request
        for request, context in zip(requests, contexts, strict=True)
    ]
