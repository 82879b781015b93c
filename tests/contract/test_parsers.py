"""Files that no command wrote are refused with an exit status of the contract. `make fuzz` looks for more of it."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from fuzz.parsers import PARSERS
from hypothesis import given, settings
from hypothesis import strategies as st

ODD: Final = (  # in place of any value of a JSON file, as JSON
    *(b"null", b"true", b"-1", b"4611686018427387904", b"18446744073709551616", b"1e999", b"NaN", b"9" * 5000),
    *(b'""', rb'"\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"../x"', b'"a\\u0000"', b"[]", b"{}", b"[" * 100_000),
)
CONTENTS: Final = (b"", b"\0" * 100, b"\xff\xfe", b"\xef\xbb\xbf", b"{}", b"[]", b"0", *ODD)
IS_JSON: Final = [name for name, parser in PARSERS.items() if "json" in name or "manifest" in name or name == "scores"]
MARK: Final = '"<here>"'


def in_its_place(value: Any) -> Iterator[Any]:
    """Copies of a JSON value, each with a mark in place of one of its values or keys."""
    yield MARK[1:-1]
    for key in value if isinstance(value, dict) else ():
        yield {MARK[1:-1] if other == key else other: inner for other, inner in value.items()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        for marked in in_its_place(inner):
            yield {**value, key: marked} if isinstance(value, dict) else [*value[:key], marked, *value[key + 1 :]]


def wrong_values(example: bytes) -> list[bytes]:
    """A JSON file with one of its values replaced by an odd one; each value in turn, the odd ones one after the other."""
    marked = [json.dumps(one, ensure_ascii=False).encode() for one in in_its_place(json.loads(example))]
    return [
        text.replace(MARK.encode(), ODD[(number + shift) % len(ODD)]) + b"\n"
        for number, text in enumerate(marked)
        for shift in (0, 7)
    ]


@pytest.mark.parametrize("name", PARSERS)
def test_written_files_read_back_and_odd_content_never_exits_with_a_bug(name):
    parser = PARSERS[name]
    assert {parser.check(example) for example in parser.examples()} == {0}
    for content in CONTENTS:
        parser.check(content)


@pytest.mark.parametrize("name", IS_JSON)
def test_odd_values_and_keys_of_a_json_file_are_refused_or_harmless(name):
    codes = {PARSERS[name].check(content) for content in wrong_values(PARSERS[name].examples()[0])}
    is_refused = not name.startswith("requests")  # of which a line may be wrong, and is answered so
    assert bool(codes - {0}) == is_refused


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=30)
@given(drawn=st.data())
def test_arbitrary_bytes_in_a_file_never_cause_a_bug(name, drawn):
    example = drawn.draw(st.sampled_from(PARSERS[name].examples()))
    start = drawn.draw(st.integers(0, len(example)))
    end = drawn.draw(st.integers(start, min(start + 40, len(example))))
    piece = drawn.draw(st.one_of(st.binary(max_size=20), st.sampled_from(ODD), st.just(example[end:])))
    PARSERS[name].check(example[:start] + piece + example[end:])
