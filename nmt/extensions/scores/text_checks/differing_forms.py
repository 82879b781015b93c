"""Compares the Unicode forms of hypotheses and references, and converts them to one form on request."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from nmt import register
from nmt.errors import quoted
from nmt.evaluations.base import System, TextCheck
from nmt.extensions.scores.text_checks.options import UnicodeFormOptions
from nmt.log import log
from nmt.metrics.base import Lines
from nmt.text.forms import UNICODE_FORMS

MIN_COMPATIBLE_LINES: Final = 0.01  # minimum share of lines; in newstest2013, up to 0.2 % differ by chance


@register("text-check", "differing-forms", UnicodeFormOptions)
class DifferingForms(TextCheck):
    """Warns about hypotheses and references that look equal but use different Unicode characters."""

    def lines(self, lines: Lines) -> Lines:
        return list(map(UNICODE_FORMS[self.options.normalization], lines))

    def signature(self) -> str:
        form = self.options.normalization
        return "" if form == "none" else f"unicode:{form}"

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        for system in systems:
            for reference in references:
                for form, num_lines in self._differing(system.lines, reference.lines).items():
                    names = [f"{quoted(text.name)} is in {form_of(text.lines, form)}" for text in (system, reference)]
                    log.warn(
                        f"{' and '.join(names)}, so characters differ in {num_lines:,} of {len(system.lines):,} lines (use "
                        f"--normalization {form} to compare both in {form.upper()})"
                    )

    def _differing(self, hypotheses: Lines, references: Lines) -> dict[str, int]:
        """Count the lines that would match better in NFC and, if there are many, those that would match better in NFKC."""
        found, given = dict[str, int](), self.options.normalization
        if given == "none" and (count := count_better(hypotheses, references, "none", "nfc")):
            found["nfc"] = count
        count = 0 if given == "nfkc" else count_better(hypotheses, references, "nfc", "nfkc")
        if count > MIN_COMPATIBLE_LINES * len(hypotheses):
            found["nfkc"] = count
        return found


def count_better(hypotheses: Lines, references: Lines, before: str, after: str) -> int:
    """Count the lines with fewer differing characters in Unicode form `after` than in `before`."""
    change = UNICODE_FORMS[after]
    pairs = (pair for pair in zip(hypotheses, references, strict=True) if any(change(line) != line for line in pair))
    return sum(_differences(pair, after) < _differences(pair, before) for pair in pairs)


def _differences(pair: tuple[str, str], form: str) -> int:
    """The number of characters (each with its marks) that only one of two lines contains. form: Unicode form to compare in"""
    one, other = (Counter(_characters(UNICODE_FORMS[form](line))) for line in pair)
    return (one - other).total() + (other - one).total()


def _characters(line: str) -> list[str]:
    """The characters except spaces, each with the combining marks that follow it."""
    found = list[str]()
    for character in "".join(line.split()):
        if found and unicodedata.combining(character):
            found[-1] += character
        else:
            found.append(character)
    return found


def form_of(lines: Lines, compared: str) -> str:
    """The name of the Unicode form of all lines. compared: the form to test for, nfc or nfkc"""
    known: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD") if compared == "nfc" else ("NFKC", "NFC", "NFD")
    return next((form for form in known if all(unicodedata.is_normalized(form, line) for line in lines)), "mixed forms")
