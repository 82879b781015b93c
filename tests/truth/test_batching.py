"""The plan of batches: every pair once an epoch, updates of the wanted size, little padding, a pure function."""

import numpy as np
import pytest

from nmt.data.batching import micro_batches, plan_epoch

RANDOM = np.random.default_rng(5)
TARGET = RANDOM.integers(1, 60, 5000)
SOURCE = np.clip(TARGET + RANDOM.integers(-5, 6, 5000), 1, None)


def plan(epoch: int = 1, seed: int = 1, batch_tokens: int = 4096):
    return plan_epoch(SOURCE, TARGET, batch_tokens, seed, epoch)


def test_an_epoch_reads_every_pair_once():
    p = plan()
    read = np.concatenate([group for i in range(len(p)) for group in p.update(i)])
    assert np.array_equal(np.sort(read), np.arange(5000))


def test_the_plan_is_a_pure_function_of_seed_and_epoch():
    assert np.array_equal(plan().order, plan().order)
    assert not np.array_equal(plan(epoch=2).order, plan().order)
    assert not np.array_equal(plan(seed=2).order, plan().order)


def test_updates_hold_the_wanted_target_tokens():
    p = plan()
    tokens = [sum(int((TARGET[group] + 1).sum()) for group in p.update(i)) for i in range(len(p))]
    assert all(abs(found - 4096) <= 2 * 60 for found in sorted(tokens)[2:])  # the last group and update may be short
    assert max(tokens) <= 4096 + 4 * 60


def test_a_group_is_of_nearly_one_length_and_an_update_of_several():
    p = plan()
    spans = [np.ptp(TARGET[group]) for i in range(len(p)) for group in p.update(i)]
    assert np.median(spans) <= 1
    assert np.median([np.ptp(np.concatenate([TARGET[group] for group in p.update(i)])) for i in range(len(p))]) > 10


@pytest.mark.parametrize("max_tokens", [64, 500, 100_000])
def test_micro_batches_fit_the_device_and_keep_every_pair(max_tokens):
    groups = plan().update(0)
    cut = list(micro_batches(groups, SOURCE, TARGET, max_tokens))
    assert np.array_equal(np.concatenate(cut), np.concatenate(groups))
    for rows in cut:
        longest = int(max(SOURCE[rows].max(), TARGET[rows].max())) + 1
        assert len(rows) == 1 or len(rows) * longest <= max_tokens


def test_a_position_in_pairs_finds_its_update_again():
    p = plan()
    for number in range(len(p)):
        assert p.update_at(p.pairs_before(number)) == number
    with pytest.raises(ValueError, match="no update"):
        p.update_at(1)
