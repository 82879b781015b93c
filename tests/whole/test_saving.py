"""Checkpoints are written during training, and a failed one never loses another (contract: "Files", "Training")."""

import errno
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from conftest import small_disk, train_arguments
from refusals import assert_refused
from safetensors.torch import load_file, save

from nmt.artefact import MANIFEST, new_folder
from nmt.checkpoint import load_model, weights_of, write_model
from nmt.errors import ResourceError
from nmt.files import write_file
from nmt.runs import Checkpoints, update_of
from nmt.train import saving, trainer, update
from nmt.train.report import Report

PLAIN = ("--no-valid-bleu", "--keep-last=0")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_updates_continue_while_a_checkpoint_is_written_without_changing_its_content(
    data, trained, tmp_path, call, monkeypatch
):
    later, write, make, wrote = threading.Event(), saving.write_model, trainer.make_update, []

    def slow_write(folder, *arguments):
        assert threading.current_thread() is not threading.main_thread() and later.wait(60)
        write(folder, *arguments)
        wrote.append(folder.name)

    def make_update(run, batches):
        stats = make(run, batches)
        if run.progress.update == 17:
            assert not wrote
            later.set()
        return stats

    monkeypatch.setattr(saving, "write_model", slow_write)
    monkeypatch.setattr(trainer, "make_update", make_update)
    assert call(*train_arguments(data, tmp_path / "run", 40)).code == 0
    assert wrote == [f".update-{number}.partial" for number in (10, 20, 30, 40)]
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()
    for number in (10, 40):
        for name in ("model.safetensors", "training.safetensors"):
            made, expected = (run / f"checkpoints/update-{number}" / name for run in (tmp_path / "run", trained))
            assert made.read_bytes() == expected.read_bytes()


def test_without_memory_for_a_thread_the_run_waits_while_a_checkpoint_is_written(
    data, trained, tmp_path, call, monkeypatch
):
    write, threads = saving.write_model, set()

    def record(*arguments):
        threads.add(threading.current_thread())
        write(*arguments)

    copy = saving._copy

    def copy_and_ask_for_too_much(run):
        threading.stack_size(1 << 46)  # of later threads: more than any address space
        return copy(run)

    monkeypatch.setattr(saving, "write_model", record)
    monkeypatch.setattr(saving, "_copy", copy_and_ask_for_too_much)
    try:
        assert call(*train_arguments(data, tmp_path / "run", 40)).code == 0
    finally:
        threading.stack_size(0)
    assert threads == {threading.main_thread()}
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(("failures", "code", "kept"), [(2, 0, [30, 40]), (3, 5, [])])
def test_two_consecutive_failed_saves_warn_and_the_third_ends_the_run(
    failures, code, kept, data, tmp_path, call, monkeypatch
):
    write, left = saving.write_model, iter(range(failures))

    def failing(*arguments):
        if next(left, None) is not None:
            raise OSError(5, "Input/output error")
        write(*arguments)

    monkeypatch.setattr(saving, "write_model", failing)
    result = call(*train_arguments(data, tmp_path / "run", 40, *PLAIN))
    assert result.code == code, result.err
    assert [f"checkpoint of update {number} not saved" in result.err for number in (10, 20, 30)] == [True, True, False]
    assert result.err.count("Input/output error") == failures and result.err.count("checkpoints/update-") == failures
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == kept


