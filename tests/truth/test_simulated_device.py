"""The simulated GPUs find the faults they are meant to find."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RULES = Path(__file__).parents[1] / "simulated/rules.py"
ERRORS = {
    "sum of two devices": "on the same device",
    "sum with the CPU": "on the same device",
    "numpy": "can't convert cuda",
    "stream not waited for": "a stream that has not been waited for",
    "memory that is not there": "CUDA out of memory",
    "captured wait": "not permitted when stream is capturing",
    "captured copy": "not permitted when stream is capturing",
}
RESULTS = {  # and how often the device is waited for
    "sum with a number of the CPU": ([2, 3], 0),
    "indices of the CPU": ([2], 0),
    "copy between devices": ([2, 3], 0),
    "stream waited for": ([3, 3], 0),
    "copy not waited for": ([99, 99], 0),
    "copy waited for": ([1, 1], 1),
    "product": (5, 0),
    "item": (3, 1),
    "tolist": ([1, 2], 1),
    "truth": (True, 1),
    "mask": ([1], 1),
    "nonzero": ([[0]], 1),
    "cpu": ([1, 2], 1),
    "captured": ([[99, 99], [7, 7], [11, 11]], 4),
    "captured writes": ([[1, 2], [6, 6], [10, 10]], 4),
    "memory that is there": ("fits", 0),
    "memory that was freed": (["fits", "fits"], 0),
}


@pytest.fixture(scope="module")
def outcomes():
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the device guard with")
    done = subprocess.run([sys.executable, str(RULES)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("fault", ERRORS)
def test_a_fault_is_an_error(outcomes, fault):
    assert ERRORS[fault] in outcomes[fault]


@pytest.mark.parametrize("work", RESULTS)
def test_correct_work_has_its_result_and_its_expected_waits(outcomes, work):
    assert tuple(outcomes[work]) == RESULTS[work]


def test_the_simulation_tries_every_listed_case_and_no_other(outcomes):
    assert outcomes.keys() == {*ERRORS, *RESULTS}
