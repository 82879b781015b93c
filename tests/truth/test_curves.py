"""Curves as characters: heights, averages, and bounded memory."""

import random

from nmt.extensions.watch.display import MAX_CURVE_POINTS, RunningCurve
from nmt.extensions.watch.pictures.figures import sparkline, text_curve


def test_a_sparkline_has_one_height_per_value_between_minimum_and_maximum():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0, 3.4], 9) == "█▁▄"
    assert sparkline([5, 5], 4) == "▁▁" and sparkline([], 4) == ""


def test_neighbours_are_averaged_to_fit_the_width():
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([0, 2, 0, 7, 7], 2) == sparkline([2 / 3, 7, 0, 0, 7], 5)[0] + "█"
    for width in range(1, 30):
        assert len(sparkline(list(range(23)), width)) == min(width, 23)


def test_a_curve_of_several_lines_fills_each_column_from_below_to_its_value():
    assert text_curve([0, 15], 2, 2, low=0, high=15) == [" █", "▁█"]
    assert text_curve([8, 7], 2, 2, low=0, high=15) == ["▁ ", "██"]
    chance = random.Random(1)
    values = [chance.random() for _ in range(40)]
    rows = text_curve(values, 40, 5, low=0.0, high=1.0)
    for column, value in enumerate(values):
        eighths = sum(" ▁▂▃▄▅▆▇█".index(row[column]) for row in rows)
        assert eighths == 1 + round(39 * value)


def test_a_running_curve_covers_the_whole_run_in_bounded_memory():
    curve = RunningCurve()
    for number in range(5000):
        curve.add(float(number))
        assert len(curve.points) < MAX_CURVE_POINTS
    assert curve.last == 4999
    steps = {right - left for left, right in zip(curve.points, curve.points[1:], strict=False)}
    assert len(steps) == 1 and curve.points[0] == (steps.pop() - 1) / 2
