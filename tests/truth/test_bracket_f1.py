"""Labelled bracketing F1 against EVALB's definition: brackets removed, counted and matched one by one."""

from random import Random

import pytest

from nmt import UserError
from nmt.errors import InputError
from nmt.extensions.scores.metrics.bracket_f1 import BracketF1, count_brackets, read_tree
from nmt.extensions.searches.utilities import pairwise
from nmt.options import NoOptions

METRIC = BracketF1(NoOptions())
PUNCTUATION = [",", ":", "``", "''", "."]
LABELS = ["NP", "VP", "S", "PP", "TOP", "ADVP", "PRT", "NP-SBJ", "S=2"]


def random_tree(random, tags, label=None):
    """A tree over words: a leaf is its number and tag, a constituent its label and children."""
    if len(tags) == 1 and random.random() < 0.6:
        return tags[0]
    cuts = sorted(random.sample(range(1, len(tags)), random.randint(0, min(3, len(tags) - 1))))
    parts = [tags[start:end] for start, end in zip([0, *cuts], [*cuts, len(tags)], strict=True)]
    if len(parts) == 1 and len(tags) > 1 and random.random() < 0.5:
        parts = [[tag] for tag in tags]
    return label or random.choice(LABELS), [random_tree(random, part) for part in parts]


def is_leaf(node):
    return isinstance(node[0], int)


def written(node):
    if is_leaf(node):
        return node[1]
    return f"({node[0]} {' '.join(map(written, node[1]))} ){node[0]}"


def retagged(node, tags):
    return (node[0], tags[node[0]]) if is_leaf(node) else (node[0], [retagged(child, tags) for child in node[1]])


def leaves(node):
    return [node] if is_leaf(node) else [leaf for child in node[1] for leaf in leaves(child)]


def brackets(node):
    """EVALB's brackets of a tree: label, and the words below that are no punctuation."""
    if is_leaf(node):
        return []
    rows = [row for child in node[1] for row in brackets(child)]
    words = [number for number, tag in leaves(node) if tag not in PUNCTUATION]
    label = node[0].replace("NP-SBJ", "NP").replace("S=2", "S").replace("PRT", "ADVP")
    return [*rows, [label, words]] if words and label != "TOP" else rows


def matched(found, expected):
    """EVALB's loop: each bracket of the reference takes one equal bracket that is not taken yet."""
    left = list(found)
    for row in expected:
        if row in left:
            left.remove(row)
    return len(found) - len(left)


def test_counts_and_f1_equal_evalbs_on_random_trees():
    random, matches = Random(4), 0
    hypotheses, references, rows = [], [], []
    for _ in range(400):
        tags = [(i, random.choice([*PUNCTUATION, *["XX"] * 8])) for i in range(random.randint(1, 12))]
        reference, hypothesis = (random_tree(random, tags, "S") for _ in range(2))
        # The tags of the hypothesis decide nothing: the reference says what punctuation is.
        said = [random.choice(["XX", ".", "NN"]) for _ in tags]
        found, expected = brackets(hypothesis), brackets(reference)
        row = matched(found, expected), len(found), len(expected)
        hypotheses.append(written(retagged(hypothesis, said)))
        references.append(written(reference))
        counts = count_brackets(hypotheses[-1], read_tree(references[-1]))
        assert (counts.matched, counts.hypothesis, counts.reference, counts.failed) == (*row, 0)
        rows.append(row)
        matches += 0 < row[0] < row[2]
    assert matches > 100
    both, found, expected = map(sum, zip(*rows, strict=True))
    precision, recall = both / found, both / expected
    f1 = 2 * precision * recall / (precision + recall)
    score = METRIC(hypotheses, [references])
    assert score.value == pytest.approx(100 * f1, abs=1e-9)
    assert f"precision {100 * precision:.2f}, recall {100 * recall:.2f}; 0 of 400 sentences failed" in score.detail
    assert METRIC.sentence_scores(hypotheses, [references]) == [
        pytest.approx(200 * m / (h + r) if h + r else 100) for m, h, r in rows
    ]


REFERENCE = "(S (NP XX XX )NP (VP XX (NP XX )NP )VP . )S"


@pytest.mark.parametrize(
    ("hypothesis", "reference", "percent"),
    [
        (REFERENCE, REFERENCE, 100),
        (f"(TOP {REFERENCE} )TOP", REFERENCE, 100),
        ("(S (NP XX XX )NP (VP XX XX )VP . )S", REFERENCE, 100 * 6 / 7),
        ("(S (NP XX XX )NP (VP XX (NP XX )NP . )VP )S", REFERENCE, 100),  # where punctuation hangs is nothing
        ("(S (NP XX XX XX )NP (VP (NP XX )NP )VP . )S", REFERENCE, 100 * 4 / 8),
        ("XX XX XX XX .", REFERENCE, 0),
        ("(VP XX (PRT XX )PRT )VP", "(VP XX (ADVP XX )ADVP )VP", 100),
        ("(NP (NP XX )NP )NP", "(NP XX )NP", 100 * 2 / 3),  # a multiset
        ("(NP-SBJ XX )NP-SBJ", "(NP XX )NP", 100),
        ("XX .", "XX .", 100),
        ("(S (NP XX )NP )S (PRN . )PRN", "(S (NP XX )NP . )S", 100),  # brackets over punctuation alone
    ],
)
def test_f1_of_trees_by_hand(hypothesis, reference, percent):
    assert METRIC([hypothesis], [[reference]]).value == pytest.approx(percent)
    assert METRIC.sentence_scores([hypothesis], [[reference]]) == [pytest.approx(percent)]


FAILED = [
    "",
    "(S (NP XX XX )NP (VP XX (NP XX )NP )VP .",
    "(S (NP XX XX )VP (VP XX (NP XX )NP )VP . )S",
    "(S (NP XX XX )NP (VP XX (NP XX )NP )VP . )S )S",
    "(S (NP XX XX )NP (VP XX (NP XX )NP )VP . (PRN )PRN )S",
    "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP . )S",
    "(S (NP XX XX )NP (VP XX )VP . )S",
    ")S",
    "(S",
]


@pytest.mark.parametrize("line", FAILED)
def test_an_invalid_hypothesis_tree_fails_and_its_reference_still_counts(line):
    other = "(S (NP XX )NP )S"
    score = METRIC([line, other], [[REFERENCE, other]])
    assert score.value == pytest.approx(100 * 2 * 2 / (2 + 6))
    assert "1 of 2 sentences failed" in score.detail
    assert METRIC.sentence_scores([line], [[REFERENCE]]) == [0]


def test_an_invalid_reference_tree_is_refused_with_its_line_except_among_candidates():
    with pytest.raises(InputError, match=r"line 2 of the reference is not a linearised tree: '\(S XX'"):
        METRIC([REFERENCE] * 2, [[REFERENCE, "(S XX"]])
    assert pairwise(METRIC, "", [REFERENCE, "(S XX"]).tolist() == [[100, 0], [0, 0]]
    with pytest.raises(UserError, match="only one reference, not 2"):
        METRIC([REFERENCE], [[REFERENCE], [REFERENCE]])
