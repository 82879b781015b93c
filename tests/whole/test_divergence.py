"""A run that diverges returns to the previous state, skips the data and continues more slowly (contract: "Training")."""

import json
import math
import random

import pytest
import torch
from conftest import CLIFF, records_of, train_arguments, updates_of
from refusals import assert_refused
from safetensors.numpy import load_file

from nmt.data.loader import Loader
from nmt.runs import Checkpoints, update_of
from nmt.train import trainer
from nmt.train.progress import LossWatch
from nmt.train.run import REDUCED_UPDATES

ROLLBACK = ("--on-divergence=rollback", "--no-valid-bleu", "--keep-last=0")


@pytest.fixture
def poison(monkeypatch):
    """`poison(first, last)` makes the gradient NaN on the data of updates first to last of a normal run."""

    def poison_data(first: int, last: int) -> None:
        stream = Loader.updates
        numbers: dict[tuple[int, int], int] = {}

        def updates(loader, position):
            if not numbers:
                for number, data in zip(range(1, 200), stream(loader, type(position)()), strict=False):
                    numbers[data.after.epoch, data.after.pairs] = number
            return stream(loader, position)

        make = trainer.make_update

        def make_update(run, data):
            with monkeypatch.context() as patch:
                if first <= numbers[data.after.epoch, data.after.pairs] <= last:
                    patch.setattr("torch.nn.utils.clip_grad_norm_", lambda *_: torch.tensor(math.nan))
                return make(run, data)

        monkeypatch.setattr(Loader, "updates", updates)
        monkeypatch.setattr(trainer, "make_update", make_update)

    return poison_data


def test_non_finite_updates_are_rolled_back_and_skipped_and_the_learning_rate_is_halved(data, tmp_path, call, poison):
    poison(14, 23)
    arguments = train_arguments(data, tmp_path / "run", 40, *ROLLBACK)
    told = call(*(argument for argument in arguments if argument != "--quiet"))
    assert told.code == 0, told.err
    assert "diverged at update 23: loss or gradient was not finite 10 times in a row; back at update 10" in told.err
    assert f"half the learning rate until update {10 + REDUCED_UPDATES} (rollback 1 of 3)" in told.err
    updates = updates_of(tmp_path / "run")
    assert [record["update"] for record in updates] == list(range(1, 41))
    assert all(record["loss"] is not None and record["skipped"] == 0 for record in updates)
    assert [record.get("rollbacks") for record in updates] == [None] * 10 + [1] * 30
    state = json.loads((tmp_path / "run/checkpoints/update-40/training.json").read_text())
    assert state["progress"]["rollbacks"] == [{"at": 23, "to": 10}]
    assert (tmp_path / "run/checkpoints/diverged-update-20").is_dir()
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == [10, 20, 30, 40]
    assert_refused(call(*train_arguments(data, tmp_path / "plain", 40, *ROLLBACK[1:])), 7, "--on-divergence")
    rates = [[record["lr"] for record in updates_of(tmp_path / run)] for run in ("run", "plain")]
    assert rates[0][:10] == rates[1][:10]
    assert rates[0][10:23] == [0.5 * rate for rate in rates[1][10:]]
    assert call(*train_arguments(data, tmp_path / "plain", 40, *ROLLBACK)).code == 0  # as the error says
    assert records_of(tmp_path / "plain") == records_of(tmp_path / "run")


