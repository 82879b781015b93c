"""What a user sees of a training run: log lines, the live display, `nmt status` and `nmt plot`."""

import json
import math
import re
from pathlib import Path

import pytest
from conftest import train_arguments

LINE = re.compile(
    r"Ep\. (?P<epoch>\d+) : Up\. (?P<update>\d+)/(?P<total>\d+) : loss (?P<loss>\S+) "
    r": nll (?P<nll>\S+) nats/token \(ppl (?P<ppl>\S+)\) : tokens/s (?P<speed>\d+) "
    r": ETA (?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d) : memory (?P<memory>\d+\.\d\d) GB"
)


def records(run: Path) -> dict[int, dict]:
    """The records of updates by number."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["update"]: row for row in rows if "loss" in row}


def lines(text: str) -> list[dict[str, float]]:
    """The numbers of each training line."""
    return [{name: float(value) for name, value in found.groupdict().items()} for found in LINE.finditer(text)]


def test_a_line_carries_update_and_total_both_losses_speed_time_left_and_memory(data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "run", 10, "--log-every=1u", "--label-smoothing=0.1", "--no-quiet")
    trained = call(*arguments)
    assert trained.code == 0, trained.err
    recorded, shown = records(tmp_path / "run"), lines(trained.err)
    assert [row["update"] for row in shown] == list(range(1, 11))
    for row in shown:
        record = recorded[int(row["update"])]
        assert (row["total"], row["epoch"]) == (10, record["epoch"])
        assert row["loss"] == pytest.approx(record["loss"], abs=1e-4)
        assert row["nll"] == pytest.approx(record["nll"], abs=1e-4) and row["nll"] != row["loss"]
        assert row["ppl"] == pytest.approx(math.exp(record["nll"]), rel=1e-3)
        assert row["speed"] > 0 and row["memory"] > 0.05
    assert [shown[-1][name] for name in ("hours", "minutes", "seconds")] == [0, 0, 0]


def test_the_total_is_the_last_update_also_of_a_resumed_run_and_of_one_that_epochs_end(data, tmp_path, call):
    for updates in (10, 20):
        trained = call(*train_arguments(data, tmp_path / "run", updates, "--no-quiet"))
        assert [row["total"] for row in lines(trained.err)][-1] == updates
    trained = call(*train_arguments(data, tmp_path / "epochs", 1000, "--max-epochs=2", "--no-quiet"))
    last = max(records(tmp_path / "epochs"))
    rows = lines(trained.err)
    assert rows[-1]["update"] == rows[-1]["total"] == last < 1000
    assert all(abs(row["total"] - last) <= 2 for row in rows if row["update"] > 1)
