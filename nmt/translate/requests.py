"""What stands on a line of input: a text, and what is wished of its translation."""

from typing import Any, Final, Literal

import msgspec

from nmt.errors import quoted
from nmt.text.corpus import clean

DIVIDER: Final = "|||"
Form = Literal["text", "prefix", "phrases", "json"]


class Request(msgspec.Struct, frozen=True):
    """A line to translate, as text.

    prefix: how the translation begins; phrases: what it contains; avoid: what it does not contain as whole words
    others: fields of a JSON object that are not ours, to be handed on
    error: why the line cannot be read at all
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    others: dict[str, Any] = {}
    error: str = ""


class _Fields(msgspec.Struct):
    """What a JSON object may say. The names are Sockeye's."""

    text: str
    target_prefix: str = ""
    constraints: list[str] = []
    avoid: list[str] = []


MOST_BYTES: Final = 1 << 22  # of a line that holds more than a text
MOST_NESTED: Final = 100  # lists and objects in one another: writing them again is bounded by Python's stack
OWN: Final = frozenset((*_Fields.__struct_fields__, "candidates", "error"))  # what we read, and what we write


def read_request(line: str, form: Form) -> Request:
    """A line as it is meant: all of it text; divided as in Moses, `text ||| prefix`, `text ||| phrase ||| phrase`; or JSON."""
    if form == "text":
        return Request(line)
    if form == "json":
        return _of_json(line)
    text, *others = (part.strip() for part in line.split(DIVIDER))
    if form == "phrases":
        return Request(text, phrases=tuple(filter(None, others)))
    return Request(text, prefix=" ".join(others))


def _of_json(line: str) -> Request:
    """An empty line is a text without tokens, as everywhere."""
    if not line.strip():
        return Request("")
    others: dict[str, Any] = {}
    try:
        whole = msgspec.json.decode(line.encode())
        if isinstance(whole, dict):
            others = {key: value for key, value in whole.items() if key not in OWN}
        nested = [key for key, value in others.items() if _is_nested(value, MOST_NESTED)]
        for key in nested:
            del others[key]
        if nested:
            return Request(
                "", others=others, error=f"fields are nested more than {MOST_NESTED} deep: {quoted(nested[0])}"
            )
        found = msgspec.convert(whole, _Fields)
    except msgspec.ValidationError as error:
        return Request("", others=others, error=f"not an object with a text and what is wished: {quoted(error)}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        cut = f" (a line has {MOST_BYTES >> 20} MiB at most)" if len(line) >= MOST_BYTES // 4 else ""
        return Request("", error=f"not JSON: {quoted(error)}{cut}")
    phrases, avoid = (tuple(filter(None, map(clean, texts))) for texts in (found.constraints, found.avoid))
    return Request(clean(found.text), clean(found.target_prefix), phrases, avoid, others)


def _is_nested(value: Any, levels: int) -> bool:
    """Whether there are more lists and objects in one another than so many."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_nested(one, levels - 1) for one in inside if isinstance(one, dict | list))
