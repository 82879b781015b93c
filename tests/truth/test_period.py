"""Periods: what users write, and when a timer is due."""

import pytest

from nmt.train.periods import CLOCK_SHARE, Timer, parse_period, parse_periods, without_minutes


@pytest.mark.parametrize(
    ("text", "count", "unit"), [("500u", 500, "u"), ("500", 500, "u"), ("2e", 2, "e"), ("0.5m", 0.5, "m")]
)
def test_a_period_is_a_number_and_a_unit(text, count, unit):
    assert parse_period(text) == (count, unit)


@pytest.mark.parametrize("text", ["", "u", "0u", "-1e", "1.5u", "10s", "1e3", "ten", f"{10**20}u", f"{10**309}m"])
def test_an_invalid_period_is_refused_by_name(text):
    with pytest.raises(ValueError, match="not a"):
        parse_period(text)


def test_updates_and_epochs_are_due_at_their_multiples():
    assert [u for u in range(1, 10) if Timer("3u").is_due(u, None, 0)] == [3, 6, 9]
    ended = [None, 1, None, 2, None, 3, None, 4]
    assert [e for e in ended if Timer("2e").is_due(7, e, 0)] == [2, 4]


def test_minutes_are_due_once_elapsed_and_then_restart():
    timer, due = Timer("10m"), []
    for minute in (*range(1, 21), 32, 33, 41, 42):  # a validation from minute 20 to 32
        if timer.is_due(minute, None, 60 * minute):
            due.append(minute)
            timer.restart(60 * (32 if minute == 20 else minute))
    assert due == [10, 20, 42]
    assert timer.seconds_left(update=0, epochs=0, seconds=60 * 46, per_update=0, per_epoch=0) == 6 * 60


def test_the_remaining_time_is_proportional_to_the_remaining_updates():
    assert Timer("100u").seconds_left(update=130, epochs=0, seconds=0, per_update=2.0, per_epoch=0) == 140
    assert Timer("2e").seconds_left(update=0, epochs=2.5, seconds=0, per_update=0, per_epoch=60) == pytest.approx(90)


def test_of_several_periods_the_first_to_pass_is_due():
    assert parse_periods("500u,10m") == [(500, "u"), (10, "m")]
    timer, due = Timer("4u,1m"), []
    for update, seconds in enumerate((30, 61, 70, 80, 90, 139, 141), start=1):
        if timer.is_due(update, None, seconds):
            due.append((update, timer.is_regular(update, None)))
            timer.restart(seconds)
    assert due == [(2, False), (4, True), (7, False)]
    assert Timer("10m").is_regular(3, None)  # as minutes are all that it has


@pytest.mark.parametrize("text", ["1u,2u", "10m,", ",", "5,5u", "1e,1e", "500u 10m"])
def test_each_unit_has_at_most_one_period(text):
    with pytest.raises(ValueError, match="period"):
        parse_periods(text)


def test_minutes_combined_with_updates_do_not_decide_which_validations_count():
    assert without_minutes("1e,10m") == without_minutes("1e") == "1e"
    assert without_minutes("10m, 500u,2e") == "500u,2e" and without_minutes("10m") == "10m"


def test_validations_by_the_clock_take_a_small_share_of_the_time_however_slow_they_are():
    timer, seconds, spent, took = Timer("1000000u,10m"), 0.0, 0.0, 300.0
    while seconds < 100 * 3600:
        seconds += 1.0
        if timer.is_due(1, None, seconds):
            spent, seconds = spent + took, seconds + took
            timer.restart(seconds, took)
    assert 0.8 * CLOCK_SHARE < spent / seconds <= CLOCK_SHARE
    asked = Timer("10m")  # alone, minutes are what the user asked for
    asked.restart(0.0, took)
    assert asked.is_due(1, None, 600)


def test_minutes_are_checked_after_an_update_so_a_slow_update_delays_them():
    timer = Timer("100u,1m")
    left = dict(update=0, epochs=0.0, seconds=50.0, per_epoch=0.0)
    assert timer.seconds_left(**left, per_update=2.0) == 10
    assert timer.seconds_left(**left, per_update=300.0) == 300
    assert timer.seconds_left(**left, per_update=0.05) == 5
