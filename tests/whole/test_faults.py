"""File operations of commands fail, with the program that `make faults` runs for all of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "faults/run.py"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile the injector of faults with")
def test_after_a_failed_file_operation_nothing_is_lost_and_the_next_call_succeeds(tmp_path):
    command = [sys.executable, str(RUN), "--phases", "prepare", "translate", "--every", "25"]
    done = subprocess.run([*command, "--page", str(tmp_path / "page.md")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"\| `(.*?)` \| (\d+) \| (.*?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| 0 \|", done.stdout)
    assert {row[0] for row in rows} == {"prepare", "translate --output", "translate, exporting"}
    assert len(rows) in (15, 18)  # power loss needs root
    for _, operations, fault, trials, none, error, killed in rows:
        assert int(trials) == -(-int(operations) // 25) == int(none) + int(error) + int(killed) > 0
        assert (int(killed) == int(trials)) == (fault in ("kill -9", "power loss"))
    page = (tmp_path / "page.md").read_text()
    assert "| `prepare` |" in page and "| `translate --output` |" in page
