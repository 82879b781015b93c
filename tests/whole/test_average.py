"""`nmt average`: the choice of checkpoints, their mean and losses, and no files left after a failure."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from conftest import records_of, reseal, train_arguments, write_corpus
from refusals import assert_refused
from safetensors.numpy import load_file

import nmt.train.averaging
from nmt.artefact import new_folder
from nmt.files import to_json
from nmt.runs import Checkpoints
from nmt.train.averaging import chosen
from nmt.train.options import AverageOptions


def test_average_is_the_mean_of_the_last_checkpoints_and_shows_their_losses(data, trained, tmp_path, call):
    made = call("average", "--run", trained, "--last=3", "--output", tmp_path / "m", "--score", data, "--json")
    assert made.code == 0, made.err
    folders = [str(trained / f"checkpoints/update-{update}") for update in (20, 30, 40)]
    assert made.json["averaged"] == folders
    assert list(made.json["scores"]) == [*folders, str(tmp_path / "m")]
    parts = [load_file(f"{folder}/model.safetensors") for folder in folders]
    for name, mean in load_file(tmp_path / "m/model.safetensors").items():
        expected = sum(part[name].astype("float64") for part in parts) / 3
        assert abs(mean - expected).max() < 1e-7
    last = records_of(trained)[-1]
    assert made.json["scores"][folders[2]]["loss"] == pytest.approx(last["valid_loss"], rel=1e-6)
    alone = call("average", "--checkpoint", tmp_path / "m", "--output", tmp_path / "n", "--score", data, "--json")
    assert alone.json["scores"][str(tmp_path / "n")] == made.json["scores"][str(tmp_path / "m")]


def test_an_average_worse_than_the_best_checkpoint_is_reported(data, trained, tmp_path, call):
    """Update 10 of a run that still learns fast makes the mean worse."""
    early, late = (trained / f"checkpoints/update-{update}" for update in (10, 40))
    scored = ["--output", tmp_path / "m", "--overwrite", "--score", data, "--json", "--quiet"]
    for order in ([early, late], [late, early]):
        made = call("average", "--checkpoint", *order, *scored)
        losses = {name: row["loss"] for name, row in made.json["scores"].items()}
        mean, best = losses[str(tmp_path / "m")], losses[str(late)]
        assert best < mean < losses[str(early)]
        assert f"the mean is worse than {late} alone: loss {mean:.4f} against {best:.4f}" in made.err
    assert call("average", "--checkpoint", late, *scored).err == ""


def test_with_fewer_checkpoints_than_asked_for_those_are_averaged_and_the_reason_reported(
    data, trained, tmp_path, call
):
    def average(run, *flags):
        """The result, and the updates of the averaged checkpoints."""
        done = call("average", "--run", run, *flags, "--output", tmp_path / "m", "--overwrite", "--json")
        return done, [int(folder.rpartition("-")[2]) for folder in done.json["averaged"]]

    for flag, updates, periods in (
        ("--last=5", [10, 20, 30, 40], ["--save-every 10u"]),
        ("--best=9", [20, 40], ["--save-every 10u", "--valid-every 20u"]),
    ):
        done, averaged = average(trained, flag)
        assert done.code == 0 and averaged == updates
        assert all(text in done.err for text in (flag.replace("=", " "), *periods)) and "keep-last" not in done.err
    assert "--last 4" not in call("average", "--run", trained, "--last=4", "--output", tmp_path / "whole").err
    done, averaged = average(trained, "--last=2", "--every-minutes=500")
    assert done.code == 0 and averaged == [40] and "500 minutes" in done.err
    pruned = tmp_path / "run"
    shutil.copytree(trained, pruned)
    assert call(*train_arguments(data, pruned, 50, "--keep-last=2")).code == 0
    for flag in ("--last=5", "--best=5"):
        done, averaged = average(pruned, flag)
        assert done.code == 0 and 0 < len(averaged) < 5 and "--keep-last 2" in done.err


def test_a_run_stopped_before_its_first_checkpoint_uses_the_checkpoint_saved_at_the_stop(trained, tmp_path, call):
    shutil.copytree(trained, tmp_path / "run")
    *others, newest = Checkpoints(tmp_path / "run").all()
    for folder in others:
        shutil.rmtree(folder)
    training = json.loads((newest / "training.json").read_bytes())
    training["progress"] |= {"save_due": False, "score": None}
    reseal(newest, "training.json", json.dumps(training).encode())
    done = call("average", "--run", tmp_path / "run", "--last=5", "--output", tmp_path / "m", "--json")
    assert done.code == 0 and done.json["averaged"] == [str(newest)]
    assert call("average", "--run", tmp_path / "run", "--best=5", "--output", tmp_path / "b").code == 2
    (tmp_path / "new/checkpoints").mkdir(parents=True)
    refused = call("average", "--run", tmp_path / "new", "--last=1", "--output", tmp_path / "n")
    assert_refused(refused, 2, str(tmp_path / "new"))


def test_average_rejects_a_folder_that_is_not_a_run(data, tmp_path, call):
    assert_refused(call("average", "--run", data, "--last=1", "--output", tmp_path / "m"), 4, str(data))


def test_average_accepts_named_or_best_checkpoints_and_rejects_missing_ones(trained, tmp_path, call):
    best = Checkpoints(trained).ranked()[0]
    assert call("average", "--run", trained, "--best=1", "--output", tmp_path / "b").code == 0
    assert (tmp_path / "b/model.safetensors").read_bytes() == (best / "model.safetensors").read_bytes()
    named = ["--checkpoint", best, trained / "checkpoints/update-10"]
    assert call("average", *named, "--output", tmp_path / "n").code == 0
    assert call("average", "--run", trained, "--last=2", "--output", tmp_path / "b").code == 2
    assert_refused(call("average", *named, "--output", best, "--overwrite"), 2, "expected a model folder")
    replaced = call(
        "average", "--checkpoint", tmp_path / "b", tmp_path / "n", "--output", tmp_path / "b", "--overwrite"
    )
    assert_refused(replaced, 2, "is one of the folders to average")
    damaged = call("average", "--checkpoint", tmp_path / "nowhere", "--output", tmp_path / "x")
    assert damaged.code == 4 and not (tmp_path / "x").exists()


def make_checkpoints(run_folder: Path, facts: dict[int, tuple[float | None, object]]) -> None:
    """Make checkpoints with only the data that selects them: update -> (score, minutes)."""
    for update, (score, minutes) in facts.items():
        folder = Checkpoints(run_folder).path(update)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, "checkpoint", {"minutes": minutes}) as inside:
            (inside / "training.json").write_bytes(to_json({"progress": {"score": score}}))


def updates_chosen(run_folder: Path, **options: object) -> list[int]:
    folders = chosen(AverageOptions(output="m", run=str(run_folder), **options))
    return [int(folder.name.removeprefix("update-")) for folder in folders]


def test_averaging_a_checkpoint_from_early_in_the_run_warns(tmp_path, capsys):
    make_checkpoints(tmp_path, {update: (None, 0.0) for update in (40, 50, 100)})
    assert updates_chosen(tmp_path, last=2) == [50, 100] and capsys.readouterr().err == ""
    assert updates_chosen(tmp_path, last=3) == [40, 50, 100]
    assert "warning" in (told := capsys.readouterr().err) and "update-40 is much older than update-100" in told


def test_last_selects_the_highest_updates_and_best_the_highest_scores(tmp_path):
    scores = {9: 3.0, 10: -1.0, 20: None, 100: 2.5, 90: 7.25, 110: None, 80: 3.0}
    make_checkpoints(tmp_path, {update: (score, 0.0) for update, score in scores.items()})
    scored = [update for update, score in scores.items() if score is not None]
    for number in range(1, len(scored) + 1):
        best = sorted(scored, key=lambda update: (-scores[update], update))[:number]
        assert updates_chosen(tmp_path, best=number) == sorted(best)
    for number in range(1, len(scores) + 1):
        assert updates_chosen(tmp_path, last=number) == sorted(scores)[-number:]


def test_checkpoints_minutes_apart_are_counted_from_the_newest(tmp_path, call):
    make_checkpoints(
        tmp_path, {update: (None, minutes) for update, minutes in {1: 0, 2: 9.5, 3: 11, 4: 19, 5: 20}.items()}
    )
    assert updates_chosen(tmp_path, last=3, every_minutes=9) == [1, 3, 5]
    assert updates_chosen(tmp_path, last=2, every_minutes=10.5) == [2, 5]
    assert updates_chosen(tmp_path, last=3, every_minutes=9.2) == [1, 3, 5]  # to a twentieth
    make_checkpoints(tmp_path, {6: (None, "x")})
    asked = ["average", "--run", tmp_path, "--last=2", "--every-minutes=9", "--output", tmp_path / "m"]
    refused = call(*asked)
    assert refused.code == 4 and "'minutes' is x" in refused.err and refused.err.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--run=r", "--best=2", "--every-minutes=5"],
        ["--checkpoint=c", "--every-minutes=5"],
        ["--checkpoint=c", "--last=2"],
        ["--run=r"],
        ["--run=r", "--last=1", "--best=1"],
        ["--run=r", "--last=0"],
        ["--run=r", "--last=1", "--every-minutes=nan"],
        ["--run=r", "--last=1", "--every-minutes=-1"],
    ],
)
def test_average_rejects_contradictory_flags(flags, tmp_path, call):
    assert call("average", *flags, "--output", tmp_path / "m").code == 2


def test_average_writes_nothing_when_the_scoring_data_is_unusable(data, trained, tmp_path, call):
    write_corpus(tmp_path / "other", 50, 9)
    prepared = ["prepare", "--source-lang=en", "--target-lang=de", "--train", tmp_path / "other"]
    own = ["--vocabulary", Checkpoints(trained).best()]
    assert call(*prepared, *own, "--output", tmp_path / "no-dev").code == 0
    (tmp_path / "file").touch()
    asked = ["average", "--run", trained, "--last=2", "--output", tmp_path / "m"]
    for place, code in ((tmp_path / "nowhere", 4), (tmp_path / "no-dev", 2), (trained, 4), (tmp_path / "file", 4)):
        refused = call(*asked, "--score", place)
        assert (refused.code, refused.err.count("\n")) == (code, 1), refused.err
        assert not (tmp_path / "m").exists()
    assert call(*asked, "--score", data, "--device=cuda:99").code == 2 and not (tmp_path / "m").exists()
    assert call(*asked, "--score", data).code == 0


def test_an_error_while_scoring_has_the_exit_status_of_its_kind(data, trained, tmp_path, call, monkeypatch):
    asked = ["average", "--run", trained, "--last=2", "--output", tmp_path / "m", "--score"]
    damaged = shutil.copytree(data, tmp_path / "damaged")
    [file] = damaged.glob("valid.*.target.bin")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refused = call(*asked, damaged)
    assert_refused(refused, 4, file.name)

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("nmt.criteria.cross_entropy.CrossEntropy.of_features", full)
        refused = call(*asked, data)
    assert_refused(refused, 5, "--max-tokens")
    assert not (tmp_path / "m").exists()


def test_checkpoints_with_the_same_name_are_distinguished(data, trained, tmp_path, call):
    folders = [tmp_path / "a/update-20", tmp_path / "b/update-20"]
    for folder, update in zip(folders, (10, 40), strict=True):
        shutil.copytree(trained / f"checkpoints/update-{update}", folder)
    made = call("average", "--checkpoint", *folders, "--output", tmp_path / "m", "--score", data, "--json")
    assert made.json["averaged"] == [str(folder) for folder in folders]
    losses = [row["loss"] for row in made.json["scores"].values()]
    assert len(set(losses)) == 3 and losses[0] > losses[1]


@pytest.mark.parametrize("step", ["average_weights", "load_model", "validate"])
def test_average_leaves_no_files_when_interrupted_by_a_signal(step, data, trained, tmp_path, call, monkeypatch):
    plain = getattr(nmt.train.averaging, step)

    def interrupted(*arguments: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return plain(*arguments)

    monkeypatch.setattr(nmt.train.averaging, step, interrupted)
    asked = ["average", "--run", trained, "--last=2", "--output", tmp_path / "m", "--score", data]
    assert call(*asked) == (128 + signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


def test_non_finite_scores_are_written_as_null(data, broken, tmp_path, call):
    made = call("average", "--checkpoint", broken, "--output", tmp_path / "m", "--score", data, "--json")
    assert made.code == 0, made.err
    assert made.json["scores"] == {str(folder): {"loss": None, "ppl": None} for folder in (broken, tmp_path / "m")}


def test_a_missing_run_is_reported_once(tmp_path, call):
    refused = call("average", "--run", tmp_path / "none", "--last=5", "--output", tmp_path / "model")
    assert_refused(refused, 4, "no such run folder")
    assert refused.err.count("\n") == 1


def test_a_checkpoint_deleted_by_its_run_during_averaging_is_replaced_by_another(trained, tmp_path, call, monkeypatch):
    shutil.copytree(trained, tmp_path / "run")
    common_model, oldest = nmt.train.averaging._common_model, Checkpoints(tmp_path / "run").all()[0]

    def after_it_was_deleted(folders, output):
        shutil.rmtree(oldest, ignore_errors=True)
        return common_model(folders, output)

    monkeypatch.setattr(nmt.train.averaging, "_common_model", after_it_was_deleted)
    count = len(Checkpoints(trained).due())
    average = ["average", f"--run={tmp_path / 'run'}", f"--output={tmp_path / 'm'}", "--json"]
    fewer = call(*average, f"--last={count}", "--overwrite")  # there are no others
    assert fewer.json["averaged"] == list(map(str, Checkpoints(tmp_path / "run").all()))
    assert "deleted one of the checkpoints; choosing again" in fewer.err
    shutil.copytree(trained / "checkpoints" / oldest.name, oldest)
    newest = Checkpoints(tmp_path / "run").all()[1:]
    assert call(*average, f"--last={count - 1}", "--overwrite").json["averaged"] == list(map(str, newest))
