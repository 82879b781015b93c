"""Distinguishes the two versions of newstest2014."""

import re
from collections.abc import Sequence
from typing import Final

from nmt import register
from nmt.errors import InputError, quoted
from nmt.evaluations.base import System, TextCheck
from nmt.log import log
from nmt.options import NoOptions

FILTERED_LINES, FULL_LINES = 2737, 3003  # newstest2014 German-English: sacreBLEU's wmt14 and wmt14/full
NEWSTEST2014: Final = re.compile(r"(?:newstest|wmt)[-_.]?(?:20)?14", re.IGNORECASE)


@register("text-check", "newstest2014", NoOptions)
class Newstest2014(TextCheck):
    """Warns if a test set is the filtered version of newstest2014, or if its two versions are mixed."""

    def compare_lengths(self, text: System, reference: System) -> None:
        if {len(text.lines), len(reference.lines)} == {FILTERED_LINES, FULL_LINES}:
            filtered, full = sorted((text, reference), key=lambda one: len(one.lines))
            raise InputError(
                f"{quoted(text.name)} has {len(text.lines):,} lines, but {quoted(reference.name)} has {len(reference.lines):,}: "
                f"{quoted(filtered.name)} looks like the campaign's filtered newstest2014 (sacreBLEU's wmt14), and "
                f"{quoted(full.name)} looks like the full set (wmt14/full), which the paper uses (to print the full set, use "
                "sacrebleu -t wmt14/full -l en-de --echo src, or --echo ref)"
            )

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        names = [*(text.name for text in (*systems, *references)), self.options.source or "", self.options.data or ""]
        warn_of_newstest2014(names, len(references[0].lines))


def warn_of_newstest2014(names: Sequence[str], num_lines: int) -> None:
    """Warn if the number of lines and one of the names suggest that a test set is the filtered newstest2014."""
    if num_lines == FILTERED_LINES and any(NEWSTEST2014.search(name) for name in names):
        log.warn(
            f"this test set has {FILTERED_LINES:,} lines, like the campaign's filtered newstest2014 (sacreBLEU's wmt14); "
            f"the paper uses all {FULL_LINES:,} lines (wmt14/full), so the scores cannot be compared"
        )
