"""Quantities as text."""

import pytest

from nmt.quantities import clock, duration, operations, size


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (size(2_345_678), "2.3 MB"),
        (size(1_234_567_890), "1.23 GB"),
        (clock(3 * 3600 + 62.9), "3:01:02"),
        (duration(0.5), "30.0 min"),
        (duration(2), "2.0 h"),
        (duration(72), "3.0 days"),
        (operations(1.354e10), "13.5 GFLOP"),
        (operations(2e12), "2 TFLOP"),
        (operations(1.5e17), "150 PFLOP"),
        (operations(2.34e22), "23,400 EFLOP"),
        (operations(0), "0 GFLOP"),
    ],
)
def test_a_quantity_has_the_unit_that_fits_its_size(text, written):
    assert text == written
