"""Mixed corpora: exact shares at any place, every pair of a corpus before any again, and a pure function of the position."""

from collections import Counter
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest

from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.errors import ArtefactError, UserError
from nmt.extensions.methods.mixture import Mixture
from nmt.extensions.methods.plans import mixture as plan_module
from nmt.extensions.methods.plans.mixture import MixturePlan
from nmt.extensions.methods.plans.options import MixtureOptions
from nmt.extensions.methods.stages import parse_stages
from nmt.options import make

RANDOM = np.random.default_rng(3)
CORPORA = [("web", 900), ("news", 200), ("web", 100)]  # web has two ranges
PAIRS = sum(pairs for _, pairs in CORPORA)
CORPUS_OF = np.repeat([0, 1, 0], [900, 200, 100])


class Numbered:
    """Pairs whose first source token is their own number."""

    corpora = CORPORA
    target_lengths = RANDOM.integers(1, 30, PAIRS)
    source_lengths = np.clip(target_lengths + RANDOM.integers(-3, 4, PAIRS), 1, None)

    def __init__(self):
        self.columns = {}

    def __len__(self):
        return PAIRS

    def sources(self, indices):
        return np.concatenate([np.r_[10 + i, np.full(self.source_lengths[i] - 1, 5)] for i in indices])

    def targets(self, indices):
        return np.full(self.target_lengths[indices].sum(), 5)


def mixture(*words, corpora=CORPORA, seed=1):
    return Mixture(corpora, parse_stages(words), seed)


def loader(*words, rank=0, ranks=1, max_tokens=300, batch_tokens=400):
    plan = MixturePlan(make(MixtureOptions, {"data_weights": words}), Numbered(), batch_tokens, 7)
    return Loader(plan, max_tokens, rank, ranks)


def pairs_of(update):
    return [int(row[0]) - 10 for batch in update.batches[: len(update.batches) - update.idle] for row in batch.source]


def take(updates, count):
    return [pairs_of(update) for update in islice(updates, count)]


def test_data_added_late_in_a_run_starts_at_the_stage_of_the_update():
    words = ("news=1 until=5u", "web=1 until=9u", "news=1 web=1")
    whole, part = loader(*words), mixture(*words, seed=7).first_part(6)
    late = list(islice(whole.updates(Position(part=part)), 4))
    assert [update.after.stage for update in late] == [1, 1, 1, 2]
    first, fresh = mixture(*words).part(part, 1), mixture(*words).first_part()
    assert (first.stage, first.updates) == (1, 6) and mixture(*words).part(None, 1) == fresh


@pytest.mark.parametrize("words", ["news=2 web=1", "news=1 web=0.37", "temperature=5", "news=3"])
def test_after_any_number_of_pairs_each_corpus_has_had_its_share(words):
    mixed = mixture(words)
    start, [shares] = mixed.part(None, 1), mixed.shares
    corpora = []
    for count in (1, 7, 500, 5000):  # parts that follow one another are one sequence
        draws = mixed.draw(start, count)
        assert np.array_equal(CORPUS_OF[draws.numbers % PAIRS], np.array([0, 1])[draws.corpora])
        corpora.append(draws.corpora)
        start = mixed.after(start, draws, 1)
    had = np.stack([np.cumsum(np.concatenate(corpora) == corpus) for corpus in range(2)], axis=1)
    wanted = np.arange(1, len(had) + 1)[:, None] * shares
    assert np.abs(had - wanted).max() <= 1
    assert start.drawn == tuple(had[-1])


def test_shares_follow_weights_or_a_power_of_the_sizes():
    np.testing.assert_allclose(mixture("news=2 web=1").shares[0], [1 / 3, 2 / 3])
    by_hand = np.array([1000**0.2, 200**0.2])
    np.testing.assert_allclose(mixture("temperature=5").shares[0], by_hand / by_hand.sum())
    np.testing.assert_allclose(mixture("temperature=1").shares[0], [1000 / 1200, 200 / 1200])
    for words in ("temperature=0.001", "temperature=0.0005", "temperature=0.000000001"):
        np.testing.assert_array_equal(mixture(words).shares[0], [1, 0])
    np.testing.assert_allclose(mixture("temperature=1000000000").shares[0], [1 / 2, 1 / 2])