def test_a_moved_run_is_reported_and_no_new_folder_takes_its_name(data, tmp_path, call, monkeypatch):
    written = saving._write

    def write(run, path, *rest):
        if run.folder.exists() and update_of(path) == 20:
            run.folder.rename(tmp_path / "moved")
        written(run, path, *rest)

    monkeypatch.setattr(saving, "_write", write)
    done = call(*train_arguments(data, tmp_path / "run", 100))
    assert_refused(done, 5, f"{tmp_path}/run/checkpoints: the folder was moved or removed during the run")
    assert not (tmp_path / "run/checkpoints").exists()
    monkeypatch.undo()
    call(*train_arguments(data, tmp_path / "whole", 30))
    assert call(*train_arguments(data, tmp_path / "moved", 30)).code == 0
    assert (tmp_path / "moved/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_unwritable_metrics_count_as_a_failed_save(data, tmp_path, call, monkeypatch):
    left, flush = iter(range(2)), Report.offset

    def failing(report):
        if next(left, None) is not None:
            raise ResourceError("metrics.jsonl cannot be written")
        return flush(report)

    monkeypatch.setattr(Report, "offset", failing)
    result = call(*train_arguments(data, tmp_path / "run", 40, *PLAIN))
    assert result.code == 0 and result.err.count("not saved: metrics.jsonl cannot be written") == 2
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == [30, 40]


def test_a_training_error_waits_for_the_checkpoint_being_written(data, tmp_path, call, monkeypatch):
    begun, make, write = threading.Event(), trainer.make_update, saving.write_model

    def slow_write(*arguments):
        begun.wait(30)
        write(*arguments)

    def make_update(run, batches):
        if run.progress.update == 12:
            threading.Timer(0.5, begun.set).start()
            raise ResourceError("an error of update 13")
        return make(run, batches)

    monkeypatch.setattr(saving, "write_model", slow_write)
    monkeypatch.setattr(trainer, "make_update", make_update)
    assert call(*train_arguments(data, tmp_path / "run", 40, *PLAIN)).code == 5
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == [10]


def test_each_file_of_a_checkpoint_is_synced_once(trained, tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())), sync(handle))
    )
    source = next(iter(Checkpoints(trained).all()))
    with new_folder(tmp_path / "made", "checkpoint", {}) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        (folder / MANIFEST).unlink()
    files = {f".made.partial/{path.relative_to(source)}" for path in source.rglob("*")}
    wanted = sorted(str(tmp_path / name) for name in {*files, ".made.partial", "."})
    assert sorted(synced) == wanted


def test_disk_space_for_the_whole_checkpoint_is_checked_before_writing_it(trained, tmp_path):
    (tmp_path / "disk").mkdir()
    loaded = load_model(trained, torch.device("cpu"))
    refused = pytest.raises(ResourceError, match=r"at least 1,000,000 bytes needed, \d[\d,]* free; make space")
    with small_disk(tmp_path / "disk", 64 << 10):
        with refused, new_folder(tmp_path / "disk/model", "model", {}, needed=1_000_000) as folder:
            write_model(folder, weights_of(loaded.model), loaded.facts, loaded.pipeline)
        assert not list((tmp_path / "disk").iterdir())


def test_a_disk_without_free_inodes_is_reported_with_its_path_and_no_file_is_left(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 1 << 20):
        subprocess.run(["mount", "-o", "remount,nr_inodes=4", str(disk)], check=True)
        (disk / "a").touch()
        for more in (2, 1):  # no inode for the lock, none for the folder
            refused = pytest.raises(ResourceError, match=r"disk/.*free, but no inode; make space")
            with refused, new_folder(disk / "model", "model", {}):
                pass
            assert not list(disk.glob(".*"))
            (disk / f"b{more}").touch()
        with pytest.raises(ResourceError, match="but no inode"):
            write_file(disk / "file", b"x")


def test_a_damaged_validation_set_is_detected_at_the_start(data, tmp_path, call):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    flipped(next(copy.glob("valid*.target.bin")))
    assert_refused(call(*train_arguments(copy, tmp_path / "run", 40, *PLAIN)), 4, "target.bin")
    assert not (tmp_path / "run").exists()