@pytest.mark.parametrize(
    ("ends", "more"),
    [([14], ()), ([20], ("--optimizer=adam-sgd", "--adam-updates=5", "--sgd-lr-factor=1")), ([14, 20], ())],
)
def test_a_run_with_a_rollback_resumes_bit_for_bit(ends, more, data, tmp_path, call, poison):
    poison(14, 23)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert call(*train_arguments(data, whole, 40, *ROLLBACK, *more)).code == 0
    for end in (*ends, 40):
        assert call(*train_arguments(data, cut, end, *ROLLBACK, *more)).code == 0
    assert (whole / "metrics.jsonl").read_bytes() == (cut / "metrics.jsonl").read_bytes()
    files = [run / "checkpoints/update-40/model.safetensors" for run in (whole, cut)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_log_line_of_only_skipped_updates_has_no_loss(data, tmp_path, call, poison):
    poison(3, 3)
    assert call(*train_arguments(data, tmp_path / "run", 4, "--log-every=1u", "--clip-norm=1")).code == 0
    lines = [line for line in (tmp_path / "run/train.log").read_text().splitlines() if " : L.r. " in line]
    assert [" : no loss : " in line for line in lines] == [False, False, True, False]


def test_the_fourth_divergence_ends_the_run_with_status_7(data, tmp_path, call):
    plugin = tmp_path / "cliff.py"
    plugin.write_text(CLIFF)
    arguments = train_arguments(data, tmp_path / "run", 1000, f"--plugin={plugin}", "--schedule=cliff", *ROLLBACK)
    assert_refused(call(*arguments), 7, "after 3 rollbacks", "--output")
    log = (tmp_path / "run/train.log").read_text()
    assert [f"rollback {number} of 3" in log for number in (1, 2, 3, 4)] == [True, True, True, False]
    names = {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert {"update-10", "diverged-update-20", "diverged-update-20.2"} <= names


def test_a_divergence_before_the_first_checkpoint_ends_the_run_with_status_7(data, tmp_path, call, poison):
    poison(3, 12)
    diverged = call(*train_arguments(data, tmp_path / "run", 40, *ROLLBACK))
    assert_refused(diverged, 7, "no earlier checkpoint", "--save-every")


def test_a_run_resumes_its_optimizer_from_a_checkpoint_of_only_skipped_updates(data, trained, tmp_path, call, poison):
    given = (f"--init-from={trained / 'checkpoints/update-10'}", "--init-state=optimizer", "--save-every=1u")
    poison(1, 2)
    for updates in (2, 3):
        done = call(*train_arguments(data, tmp_path / "run", updates, *given))
        assert done.code == 0, done.err
    before, after = (load_file(tmp_path / f"run/checkpoints/update-{number}/training.safetensors") for number in (2, 3))
    assert (before["0.step"], after["0.step"]) == (10, 11)


def test_a_spike_counts_as_divergence_but_noise_does_not():
    chance, watch = random.Random(1), LossWatch()
    for update in range(1, 5001):
        watch.see(update, 2 + 7 * math.exp(-update / 500) + chance.gauss(0, 0.1), applied=True)
        assert not watch.bad
    assert watch.mean == pytest.approx(2, abs=0.1) and watch.deviation == pytest.approx(0.08, abs=0.04)
    before = watch.mean, watch.deviation
    for update in range(5001, 5011):
        watch.see(update, 4.0 if update % 2 else math.nan, applied=bool(update % 2))
        assert (watch.bad, watch.since) == (update - 5000, 5001)
    assert (watch.mean, watch.deviation) == before
    watch.see(5011, 2.1, applied=True)
    assert watch.bad == 0


def test_a_different_loss_from_a_different_data_mixture_is_not_a_divergence(data, tmp_path, call, monkeypatch):
    monkeypatch.setattr(LossWatch, "MIN_GOOD", 5)
    see = LossWatch.see

    def see_stages(watch, update, loss, applied):
        see(watch, update, loss + 1000 * (update > 12), applied)

    monkeypatch.setattr(LossWatch, "see", see_stages)
    stages = ["--data-weights", "train=1", "until=12u", "train=1"]
    assert call(*train_arguments(data, tmp_path / "run", 40, *ROLLBACK), *stages).code == 0
    assert "diverged" not in (tmp_path / "run/train.log").read_text()


def test_divergence_watching_restarts_after_a_rollback_to_the_previous_stage(data, tmp_path, call, monkeypatch, poison):
    monkeypatch.setattr(LossWatch, "MIN_GOOD", 5)
    see, updates = LossWatch.see, []

    def see_stages(watch, update, loss, applied):
        updates.append(update)
        see(watch, update, loss + 1000 * (len(updates) > 12), applied)

    monkeypatch.setattr(LossWatch, "see", see_stages)
    poison(14, 23)
    stages = ["--data-weights", "train=1", "until=12u", "train=1"]
    assert call(*train_arguments(data, tmp_path / "run", 50, *ROLLBACK), *stages).code == 0
    log = (tmp_path / "run/train.log").read_text()
    assert "back at update 10" in log and "rollback 2 of 3" not in log


def test_a_spike_of_the_loss_is_rolled_back(data, tmp_path, call, monkeypatch):
    monkeypatch.setattr(LossWatch, "MIN_GOOD", 5)
    see = LossWatch.see
    high = iter(range(1, 28))

    def see_spike(watch, update, loss, applied):
        see(watch, update, loss + 1000 if update > 13 and next(high, None) else loss, applied)

    monkeypatch.setattr(LossWatch, "see", see_spike)
    assert call(*train_arguments(data, tmp_path / "run", 40, *ROLLBACK)).code == 0
    log = (tmp_path / "run/train.log").read_text()
    assert "diverged at update 33: the loss was far above its mean" in log and "back at update 10" in log
    assert "rollback 2 of 3" not in log