def test_every_pair_is_read_before_any_repeats_and_repeats_get_new_numbers():
    mixed = mixture("news=1")
    start = mixed.part(None, 1)
    numbers = mixed.draw(start, 450).numbers
    assert len(set(numbers.tolist())) == 450
    passes = [numbers[:200], numbers[200:400], numbers[400:]]
    for times, drawn in enumerate(passes):
        assert (drawn // PAIRS == times).all() and len(set(drawn % PAIRS)) == len(drawn)
        assert ((drawn % PAIRS >= 900) & (drawn % PAIRS < 1100)).all()
    assert not np.array_equal(passes[0] % PAIRS, passes[1] % PAIRS)
    assert not np.array_equal(mixture("news=1", seed=2).draw(start, 450).numbers, numbers)


@pytest.mark.parametrize("part_pairs", [1 << 20, 333])
def test_a_stream_resumes_identically_from_any_update(part_pairs, monkeypatch):
    monkeypatch.setattr(plan_module, "PART_PAIRS", part_pairs)
    words = "web=1 until=9u", "news=1 web=1 until=2e", "temperature=5 until=120u", "news=1"
    updates = list(islice(loader(*words).updates(Position()), 150))
    whole = [pairs_of(update) for update in updates]
    assert {update.after.stage for update in updates} == {0, 1, 2, 3}
    for done in (1, 8, 9, 10, 50, 119, 120, 121, 149):
        again = take(loader(*words).updates(updates[done - 1].after), 150 - done)
        assert again == whole[done:], done


def test_a_stage_ends_at_its_update_after_all_its_planned_pairs():
    updates = list(islice(loader("web=1 until=9u", "news=1").updates(Position()), 14))
    of = [CORPUS_OF[pairs_of(update)] for update in updates]
    assert all((corpora == 0).all() for corpora in of[:9]) and all((corpora == 1).all() for corpora in of[9:])
    read = np.concatenate([pairs_of(update) for update in updates[:9]])
    assert list(updates[8].after.part["drawn"]) == [len(read), 0] and len(set(read)) == len(read)
    assert sum(update.tokens for update in updates[:9]) > 8 * 400


def test_a_stage_by_epochs_ends_with_the_epoch_and_an_epoch_has_as_many_pairs_as_the_data():
    stream = loader("news=2 web=1 until=1e", "web=1").updates(Position())
    epochs = {1: [], 2: []}
    for update in stream:
        epoch = update.after.epoch - update.ends_epoch
        if epoch > 2:
            break
        epochs[epoch] += pairs_of(update)
    assert [len(pairs) for pairs in epochs.values()] == [PAIRS, PAIRS]
    assert Counter(CORPUS_OF[epochs[1]].tolist()) == {0: PAIRS // 3, 1: 2 * PAIRS // 3}
    assert set(CORPUS_OF[epochs[2]]) == {0}


def test_ranks_and_micro_batches_share_the_same_updates():
    words = "news=2 web=1 until=5u", "web=1"
    whole = take(loader(*words).updates(Position()), 12)
    small = take(loader(*words, max_tokens=60).updates(Position()), 12)
    shares = [take(loader(*words, rank=rank, ranks=3).updates(Position()), 12) for rank in range(3)]
    for number, pairs in enumerate(whole):
        assert sorted(pairs) == sorted(small[number]) == sorted(chain.from_iterable(share[number] for share in shares))


def test_the_expected_updates_of_an_epoch_are_those_it_has():
    stream = loader("news=2 web=1")
    counted = next(n for n, update in enumerate(stream.updates(Position()), 1) if update.ends_epoch)
    assert abs(stream.updates_per_epoch() - counted) <= 2
    assert stream.largest_micro_batch() > 0


def test_a_position_in_different_corpora_is_refused():
    position = next(loader("news=1").updates(Position())).after
    wrong = replace(position, part=position.part | {"drawn": (1, 2, 3), "earlier": (0, 0, 0)})
    with pytest.raises(ArtefactError, match="corpora of this data"):
        next(loader("news=1").updates(wrong))
    for change in ({"pairs": 10**6}, {"earlier": (2**63 - 1,)}, {"drawn": (2**63 - 1,)}):
        with pytest.raises(ArtefactError, match="does not exist in this data"):
            next(loader("news=1").updates(replace(position, part=position.part | change)))
    with pytest.raises(ArtefactError, match="no update starts"):
        next(loader("news=1").updates(replace(position, pairs=position.pairs + 1)))


def test_stages_can_be_split_over_arguments_in_any_way():
    one = parse_stages(["news=1 web=4 until=20000u", "temperature=2 until=3e", "web=1"])
    assert one == parse_stages(["news=1", "web=4", "until=20000u temperature=2", "until=3e web=1"])
    assert [stage.updates for stage in one] == [20000, None, None] and one[1].epochs == 3
    assert one[0].weights == {"news": 1, "web": 4} and one[1].temperature == 2
    assert parse_stages([]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("news", "must be NAME=WEIGHT"),
        ("news=nan", "must be NAME=WEIGHT"),
        ("news=inf", "must be NAME=WEIGHT"),
        ("news=-1", "must be NAME=WEIGHT"),
        ("=1", "must be NAME=WEIGHT"),
        ("temperature=0", "must be NAME=WEIGHT"),
        ("news=0", "positive weight"),
        ("news=1 news=2", "already"),
        ("temperature=2 news=1", "a temperature and no weights"),
        ("news=1 until=5u", "the last stage"),
        ("until=5u news=1", "until=5u, must|until=5u must"),
        ("news=1 until=5m web=1", "updates or epochs"),
        ("news=1 until=5u web=1 until=5u news=1", "later than the end"),
        ("news=1 until=x web=1", r"until=x: a stage must end after a given number of updates.*until=500u"),
    ],
)
def test_malformed_stages_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse_stages([words])


def test_unknown_corpora_are_refused_with_the_existing_names():
    with pytest.raises(UserError, match=r"corpus of --data-weights 'neus' \(did you mean 'news'\?\)"):
        mixture("neus=1")
    with pytest.raises(UserError, match="no pairs of this corpus"):
        mixture("empty=1", corpora=[*CORPORA, ("empty", 0)])


def test_a_pair_drawn_twice_gets_different_noise_each_time():
    from noises import word_dropout

    from nmt.batch import make_batch

    noise, ids = word_dropout(0.5, 0.0, 1), np.full(40, 9)
    batch = make_batch((np.tile(ids, 2), np.array([40, 40])), (np.tile(ids, 2), np.array([40, 40])))
    first, second = noise.read(batch, np.array([3, 3 + PAIRS]), 1).source
    assert not np.array_equal(first, second)
