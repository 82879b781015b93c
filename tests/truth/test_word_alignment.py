"""Alignments against their definition, cell by cell, and against sentences whose alignment is known."""

import math
from collections import defaultdict

import numpy as np
import pytest

from nmt.extensions.methods import word_alignment
from nmt.extensions.methods.word_alignment import MIN_AGREEMENT, NULL_SHARE, TENSION, AlignmentModel
from nmt.log import Bar
from nmt.preparations.base import PairIds

V = 12


def pairs_of(pairs, target_reversed=False):
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    sides = (np.array([token for pair in pairs for token in pair[side]], np.uint16) for side in (0, 1))
    return PairIds(lengths, *sides, target_reversed)


def aligned(pairs, target_reversed=False):
    """The links of each pair, as sets of (source, target)."""
    rows = list(AlignmentModel(pairs_of(pairs, target_reversed), (V, V)).links())
    values, counts = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
    ends = np.cumsum(counts)
    return [set(map(tuple, values[end - count : end].tolist())) for end, count in zip(ends, counts, strict=True)]


def by_definition(pairs, rounds):
    """The product of both posteriors of each cell, {(source, target): product} of each pair, with loops."""
    tokens = [[token for pair in pairs for token in pair[side]] for side in (0, 1)]
    frequency = [{token: side.count(token) / len(side) for token in side} for side in tokens]
    table = [defaultdict(lambda: 1.0), defaultdict(lambda: 1.0)]  # of (source, target): target given source, and back

    def diagonal(i, j, S, T):
        return math.exp(-TENSION * abs((i + 0.5) / S - (j + 0.5) / T))

    def agreement(source, target):
        S, T = len(source), len(target)
        product = {}
        for i in range(S):
            for j in range(T):
                cell, prior = (source[i], target[j]), (1 - NULL_SHARE) * diagonal(i, j, S, T)
                column = [(k, j) for k in range(S)]
                row = [(i, k) for k in range(T)]
                posterior = 1.0
                for side, others, generated in ((0, column, target[j]), (1, row, source[i])):
                    sum_of_priors = sum(diagonal(*other, S, T) for other in others)
                    scores = [
                        (1 - NULL_SHARE)
                        * diagonal(*other, S, T)
                        / sum_of_priors
                        * table[side][source[other[0]], target[other[1]]]
                        for other in others
                    ]
                    none = NULL_SHARE * frequency[1 - side][generated]
                    posterior *= prior / sum_of_priors * table[side][cell] / (sum(scores) + none)
                product[i, j] = posterior
        return product

    for _ in range(rounds):
        expected = defaultdict(float)
        for source, target in pairs:
            for (i, j), value in agreement(source, target).items():
                expected[source[i], target[j]] += value
        for side in (0, 1):
            sums = defaultdict(float)
            for cell, value in expected.items():
                sums[cell[side]] += value
            table[side] = {cell: value / sums[cell[side]] for cell, value in expected.items()}
    return [agreement(*pair) for pair in pairs]


PAIRS = [([4, 5, 6], [7, 8]), ([4, 5], [8, 7, 9]), ([6, 6, 4, 5], [9, 9, 7, 8]), ([5], [8]), ([4, 6], [7, 9])]


def test_posteriors_follow_the_definition():
    model = AlignmentModel(pairs_of(PAIRS), (V, V))
    [cells] = model.chunks(np.arange(len(PAIRS)), Bar("aligning"))
    wanted = by_definition(PAIRS, word_alignment.ROUNDS)
    values = [
        pair[i, j]
        for pair, (source, _) in zip(wanted, PAIRS, strict=True)
        for j in sorted({k for _, k in pair})
        for i in range(len(source))
    ]
    assert model.agreement(cells) == pytest.approx(values, rel=1e-9, abs=1e-300)
    assert aligned(PAIRS) == [{cell for cell, value in pair.items() if value > MIN_AGREEMENT} for pair in wanted]


def test_chunking_does_not_change_links(monkeypatch):
    whole = aligned(PAIRS)
    monkeypatch.setattr(word_alignment, "MAX_CHUNK_CELLS", 5)
    assert aligned(PAIRS) == whole


def test_a_pair_with_too_many_cells_gets_no_links_and_the_others_do(monkeypatch, capsys):
    monkeypatch.setattr(word_alignment, "MAX_PAIR_CELLS", 6)
    long, diagonal = ([4, 5, 6], [7, 8, 9]), {(0, 0), (1, 1)}
    assert aligned([([4, 5], [8, 9]), long, long, ([5, 6], [9, 7])]) == [diagonal, set(), set(), diagonal]
    assert aligned([long]) == [set()]
    for who, line in zip(("2 pairs get", "1 pair gets"), capsys.readouterr().err.splitlines(), strict=True):
        assert line.startswith(
            f"nmt: warning: --align: {who} no links, because the product of source and target lengths exceeds 6"
        )


def test_a_dictionary_with_swapped_neighbours_is_found():
    generator = np.random.default_rng(1)
    pairs, wanted = [], []
    for _ in range(300):
        source = generator.permutation(np.arange(4, 12))[: generator.integers(3, 8)].tolist()
        order = list(range(len(source)))
        i = int(generator.integers(len(source) - 1))
        order[i], order[i + 1] = order[i + 1], order[i]
        pairs.append((source, [15 - source[k] for k in order]))  # token t is translated by 15 - t
        wanted.append({(k, j) for j, k in enumerate(order)})
    found = aligned(pairs)
    assert sum(map(len, found)) > 0.97 * sum(map(len, wanted))
    assert sum(len(one & other) for one, other in zip(found, wanted, strict=True)) > 0.99 * sum(map(len, found))


def test_a_reversed_target_has_the_links_of_the_target_reversed():
    reversed_pairs = [(source, target[::-1]) for source, target in PAIRS]
    links = [
        {(i, len(target) - 1 - j) for i, j in pair}
        for (_, target), pair in zip(PAIRS, aligned(reversed_pairs, target_reversed=True), strict=True)
    ]
    assert links == aligned(PAIRS)
    assert any(links)


def test_tokens_missing_from_training_are_not_aligned_by_chance(monkeypatch):
    monkeypatch.setattr(word_alignment, "MAX_LEARNT_PAIRS", 2)  # the first and the last
    found = aligned([([4, 5], [8, 9]), ([10, 4, 6], [11, 8, 9]), ([4, 5], [8, 9])])
    assert (1, 1) in found[1]
    assert found[0] == {(0, 0), (1, 1)}
