"""Training as a user runs it: an interrupted run resumes bit for bit, and nothing is lost (docs/reference/contract.md)."""

import importlib.util
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from conftest import (
    CLIFF,
    ENVIRONMENT,
    NMT,
    SLOW,
    SLOW_UPDATE,
    TINY,
    records_of,
    reseal,
    small_disk,
    train_arguments,
    wait_for,
    write_corpus,
)
from extras import EXTRAS, named_packages
from forks import forked_nmt
from refusals import assert_refused
from safetensors.numpy import load_file
from safetensors.torch import load, save

from nmt import registry
from nmt.artefact import Artefact
from nmt.cli.main import run as run_in_process
from nmt.cli.train import TRAIN_OPTIONS
from nmt.decoders.greedy import Greedy
from nmt.runs import Checkpoints, update_of
from nmt.train.periods import parse_periods
from nmt.train.run import Run
from nmt.train.update_log import EARLY_UPDATES


def weights(run: Path, update: int) -> dict[str, bytes]:
    return {
        name: array.tobytes()
        for name, array in load_file(run / f"checkpoints/update-{update}/model.safetensors").items()
    }


def assert_same_run(left: Path, right: Path, update: int) -> None:
    assert (left / "metrics.jsonl").read_bytes() == (right / "metrics.jsonl").read_bytes()
    assert weights(left, update) == weights(right, update)


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([forked_nmt(), *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory, nmt) -> Path:
    """20 updates in one go, in a process of its own."""
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    assert nmt(*train_arguments(data, output, 20)).returncode == 0
    return output


def test_a_run_killed_after_ten_updates_resumes_bit_for_bit(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    long = start(train_arguments(data, output, 100_000))
    wait_for(lambda: (output / "checkpoints/update-10/manifest.json").exists(), long, 120)
    long.kill()
    long.communicate()
    for newer in Checkpoints(output).all()[1:]:  # it may have run past update 10 before the kill
        shutil.rmtree(newer)
    assert call(*train_arguments(data, output, 20)).code == 0
    assert_same_run(output, undisturbed, 20)


def test_a_kill_during_a_save_loses_nothing_that_was_saved(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    saved = output / "checkpoints/update-10"
    partial = saved.with_name(".update-10.partial")
    while True:  # a save takes milliseconds, which a busy machine may miss
        run = start(train_arguments(data, output, 20))
        wait_for(lambda: (partial / "model.safetensors").exists() or saved.exists(), run, 120)
        run.kill()
        run.communicate()
        if partial.exists() and not saved.exists():
            break
        shutil.rmtree(output)
    assert call(*train_arguments(data, output, 20)).code == 0
    assert_same_run(output, undisturbed, 20)
    assert not partial.exists()


def test_after_a_signal_the_run_finishes_its_update_saves_and_names_the_signal(data, undisturbed, tmp_path, nmt):
    output = tmp_path / "run"
    run = start([*train_arguments(data, output, 100_000), "--save-every=100000u"])
    wait_for(lambda: (output / "metrics.jsonl").exists() and (output / "checkpoints").exists(), run, 120)
    time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143
    assert "stopped by signal 15" in (output / "train.log").read_text()
    saved = Checkpoints(output).all()
    assert len(saved) == 1
    lines = records_of(output)
    assert f"update-{lines[-1]['update']}" == saved[0].name


def test_an_update_too_long_to_finish_after_a_signal_is_abandoned_and_repeated_bit_for_bit(data, tmp_path, call):
    (tmp_path / "slow.py").write_text(SLOW_UPDATE)
    slow = ["--model=slow", f"--plugin={tmp_path / 'slow.py'}", "--max-tokens=20"]
    run = start([*train_arguments(data, tmp_path / "cut", 20), *slow])
    wait_for(lambda: (tmp_path / "slow-0").exists(), run, 120)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143
    assert [path.name for path in Checkpoints(tmp_path / "cut").all()] == ["update-10", "update-12"]
    assert [path.name for path in Checkpoints(tmp_path / "cut").due()] == ["update-10"]
    told = (tmp_path / "cut/train.log").read_text()
    assert "stopped by signal 15 after update 12, which is saved; update 13 was abandoned" in told
    (tmp_path / "go").touch()
    for name in ("cut", "whole"):
        assert call(*train_arguments(data, tmp_path / name, 20), *slow).code == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 20)


def test_an_abandoned_first_update_leaves_nothing_to_resume(data, tmp_path, call):
    (tmp_path / "slow.py").write_text(SLOW_UPDATE.replace("self.number == 13", "self.number == 1"))
    slow = ["--model=slow", f"--plugin={tmp_path / 'slow.py'}", "--max-tokens=20"]
    run = start([*train_arguments(data, tmp_path / "cut", 10), *slow])
    wait_for(lambda: (tmp_path / "slow-0").exists(), run, 120)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143 and not Checkpoints(tmp_path / "cut").all()
    assert "before the first update; nothing is saved" in (tmp_path / "cut/train.log").read_text()
    (tmp_path / "go").touch()
    (tmp_path / "cut/metrics.jsonl").write_text("{}\n")  # as if left by updates before a kill -9
    for name in ("cut", "whole"):
        done = call(*train_arguments(data, tmp_path / name, 10), *slow)
        assert (done.code, "no checkpoint was saved, so all updates are lost" in done.err) == (
            0,
            name == "cut",
        )
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 10)


def test_a_checkpoint_saved_only_for_a_signal_is_not_counted_and_is_deleted_after_the_next(data, tmp_path, call):
    output = tmp_path / "run"
    run = start(train_arguments(data, output, 100_000, "--keep-last=0"))
    wait_for(lambda: (output / "checkpoints/update-10/manifest.json").exists(), run, 120)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    stopped = Checkpoints(output)
    newest = update_of(stopped.all()[-1])
    if newest % 10:  # otherwise the signal came exactly at the update of a checkpoint
        assert [update_of(path) for path in stopped.due()] == list(range(10, newest, 10))
    end = max(20, newest + 10 - newest % 10)
    assert call(*train_arguments(data, output, end, "--keep-last=0")).code == 0
    assert [update_of(path) for path in stopped.all()] == list(range(10, end + 1, 10))


def test_a_flipped_byte_in_the_newest_checkpoint_falls_back_to_the_previous_one(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    damaged = output / "checkpoints/update-20/model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    again = call(*train_arguments(data, output, 20))
    assert again.code == 0
    assert "warning" in again.err and "update-20" in again.err
    assert_same_run(output, undisturbed, 20)


LATER_OPTIONS = (
    "ffn",
    "experts",
    "relative_distance",
    "attention_window",
    "init_from",
    "init_state",
    "freeze",
    "lora_rank",
)


def test_a_run_from_before_an_option_existed_resumes_bit_for_bit_and_translates(data, undisturbed, tmp_path, call):
    """Options missing from a saved file have their defaults, which keep the old behaviour; other values are rejected."""
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    for checkpoint in Checkpoints(output).all():
        for name, table in (("options.json", "options"), ("training.json", "settings")):
            content = json.loads((checkpoint / name).read_text())
            removed = [content[table].pop(key, None) for key in LATER_OPTIONS]
            assert any(value is not None for value in removed)
            reseal(checkpoint, name, json.dumps(content).encode())
    shutil.rmtree(output / "checkpoints/update-20")
    assert run_in_process(train_arguments(data, output, 20)) == 0
    assert_same_run(output, undisturbed, 20)
    translating = ["translate", "--model", output / "checkpoints/update-10", "--input", tmp_path / "text"]
    (tmp_path / "text").write_text("ban\n")
    assert call(*translating).code == 0
    changed = call(*train_arguments(data, output, 30), "--attention-window=3")
    assert changed.code == 2 and "attention_window: none -> 3" in changed.err.replace("None", "none")


def test_each_update_draws_different_random_numbers(tmp_path, call):
    """With constant weights, the loss of the only pair differs between updates only by dropout."""
    write_corpus(tmp_path / "one", 1, 1)
    languages = ["--source-lang=en", "--target-lang=de", "--subword=none"]
    assert call("prepare", *languages, f"--train={tmp_path / 'one'}", f"--output={tmp_path / 'data'}").code == 0
    for dropout, different in ((0, 1), (0.5, 4)):
        output, still = tmp_path / f"run-{dropout}", ("--optimizer=sgd", "--lr=1e-30", f"--dropout={dropout}")
        assert call(*train_arguments(tmp_path / "data", output, 4, *still, "--log-every=1u")).code == 0
        assert len({record["loss"] for record in records_of(output)}) == different


def test_the_minutes_of_a_run_are_summed_over_its_resumed_processes(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    newest = output / "checkpoints/update-20"
    state = json.loads((newest / "training.json").read_bytes())
    reseal(newest, "training.json", json.dumps(state | {"minutes": 50.0}).encode())
    assert call(*train_arguments(data, output, 30)).code == 0
    assert json.loads((output / "checkpoints/update-30/manifest.json").read_bytes())["minutes"] >= 50


def test_if_all_checkpoints_are_damaged_the_run_never_restarts_from_scratch(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    for checkpoint in Checkpoints(output).all():
        (checkpoint / "training.json").write_text("{}")
    assert_refused(call(*train_arguments(data, output, 30)), 4, "checkpoints are damaged")


def test_a_second_run_in_the_same_folder_is_rejected(data, tmp_path, call):
    output = tmp_path / "run"
    first = subprocess.Popen([*NMT, *train_arguments(data, output, 100_000)], env=ENVIRONMENT)
    try:
        wait_for(lambda: (output / "metrics.jsonl").exists(), first, 120)
        assert_refused(call(*train_arguments(data, output, 20)), 6, first.pid)
    finally:
        first.kill()
        first.communicate()


def test_settings_that_change_results_are_rejected_with_the_old_and_new_value(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    other = call(*train_arguments(data, output, 30), "--lr=0.001", "--d-ff=128")
    assert_refused(other, 2, "d_ff: 64 -> 128; lr: 0.005 -> 0.001")
    assert call(*train_arguments(data, output, 22), "--max-tokens=100", "--keep-last=3").code == 0


def test_a_finished_run_says_so_in_one_line_and_changes_no_file(data, undisturbed, tmp_path, call):
    run = shutil.copytree(undisturbed, tmp_path / "run")

    def content():
        files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in files}

    before = content()
    arguments = [argument for argument in train_arguments(data, run, 20) if argument != "--quiet"]
    for flags in ([], ["--json"], ["--tensorboard"] if importlib.util.find_spec("tensorboard") else []):
        again = call(*arguments, *flags)
        assert again.code == 0 and again.err.count("\n") == 1
        assert "nothing to do: the run ended at update 20 (to train longer, raise --max-updates)" in again.err
        assert content() == before
    status = run / "status.json"  # as left by a process killed between its last checkpoint and its end
    status.write_text(status.read_text().replace('"end"', '"of_another_version"'))
    assert call(*arguments).code == 0 and '"finished"' in status.read_text()


def test_non_finite_numbers_end_the_run_with_status_7_and_keep_the_checkpoints(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    plugin = tmp_path / "cliff.py"
    plugin.write_text(CLIFF)
    diverged = call(*train_arguments(data, output, 1000), f"--plugin={plugin}", "--schedule=cliff")
    assert_refused(diverged, 7, "10 times in a row", "--output")
    Artefact(output / "checkpoints/update-10", "checkpoint").check()
    lines = records_of(output)
    assert lines[-1]["skipped"] == 10 and lines[-1]["loss"] is None


def test_a_full_disk_keeps_the_older_checkpoint_and_is_status_5_if_the_last_save_fails(data, tmp_path, nmt):
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 600 << 10):
        assert_refused(nmt(*train_arguments(data, disk / "run", 40)), 5, "free; make space")
        kept = Checkpoints(disk / "run").newest_valid()
        assert kept is not None and kept.folder.name == "update-10"


def test_micro_batches_and_their_size_do_not_change_the_result(data, tmp_path, call):
    losses = []
    for name, size in (("whole", 100_000), ("cut", 60)):
        arguments = train_arguments(data, tmp_path / name, 10, f"--max-tokens={size}")
        assert call(*arguments, "--dropout=0").code == 0
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([record["loss"] for line in lines if "loss" in (record := json.loads(line))])
    assert len(losses[0]) == 10
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_best_and_the_last_checkpoints_are_kept(data, tmp_path, call):
    output = tmp_path / "run"
    assert (
        call(*train_arguments(data, output, 60), "--keep-last=2", "--dropout=0.5", "--lr=0.05", "--best-by=bleu").code
        == 0
    )
    lines = records_of(output)
    bleu = {f"update-{line['update']}": line["valid_bleu"] for line in lines if "valid_bleu" in line}
    assert set(bleu) == {"update-20", "update-40", "update-60"}
    best = min(bleu, key=lambda name: (-bleu[name], int(name[7:])))
    assert {path.name for path in Checkpoints(output).all()} == {"update-50", "update-60", best}
    assert Checkpoints(output).best() == output / "checkpoints" / best


def test_a_signal_during_validation_ends_the_run_at_once_and_resuming_validates(data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "cut", 20, "--valid-every=10u", "--valid-batch-tokens=1")
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW)
    run = start([*arguments, f"--plugin={plugin}", "--decoder=slow"])
    wait_for(lambda: (tmp_path / "validating").exists(), run, 120)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == 143
    assert [path.name for path in Checkpoints(tmp_path / "cut").all()] == ["update-10"]
    (tmp_path / "go").touch()
    assert call(*arguments, f"--plugin={plugin}", "--decoder=slow").code == 0
    whole = train_arguments(data, tmp_path / "whole", 20, "--valid-every=10u", "--valid-batch-tokens=1")
    assert call(*whole, f"--plugin={plugin}", "--decoder=slow").code == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 20)
    scores = [
        Checkpoints(tmp_path / name).score(tmp_path / name / "checkpoints/update-10") for name in ("cut", "whole")
    ]
    assert scores[0] == scores[1] is not None


def test_a_validation_batch_has_as_many_tokens_as_allowed(data, tmp_path, call, monkeypatch):
    rows, decode = [], Greedy.decode

    def counted(self, scorer, source, constraints):
        rows.append(len(source))
        return decode(self, scorer, source, constraints)

    monkeypatch.setattr(Greedy, "decode", counted)
    arguments = train_arguments(data, tmp_path / "run", 1, "--valid-every=1u", "--decoder=greedy")
    assert call(*arguments, "--valid-batch-tokens=1").code == 0
    assert rows == [1] * 20  # of the validation set


STATE_EDITS = {
    "an empty object": lambda state: {},
    "a list": lambda state: [],
    "a missing part": lambda state: {k: v for k, v in state.items() if k != "schedule"},
    "text for a number": lambda state: {**state, "progress": {**state["progress"], "update": "x"}},
    "a position between two updates": lambda state: {
        **state, "progress": {**state["progress"], "position": {"epoch": 1, "pairs": 3}}
    },
    "an epoch before the first": lambda state: {
        **state, "progress": {**state["progress"], "position": {"epoch": -1, "pairs": 0}}
    },
    "an epoch that no integer holds": lambda state: {
        **state, "progress": {**state["progress"], "position": {"epoch": 10**30, "pairs": 0}}
    },
    "a negative offset": lambda state: {**state, "metrics_offset": -1},
    "a loss scale of nothing": lambda state: {**state, "progress": {**state["progress"], "scale": {"factor": 0.0, "good": 0}}},
    "a loss scale without fp16": lambda state: {**state, "progress": {**state["progress"], "scale": {"factor": 2.0, "good": 0}}},
    "micro-batches of nothing": lambda state: {
        **state, "progress": {**state["progress"], "limit": {**state["progress"]["limit"], "max_micro_batch_tokens": 0}}
    },
}  # fmt: skip


@pytest.mark.parametrize("edit", STATE_EDITS)
def test_a_hostile_training_state_is_status_4(edit, data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    newest = output / "checkpoints/update-20"
    state = json.loads((newest / "training.json").read_bytes())
    reseal(newest, "training.json", json.dumps(STATE_EDITS[edit](state)).encode())
    again = call(*train_arguments(data, output, 30))
    assert (again.code, "bug" in again.err) == (4, False), again.err


@pytest.mark.parametrize("edit", ["another shape", "nothing of the optimizer", "a strange name"])
def test_hostile_training_tensors_are_status_4(edit, data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    newest = output / "checkpoints/update-20"
    tensors = load((newest / "training.safetensors").read_bytes())
    moments = [name for name in tensors if name.endswith("exp_avg")]
    if edit == "another shape":
        tensors[moments[0]] = torch.zeros(1)
    elif edit == "nothing of the optimizer":
        tensors = {}
    else:
        tensors["x.exp_avg"] = tensors.pop(moments[0])
    reseal(newest, "training.safetensors", save(tensors))
    again = call(*train_arguments(data, output, 30))
    assert (again.code, "bug" in again.err) == (4, False), again.err


@pytest.mark.parametrize(
    "change", [{"d_ff": 10**13}, {"d_k": -3}, {"rotary": True}, {"encoder_layers": 10**6}, {"tie": "half"}]
)
def test_a_hostile_or_foreign_model_is_status_4(change, undisturbed, tmp_path, capfd):
    model = tmp_path / "model"
    shutil.copytree(undisturbed / "checkpoints/update-20", model)
    options = json.loads((model / "options.json").read_bytes())
    options["options"] |= change
    reseal(model, "options.json", json.dumps(options).encode())
    (tmp_path / "text").write_text("ban\n")
    capfd.readouterr()
    assert run_in_process(["translate", f"--model={model}", f"--input={tmp_path / 'text'}"]) == 4
    assert "bug" not in capfd.readouterr().err


def test_a_replacement_interrupted_between_its_two_renames_loses_nothing(data, undisturbed, tmp_path, call):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    shutil.rmtree(output / "checkpoints/update-10")
    (output / "checkpoints/update-20").rename(output / "checkpoints/.update-20.replaced.partial")
    (output / "checkpoints/.update-20.partial").mkdir()
    again = call(*train_arguments(data, output, 30))
    assert again.code == 0, again.err
    lines = records_of(output)
    assert [line["update"] for line in lines if "loss" in line] == list(range(1, 31))


def test_a_newest_checkpoint_without_manifest_is_reported_and_kept_and_one_of_unknown_format_is_status_4(
    data, undisturbed, tmp_path, call
):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    newest = output / "checkpoints/update-25"
    newest.mkdir()
    (newest / "model.safetensors").write_bytes(b"precious")
    again = call(*train_arguments(data, output, 30))
    assert again.code == 0 and "update-25: no manifest.json" in again.err, again.err
    assert (output / "checkpoints/damaged-update-25/model.safetensors").read_bytes() == b"precious"
    manifest = output / "checkpoints/update-30/manifest.json"
    facts = json.loads(manifest.read_text())
    for other in ({}, {"files": []}, {"kind": "state"}):  # another format may change these
        manifest.write_text(json.dumps({**facts, "format": 99, **other}))
        assert_refused(call(*train_arguments(data, output, 30)), 4, "update-30 has format 99")
        assert manifest.exists()


def test_a_read_only_folder_is_reported_before_the_first_update(data, tmp_path, capfd):
    checkpoints = tmp_path / "run/checkpoints"
    checkpoints.mkdir(parents=True)
    with small_disk(checkpoints, 1 << 20):
        subprocess.run(["mount", "-o", "remount,ro", checkpoints], check=True)
        capfd.readouterr()
        assert run_in_process(train_arguments(data, tmp_path / "run", 20)) == 5
        assert "checkpoints cannot be written: Read-only file system" in capfd.readouterr().err
    assert not (tmp_path / "run/metrics.jsonl").read_bytes()


def test_with_checkpoints_without_a_manifest_the_run_never_restarts_from_scratch(data, tmp_path, call):
    (tmp_path / "run/checkpoints/update-20").mkdir(parents=True)
    (tmp_path / "run/metrics.jsonl").write_text("precious\n")
    again = call(*train_arguments(data, tmp_path / "run", 30))
    assert again.code == 4
    assert (tmp_path / "run/metrics.jsonl").read_text() == "precious\n"


def test_settings_that_affect_the_learning_rate_or_scores_cannot_change(data, tmp_path, capfd):
    linear = [argument for argument in train_arguments(data, tmp_path / "run", 20) if "inverse-sqrt" not in argument]
    linear.append("--warmup-updates=5")
    assert run_in_process([*linear, "--schedule=linear"]) == 0
    assert run_in_process([*linear, "--schedule=linear", "--no-quiet"]) == 0
    assert "--schedule linear ends there: to train longer, start again" in capfd.readouterr().err
    capfd.readouterr()
    assert run_in_process([*linear, "--schedule=linear", "--max-updates=30"]) == 2
    assert "max_updates: 20 -> 30" in capfd.readouterr().err
    assert run_in_process([*linear, "--schedule=linear", "--best-by=loss"]) == 2


@pytest.mark.parametrize(
    "wrong",
    ["--threads=0", "--patience=0", "--max-updates=-5", "--clip-norm=-1", "--clip-norm=nan", "--keep-last=-1", "--seed=-1",
     "--device=mps", "--device=cuda:99", "--bleu-tokenize=intll", "--valid-set=nope", "--best-by=luck", "--lr=inf", "--d-k=0",
     "--output="],
)  # fmt: skip
def test_invalid_values_are_reported_before_any_work(wrong, data, tmp_path, capfd):
    capfd.readouterr()
    assert run_in_process(train_arguments(data, tmp_path / "run", 20, wrong)) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run/checkpoints").exists()


def test_patience_ends_a_run_and_requires_validations(data, tmp_path, capfd):
    frozen = ["--schedule=constant", "--lr=1e-30", "--warmup-updates=0", "--valid-every=5u", "--patience=2"]
    assert run_in_process(train_arguments(data, tmp_path / "run", 1000, *frozen, "--no-quiet")) == 0
    assert "stopped: 2 validations without a new best loss; best loss " in capfd.readouterr().err
    assert Checkpoints(tmp_path / "run").all()[-1].name == "update-15"
    write_corpus(tmp_path / "train", 30, 1)
    prepare = [
        "prepare",
        "--source-lang=en",
        "--target-lang=de",
        f"--train={tmp_path / 'train'}",
        "--subword=none",
        "--quiet",
    ]
    assert run_in_process([*prepare, f"--output={tmp_path / 'alone'}"]) == 0
    assert run_in_process(train_arguments(tmp_path / "alone", tmp_path / "other", 20, "--patience=2")) == 2
    assert run_in_process(train_arguments(tmp_path / "alone", tmp_path / "other", 20)) == 0


def validations(run: Path) -> list[dict]:
    lines = records_of(run)
    return [line for line in lines if "valid_loss" in line]


def test_by_default_the_loss_decides_until_bleu_exceeds_the_threshold(data, tmp_path, monkeypatch, capfd):
    arguments = ["--valid-every=10u", "--keep-last=0", "--lr=0.02", "--dropout=0.3", "--no-quiet"]
    assert run_in_process(train_arguments(data, tmp_path / "loss", 80, *arguments, "--best-by=loss")) == 0
    scores = validations(tmp_path / "loss")
    threshold = sorted(row["valid_bleu"] for row in scores)[len(scores) // 2]
    switch = next(i for i, row in enumerate(scores) if row["valid_bleu"] > threshold)
    assert 0 < switch < len(scores) - 1
    monkeypatch.setattr("nmt.train.validating.MIN_BLEU", threshold)
    for updates in (40, 80):  # resuming keeps the state
        assert run_in_process(train_arguments(data, tmp_path / "auto", updates, *arguments)) == 0
    assert (tmp_path / "auto/metrics.jsonl").read_bytes() == (tmp_path / "loss/metrics.jsonl").read_bytes()
    best = max(scores[switch:], key=lambda row: row["valid_bleu"])
    checkpoints = Checkpoints(tmp_path / "auto")
    assert checkpoints.best() == checkpoints.path(best["update"])
    lowest = min(scores[:switch], key=lambda row: row["valid_loss"])
    of_loss = [path for path in checkpoints.ranked() if checkpoints.judged_by(path) == "loss"]
    assert of_loss[0] == checkpoints.path(lowest["update"]) and len(of_loss) == switch
    assert checkpoints.ranked()[-switch:] == of_loss  # although a score of -loss can exceed one of BLEU
    told = capfd.readouterr().err
    assert "the loss selects the best checkpoint until BLEU exceeds 5" in told
    reason = f"stopped: --max-updates 80 is reached; best bleu {best['valid_bleu']:.4f} at update {best['update']}"
    assert reason in told
    state = json.loads((checkpoints.path(80) / "training.json").read_text())["progress"]
    assert (state["judged_by"], state["best_update"]) == ("bleu", best["update"])
    assert state["stalled"] == (80 - best["update"]) // 10


def test_a_run_from_an_earlier_version_resumes_with_its_old_criterion_for_the_best(data, undisturbed, tmp_path, call):
    """The state of the run names no score, but its settings do."""
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    newest = output / "checkpoints/update-20"
    state = json.loads((newest / "training.json").read_bytes())
    del state["progress"]["judged_by"], state["progress"]["best_update"]
    state["settings"]["best_by"] = "bleu"
    reseal(newest, "training.json", json.dumps(state).encode())
    assert call(*train_arguments(data, output, 30, "--valid-every=5u")).code == 0
    after = json.loads((output / "checkpoints/update-30/training.json").read_bytes())
    assert (after["progress"]["judged_by"], after["settings"]["best_by"]) == ("bleu", "bleu")
    again = call(*train_arguments(data, output, 30, "--no-valid-bleu"))
    assert_refused(again, 2, "best checkpoint by bleu, which these settings do not compute")


def test_without_bleu_the_loss_decides(data, tmp_path, capfd):
    assert run_in_process(train_arguments(data, tmp_path / "run", 20, "--no-valid-bleu", "--no-quiet")) == 0
    [row] = validations(tmp_path / "run")
    assert row["valid_bleu"] is None
    assert (
        f"stopped: --max-updates 20 is reached; best loss {row['valid_loss']:.4f} at update 20"
        in capfd.readouterr().err
    )


def test_a_run_that_cannot_start_leaves_no_folder_and_one_without_validation_set_says_so(data, tmp_path, capfd):
    write_corpus(tmp_path / "train", 100, 1)
    prepared = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'train'}", "--quiet"]
    assert run_in_process([*prepared, "--subword=none", f"--output={tmp_path / 'data'}", "--no-joint-vocabulary"]) == 0
    arguments = [word for word in train_arguments(tmp_path / "data", tmp_path / "run", 1) if word != "--quiet"]
    assert run_in_process(arguments) == 2
    assert "--tie all needs " in capfd.readouterr().err and not (tmp_path / "run").exists()
    assert run_in_process([*arguments, "--tie=none"]) == 0
    told = capfd.readouterr().err
    assert "no validation set" in told and "newest checkpoint: " in told and "best checkpoint: " not in told
    assert run_in_process([*train_arguments(data, tmp_path / "other", 1)]) == 0
    assert "no validation set" not in (tmp_path / "other/train.log").read_text()


def test_a_run_resumes_with_its_settings_file(data, undisturbed, tmp_path, capfd):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    settings = f"--config={undisturbed / 'settings.toml'}"
    assert run_in_process(["train", settings, f"--output={output}", "--max-updates=22", "--quiet"]) == 0
    assert Checkpoints(output).all()[-1].name == "update-22"


def test_adafactor_and_plateau_resume_bit_for_bit(data, tmp_path, capfd):
    parts = [
        "--optimizer=adafactor",
        "--schedule=plateau",
        "--plateau-patience=1",
        "--valid-every=5u",
        "--warmup-updates=3",
    ]
    assert run_in_process(train_arguments(data, tmp_path / "whole", 20, *parts)) == 0
    assert run_in_process(train_arguments(data, tmp_path / "cut", 10, *parts)) == 0
    assert run_in_process(train_arguments(data, tmp_path / "cut", 20, *parts)) == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 20)


def test_an_all_blank_validation_set_is_invalid_input(data, trained, call, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"blank.{language}").write_text("\n \n\u200b\n")
    texts = ["--source-lang=en", "--target-lang=de", "--train", data.parent / "train", "--valid", tmp_path / "blank"]
    assert call("prepare", *texts, f"--vocabulary={data}", "--output", tmp_path / "data").code == 0
    assert_refused(call(*train_arguments(tmp_path / "data", tmp_path / "run", 1)), 3, "'blank'")
    average = ["average", trained, "--last=2", "--output", tmp_path / "mean", "--score", tmp_path / "data"]
    assert_refused(call(*average), 3, "'blank'")
    assert not (tmp_path / "run").exists() and not (tmp_path / "mean").exists()


def test_a_run_rejects_a_different_validation_set_of_the_same_name(data, undisturbed, tmp_path, capfd):
    (tmp_path / "other").mkdir()
    write_corpus(tmp_path / "other/dev", 20, 3)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={data.parent / 'train'}", "--subword=none"]
    assert run_in_process([*prepare, f"--valid={tmp_path / 'other/dev'}", f"--output={tmp_path / 'data'}"]) == 0
    shutil.copytree(undisturbed, tmp_path / "run")
    assert run_in_process(train_arguments(tmp_path / "data", tmp_path / "run", 22)) == 2
    assert "valid_set_sha256: " in capfd.readouterr().err
    sets = [f"--valid={data.parent / 'dev'}", f"--valid=dev.source={tmp_path / 'other/dev'}"]
    assert run_in_process([*prepare, *sets, f"--output={tmp_path / 'more'}"]) == 0
    assert run_in_process(train_arguments(tmp_path / "more", tmp_path / "run", 22)) == 0


def test_the_validation_at_the_end_of_a_run_affects_neither_learning_rate_nor_patience(data, tmp_path, capfd):
    """At this rate no weight changes: each validation after the first is no better, and lowers the rate."""
    parts = ["--schedule=plateau", "--lr=1e-20", "--plateau-patience=1", "--plateau-every", "--patience=6"]
    parts += ["--valid-every=4u", "--warmup-updates=0", "--no-valid-bleu"]
    for name, ends in (("whole", (20,)), ("cut", (10, 15, 20))):
        for end in ends:
            assert run_in_process(train_arguments(data, tmp_path / name, end, *parts)) == 0
    whole, cut = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut"))
    updates = [row for row in map(json.loads, whole) if "loss" in row]
    assert [row for row in map(json.loads, cut) if "loss" in row] == updates
    assert len({row["lr"] for row in updates}) == 4


def test_a_validation_by_time_changes_only_the_log(data, tmp_path, capfd, monkeypatch):
    """The weights, records, best checkpoint, learning rate and the end by patience are unchanged."""
    agree = Run.agree

    def a_minute_for_each_update(run):
        agree(run)
        run.seconds = 60.0 * run.progress.update

    monkeypatch.setattr(Run, "agree", a_minute_for_each_update)
    parts = ["--schedule=plateau", "--lr=0.05", "--plateau-patience=1", "--best-by=bleu", "--patience=2"]
    logs = []
    for name, every in (("plain", "10u"), ("clock", "10u,3m")):
        assert run_in_process(train_arguments(data, tmp_path / name, 60, *parts, f"--valid-every={every}")) == 0
        logs.append((tmp_path / name / "train.log").read_text())
    plain, clock = ([int(update) for update in re.findall(r"\[valid\] Ep\. \d+ : Up\. (\d+) ", log)] for log in logs)
    last = records_of(tmp_path / "plain")[-1]["update"]
    assert 20 <= last < 60 and plain == list(range(10, last + 1, 10))  # patience ended it
    assert clock == [
        update for update in range(1, last + 1) if update % 10 in (0, 3, 6, 9)
    ]  # each validation restarts the minutes
    assert_same_run(tmp_path / "clock", tmp_path / "plain", last)
    folders = [Checkpoints(tmp_path / name) for name in ("plain", "clock")]
    assert len({tuple(folder.name for folder in checkpoints.all()) for checkpoints in folders}) == 1
    assert len({checkpoints.best().name for checkpoints in folders}) == 1
    for name in ("plain", "clock"):  # with plateau, updates and epochs of --valid-every must stay, minutes need not
        assert run_in_process(train_arguments(data, tmp_path / name, 60, *parts, "--valid-every=10u,7m")) == 0
    assert run_in_process(train_arguments(data, tmp_path / "clock", 60, *parts, "--valid-every=9u,3m")) == 2


def test_every_preset_also_validates_by_time():
    for name, preset in registry.presets().items():
        every = preset.values.get("valid_every", TRAIN_OPTIONS["valid_every"].default)
        units = {unit for _, unit in parse_periods(every)}
        assert "m" in units and units & {"u", "e"}, name


def test_a_run_ends_below_its_last_learning_rate(data, tmp_path, capfd):
    """At this rate no weight changes: the second validation is no better than the first, and lowers the rate."""
    parts = ["--schedule=plateau", "--lr=1e-20", "--plateau-patience=1", "--plateau-every", "--stop-lr=7e-21"]
    arguments = train_arguments(data, tmp_path / "run", 40, *parts, "--valid-every=3u", "--no-valid-bleu")
    for said in ("below --stop-lr 7e-21", "--schedule plateau ends there"):
        assert run_in_process([*arguments, "--warmup-updates=0", "--no-quiet"]) == 0
        assert said in capfd.readouterr().err
    assert Checkpoints(tmp_path / "run").all()[-1].name == "update-6"


LSTMS = {
    "gnmt": ["--hidden-size=16", "--attention-size=16", "--encoder-layers=2", "--decoder-layers=3", "--clip-updates=8"],
    "deep-att": [
        "--hidden-size=16", "--embedding-size=12", "--attention-size=12", "--memory-size=16",
        "--encoder-layers=2", "--decoder-layers=2",
    ],
}  # fmt: skip


@pytest.mark.parametrize("model", LSTMS)
def test_an_lstm_resumes_bit_for_bit_with_changed_clipping_and_optimizer(model, data, tmp_path, capfd):
    parts = [f"--model={model}", *LSTMS[model], "--optimizer=adam-sgd", "--adam-updates=7", "--sgd-lr-factor=10"]

    def arguments(output, updates):
        own = [word for word in train_arguments(data, output, updates) if word not in TINY]
        return [*own, "--batch-tokens=400", "--threads=1", "--matmul=torch", "--valid-every=5u", *parts]

    assert run_in_process(arguments(tmp_path / "whole", 10)) == 0
    assert run_in_process(arguments(tmp_path / "cut", 5)) == 0
    assert run_in_process(arguments(tmp_path / "cut", 10)) == 0
    assert_same_run(tmp_path / "cut", tmp_path / "whole", 10)


@pytest.mark.parametrize("model", ["transformer", "rnnsearch"])
def test_bf16_trains_on_the_cpu(model, data, tmp_path, capfd):
    sizes = {
        "transformer": [],
        "rnnsearch": ["--hidden-size=24", "--embedding-size=16", "--attention-size=16", "--maxout-size=16"],
    }
    common = [a for a in train_arguments(data, tmp_path / "run", 10) if model == "transformer" or a not in TINY]
    more = ["--batch-tokens=400", "--threads=1"] if model == "rnnsearch" else []
    assert run_in_process([*common, *more, f"--model={model}", "--precision=bf16", *sizes[model]]) == 0
    lines = records_of(tmp_path / "run")
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]


@pytest.fixture
def wandb_runs(monkeypatch) -> list[dict]:
    """A stand-in for the package wandb: the arguments of each run, its values by step, and whether it was finished."""
    runs: list[dict] = []

    def init(**given):
        run = {"given": given, "numbers": {}, "finished": False}
        runs.append(run)
        return types.SimpleNamespace(
            log=lambda values, step: run["numbers"].setdefault(step, {}).update(values),
            finish=lambda: run.update(finished=True),
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return runs


def test_wandb_gets_the_values_of_tensorboard_and_a_resumed_run_keeps_its_id(data, tmp_path, wandb_runs):
    output = tmp_path / "run"
    for updates in (10, 20):
        assert run_in_process(train_arguments(data, output, updates, "--wandb")) == 0
    first, second = wandb_runs
    assert first["given"]["id"] == second["given"]["id"] and first["given"] == second["given"]
    assert (first["given"]["name"], first["given"]["resume"], first["given"]["dir"]) == ("run", "allow", output)
    assert first["finished"] and second["finished"]
    rows = records_of(output)
    losses = {row["update"]: row["loss"] for row in rows if "loss" in row}
    bleu = {row["update"]: row["valid_bleu"] for row in rows if "valid_bleu" in row}
    numbers = {**first["numbers"], **second["numbers"]}
    early = [
        first + update for first in (0, 10) for update in EARLY_UPDATES
    ]  # of each process; the others are at 10 and 20
    assert list(numbers) == sorted({*early, 10, 20}) and numbers[1]["loss"] == losses[1]
    assert {step: values["valid/bleu"] for step, values in numbers.items() if "valid/bleu" in values} == bleu
    assert all({"loss", "nll", "speed", "lr"} <= values.keys() for values in numbers.values())


def test_wandb_without_its_package_says_how_to_install_it(data, tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run_in_process(train_arguments(data, tmp_path / "run", 10, "--wandb")) == 2
    told = capfd.readouterr().err
    assert "--wandb" in told and named_packages(told) == EXTRAS["wandb"]


def test_tensorboard_gets_the_losses_and_the_validation(data, tmp_path, capfd):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run_in_process(train_arguments(data, tmp_path / "run", 20, "--tensorboard")) == 0
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    lines = records_of(tmp_path / "run")
    bleu = [line["valid_bleu"] for line in lines if "valid_bleu" in line]
    assert [event.step for event in events.Scalars("loss")] == sorted({*EARLY_UPDATES, 10, 20})
    assert [event.value for event in events.Scalars("valid/bleu")] == pytest.approx(bleu, rel=1e-6)


@pytest.mark.parametrize(
    ("flags", "doubt"),
    [
        (
            ["--criterion=r-drop", "--dropout=0", "--source-word-dropout=0.1", "--norm-position=pre"],
            "--criterion r-drop has no effect without dropout",
        ),
        (["--criterion=r-drop", "--dropout=0.1"], "--criterion r-drop with --norm-position post"),
        (
            ["--criterion=in-place-distillation", "--encoder-layers=2"],
            "--criterion in-place-distillation with --norm-position post",
        ),
        (["--criterion=r-drop", "--dropout=0.1", "--norm-position=pre"], None),
        (["--optimizer=schedule-free", "--schedule=cosine"], "--optimizer schedule-free needs no decay"),
        (["--optimizer=schedule-free", "--schedule=constant", "--lr=0.001"], None),
        (["--schedule=plateau"], None),
    ],
)
def test_incompatible_settings_are_reported(flags, doubt, data, call, tmp_path):
    arguments = [word for word in train_arguments(data, tmp_path / "run", 2) if word != "--quiet"]
    told = call(*arguments, "--warmup-updates=1", *flags)
    assert told.code == 0, told.err
    texts = "without dropout", "norm-position post", "needs no decay", "depends on validations"
    doubts = [text for text in texts if text in told.err]
    assert len(doubts) == (doubt is not None) and (doubt or "") in told.err


def test_a_schedule_that_needs_validations_is_rejected_without_them(tmp_path, call):
    write_corpus(tmp_path / "train", 60, 1)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", "--subword=none", f"--train={tmp_path / 'train'}"]
    assert call(*prepare, f"--output={tmp_path / 'data'}", "--quiet").code == 0
    told = call(*train_arguments(tmp_path / "data", tmp_path / "run", 2, "--schedule=plateau", "--no-quiet"))
    assert told.code == 0 and "--schedule plateau depends on validations, but there are none" in told.err


# Without a GPU, sizes must be chosen

SIZED = [
    name
    for name in registry.names("model")
    if any(option.is_size for option in registry.options_within("model", name, registry.choice_from()))
]


@pytest.mark.parametrize("name", SIZED)
def test_default_sizes_are_rejected_on_a_cpu_with_a_working_command(name, data, call, tmp_path):
    asked = ["train", f"--data={data}", f"--output={tmp_path / 'run'}", f"--model={name}", "--device=cpu"]
    refused = call(*asked)
    assert refused.code == 2 and refused.err.count("\n") == 1 and not (tmp_path / "run").exists()
    small = [p for p in registry.presets().values() if p.on_cpu and p.values.get("model") == name]
    assert all(f"--preset {preset.name} ({preset.on_cpu})" in refused.err for preset in small)
    assert small or "--layers" in refused.err
    if small:
        corrected = shlex.split(refused.err.rpartition(": nmt ")[2])
        assert corrected[:-2] == asked and corrected[-1] in [preset.name for preset in small]
        assert call(*corrected, "--dump-config").code == 0


def test_presets_for_a_cpu_choose_sizes():
    """Each preset has some smaller and no larger size than its model's defaults."""
    for preset in filter(lambda preset: preset.on_cpu, registry.presets().values()):
        options = registry.options_of(registry.options_class_of("model", preset.values["model"]))
        numbers = {option.name: option.default for option in options if option.is_size and type(option.default) is int}
        given = {name: preset.values[name] for name in numbers.keys() & preset.values.keys()}
        assert given and all(given[name] <= numbers[name] for name in given), preset.name


def given_sizes(tmp_path, trained):
    """Flags that choose sizes, or make a choice unnecessary, by name."""
    (tmp_path / "sizes.toml").write_text("d_model = 32\n")
    (tmp_path / "preset.toml").write_text('preset = "transformer-base"\n')
    return {
        "preset": ["--preset=transformer-base"],
        "size": ["--encoder-layers=1"],
        "path of a size": ["--model.d-ff=64"],
        "file": [f"--config={tmp_path / 'sizes.toml'}"],
        "file with a preset": [f"--config={tmp_path / 'preset.toml'}"],
        "init_from": [f"--init-from={trained}"],
        "run": [f"--output={trained}"],
        "dry run": ["--dry-run"],
    }


@pytest.mark.parametrize(
    "kind", ["preset", "size", "path of a size", "file", "file with a preset", "init_from", "run", "dry run"]
)
def test_explicitly_chosen_sizes_are_accepted(kind, trained, call, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr("nmt.train.trainer.train", lambda *_: ran.append("train") or pytest.fail("reached"))
    preview = "nmt.extensions.watch.previews.dry_run.DryRun.__init__"
    monkeypatch.setattr(preview, lambda *_: ran.append("dry run") or pytest.fail("reached"))
    asked = ["train", "--data=d", f"--output={tmp_path / 'run'}", "--device=cpu"]
    with pytest.raises(pytest.fail.Exception):
        call(*asked, *given_sizes(tmp_path, trained)[kind])
    assert ran
    ran.clear()
    for flags in (
        [],
        ["--dropout=0.2"],
        ["--max-updates=10"],
        ["--device=auto"] if not torch.cuda.is_available() else [],
    ):
        assert call(*asked, *flags).code == 2 and not ran


def test_a_gpu_trains_default_sizes(call, tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.device.choose_device", lambda name: torch.device("cuda:0"))
    monkeypatch.setattr("nmt.train.trainer.train", lambda *_: pytest.fail("reached"))
    with pytest.raises(pytest.fail.Exception):
        call("train", "--data=d", f"--output={tmp_path / 'run'}")


def test_default_sizes_in_a_sweep_are_rejected_before_any_run(data, call, tmp_path):
    (tmp_path / "sweep.toml").write_text(f'[train]\ndata = "{data}"\ndevice = "cpu"\ndropout = [0.1, 0.2]\n')
    sweep = ["sweep", tmp_path / "sweep.toml", f"--output={tmp_path / 'out'}", "--dry-run"]
    assert_refused(call(*sweep), 2, "--preset", str(tmp_path / "sweep.toml"))
    with (tmp_path / "sweep.toml").open("a") as file:
        file.write('preset = "transformer-mini"\n')
    assert call(*sweep).code == 0
