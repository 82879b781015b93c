"""The plan of batches: every pair once an epoch, updates of the wanted size, little padding, a pure function."""

import threading
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from plans import plan_of

from nmt.data.batching import GROUPS_PER_UPDATE, PADDING_TO_JOIN, micro_batches, permuted, plan_part
from nmt.data.loader import Loader, owners, prefetched
from nmt.data.plan import Position
from nmt.errors import ArtefactError

RANDOM = np.random.default_rng(5)
TARGET = RANDOM.integers(1, 60, 5000)
KEYS = RANDOM.integers(1 << 63, size=4, dtype=np.uint64)
SOURCE = np.clip(TARGET + RANDOM.integers(-5, 6, 5000), 1, None)


def plan(epoch: int = 1, seed: int = 1, batch_tokens: int = 4096):
    return plan_part(SOURCE, TARGET, batch_tokens, seed, epoch, 0)


def test_an_epoch_reads_every_pair_once():
    p = plan()
    read = np.concatenate([group for i in range(len(p)) for group in p.update(i)])
    assert np.array_equal(np.sort(read), np.arange(5000))


def test_the_plan_is_a_pure_function_of_seed_and_epoch():
    assert np.array_equal(plan().order, plan().order)
    assert not np.array_equal(plan(epoch=2).order, plan().order)
    assert not np.array_equal(plan(seed=2).order, plan().order)


def test_updates_hold_the_configured_number_of_target_tokens():
    p = plan()
    tokens = [sum(int((TARGET[group] + 1).sum()) for group in p.update(i)) for i in range(len(p))]
    assert all(abs(found - 4096) <= 2 * 60 for found in sorted(tokens)[2:])  # the last group and update may be short
    assert max(tokens) <= 4096 + 4 * 60


def test_the_pairs_of_a_group_have_similar_lengths_and_those_of_an_update_do_not():
    p = plan()
    spans = [np.ptp(TARGET[group]) for i in range(len(p)) for group in p.update(i)]
    assert np.median(spans) <= 1
    assert np.median([np.ptp(np.concatenate([TARGET[group] for group in p.update(i)])) for i in range(len(p))]) > 10


@pytest.mark.parametrize("max_tokens", [64, 500, 100_000])
def test_micro_batches_fit_the_device_and_keep_every_pair(max_tokens):
    groups = plan().update(0)
    cut = list(micro_batches(groups, SOURCE, TARGET, max_tokens))
    assert sorted(np.concatenate(cut)) == sorted(np.concatenate(groups))
    for rows in cut:
        longest = int(max(SOURCE[rows].max(), TARGET[rows].max())) + 1
        assert len(rows) == 1 or len(rows) * longest <= max_tokens


def test_an_empty_group_has_no_micro_batch():
    empty, group = np.array([], int), np.arange(3)
    assert list(micro_batches([empty], SOURCE, TARGET, 64)) == []
    assert [rows.tolist() for rows in micro_batches([empty, group, empty], SOURCE, TARGET, 1000)] == [[0, 1, 2]]


def test_small_groups_of_similar_length_share_a_micro_batch():
    lengths = np.array([5, 9, 5, 6, 30, 9, 6])
    groups = [np.array(group) for group in ([0, 2], [4], [3, 6], [1, 5])]
    [short, long] = micro_batches(groups, lengths, lengths, 1000)
    # 2 pairs by 1 token, then 4 by 3, are padded; 6 by 21 would be too many
    assert short.tolist() == [0, 2, 3, 6, 1, 5] and long.tolist() == [4]
    assert [rows.tolist() for rows in micro_batches(groups, lengths, lengths, 39)] == [[0, 2, 3, 6], [1, 5], [4]]
    assert PADDING_TO_JOIN["cpu"] >= 14


@pytest.mark.parametrize("batch_tokens", [128, 500, 4096])
def test_joined_groups_need_little_padding(batch_tokens):
    p = plan(batch_tokens=batch_tokens)
    for number in range(0, len(p), 7):
        groups = p.update(number)
        cells = [
            sum(len(rows) * (1 + int(np.maximum(SOURCE[rows], TARGET[rows]).max())) for rows in cut)
            for cut in (groups, list(micro_batches(groups, SOURCE, TARGET, 1 << 30)))
        ]
        assert cells[1] - cells[0] <= PADDING_TO_JOIN["cpu"] * (len(groups) - 1)


def test_a_position_in_pairs_leads_back_to_its_update():
    p = plan()
    for number in range(len(p)):
        assert p.update_at(p.num_pairs(number)) == number
    with pytest.raises(ArtefactError, match="no update"):
        p.update_at(1)


