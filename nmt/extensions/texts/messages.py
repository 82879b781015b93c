"""Parses ICU messages with branches, such as `{count, plural, one {# dog} other {# dogs}}`, to find the texts in them.

https://unicode-org.github.io/icu/userguide/format_parse/messages/
"""

import re
from typing import Final, NamedTuple

MESSAGE_START: Final = re.compile(
    r"\{\s{0,9}(?P<name>[\w.-]{1,100})\s{0,9},\s{0,9}(?P<kind>plural|selectordinal|select)\s{0,9},"
)
COUNTING: Final = re.compile(r"\{[^,]*,\s*(?:plural|selectordinal)")
SELECTOR: Final = re.compile(r"\s*(?:offset:\s*\d+\s*)?(?:=\d+|[\w-]+)\s*\{")
MESSAGE_END: Final = re.compile(r"\s*\}")
BRACE: Final = re.compile(r"'[{}](?:[^']|'')*+(?:'|\Z)|[{}]")  # an apostrophe before a brace starts a quotation
CHOICE_START: Final = re.compile(r"\{\s*\$[\w-]+(?:\([^()]*\))?\s*->")  # a Fluent selector, which spans several lines

ARGUMENT: Final = re.compile(r"\{\s{0,9}\w{1,100}\s{0,9}[,}]")


def doubles_apostrophes(text: str) -> bool:
    """Whether a text doubles its apostrophes, as messages with arguments do in Java and ICU."""
    return "''" in text and "'" not in text.replace("''", "") and ARGUMENT.search(text) is not None


class BranchedMessage(NamedTuple):
    """A message argument with branches. literals: text before, between and after the branches"""

    name: str
    kind: str
    literals: list[str]
    branches: list[str]
    end: int

    @property
    def counts(self) -> bool:
        """Whether `#` stands for the argument's number."""
        return self.kind != "select"

    @property
    def has_offset(self) -> bool:
        return "offset:" in self.literals[0]


def message_at(text: str, start: int) -> BranchedMessage | None:
    """The message that starts at a position; None if there is none, or if it cannot be parsed."""
    opening = MESSAGE_START.match(text, start)
    if opening is None:
        return None
    literals, branches, begin, at = list[str](), list[str](), start, opening.end()
    while (selector := SELECTOR.match(text, at)) is not None:
        if (end := closing_brace(text, selector.end())) < 0:
            return None
        literals.append(text[begin : selector.end()])
        branches.append(text[selector.end() : end])
        begin, at = end, end + 1
    if not branches or (last := MESSAGE_END.match(text, at)) is None:
        return None
    return BranchedMessage(
        opening["name"], opening["kind"], [*literals, text[begin : last.end()]], branches, last.end()
    )


def closing_brace(text: str, at: int) -> int:
    """The position of the brace that closes the one before `at`, or -1."""
    depth = 1
    for found in BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.start()
    return -1
