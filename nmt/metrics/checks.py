"""Checks of test sets before they are scored: text split into subwords, and the two versions of newstest2014."""

import re
from collections.abc import Sequence
from typing import Final

from nmt.errors import InputError, quoted
from nmt.log import log

SUBWORD: Final = re.compile(r"\S@@(?:\s|$)|(?:^|\s)\u2581")  # as subword-nmt and as SentencePiece write them
MAX_SUBWORD_LINES: Final = 0.1  # share of the lines: more are no accident
NEWSTEST2014: Final = re.compile(r"(?:newstest|wmt)[-_.]?(?:20)?14", re.IGNORECASE)
FILTERED_LINES, FULL_LINES = 2737, 3003  # newstest2014 German-English: sacreBLEU's wmt14 and wmt14/full


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


def line_count_error(hypothesis: str, num_lines: int, reference: str, num_reference_lines: int) -> InputError:
    """The error for a hypothesis and a reference of different length; it names the two versions of newstest2014."""
    message = f"{quoted(hypothesis)} has {num_lines:,} lines, {quoted(reference)} has {num_reference_lines:,}"
    if {num_lines, num_reference_lines} != {FILTERED_LINES, FULL_LINES}:
        return InputError(f"{message} (line i of one is compared with line i of the other)")
    filtered, full = (hypothesis, reference) if num_lines == FILTERED_LINES else (reference, hypothesis)
    return InputError(
        f"{message}: {quoted(filtered)} looks like newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14), "
        f"{quoted(full)} like all of it (wmt14/full), which the paper scores (sacrebleu -t wmt14/full -l en-de --echo "
        "src, or ref, prints the files of 3,003 lines; -t wmt14 those of 2,737)"
    )


def warn_of_newstest2014(names: Sequence[str], num_lines: int) -> None:
    """Warn if a test set is the filtered newstest2014 by its length and one of its names."""
    if num_lines == FILTERED_LINES and any(NEWSTEST2014.search(name) for name in names):
        log.warn(
            f"{FILTERED_LINES:,} lines are newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14); the "
            f"paper's figures are of all {FULL_LINES:,} (wmt14/full), and the two cannot be compared"
        )
