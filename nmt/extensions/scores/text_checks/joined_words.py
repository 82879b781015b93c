"""Refuses text that is still split into subwords."""

import re
from collections.abc import Sequence
from typing import Final

from nmt import register
from nmt.errors import InputError, quoted
from nmt.evaluations.base import System, TextCheck
from nmt.options import NoOptions

SUBWORD: Final = re.compile(r"\S@@(?:\s|$)|(?:^|\s)\u2581")  # as subword-nmt and as SentencePiece write them
MAX_SUBWORD_LINES: Final = 0.1  # share of the lines: more are no accident


@register("text-check", "joined-words", NoOptions)
class JoinedWords(TextCheck):
    """Refuses files of which more than a tenth of the lines are split into subwords."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        if self.options.model is None:
            for text in (*systems, *references):
                refuse_subwords(text.name, text.lines)


def count_subword_lines(lines: Sequence[str]) -> int:
    """Count the lines with a subword: a token that ends in "@@" or begins with "\u2581"."""
    return sum(SUBWORD.search(line) is not None for line in lines)


def refuse_subwords(name: str, lines: Sequence[str]) -> None:
    """Raise InputError if more than a tenth of the lines are split into subwords."""
    count = count_subword_lines(lines)
    if count > MAX_SUBWORD_LINES * len(lines):
        raise InputError(
            f"{quoted(name)}: {count:,} of {len(lines):,} lines are split into subwords (tokens that end in @@ or begin "
            "with \u2581), and scores are of detokenised text (join them: nmt translate does, as do sed 's/@@ //g' or "
            "spm_decode; then undo the tokens, if any)"
        )
