"""The average of the weights, from `nmt train --ema` or an optimizer, is validated, saved and used by a run."""

import gc
import math
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from conftest import kill_after_update_10, records_of, reseal, train_arguments
from refusals import assert_refused
from safetensors.torch import load_file, save

from nmt.runs import Checkpoints
from nmt.train import trainer

EMA = "--ema=0.9"
SCHEDULE_FREE = "--optimizer=schedule-free"
EACH_AVERAGE = pytest.mark.parametrize("average", [EMA, SCHEDULE_FREE])
FILES = ("model.safetensors", "training.safetensors")


def saved(run: Path, update: int, file: str = FILES[0]) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/update-{update}" / file)


def trained_weights(run: Path, update: int) -> dict[str, torch.Tensor]:
    """The weights before they are averaged."""
    tensors = saved(run, update, FILES[1])
    return {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}


def assert_same_bytes(one: Path, other: Path, update: int) -> None:
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    for file in FILES:
        path = f"checkpoints/update-{update}/{file}"
        assert (one / path).read_bytes() == (other / path).read_bytes(), file


class Trail:
    """The weights after each update of a run in float64, and the calls of `make_update` with a NaN gradient."""

    def __init__(self) -> None:
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.applied: dict[int, bool] = {}
        self.bad: set[int] = set()
        self.calls = 0

    def average(self, last: int, decay: float) -> dict[str, torch.Tensor]:
        """The moving average after an update, computed from its definition."""
        average, count = self.weights[0], 0
        for update in range(1, last + 1):
            if self.applied[update]:
                count += 1
                share = 1 - min(decay, (1 + count) / (10 + count))
                average = {
                    name: value + share * (self.weights[update][name] - value) for name, value in average.items()
                }
        return average


@pytest.fixture
def trail(monkeypatch) -> Trail:
    trail, make = Trail(), trainer.make_update

    def weights(run):
        return {name: value.detach().double() for name, value in run.model.named_parameters()}

    def make_update(run, data):
        trail.weights.setdefault(0, weights(run))
        trail.calls += 1
        with monkeypatch.context() as patch:
            if trail.calls in trail.bad:
                patch.setattr("torch.nn.utils.clip_grad_norm_", lambda *_: torch.tensor(math.nan))
            stats = make(run, data)
        update = run.progress.update
        trail.weights[update], trail.applied[update] = weights(run), stats.applied
        return stats

    monkeypatch.setattr(trainer, "make_update", make_update)
    return trail


def assert_averaged(trail: Trail, run: Path, update: int) -> None:
    found, expected = saved(run, update), trail.average(update, 0.9)
    assert expected.keys() <= found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-5, atol=1e-7)
        assert torch.equal(trained_weights(run, update)[name].double(), trail.weights[update][name])


def test_the_average_follows_its_recursion_leaves_updates_unchanged_and_is_used_to_translate(
    data, tmp_path, call, trail
):
    run, plain = tmp_path / "run", tmp_path / "plain"
    assert call(*train_arguments(data, run, 20, EMA)).code == 0
    assert_averaged(trail, run, 10)
    assert_averaged(trail, run, 20)
    by_hand = {name: value.float() for name, value in trail.average(20, 0.9).items()}
    assert call(*train_arguments(data, plain, 20)).code == 0
    for name, value in saved(plain, 20).items():
        assert torch.equal(value, trained_weights(run, 20)[name])
        assert not torch.equal(value, saved(run, 20)[name])
    model = shutil.copytree(run / "checkpoints/update-20", tmp_path / "model")
    reseal(model, FILES[0], save(by_hand))
    (tmp_path / "text").write_text("ban bas dera\nkili mura\n")
    text = ("--source", tmp_path / "text", "--target", tmp_path / "text")
    values = [list(map(float, call("score", "--model", given, *text).out.split())) for given in (run, model, plain)]
    assert values[0] == pytest.approx(values[1], abs=1e-4) and values[0] != pytest.approx(values[2], abs=1e-2)


@EACH_AVERAGE
def test_validation_and_the_average_command_use_the_averaged_weights(average, data, tmp_path, call):
    run = tmp_path / "run"
    assert call(*train_arguments(data, run, 40, average)).code == 0
    measured = {row["update"]: row["valid_loss"] for row in records_of(run) if "valid_loss" in row}
    folders = [run / f"checkpoints/update-{update}" for update in measured]
    named = [f"--checkpoint={folder}" for folder in folders]
    averaged = call("average", *named, "--output", tmp_path / "mean", "--score", data, "--json").json
    losses = [averaged["scores"][str(folder)]["loss"] for folder in folders]
    assert losses == pytest.approx(list(measured.values()), abs=1e-5)
    one, other, mean = saved(run, 20), saved(run, 40), load_file(tmp_path / "mean" / FILES[0])
    for name, value in mean.items():
        torch.testing.assert_close(value, (one[name] + other[name]) / 2)


