"""`nmt status` shows the state of a run and why it ended, whatever the cause."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import CLIFF, ENVIRONMENT, NMT, records_of, small_disk, train_arguments, updates_of, wait_for
from refusals import assert_refused

from nmt.extensions.watch.cli.status import LATE_LINES
from nmt.runs import Checkpoints
from nmt.train import trainer


@pytest.fixture
def long_run(data, tmp_path):
    """A run that never ends, with a checkpoint and a log line."""
    command = [*NMT, *train_arguments(data, tmp_path / "run", 100_000)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    log = tmp_path / "run/train.log"
    wait_for(lambda: log.exists() and "Up. 20/" in log.read_text(), process, 120)
    yield process
    process.kill()
    process.wait()


def test_a_running_run_is_shown_with_its_process_and_a_killed_one_as_dead(long_run, tmp_path, call):
    run = tmp_path / "run"
    wait_for(lambda: (call("status", run, "--json").json["seconds_left"]) is not None, long_run, 60)
    told = call("status", run, "--json")
    assert told.code == 0
    values = told.json
    assert (values["state"], values["host"], values["pid"]) == ("running", socket.gethostname(), long_run.pid)
    assert values["total"] == 100_000 and values["tokens_per_second"] > 0 and values["seconds_left"] > 0
    assert 0 <= values["age_seconds"] < 30
    assert f"process {long_run.pid}" in call("status", run).out
    long_run.send_signal(signal.SIGKILL)
    long_run.wait()
    values = call("status", run, "--json").json
    assert (values["state"], values["reason"], values["seconds_left"]) == ("died", "killed", None)
    assert "kill -9" in call("status", run).out


def test_a_run_without_a_recent_update_shows_no_remaining_time(trained, tmp_path, call, monkeypatch):
    run = shutil.copytree(trained, tmp_path / "run")
    monkeypatch.setattr("nmt.extensions.watch.cli.status.holder_of", lambda path: "node7 pid 4711")
    status = {"total": 100, "tokens_per_second": 3051.0, "seconds_left": 296.0, "line_seconds": 100.0}
    (run / "status.json").write_text(json.dumps(status))
    for age, is_late in ((LATE_LINES * 100 - 60, False), (LATE_LINES * 100 + 179, True)):
        os.utime(run / "metrics.jsonl", (0, time.time() - age))
        values, shown = call("status", run, "--json").json, call("status", run).out
        assert (values["late"], values["seconds_left"]) == (is_late, None if is_late else 296.0)
        assert ("no update for 0:07:59; running on node7" in shown) == ("before that" in shown) == is_late
        assert ("ETA" in shown) != is_late
        last = rf"{updates_of(run)[-1]['loss']:.4f} : nll .*, update 40$"  # without a log line's mean in status.json
        assert re.search(rf"^training loss +{last}", shown, re.M)


def test_a_signal_is_given_as_the_reason(long_run, tmp_path, call):
    long_run.send_signal(signal.SIGUSR1)
    long_run.wait(timeout=60)
    values = call("status", tmp_path / "run", "--json").json
    last = updates_of(tmp_path / "run")[-1]["update"]
    assert (values["state"], values["reason"], values["update"]) == ("ended", "signal", last)
    assert values["message"] == f"stopped by SIGUSR1 after update {last}, which is saved"


def test_a_finished_run_shows_its_last_update_and_best_checkpoint(data, trained, call):
    values = call("status", trained, "--json").json
    logged = [line for line in (trained / "train.log").read_text().splitlines() if "Up. 40/40 : loss " in line]
    assert (values["state"], values["reason"]) == ("ended", "finished")
    assert values["message"] == "--max-updates 40 is reached"
    assert (values["update"], values["total"], values["loss_updates"]) == (40, 40, [31, 40])
    assert f" : loss {values['loss']:.4f} : nll {values['nll']:.4f} " in logged[-1]  # the same number as in the log
    losses = [row["loss"] for row in updates_of(trained)[-10:]]
    assert min(losses) < values["loss"] < max(losses)
    best = Checkpoints(trained).best()
    assert (values["best"], values["best_by"]) == (str(best), "loss")
    assert values["best_score"] == -Checkpoints(trained).score(best)  # a lower loss is better
    shown = call("status", trained).out
    assert "mean of updates 31 to 40" in shown
    assert "40/40 (100%)" in shown and f"{best} (loss {values['best_score']:.4f})" in shown


def test_epochs_and_patience_are_given_as_reasons(data, tmp_path, call):
    epochs = train_arguments(data, tmp_path / "epochs", 1000, "--max-epochs=1", "--no-valid-bleu", "--best-by=loss")
    assert call(*epochs).code == 0
    assert call("status", tmp_path / "epochs", "--json").json["message"] == "--max-epochs 1 is reached"
    patience = train_arguments(data, tmp_path / "run", 1000, "--patience=1", "--valid-every=1u", "--lr=1")
    assert call(*patience, "--no-valid-bleu", "--best-by=loss").code == 0
    values = call("status", tmp_path / "run", "--json").json
    assert (values["reason"], values["message"]) == ("patience", "1 validation without a new best loss")
    losses = records_of(tmp_path / "run")
    losses = {row["update"]: row["valid_loss"] for row in losses if "valid_loss" in row}
    assert values["best_score"] == min(losses.values()) == losses[int(values["best"].rpartition("-")[2])]


def test_divergence_and_an_error_are_given_as_reasons(data, tmp_path, call, monkeypatch):
    (tmp_path / "cliff.py").write_text(CLIFF)
    diverges = train_arguments(data, tmp_path / "run", 1000, f"--plugin={tmp_path / 'cliff.py'}", "--schedule=cliff")
    assert call(*diverges).code == 7
    values = call("status", tmp_path / "run", "--json").json
    assert (values["state"], values["reason"]) == ("ended", "diverged")
    assert values["loss_updates"][1] < values["update"]  # the last log line's loss was finite
    assert "not finite 10 times in a row" in values["message"]

    def fail(run, data):
        raise RuntimeError("the [roof] fell in")

    monkeypatch.setattr(trainer, "make_update", fail)
    assert call(*train_arguments(data, tmp_path / "other", 10)).code == 1
    values = call("status", tmp_path / "other", "--json").json
    assert (values["reason"], values["update"]) == ("error", None)
    assert "error: RuntimeError: the [roof] fell in" in call("status", tmp_path / "other").out


FULL = '''
from pathlib import Path
import torch
from nmt import register
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions

@register("criterion", "full", CrossEntropyOptions)
class Full(CrossEntropy):
    """Cross entropy on a device that holds not one pair from update 4 on, until it is larger."""
    def __init__(self, options, context):
        super().__init__(options, context)
        self.context = context

    def __call__(self, model, batch):
        if model.training and self.context.update >= 4 and not Path(__file__).with_name("larger").exists():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(model, batch)
'''


def test_too_little_memory_for_one_pair_is_given_as_the_reason(data, tmp_path, call):
    (tmp_path / "full.py").write_text(FULL)
    arguments = [
        f"--plugin={tmp_path / 'full.py'}",
        "--criterion=full",
        "--batch-tokens=40",
        "--save-every=3u",
        "--no-quiet",
    ]
    ended = call(*train_arguments(data, tmp_path / "run", 10, *arguments))
    assert ended.code == 5
    last = ended.err.splitlines()[-1]
    assert last.startswith("nmt: error: out of memory in a micro-batch of ") and "a single pair" in last
    values = call("status", tmp_path / "run", "--json").json
    assert (values["state"], values["reason"], values["update"]) == ("ended", "out of memory", 3)
    assert f"nmt: error: {values['message']}" == last
    assert f"ended: out of memory: {values['message'][:40]}" in call("status", tmp_path / "run").out
    (tmp_path / "larger").touch()
    assert call(*train_arguments(data, tmp_path / "run", 10, *arguments)).code == 0
    assert call("status", tmp_path / "run", "--json").json["message"] == "--max-updates 10 is reached"


def test_reaching_max_minutes_is_the_reason_and_a_higher_limit_resumes_the_run(data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "run", 100_000, "--no-quiet", "--best-by=loss")
    updates_before = 0
    for _ in range(2):
        ended = call(*arguments, "--max-minutes=0.01")
        assert ended.code == 0
        values = call("status", tmp_path / "run", "--json").json
        assert (values["state"], values["reason"]) == ("ended", "finished")
        assert values["message"] == "--max-minutes 0.01 is reached"
        assert values["update"] == updates_of(tmp_path / "run")[-1]["update"] > updates_before
        assert values["seconds_left"] is None
        updates_before = values["update"]
        said = [line for line in ended.err.splitlines() if "stopped: " in line]
        assert len(said) == 1 and "] stopped: --max-minutes 0.01 is reached; best loss " in said[0]
        assert Checkpoints(tmp_path / "run").path(values["update"]).exists()


def test_a_full_disk_is_given_as_the_reason_although_nothing_more_can_be_written(data, tmp_path, call, nmt):
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 600 << 10):
        command = [*NMT, *train_arguments(data, disk / "run", 100_000, "--save-every=200u", "--valid-every=100000u")]
        process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE)
        wait_for(lambda: (disk / "run/status.json").exists(), process, 120)
        with (disk / "filler").open("wb", buffering=0) as filler:
            for size in (4096, 1):  # to the last byte
                while True:
                    try:
                        filler.write(b"x" * size)
                    except OSError:
                        break
            while process.poll() is None:
                time.sleep(0.1)
                try:
                    filler.write(b"x" * 4096)
                except OSError:
                    continue
        assert process.communicate() and process.returncode == 5
        assert shutil.disk_usage(disk).free == 0
        values = call("status", disk / "run", "--json").json
        assert (values["state"], values["reason"]) == ("ended", "full disk")
        assert "free; make space" in values["message"]


def test_a_rejected_call_does_not_change_the_reason(data, trained, tmp_path, call):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    before = (run / "status.json").read_bytes()
    assert call(*train_arguments(data, run, 50, "--d-ff=128")).code == 2
    assert (run / "status.json").read_bytes() == before


def test_status_shows_older_runs_and_rejects_other_folders(data, trained, tmp_path, call):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "status.json").unlink()
    values = call("status", run, "--json").json
    assert (values["state"], values["reason"], values["update"], values["total"]) == ("unknown", None, 40, None)
    (run / "status.json").write_text('{"end": 3}')
    assert call("status", run).code == 4
    assert_refused(call("status", data), 2, "is not a run")
    assert call("status", tmp_path / "nowhere").code == 2


def test_several_runs_are_shown_in_a_table_and_found_in_a_folder(trained, data, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(call("status"), 2, "RUN")
    for name in ("one", "runs/two", "runs/three"):
        shutil.copytree(trained, name)
    shutil.copytree(data, "data")
    alone = {name: call("status", name, "--json").json for name in ("one", "runs/two", "runs/three")}
    found = call("status", "--json").json
    for values in (*alone.values(), *found):
        values["age_seconds"] = None  # of the second in which it was read
    assert found == [alone[name] for name in ("one", "runs/three", "runs/two")]
    assert [row["run"] for row in call("status", "runs", "one", "--json").json] == ["runs/three", "runs/two", "one"]
    header, *rows = call("status").out.splitlines()
    assert header.split()[:3] == ["run", "state", "update"] and [row.split()[0] for row in rows] == [
        "one", "runs/three", "runs/two",
    ]  # fmt: skip
    assert all("finished" in row and "40/40" in row and f"{alone['one']['loss']:.4f}" in row for row in rows)
    (tmp_path / "runs/three/status.json").write_text('{"end": 3}')
    some = call("status", "runs")
    assert some.code == 4 and "runs/three" in some.err and "runs/two" in some.out and "runs/three" not in some.out
    monkeypatch.chdir("one")
    assert [row["run"] for row in call("status", "--json").json] == ["."]
    shutil.copytree(trained, "inner")
    assert call("status", ".", "--json").json["run"] == "."  # a named run, although another run is in its folder
    assert [row["run"] for row in call("status", "--json").json] == [".", "inner"]


def test_checking_a_lock_does_not_acquire_it(long_run, tmp_path, call, nmt, data):
    for _ in range(3):
        call("status", tmp_path / "run")
    assert long_run.poll() is None
    assert_refused(nmt(*train_arguments(data, tmp_path / "run", 20)), 6, f"pid {long_run.pid}".encode())
