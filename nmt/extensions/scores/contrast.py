"""Contrastive test sets: how often a model scores a reference higher than wrong translations of the same source.

See Sennrich (2017), "How Grammatical is Character-level Neural Machine Translation?"
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nmt.errors import InputError, quoted
from nmt.text.corpus import is_invisible, read_lines

ALL: Final = "all lines"
TIE_TOLERANCE: Final = 1e-5  # absolute and relative tolerance, because a score's last bits depend on its batch


def categories_of(path: str | None, num_lines: int) -> list[str]:
    """Read the category of each line from a file; empty without a file. Raises InputError if the number of lines differs."""
    if path is None:
        return []
    categories = read_lines(Path(path))
    if len(categories) != num_lines:
        raise InputError(
            f"{quoted(path)}: {len(categories):,} categories for {num_lines:,} references (write one category per line)"
        )
    return categories


class ContrastCounts:
    """Counts the lines that have wrong translations, and those among them on which the reference scores highest.

    references: score of the reference on each line; None if there is no score
    categories: category of each line, or empty
    """

    def __init__(self, references: Sequence[float | None], categories: Sequence[str]) -> None:
        self._references, self._categories = references, categories
        self._is_right: dict[int, bool] = {}  # by line index, for lines with wrong translations
        self._of_files: dict[str, tuple[int, int]] = {}

    def add(self, name: str, lines: Sequence[str], scores: Sequence[float | None]) -> None:
        """Add a file of wrong translations with their scores. Blank lines are ignored; ties and missing scores count as wrong."""
        pairs = {
            i: reference is not None and score is not None and _is_above(reference, score)
            for i, (line, score, reference) in enumerate(zip(lines, scores, self._references, strict=True))
            if not is_invisible(line)
        }
        for i, is_right in pairs.items():
            self._is_right[i] = self._is_right.get(i, True) and is_right
        self._of_files[name] = len(pairs), sum(pairs.values())

    def counts(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Return (lines, correct lines) in total, for each category and for each file."""
        of_categories: dict[str, tuple[int, int]] = {}
        for i, is_right in sorted(self._is_right.items()) if self._categories else ():
            count, right = of_categories.get(self._categories[i], (0, 0))
            of_categories[self._categories[i]] = count + 1, right + is_right
        total = {ALL: (len(self._is_right), sum(self._is_right.values()))}
        return {"all": total, "categories": of_categories, "files": self._of_files}

    def as_dict(self) -> dict[str, object]:
        """The counts for JSON. The accuracy is null if there are no lines."""
        dicts = {
            kind: {
                name: {"lines": count, "right": right, "accuracy": right / count if count else None}
                for name, (count, right) in group.items()
            }
            for kind, group in self.counts().items()
        }
        return {**dicts, "all": dicts["all"][ALL]}

    def rows(self) -> list[list[str]]:
        """A table with one row for all lines, one for each category, and one for each file if there are several."""
        counts = self.counts()
        groups = {**counts["all"], **counts["categories"], **(counts["files"] if len(counts["files"]) > 1 else {})}
        rows = [
            [name, f"{count:,}", f"{right:,}", f"{100 * right / count:.2f} %" if count else "-"]
            for name, (count, right) in groups.items()
        ]
        return [["", "lines", "right", "accuracy"], *rows]


def _is_above(reference: float, score: float) -> bool:
    """Whether the reference scores higher by more than the tolerance for ties."""
    return reference > score and not math.isclose(reference, score, rel_tol=TIE_TOLERANCE, abs_tol=TIE_TOLERANCE)
