"""Files made, planted or kept open by others where commands read and write theirs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import current_thread

import pytest
from conftest import small_disk, train_arguments, write_corpus
from forks import forked_nmt
from refusals import assert_refused


@pytest.mark.parametrize("name", ["metrics.jsonl", "train.log"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_run_does_not_write_through_links_or_wait_for_pipes(data, tmp_path, call, name, kind):
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    precious.write_text("kept\n")
    (run / name).symlink_to(precious) if kind == "link" else os.mkfifo(run / name)
    assert_refused(call(*train_arguments(data, run, 1)), 5, str(run / name))
    assert precious.read_text() == "kept\n"


@pytest.mark.parametrize(
    "name", ["status.json", "checkpoints/update-40/training.json", "checkpoints/update-40/manifest.json"]
)
def test_no_command_reads_a_pipe_in_a_run_folder(trained, tmp_path, call, name):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for command in (
        ["status", run],
        ["average", "--run", run, "--last", "2", "--output", tmp_path / "out"],
        ["report", run],
    ):
        call(*command)  # ends


def test_a_status_without_updates_is_shown(trained, tmp_path, call):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "status.json").write_text('{"total": 0}')
    assert call("status", run).code == 0


def test_a_temporary_folder_of_another_user_is_not_used(trained, tmp_path, call):
    planted = tmp_path / ".model.partial"
    planted.mkdir()
    planted.chmod(0o777)
    average = ["average", "--run", trained, "--last", "2", "--output", tmp_path / "model"]
    assert_refused(call(*average), 5, planted)
    planted.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(planted, 65534, 65534)
        assert call(*average).code == 5 and [path.name for path in planted.iterdir()] in ([], [".lock"])
        os.chown(planted, 0, 0)
    assert call(*average).code == 0 and not planted.exists()


def test_worker_processes_import_nothing_from_the_working_directory(tmp_path):
    write_corpus(tmp_path / "train", 2000, 1)
    for name in ("multiprocessing", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('from the working directory')")
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", "--train=train", "--subword=none", "--workers=2"]
    script = str(Path(sys.executable).with_name("nmt"))
    for number, command in enumerate(([sys.executable, "-m", "nmt"], [script])):
        whole = [*command, *arguments, f"--output=data{number}"]
        done = subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "working directory" not in done.stderr, done.stderr


@pytest.mark.parametrize("redirected", [True, False])
def test_an_input_file_that_is_also_stdout_is_not_read_forever(trained, tmp_path, redirected):
    text = tmp_path / "text"
    text.write_text("ban\n")
    arguments = ["translate", f"--model={trained}", *([] if redirected else [f"--input={text}"])]
    with text.open("rb") as stdin, text.open("ab") as stdout:
        done = subprocess.run(
            [forked_nmt(), *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 2 and "would be read again" in done.stderr and text.read_text() == "ban\n"


def test_a_full_disk_is_reported_with_the_name_of_the_output(trained, tmp_path, nmt):
    disk, text = tmp_path / "disk", tmp_path / "text"
    disk.mkdir()
    text.write_text("ban sol\n" * 3000)
    with small_disk(disk, 8 << 10):
        full = nmt("translate", f"--model={trained}", f"--input={text}", f"--output={disk / 'out'}", "--decoder=greedy")
        assert full.returncode == 5 and not list(disk.iterdir())
    assert f"{disk / 'out'} cannot be written: No space left on device" in full.stderr.decode()
    assert "bytes needed" in full.stderr.decode() or " free" in full.stderr.decode()


def test_files_of_artefacts_and_checkpoints_are_never_overwritten(data, trained, tmp_path, call):
    before = (data / "manifest.json").read_bytes()
    refused = call("shortlist", "--data", data, "--output", data / "manifest.json", "--overwrite")
    assert_refused(refused, 2, "a folder that nmt wrote")
    assert (data / "manifest.json").read_bytes() == before
    run = shutil.copytree(trained, tmp_path / "run")
    refused = call("average", "--run", run, "--last", "2", "--output", run / "checkpoints/update-99")
    assert_refused(refused, 2, "inside a run's checkpoints folder")
    assert not (run / "checkpoints/update-99").exists()


def test_an_unreadable_checkpoints_folder_does_not_end_a_run(data, tmp_path, call, monkeypatch):
    from nmt.runs import Checkpoints

    named = Checkpoints.named

    def fail(self):
        if current_thread().name == "saver":
            raise OSError(116, os.strerror(116), str(self.folder))
        return named(self)

    monkeypatch.setattr(Checkpoints, "named", fail)
    done = call(*train_arguments(data, tmp_path / "run", 10, "--keep-last=1"))
    assert done.code == 0 and "Stale file handle" in done.err
    assert (tmp_path / "run/checkpoints/update-10/manifest.json").is_file()


def test_settings_that_would_take_minutes_to_read_are_status_2(tmp_path, call):
    path = tmp_path / "settings.toml"
    path.write_text(".".join(["a"] * 100_000) + " = 1\n")
    assert_refused(call("train", f"--config={path}"), 2, path, "TOML")
    assert_refused(call("train", "--config=/dev/zero"), 2, "longer than 1 MiB")


def test_json_of_many_gigabytes_is_status_4(tmp_path, call):
    model = tmp_path / "model"
    model.mkdir()
    with (model / "manifest.json").open("wb") as file:
        file.truncate(1 << 36)
    assert_refused(call("translate", f"--model={model}"), 4, model / "manifest.json")


def test_utf_16_without_a_byte_order_mark_is_reported_as_such(tmp_path, call):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_bytes("the cat sat on the mat\n".encode("utf-16-le") * 20)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'train'}", "--subword=none"]
    assert_refused(call(*prepare, f"--output={tmp_path / 'data'}"), 3, "train.en:1:2", "UTF")


def test_invisible_lines_are_blank_to_doctor_and_in_json(trained, tmp_path, nmt):
    (tmp_path / "a.en").write_text("a b c\n\u200b\n\ufeff \u2060\n")
    (tmp_path / "a.de").write_text("x y z\nx y\n\u00ad\n")
    shown = nmt("doctor", f"--train={tmp_path / 'a'}", "--source-lang=en", "--target-lang=de", "--json")
    counts = {finding["check"]: finding["count"] for finding in json.loads(shown.stdout)["findings"]}
    assert (counts["blank-one-side"], counts["blank-both-sides"]) == (1, 1)
    line = json.dumps({"source": "\u200b"}).encode() + b"\n"
    done = nmt("translate", f"--model={trained}", "--input-form=json", input=line)
    assert done.returncode == 0, done.stderr
