"""Labelled bracketing F1 of linearised trees, as defined by EVALB (Sekine and Collins, 1997) with COLLINS.prm."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from nmt import register
from nmt.errors import InputError, quoted
from nmt.extensions.scores.one_reference import only_reference
from nmt.metrics.base import Lines, Metric, References, Score
from nmt.options import NoOptions
from nmt.version import __version__

DELETED: Final = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))  # labels to drop (DELETE_LABEL in COLLINS.prm)
EQUAL_LABELS: Final = {"PRT": "ADVP"}  # labels that count as equal (EQ_LABEL in COLLINS.prm)
LABEL_END: Final = re.compile("[-=]")  # marks the start of a label's function tags


@dataclass(frozen=True)
class LinearisedTree:
    """A tree, or several adjacent trees.

    tags: (N,) the token of each word
    constituents: label, first word, and the word after the last one, counted from 0
    """

    tags: list[str]
    constituents: list[tuple[str, int, int]]


def read_tree(line: str) -> LinearisedTree | None:
    """Read a line such as `(S (NP XX )NP (VP XX )VP . )S`; None if brackets do not match or contain no word."""
    tree = LinearisedTree([], [])
    opened: list[tuple[str, int]] = []
    for token in line.split():
        label, position = token[1:], len(tree.tags)
        if token[0] == "(":
            opened.append((label, position))
        elif token[0] != ")":
            tree.tags.append(token)
        elif not opened or opened[-1][0] != label or opened[-1][1] == position:
            return None
        else:
            tree.constituents.append((label, opened.pop()[1], position))
    return None if opened else tree


class BracketCounts(NamedTuple):
    """Constituent counts: matched, in the hypotheses, and in the references. failed: number of hypotheses that are not trees"""

    matched: int
    hypothesis: int
    reference: int
    failed: int

    @property
    def precision(self) -> float:
        """Precision in percent. Like recall and F1, it is 100 if there are no constituents, and 0 if a sentence failed."""
        return self._percent(self.matched, self.hypothesis)

    @property
    def recall(self) -> float:
        return self._percent(self.matched, self.reference)

    @property
    def f1(self) -> float:
        return self._percent(2 * self.matched, self.hypothesis + self.reference)

    def _percent(self, part: int, whole: int) -> float:
        return 100 * part / whole if whole else 100.0 * (not self.failed)


def count_brackets(hypothesis: str, reference: LinearisedTree) -> BracketCounts:
    """Compare a line with a reference. A line that is not a tree over the same number of words counts as failed."""
    # EVALB finds punctuation by each tree's own tags, and skips a sentence if its trees differ in the number of marks.
    kept = [0, *accumulate(tag not in DELETED for tag in reference.tags)]
    expected = _counted(reference, kept)
    tree = read_tree(hypothesis)
    if tree is None or len(tree.tags) != len(reference.tags):
        return BracketCounts(0, 0, expected.total(), 1)
    found = _counted(tree, kept)
    return BracketCounts((found & expected).total(), found.total(), expected.total(), 0)


def _counted(tree: LinearisedTree, kept: Sequence[int]) -> Counter[tuple[str, int, int]]:
    """The multiset of constituents to compare. kept: (N + 1,) number of words before each position, without punctuation"""
    labelled = ((LABEL_END.split(label)[0], kept[start], kept[end]) for label, start, end in tree.constituents)
    return Counter(
        (EQUAL_LABELS.get(label, label), start, end)
        for label, start, end in labelled
        if start < end and label not in DELETED
    )


@register("metric", "bracket-f1", NoOptions)
class BracketF1(Metric):
    """Labelled bracketing F1 of linearised trees, 0 to 100. A sentence that is not a tree has no matches."""

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        """See Metric. Raises InputError for a reference that is not a tree, UserError for several references."""
        trees = [read_tree(line) for line in only_reference("bracket-f1", references)]
        for number, (line, tree) in enumerate(zip(references[0], trees, strict=True), 1):
            if tree is None:
                raise InputError(
                    f"metric bracket-f1: line {number} of the reference is not a linearised tree: '{quoted(line)}' "
                    "(write trees as '(S (NP XX )NP (VP XX )VP . )S')"
                )
        pairs = zip(hypotheses, trees, strict=True)
        rows = [count_brackets(line, tree) for line, tree in pairs if tree is not None]
        counts = BracketCounts(*map(sum, zip(*rows, strict=True)))
        detail = (
            f"bracket-F1 = {counts.f1:.2f} (precision {counts.precision:.2f}, recall {counts.recall:.2f}; "
            f"{counts.failed:,} of {len(hypotheses):,} sentences failed)"
        )
        return Score(counts.f1, f"nrefs:1|params:COLLINS|failed:count|version:nmt-{__version__}", detail)

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        """See Metric. A reference that is not a tree scores 0 here, because it may be the output of another system."""
        trees = map(read_tree, only_reference("bracket-f1", references))
        pairs = zip(hypotheses, trees, strict=True)
        return [0.0 if tree is None else count_brackets(line, tree).f1 for line, tree in pairs]