def test_no_copy_of_the_averaged_weights_stays_after_a_validation(data, tmp_path, call, monkeypatch):
    copies, alive, build = [], [], trainer.Run.evaluated_model

    def evaluated(run):
        gc.collect()
        alive.append(sum(copy() is not None for copy in copies))
        model = build(run)
        copies.append(weakref.ref(model))
        return model

    monkeypatch.setattr(trainer.Run, "evaluated_model", evaluated)
    assert call(*train_arguments(data, tmp_path / "run", 30, EMA, "--valid-every=10u")).code == 0
    assert alive == [0, 0, 0]


@pytest.mark.parametrize("flag", [EMA, SCHEDULE_FREE, "--optimizer=muon"])
def test_a_killed_run_resumes_bit_for_bit(flag, data, tmp_path, call):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    kill_after_update_10(train_arguments(data, cut, 100_000, flag), cut)
    for run in (cut, whole):
        assert call(*train_arguments(data, run, 20, flag)).code == 0
    assert_same_bytes(cut, whole, 20)


def test_after_a_rollback_schedule_free_weights_interpolate_their_sequence_and_its_average(data, tmp_path, call, trail):
    trail.bad, run = set(range(14, 24)), tmp_path / "run"
    flags = (SCHEDULE_FREE, "--on-divergence=rollback", "--no-valid-bleu")
    assert call(*train_arguments(data, run, 30, *flags)).code == 0
    assert trail.calls == 23 + 20  # it went on after update 10
    for update in (20, 30):
        state, averaged = saved(run, update, FILES[1]), saved(run, update)
        for name, value in trained_weights(run, update).items():
            assert torch.equal(value.double(), trail.weights[update][name])
        for number, name in enumerate(trail.weights[update]):
            y = torch.lerp(state[f"{number}.z"], averaged[name], 0.9)
            assert torch.equal(y, trained_weights(run, update)[name])


def test_two_averages_of_the_weights_cannot_be_combined(data, tmp_path, call):
    assert_refused(call(*train_arguments(data, tmp_path / "run", 10, EMA, SCHEDULE_FREE)), 2, "--ema", "--optimizer")


def test_a_skipped_update_does_not_change_the_average(data, tmp_path, call, trail):
    trail.bad = {7, 8}
    assert call(*train_arguments(data, tmp_path / "run", 20, EMA)).code == 0
    assert [trail.applied[update] for update in (6, 7, 8, 9)] == [True, False, False, True]
    assert_averaged(trail, tmp_path / "run", 20)


def test_a_rollback_restores_the_average(data, tmp_path, call, trail):
    trail.bad = set(range(14, 24))
    flags = (EMA, "--on-divergence=rollback", "--no-valid-bleu")
    assert call(*train_arguments(data, tmp_path / "run", 30, *flags)).code == 0
    assert trail.calls == 23 + 20  # it went on after update 10
    assert_averaged(trail, tmp_path / "run", 30)


def test_the_decay_cannot_be_changed_dropped_or_added_when_resuming(data, tmp_path, call):
    run = tmp_path / "run"
    assert call(*train_arguments(data, run, 10, EMA)).code == 0
    for flags, change in ((("--ema=0.99",), "ema: 0.9 -> 0.99"), ((), "ema: 0.9 -> 0.0")):
        assert_refused(call(*train_arguments(data, run, 20, *flags)), 2, change)
    assert call(*train_arguments(data, tmp_path / "plain", 10)).code == 0
    assert not trained_weights(tmp_path / "plain", 10)
    assert "ema: 0.0 -> 0.9" in call(*train_arguments(data, tmp_path / "plain", 20, EMA)).err
    assert_refused(call(*train_arguments(data, tmp_path / "other", 20, "--ema=1")), 2, "--ema")


@pytest.mark.parametrize("edit", ["missing", "another shape", "not finite"])
def test_hostile_trained_weights_are_status_4(edit, data, tmp_path, call):
    run = tmp_path / "run"
    assert call(*train_arguments(data, run, 10, EMA)).code == 0
    tensors = saved(run, 10, FILES[1])
    name = next(name for name in tensors if name.startswith("weights."))
    if edit == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(1) if edit == "another shape" else tensors[name] * math.nan
    reseal(run / "checkpoints/update-10", FILES[1], save(tensors))
    again = call(*train_arguments(data, run, 20, EMA))
    assert (again.code, "bug" in again.err) == (4, False), again.err


@pytest.mark.parametrize("average", [("--optimizer=sgd", EMA), (SCHEDULE_FREE,)])
def test_a_run_started_from_a_model_averages_from_its_weights(average, data, trained, tmp_path, call):
    still = (*average, "--lr=1e-30", f"--init-from={trained}")
    assert call(*train_arguments(data, tmp_path / "run", 1, *still)).code == 0
    begun, wanted = saved(tmp_path / "run", 1), load_file(Checkpoints(trained).best() / FILES[0])
    assert all(torch.equal(value, wanted[name]) for name, value in begun.items())


def test_a_dry_run_includes_the_average_in_the_disk_space(data, tmp_path, call):
    plain, averaged = (
        call(*train_arguments(data, tmp_path / "run", 20, "--dry-run", "--json", *flags)).json for flags in ((), (EMA,))
    )
    assert averaged["checkpoint"] - plain["checkpoint"] == 4 * plain["parameters"]
