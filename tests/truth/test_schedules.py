"""The learning rates: the paper's values, other toolkits' formulas, and what every schedule must keep to."""

import json
import math

import pytest

from nmt import registry
from nmt.errors import UserError

ALL = registry.names("schedule")
UPDATES = [1, 2, 99, 100, 101, 500, 999, 1000, 2000]


def build(name, width=512, max_updates=1000, **options):
    return registry.build(registry.choose("schedule", name, options), width, max_updates)


@pytest.mark.parametrize(
    ("width", "update", "expected"),
    [
        (512, 1, "1.746928e-07"),
        (512, 2000, "3.493856e-04"),
        (512, 4000, "6.987712e-04"),
        (512, 10000, "4.419417e-04"),
        (512, 100000, "1.397542e-04"),
        (1024, 4000, "4.941059e-04"),
        (1024, 300000, "5.705443e-05"),
    ],
)
def test_noam_follows_the_papers_learning_rate(width, update, expected):
    assert f"{build('noam', width, None)(update):.6e}" == expected


def test_the_factor_of_noam_multiplies_every_learning_rate():
    twice, once = build("noam", lr=2.0), build("noam")
    assert all(twice(update) == pytest.approx(2 * once(update)) for update in UPDATES)


def test_inverse_sqrt_has_the_shape_of_noam_with_its_own_peak():
    noam, inverse = build("noam", warmup_updates=100), build("inverse-sqrt", lr=5e-4, warmup_updates=100)
    assert all(inverse(update) == pytest.approx(5e-4 * noam(update) / noam(100)) for update in UPDATES)


def test_inverse_sqrt_grows_from_its_initial_learning_rate():
    schedule = build("inverse-sqrt", lr=1e-3, warmup_updates=10, warmup_init_lr=1e-4)
    steps = [schedule(update) - schedule(update - 1) for update in range(1, 11)]
    assert schedule(0) == pytest.approx(1e-4)
    assert steps == pytest.approx([(1e-3 - 1e-4) / 10] * 10)


def test_constant_halves_at_equal_intervals_after_a_given_update():
    schedule = build("constant", lr=0.8, halve_from=100, halve_every=20)
    assert [schedule(update) for update in (1, 99, 100, 119, 120, 140)] == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2, 0.1])


def test_inverse_sqrt_stays_at_its_peak_for_the_flat_updates():
    """Shazeer et al. (2017), appendix E: linear for 2000 steps, constant for 8000, then as the inverse square root."""
    schedule = build("inverse-sqrt", lr=1e-3, warmup_updates=2000, flat_updates=8000)
    assert schedule(1000) == pytest.approx(5e-4)
    assert {schedule(update) for update in range(2000, 10_001, 500)} == {1e-3}
    assert [schedule(update) for update in (40_000, 1_000_000)] == pytest.approx([5e-4, 1e-4])


@pytest.mark.parametrize("name", ALL)
def test_the_end_of_the_warmup_is_the_peak_and_continuous_with_the_decay(name):
    schedule = build(name, lr=0.1, warmup_updates=100)
    peak = max(schedule(update) for update in range(1, 1001))
    assert schedule(100) == pytest.approx(peak)
    assert schedule(50) == pytest.approx(peak / 2)
    assert schedule(99) == pytest.approx(schedule(100), rel=0.02)
    assert schedule(101) == pytest.approx(schedule(100), rel=0.02)


@pytest.mark.parametrize("name", ALL)
def test_a_learning_rate_depends_on_the_update_alone(name):
    forwards, backwards = build(name, warmup_updates=100), build(name, warmup_updates=100)
    assert [forwards(u) for u in UPDATES] == [backwards(u) for u in reversed(UPDATES)][::-1]


@pytest.mark.parametrize("name", ALL)
def test_a_learning_rate_is_a_plain_positive_float_until_the_run_ends(name):
    schedule = build(name, warmup_updates=100)
    rates = [schedule(update) for update in range(1, 1000)]
    assert all(type(rate) is float and 0 < rate < 1 for rate in rates)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_schedule_that_ends_with_the_run_has_the_right_start_middle_and_end(name):
    schedule = build(name, lr=1e-3, warmup_updates=200, final_lr_fraction=0.1)
    assert schedule(600) == pytest.approx((1e-3 + 1e-4) / 2)
    assert schedule(1000) == pytest.approx(1e-4)
    assert schedule(1001) == schedule(1000)
    quarter = {"linear": 0.75, "cosine": (1 + math.sqrt(0.5)) / 2}[name]
    assert schedule(400) == pytest.approx(1e-4 + 9e-4 * quarter)


@pytest.mark.parametrize("name", ["linear", "cosine"])
@pytest.mark.parametrize(("max_updates", "advice"), [(None, "needs --max-updates"), (4000, "lower --warmup-updates")])
def test_a_schedule_that_ends_with_the_run_must_know_a_possible_end(name, max_updates, advice):
    with pytest.raises(UserError, match=advice):
        build(name, max_updates=max_updates, warmup_updates=4000)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("options", [{"lr": 0.0}, {"lr": -1.0}, {"lr": math.nan}, {"warmup_updates": -1}])
def test_an_invalid_setting_is_refused_by_name(name, options):
    with pytest.raises(UserError, match=next(iter(options)).replace("_", "-")):
        build(name, **options)


def test_plateau_falls_only_after_patience_validations_without_a_new_best():
    schedule = build("plateau", lr=1.0, plateau_factor=0.5, plateau_patience=2, min_lr=0.2)
    losses = [3.0, 2.0, 2.5, 1.9, 1.9, math.nan, 1.95, 1.8, 9.0, 9.0, 9.0, 9.0]
    rates = []
    for loss in losses:
        schedule.see(loss)
        rates.append(schedule(1))
    assert rates == [1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2]


def test_plateau_by_ten_at_every_validation_after_the_first_ends_the_run_below_its_last_rate():
    """Gehring et al., section 4.2: divided by ten after each epoch once perplexity stops falling, until below 1e-4."""
    schedule = build("plateau", lr=0.25, plateau_factor=0.1, plateau_patience=1, plateau_every=True, stop_lr=1e-4)
    rates, ends = [], []
    for loss in [3.0, 2.0, 2.5, 1.9, 1.8, 1.7]:
        schedule.see(loss)
        rates.append(schedule(1))
        ends.append(schedule.end)
    assert rates == pytest.approx([0.25, 0.25, 0.025, 0.0025, 2.5e-4, 2.5e-5])
    assert ends[:-1] == [None] * 5 and ends[-1][0] == "stop_lr"
    assert ends[-1][1] == "the learning rate is 2.5e-05, below --stop-lr 0.0001"


@pytest.mark.parametrize("name", ALL)
def test_a_resumed_schedule_continues_as_if_never_stopped(name):
    losses = [2.0, 2.1, 1.9, 2.2, 2.3, 2.4, 2.5, 1.8, 3.0, 3.0, 3.0]
    for stop in range(len(losses)):
        whole, first, second = (build(name, warmup_updates=100) for _ in range(3))
        for loss in losses[:stop]:
            first.see(loss)
        second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
        for loss in losses[stop:]:
            second.see(loss)
        for loss in losses:
            whole.see(loss)
        assert [second(update) for update in UPDATES] == [whole(update) for update in UPDATES]


def test_a_damaged_state_of_plateau_is_a_value_error():
    with pytest.raises(ValueError, match="best"):
        build("plateau").load_state_dict({"best": "low", "since": 0, "falls": 0})