@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, 1000, 4097])
def test_the_permutation_in_bounded_memory_is_a_permutation(size):
    images = permuted(np.arange(size), size, KEYS)
    assert np.array_equal(np.sort(images), np.arange(size))
    some = np.arange(size // 3, size // 2)
    assert np.array_equal(permuted(some, size, KEYS), images[some])


def test_the_permutation_looks_random():
    size, places = 100_000, np.arange(100_000)
    images = permuted(places, size, KEYS)
    assert abs(np.corrcoef(places, images)[0, 1]) < 0.02
    assert abs((np.diff(images) > 0).mean() - 0.5) < 0.02
    assert (np.abs(np.diff(images)) <= 10).mean() < 0.001
    assert not np.array_equal(images, permuted(places, size, KEYS + np.uint64(1)))


def test_an_epoch_in_parts_reads_every_pair_once_and_resumes_from_any_update(monkeypatch):
    monkeypatch.setattr("nmt.data.batching.PART_PAIRS", 700)
    monkeypatch.setattr("nmt.plans.corpus.PART_PAIRS", 700)
    loader = Loader(plan_of(Numbered(), 2000, 3), 500)
    updates, read = [], []
    for data in loader.updates(Position()):
        updates.append(data)
        if data.ends_epoch:
            break
    for data in updates:
        ids = [int(row[0]) for batch in data.batches for row in batch.source]
        read += ids
        assert len(read) == (data.after.pairs or 5000)
    assert sorted(read) == list(range(5000)) and read != sorted(read)
    assert max(Counter(i // 700 for i in read[:700]).values()) < 200  # a part is drawn from the whole corpus
    assert abs(loader.updates_per_epoch() - len(updates)) <= -(-5000 // 700) * 2
    tiny = Loader(plan_of(loader.corpus, 4, 3), 1)
    assert tiny.updates_per_epoch() == -(-len(loader.corpus) // GROUPS_PER_UPDATE)
    for at in (0, 5, len(updates) - 2):
        first = next(loader.updates(updates[at].after))
        assert [batch.source.tolist() for batch in first.batches] == [
            batch.source.tolist() for batch in updates[at + 1].batches
        ]
    again = next(loader.updates(Position(2, 0)))
    assert again.batches[0].source.tolist() != updates[0].batches[0].source.tolist()
    parts = [plan_part(SOURCE, TARGET, 2000, 3, epoch, 0).order for epoch in (1, 1, 2)]
    first, same, other = (set(part.tolist()) for part in parts)
    assert len(first) == 700 and first == same and len(first & other) < 200  # another part of the corpus in each epoch
    with pytest.raises(ArtefactError, match="no update starts after 701 pairs"):
        next(loader.updates(Position(1, 701)))
    with pytest.raises(ArtefactError, match="only 5,000 pairs"):
        next(loader.updates(Position(1, 7000)))


def test_prefetching_yields_the_same_items_and_error_and_stays_within_its_limit():
    made = []

    def items():
        for i in range(100):
            made.append(i)
            if i == 50:
                raise ArtefactError("at 50")
            yield i

    found = []
    with pytest.raises(ArtefactError, match="at 50"):
        found.extend(prefetched(items()))
    assert found == list(range(50))
    made.clear()
    stream = prefetched(items(), depth=3)
    assert next(stream) == 0
    stream.close()
    assert len(made) <= 6 and not any(thread.name.startswith("loader") for thread in threading.enumerate())
    assert list(prefetched(iter([1, 2]))) == [1, 2]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_ranks_share_the_pairs_of_each_update_and_their_tokens_evenly(ranks):
    alone = Loader(plan_of(Numbered(), 2000, 3), 500).updates(Position())
    streams = [Loader(plan_of(Numbered(), 2000, 3), 500, rank, ranks).updates(Position()) for rank in range(ranks)]
    for _ in range(5):
        whole, *shares = (next(stream) for stream in (alone, *streams))
        own = [share.batches[: len(share.batches) - share.idle] for share in shares]
        pairs = [[int(row[0]) for batch in batches for row in batch.source] for batches in own]
        tokens = [sum(int(TARGET[pair]) + 1 for pair in share) for share in pairs]
        assert sorted(chain(*pairs)) == sorted(int(row[0]) for batch in whole.batches for row in batch.source)
        assert sum(tokens) == whole.tokens and max(tokens) - min(tokens) <= 2 * 60
        assert all((share.tokens, share.after) == (whole.tokens, whole.after) for share in shares)
        assert len({len(share.batches) for share in shares}) == 1 and min(share.idle for share in shares) == 0


def test_a_rank_without_a_pair_gets_one_that_is_not_counted():
    assert owners(np.array([5, 5]), 4).tolist() == [1, 3]
    loader = Loader(plan_of(Numbered(), 1, 3), 500, rank=3, ranks=64)
    share = next(loader.updates(Position()))
    assert share.idle == len(share.batches) == 1 and len(share.batches[0].source) == 1


class Numbered:
    """A corpus whose pair i says its own number, as often as it is long."""

    source_lengths, target_lengths, columns = SOURCE, TARGET, {}

    def __len__(self) -> int:
        return len(SOURCE)

    def sources(self, indices):
        return np.repeat(indices, SOURCE[indices])

    def targets(self, indices):
        return np.repeat(indices, TARGET[indices])
