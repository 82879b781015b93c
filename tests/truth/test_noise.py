"""Word dropout: its rate, what it never drops, and that it depends on nothing but seed, epoch, pair and position."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from noises import word_dropout
from plans import plan_of

from nmt.batch import Batch, make_batch
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.symbols import BOS, EOS, PAD, UNK

PAIRS = np.arange(4000)
LENGTHS = np.random.default_rng(1).integers(1, 30, (2, 4000))


def corpus_batch(pairs=PAIRS) -> Batch:
    source, target = LENGTHS[:, pairs]
    return make_batch((np.repeat(pairs + 10, source), source), (np.repeat(pairs + 10, target), target))


def test_tokens_are_dropped_independently_with_the_configured_probability():
    batch = word_dropout(0.1, 0.3, seed=7).read(corpus_batch(), PAIRS, epoch=1)
    for tokens, probability in ((batch.source, 0.1), (batch.target_input, 0.3)):
        words = (tokens != PAD) & (tokens != BOS) & (tokens != EOS)
        dropped = (tokens == UNK)[words].double()
        error = (probability * (1 - probability) / len(dropped)) ** 0.5
        assert abs(dropped.mean() - probability) < 4 * error
        after = (tokens == UNK)[:, 1:][words[:, 1:] & (tokens == UNK)[:, :-1]].double()  # dropped, behind a dropped one
        assert abs(after.mean() - probability) < 4 * error * (len(dropped) / len(after)) ** 0.5
        by_row = (tokens == UNK).sum(1).double()
        expected = probability * (1 - probability) * words.sum(1)
        assert ((by_row - probability * words.sum(1)) ** 2).sum() / expected.sum() == pytest.approx(1, abs=0.15)


def test_control_symbols_and_the_tokens_to_predict_stay():
    plain = corpus_batch()
    batch = word_dropout(0.9, 0.9).read(plain, PAIRS, epoch=1)
    assert torch.equal(batch.target_output, plain.target_output)
    for before, after in ((plain.source, batch.source), (plain.target_input, batch.target_input)):
        changed = before != after
        assert (after[changed] == UNK).all() and changed.any()
        assert not changed[(before == PAD) | (before == BOS) | (before == EOS)].any()


def test_tags_are_kept_and_a_batch_without_noise_is_unchanged():
    plain = corpus_batch()
    batch = word_dropout(0.9, 0.9, kept=((12, 15), (13,))).read(plain, PAIRS, epoch=1)
    for before, after, kept in ((plain.source, batch.source, (2, 5)), (plain.target_input, batch.target_input, (3,))):
        changed = (before != after).any(1)
        assert (
            not changed[list(kept)].any() and changed[LENGTHS.min(0) > 3].sum() > 0.9 * (LENGTHS.min(0) > 3).sum() - 3
        )
    for part, wanted in (batch.repeated(2), torch.cat([plain.source, plain.source])), (batch.rows(slice(3, 9)), None):
        clean = part.without_noise
        assert clean.noisy_target_input is None and torch.equal(clean.target_input, part.target[:, :-1])
        rows = plain.rows(slice(3, 9)).source if wanted is None else wanted
        assert torch.equal(clean.source, rows) and not torch.equal(part.source, rows)


def test_dropout_of_a_pair_depends_on_seed_and_epoch_but_not_on_its_batch():
    dropout = word_dropout(0.2, 0.2, seed=3)
    whole = dropout.read(corpus_batch(), PAIRS, epoch=2)
    some = PAIRS[[3999, 5, 70, 5]]
    part = dropout.read(corpus_batch(some), some, epoch=2)
    for row, pair in enumerate(some):
        length = int(LENGTHS[1, pair]) + 1
        assert torch.equal(part.target_input[row, :length], whole.target_input[pair, :length])
    again = dropout.read(corpus_batch(), PAIRS, epoch=2)
    assert torch.equal(again.source, whole.source)
    for other in (dropout.read(corpus_batch(), PAIRS, 3), word_dropout(0.2, 0.2, 4).read(corpus_batch(), PAIRS, 2)):
        assert not torch.equal(other.source, whole.source) and not torch.equal(other.target_input, whole.target_input)


def test_parts_and_copies_of_a_batch_keep_what_the_model_reads():
    batch = word_dropout(0.0, 0.5).read(corpus_batch(), PAIRS, epoch=1)
    assert torch.equal(
        batch.rows(slice(3, 9)).target_input, batch.target_input[3:9, : batch.rows(slice(3, 9)).target.shape[1] - 1]
    )
    assert torch.equal(batch.repeated(2).target_input, batch.target_input.repeat(2, 1))
    assert torch.equal(torch.cat([part.target_input.flatten() for part in batch.split(1)]), torch.cat(
        [row[: n + 1] for row, n in zip(batch.target_input, LENGTHS[1], strict=True)]
    ))  # fmt: skip


class Corpus:
    """The pairs of `corpus_batch` as the loader reads them."""

    source_lengths, target_lengths = LENGTHS.astype(np.uint16)
    columns: ClassVar[dict] = {}

    def __len__(self):
        return 4000

    def sources(self, indices):
        return np.repeat(indices + 10, LENGTHS[0, indices])

    def targets(self, indices):
        return np.repeat(indices + 10, LENGTHS[1, indices])


def read(batches):
    """(pair, what the model reads of it) of each pair of some batches."""
    return sorted((int(row[1]), source.tolist(), [int(i) for i in given if i != PAD])
        for b in batches for row, source, given in zip(b.target, b.source, b.target_input, strict=True))  # fmt: skip


def test_ranks_and_resumed_loaders_read_the_same_as_one_loader():
    noise = word_dropout(0.1, 0.4, seed=2)
    updates = Loader(plan_of(Corpus(), 2000, 3), 500, noises=[noise]).updates(Position())
    first, second = next(updates), next(updates)
    later = next(Loader(plan_of(Corpus(), 2000, 3), 500, noises=[noise]).updates(first.after))
    assert read(later.batches) == read(second.batches)
    shares = [
        next(Loader(plan_of(Corpus(), 2000, 3), 500, rank, 2, noises=[noise]).updates(Position())) for rank in range(2)
    ]
    counted = [b for share in shares for b in share.batches[: len(share.batches) - share.idle]]
    assert [(pair, given) for pair, _, given in read(counted)] == [
        (pair, given) for pair, _, given in read(first.batches)
    ]
    assert any(UNK in given for _, _, given in read(counted))
