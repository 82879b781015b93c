"""Expands sentences that contain ICU messages, so that each branch contains a complete sentence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nmt.extensions.texts.markup import joined_texts, parts_of_block, plain_passage, read_passage
from nmt.extensions.texts.messages import message_at
from nmt.extensions.texts.passages import Kept, Passage
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.tags import closed_code

MAX_TEXTS_OF_MESSAGE: Final = 64  # maximum number of sentences that one sentence expands to


def written_out(passage: Passage, markup: MarkupName, in_plural: bool = False) -> list[str | Passage]:
    """Expand a passage with messages: keep the syntax of each message, and write the whole passage out in each branch."""
    item = next((item for item in passage.kept if item.kind == "message"), None)
    if item is None or any(item.kind == "problem" for item in passage.kept):
        return [passage]
    if num_texts(passage.kept) > MAX_TEXTS_OF_MESSAGE or (message := message_at(item.raw, 0)) is None:
        return [with_problem(passage, item)]
    parts = list[str | Passage]()
    for literal, branch in zip(message.literals, message.branches, strict=False):
        is_counted = in_plural or message.counts
        inner, breaks = (
            (plain_passage(branch, is_counted), []) if markup == "none" else read_passage(branch, markup, is_counted)
        )
        others = [k for k in (*passage.kept, *inner.kept) if k.kind == "message" and k != item]
        if message.counts and any(
            other.raw.partition(",")[2].lstrip().startswith(("plural", "selectordinal")) for other in others
        ):
            # Inside another plural, `#` would stand for the number of that plural.
            number = f"{{{message.name}, number}}"
            inner = replace(inner, kept=tuple(k._replace(raw=number) if k.raw == "#" else k for k in inner.kept))
            breaks = breaks or ([(0, "")] if message.has_offset else [])
        if breaks:
            return [with_problem(passage, item)]
        parts.append(literal)
        for part in parts_of_block(passage.spliced(item, inner).with_neighbours()):
            parts += [part] if isinstance(part, str) else written_out(part, markup, is_counted)
    return joined_texts([part for part in (*parts, message.literals[-1]) if part])


def with_problem(passage: Passage, item: Kept) -> Passage:
    """The passage with an item marked as a problem, which prevents the passage's translation."""
    return replace(passage, kept=tuple(k._replace(kind="problem") if k == item else k for k in passage.kept))


def num_texts(kept: Sequence[Kept], depth: int = 0) -> int:
    """The number of texts that a passage's messages expand to."""
    total = 1
    for item in kept:
        if item.kind == "message" and (message := message_at(item.raw, 0)) is not None:
            inner = [] if depth > MAX_TEXTS_OF_MESSAGE // 8 else message.branches
            total *= sum(num_texts(_messages(branch), depth + 1) for branch in inner) or 2 * MAX_TEXTS_OF_MESSAGE
    return total


def _messages(text: str) -> list[Kept]:
    return [Kept(start, end, text[start:end], "message") for start, end, kind in closed_code(text) if kind == "message"]
