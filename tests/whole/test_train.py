"""Training as a user runs it: an interrupted run goes on bit for bit, and nothing is lost (contract 11-19)."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, NMT, train_arguments
from safetensors.numpy import load_file

from nmt.checkpoint import Checkpoints


def weights(run: Path, update: int) -> dict[str, bytes]:
    return {
        name: array.tobytes()
        for name, array in load_file(run / f"checkpoints/update-{update}/model.safetensors").items()
    }


def assert_same_run(left: Path, right: Path, update: int) -> None:
    assert (left / "metrics.jsonl").read_bytes() == (right / "metrics.jsonl").read_bytes()
    assert weights(left, update) == weights(right, update)


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*NMT, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE)


def wait_for(condition, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory, nmt) -> Path:
    """20 updates in one go, in a process of its own."""
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    assert nmt(*train_arguments(data, output, 20)).returncode == 0
    return output


def test_ten_updates_a_kill_and_ten_more_are_twenty_bit_for_bit(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    long = start(train_arguments(data, output, 100_000))
    wait_for(lambda: (output / "checkpoints/update-10/manifest.json").exists(), long)
    long.kill()
    long.communicate()
    for newer in Checkpoints(output).all()[1:]:  # it may have run on past update 10 before the kill
        shutil.rmtree(newer)
    assert nmt(*train_arguments(data, output, 20)).returncode == 0
    assert_same_run(output, undisturbed, 20)


def test_a_kill_in_the_middle_of_a_save_costs_nothing_that_was_saved(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    partial = output / "checkpoints/.update-10.partial"
    run = start(train_arguments(data, output, 20))
    wait_for(lambda: (partial / "model.safetensors").exists(), run)
    run.kill()
    run.communicate()
    assert not (output / "checkpoints/update-20").exists()
    assert nmt(*train_arguments(data, output, 20)).returncode == 0
    assert_same_run(output, undisturbed, 20)
    assert not partial.exists()


def test_a_signal_finishes_the_update_saves_and_says_which(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    run = start([*train_arguments(data, output, 100_000), "--save-every=100000u"])
    wait_for(lambda: (output / "metrics.jsonl").exists() and (output / "checkpoints").exists(), run)
    time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143
    saved = Checkpoints(output).all()
    assert len(saved) == 1
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert f"update-{lines[-1]['update']}" == saved[0].name


def test_a_flipped_byte_in_the_newest_checkpoint_falls_back_to_the_one_before(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    damaged = output / "checkpoints/update-20/model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    again = nmt(*train_arguments(data, output, 20))
    assert again.returncode == 0
    assert b"warning" in again.stderr and b"update-20" in again.stderr
    assert_same_run(output, undisturbed, 20)


def test_checkpoints_that_are_all_damaged_are_never_a_start_from_zero(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    for checkpoint in Checkpoints(output).all():
        (checkpoint / "training.json").write_text("{}")
    again = nmt(*train_arguments(data, output, 30))
    assert again.returncode == 4
    assert b"none of them whole" in again.stderr


def test_a_second_run_in_the_folder_is_refused(data, tmp_path, nmt):
    output = tmp_path / "run"
    first = start(train_arguments(data, output, 100_000))
    try:
        wait_for(lambda: (output / "metrics.jsonl").exists(), first)
        second = nmt(*train_arguments(data, output, 20))
        assert second.returncode == 6
        assert f"pid {first.pid}".encode() in second.stderr
    finally:
        first.kill()
        first.communicate()


def test_other_mathematics_are_refused_with_old_and_new(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    other = nmt(*train_arguments(data, output, 30), "--lr=0.001", "--d-ff=128")
    assert other.returncode == 2
    assert b"d_ff: 64 -> 128; lr: 0.005 -> 0.001" in other.stderr
    assert nmt(*train_arguments(data, output, 22), "--max-tokens=100", "--keep-last=3").returncode == 0


def test_a_finished_run_says_so_and_does_nothing(data, undisturbed, tmp_path, nmt):
    before = (undisturbed / "metrics.jsonl").read_bytes()
    arguments = [argument for argument in train_arguments(data, undisturbed, 20) if argument != "--quiet"]
    again = nmt(*arguments)
    assert again.returncode == 0
    assert b"nothing to do" in again.stderr
    assert (undisturbed / "metrics.jsonl").read_bytes() == before


def test_numbers_that_are_no_longer_finite_end_the_run_with_7_and_keep_the_checkpoints(
    data, undisturbed, tmp_path, nmt
):
    output = tmp_path / "run"
    diverged = nmt(*train_arguments(data, output, 1000), "--schedule=constant", "--lr=1e30", "--warmup-updates=0")
    assert diverged.returncode == 7, diverged.stderr
    assert b"10 times in a row" in diverged.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_keeps_the_older_checkpoint_and_ends_with_5_when_the_last_save_fails(data, tmp_path, nmt):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        full = nmt(*train_arguments(data, disk / "run", 40))
        assert full.returncode == 5, full.stderr
        assert b"free; make room" in full.stderr
        kept = Checkpoints(disk / "run").newest_valid()
        assert kept is not None and kept.folder.name == "update-10"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_micro_batches_and_their_size_change_no_result(data, tmp_path, nmt):
    losses = []
    for name, size in (("whole", 100_000), ("cut", 60)):
        arguments = train_arguments(data, tmp_path / name, 10, f"--max-tokens={size}")
        assert nmt(*arguments, "--dropout=0").returncode == 0
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([record["loss"] for line in lines if "loss" in (record := json.loads(line))])
    assert len(losses[0]) == 10
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_best_and_the_last_checkpoints_are_kept(data, tmp_path, nmt):
    output = tmp_path / "run"
    assert nmt(*train_arguments(data, output, 60), "--keep-last=2").returncode == 0
    checkpoints = Checkpoints(output)
    names = {path.name for path in checkpoints.all()}
    assert {"update-50", "update-60"} <= names
    assert names == {"update-50", "update-60", checkpoints.ranked()[0].name}


def test_a_signal_during_validation_ends_at_once_and_the_validation_is_done_on_going_on(data, tmp_path, nmt):
    arguments = train_arguments(data, tmp_path / "cut", 20, "--valid-every=10u", "--valid-batch-tokens=1")
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW)
    run = start([*arguments, f"--plugin={plugin}", "--decoder=slow"])
    wait_for(lambda: (tmp_path / "validating").exists(), run)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143
    assert [path.name for path in Checkpoints(tmp_path / "cut").all()] == ["update-10"]
    (tmp_path / "go").touch()
    assert nmt(*arguments, f"--plugin={plugin}", "--decoder=slow").returncode == 0
    whole = train_arguments(data, tmp_path / "whole", 20, "--valid-every=10u", "--valid-batch-tokens=1")
    assert nmt(*whole, f"--plugin={plugin}", "--decoder=slow").returncode == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 20)
    scores = [
        Checkpoints(tmp_path / name).score(tmp_path / name / "checkpoints/update-10") for name in ("cut", "whole")
    ]
    assert scores[0] == scores[1] is not None


SLOW = '''
"""A search that waits, until a file allows it to go on; each batch holds one sentence."""
import time
from dataclasses import dataclass
from pathlib import Path
from nmt import register
from nmt.decoders.greedy import Greedy, GreedyOptions

@dataclass(frozen=True, kw_only=True)
class SlowOptions(GreedyOptions):
    pass

@register("decoder", "slow", SlowOptions)
class Slow(Greedy):
    """Greedy search, slowly."""
    def search(self, scorer, source):
        (Path(__file__).parent / "validating").touch()
        if not (Path(__file__).parent / "go").exists():
            time.sleep(0.5)
        return super().search(scorer, source)
'''
