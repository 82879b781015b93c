"""Refuses text that is still split into subwords."""

import re
from collections.abc import Sequence
from typing import Final

from nmt import register
from nmt.errors import InputError, quoted
from nmt.evaluations.base import System, TextCheck
from nmt.options import NoOptions

SUBWORD: Final = re.compile(r"\S@@(?:\s|$)|(?:^|\s)\u2581")  # a subword as written by subword-nmt or SentencePiece
MAX_SUBWORD_LINES: Final = 0.1  # share of lines; a larger share is not a coincidence


@register("text-check", "joined-words", NoOptions)
class JoinedWords(TextCheck):
    """Refuses files in which more than a tenth of the lines are split into subwords."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        if self.options.model is None:
            for text in (*systems, *references):
                refuse_subwords(text.name, text.lines)


def count_subword_lines(lines: Sequence[str]) -> int:
    """Count the lines with a subword: a token that ends with "@@" or starts with "\u2581"."""
    return sum(SUBWORD.search(line) is not None for line in lines)


def refuse_subwords(name: str, lines: Sequence[str]) -> None:
    """Raise InputError if more than a tenth of the lines are split into subwords."""
    count = count_subword_lines(lines)
    if count > MAX_SUBWORD_LINES * len(lines):
        raise InputError(
            f"{quoted(name)}: {count:,} of {len(lines):,} lines are split into subwords (tokens that end with @@ or start "
            "with \u2581), but scoring needs detokenised text (join them with sed 's/@@ //g' or spm_decode, and detokenise; "
            "nmt translate does both)"
        )
