"""Tells the two versions of newstest2014 apart."""

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
                f"{quoted(text.name)} has {len(text.lines):,} lines, {quoted(reference.name)} has {len(reference.lines):,}: "
                f"{quoted(filtered.name)} looks like newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14), "
                f"{quoted(full.name)} like all of it (wmt14/full), which the paper scores (sacrebleu -t wmt14/full -l en-de "
                "--echo src, or ref, prints the latter; -t wmt14 the former)"
            )

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        names = [*(text.name for text in (*systems, *references)), self.options.source or "", self.options.data or ""]
        warn_of_newstest2014(names, len(references[0].lines))


def warn_of_newstest2014(names: Sequence[str], num_lines: int) -> None:
    """Warn if a test set is the filtered newstest2014 by its length and one of its names."""
    if num_lines == FILTERED_LINES and any(NEWSTEST2014.search(name) for name in names):
        log.warn(
            f"{FILTERED_LINES:,} lines are newstest2014 as it was filtered for the campaign (sacreBLEU's wmt14); the "
            f"paper's figures are of all {FULL_LINES:,} (wmt14/full), and the two cannot be compared"
        )