def test_an_error_during_validation_keeps_the_previous_updates(data, tmp_path, call, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error", "valid.source.bin")

    with monkeypatch.context() as patch:
        patch.setattr("nmt.train.validating.validate", fail)
        failed = call(*train_arguments(data, tmp_path / "run", 40, "--save-every=1000u", "--valid-every=15u"))
        assert_refused(failed, 5, "valid.source.bin")
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == [15]
    assert call(*train_arguments(data, tmp_path / "run", 40, "--save-every=1000u", "--valid-every=15u")).code == 0
    assert call(*train_arguments(data, tmp_path / "plain", 40, "--save-every=1000u", "--valid-every=15u")).code == 0
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (tmp_path / "plain/metrics.jsonl").read_bytes()


def test_a_pair_that_does_not_fit_into_memory_is_named(data, tmp_path, call, monkeypatch):
    objective = update.Updater._backward

    def without_memory(updater, counted, idle, factors):
        if updater.optimizer.state:
            raise update._OutOfMemory(counted[0].split(1)[0], counted[0].cells, alone=True)
        return objective(updater, counted, idle, factors)

    monkeypatch.setattr(update.Updater, "_backward", without_memory)
    failed = call(*train_arguments(data, tmp_path / "run", 40, *PLAIN))
    assert_refused(failed, 5, "from a single pair, with ", " source tokens: '")
    words = failed.err.split("source tokens: '")[1].split("'")[0].split()
    assert words and all(word.isalpha() or word.isdigit() for word in words)


@pytest.fixture(params=[float("nan"), float("inf")])
def not_finite(request, trained, tmp_path) -> Path:
    """A copy of a model with one non-finite weight and correct checksums."""
    loaded = load_model(trained, torch.device("cpu"))
    weights = {name: tensor.clone() for name, tensor in weights_of(loaded.model).items()}
    next(iter(weights.values())).view(-1)[3] = request.param
    with new_folder(tmp_path / "broken", "model", {}) as folder:
        write_model(folder, weights, loaded.facts, loaded.pipeline)
    return tmp_path / "broken"


def test_non_finite_weights_are_reported_with_file_and_tensor(not_finite, data, trained, tmp_path, call):
    name = next(iter(weights_of(load_model(trained, torch.device("cpu")).model)))
    asked = [
        ["average", "--checkpoint", not_finite, "--output", tmp_path / "mean"],
        ["translate", "--model", not_finite, "--input", os.devnull],
        [*train_arguments(data, tmp_path / "run", 40), f"--init-from={not_finite}"],
    ]
    for arguments in asked:
        assert_refused(call(*arguments), 4, name, "model.safetensors")
    assert not (tmp_path / "mean").exists()


def test_averaging_names_the_tensor_of_different_shape(trained, tmp_path, call):
    first, second = Checkpoints(trained).all()[:2]
    weights = load_file(second / "model.safetensors")
    name = sorted(weights)[0]
    weights[name] = weights[name][:-1].contiguous()
    with new_folder(tmp_path / "other", "model", {}) as folder:
        shutil.copytree(second, folder, dirs_exist_ok=True)
        (folder / MANIFEST).unlink()
        (folder / "model.safetensors").write_bytes(save(weights))
    refused = call("average", "--checkpoint", first, tmp_path / "other", "--output", tmp_path / "mean")
    assert_refused(refused, 4, name, "other/model.safetensors")


class FullDisk:
    """A metrics file that writes half a line and then fails; its first truncation fails too."""

    def __init__(self, file):
        self.file, self.is_full, self.cuts = file, True, 0

    def write(self, data):
        if self.is_full and len(data) > 1:
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def truncate(self, size):
        self.cuts += 1
        if self.cuts == 1:  # after the failed write
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.file.truncate(size)

    def close(self):
        self.file.close()


def test_an_incomplete_metrics_line_is_truncated_before_the_next_write(tmp_path):
    report = Report(tmp_path, [])
    report.record({"update": 1})
    report.offset()
    report._metrics = disk = FullDisk(report._metrics)
    report.record({"update": 2})
    with pytest.raises(ResourceError, match=r"metrics\.jsonl cannot be written: No space"):
        report.offset()
    assert len((tmp_path / "metrics.jsonl").read_bytes().split(b"\n")) == 2  # half a line is left
    disk.is_full = False
    report.record({"update": 3})
    assert report.offset() == (tmp_path / "metrics.jsonl").stat().st_size
    report.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [row["update"] for row in rows] == [1, 2, 3]


def test_metrics_emptied_by_another_program_are_not_padded_with_zeros(tmp_path):
    report = Report(tmp_path, [])
    report.record({"update": 1})
    report.offset()
    os.truncate(tmp_path / "metrics.jsonl", 0)
    report.record({"update": 2})
    report.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"update": 2}\n'
