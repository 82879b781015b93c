"""Periods: what users write, and when a timer is due."""

import pytest

from nmt.train.options import Timer, parse_period


@pytest.mark.parametrize(
    ("text", "count", "unit"), [("500u", 500, "u"), ("500", 500, "u"), ("2e", 2, "e"), ("0.5m", 0.5, "m")]
)
def test_a_period_is_a_number_and_a_unit(text, count, unit):
    assert parse_period(text) == (count, unit)


@pytest.mark.parametrize("text", ["", "u", "0u", "-1e", "1.5u", "10s", "1e3", "ten", f"{10**20}u", f"{10**309}m"])
def test_what_is_no_period_is_refused_by_name(text):
    with pytest.raises(ValueError, match="not a"):
        parse_period(text)


def test_updates_and_epochs_are_due_at_their_multiples():
    assert [u for u in range(1, 10) if Timer("3u").is_due(u, None, 0)] == [3, 6, 9]
    ended = [None, 1, None, 2, None, 3, None, 4]
    assert [e for e in ended if Timer("2e").is_due(7, e, 0)] == [2, 4]


def test_minutes_are_due_when_they_have_passed_and_start_anew():
    timer, due = Timer("10m"), []
    for minute in (*range(1, 21), 32, 33, 41, 42):  # a validation from minute 20 to 32
        if timer.is_due(minute, None, 60 * minute):
            due.append(minute)
            timer.restart(60 * (32 if minute == 20 else minute))
    assert due == [10, 20, 42]
    assert timer.seconds_left(update=0, epochs=0, seconds=60 * 46, per_update=0, per_epoch=0) == 6 * 60


def test_the_time_left_is_in_proportion_to_what_is_left():
    assert Timer("100u").seconds_left(update=130, epochs=0, seconds=0, per_update=2.0, per_epoch=0) == 140
    assert Timer("2e").seconds_left(update=0, epochs=2.5, seconds=0, per_update=0, per_epoch=60) == pytest.approx(90)
