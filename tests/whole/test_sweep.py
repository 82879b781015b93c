"""`nmt sweep` as a user runs it: runs and searches with many settings, killed, failed and resumed."""

import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ENVIRONMENT, TINY, records_of, train_arguments, wait_for, write_corpus
from forks import forked_nmt
from refusals import assert_refused

from nmt.artefact import Artefact, set_fact
from nmt.data.shards import DATA_KIND
from nmt.extensions.sweep.cli import sweep
from nmt.extensions.sweep.trials import Trial
from nmt.locks import holder_of
from nmt.runs import Checkpoints

SETTINGS = {flag.lstrip("-").replace("-", "_"): value for flag, value in (word.split("=") for word in TINY)}


def write_sweep(path: Path, data: Path, updates: int, tried: str) -> Path:
    """Write a sweep file for the tiny model."""
    settings = {**SETTINGS, "data": str(data), "max_updates": updates, "save_every": "10u", "valid_every": "20u"}
    settings["log_every"] = "10u"
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items() if f"{key} =" not in tried]
    path.write_text("[train]\n" + "".join(lines) + tried + "\n")
    return path


@pytest.fixture
def texts(tmp_path) -> list[str]:
    """The flags for a source and its reference."""
    write_corpus(tmp_path / "test", 20, 5)
    return [f"--source={tmp_path / 'test.en'}", f"--reference={tmp_path / 'test.de'}"]


def validations(run: Path, name: str) -> list[float]:
    records = records_of(run)
    return [record[name] for record in records if name in record]


def test_a_killed_sweep_resumes_and_gives_the_results_of_single_runs(data, tmp_path, texts, call):
    file, output = write_sweep(tmp_path / "sweep.toml", data, 30, "lr = [0.005, 0.02]"), tmp_path / "out"
    arguments = ["sweep", str(file), f"--output={output}", "--jobs=2", "--seeds=2", "--score=valid_ppl", *texts]
    names = [f"lr={lr},seed={seed}" for lr in (0.005, 0.02) for seed in (1, 2)]
    planned = call(*arguments, "--dry-run")
    assert planned.out.splitlines() == ["4 runs", *names] and not output.exists()

    process = subprocess.Popen([forked_nmt(), *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE)
    wait_for(lambda: (output / names[0] / "checkpoints/update-10/manifest.json").exists(), process, 120)
    process.kill()
    process.communicate()

    swept = call(*arguments, "--json", "--quiet")  # at once: it waits for the runs, which end with the sweep
    assert swept.code == 0, swept.err
    single = tmp_path / "single"
    assert call(*train_arguments(data, single, 30, "--lr=0.02", "--seed=2")).code == 0
    assert (output / names[3] / "metrics.jsonl").read_bytes() == (single / "metrics.jsonl").read_bytes()
    assert swept.json["score"] == "valid_ppl" and len(swept.json["settings"]) == 2
    for row in swept.json["settings"]:
        lr = row["values"]["lr"]
        best = [min(validations(output / f"lr={lr},seed={seed}", "valid_ppl")) for seed in (1, 2)]
        assert [run["scores"]["valid_ppl"] for run in row["runs"]] == best
        mean, deviation = row["scores"]["valid_ppl"].values()
        assert mean == pytest.approx(sum(best) / 2) and deviation == pytest.approx(statistics.stdev(best))
        assert row["scores"]["bleu"]["mean"] == pytest.approx(
            statistics.mean(run["scores"]["bleu"] for run in row["runs"])
        )
    means = [row["scores"]["valid_ppl"]["mean"] for row in swept.json["settings"]]
    assert means == sorted(means)  # a lower perplexity is better
    assert tomllib.loads((output / "best.toml").read_text())["lr"] == swept.json["settings"][0]["values"]["lr"]

    done = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.name in ("sweep.json", "commands.log")}
    again = call(*arguments, "--quiet", "--html", tmp_path / "page.html")
    assert again.code == 0 and again.out.splitlines()[0].split()[:2] == ["lr", "valid_ppl"]
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())  # nothing was repeated
    assert "+-" in again.out.splitlines()[1] and "2 of 2" in again.out.splitlines()[1]
    exact = list(csv.DictReader(call(*arguments, "--quiet", "--table=csv").out.splitlines()))
    for row, told in zip(exact, swept.json["settings"], strict=True):
        for name, score in told["scores"].items():
            assert (float(row[name]), float(row[f"{name} deviation"])) == (score["mean"], score["deviation"])
    latex = call(*arguments, "--quiet", "--table=latex").out
    assert latex.startswith("\\begin{tabular}") and r"valid\_ppl" in latex and r"$\pm$" in latex and "#" not in latex
    assert (tmp_path / "page.html").read_text().count("<svg") >= 3


def test_a_failed_run_is_reported_and_does_not_stop_others(data, tmp_path, call):
    nowhere = tmp_path / "nowhere"
    file = write_sweep(tmp_path / "sweep.toml", data, 1, f'data = ["{nowhere}", "{data}"]\nvalid_every = "1u"')
    arguments = ["sweep", file, f"--output={tmp_path / 'out'}", "--score=valid_loss"]
    failed = call(*arguments, "--json")
    assert_refused(failed, 5, nowhere, "commands.log")
    good, bad = failed.json["settings"]
    assert good["values"]["data"] == str(data) and "valid_loss" in good["scores"]
    assert bad["scores"] == {} and "exit status 4" in bad["runs"][0]["error"]
    nowhere.symlink_to(data)
    state = Path(good["runs"][0]["run"]) / "sweep.json"
    content = state.read_bytes()
    state.write_text('{"done": 3}')
    assert_refused(call(*arguments), 4, "sweep.json")
    state.write_bytes(content)
    mended = call(*arguments)
    assert mended.code == 0 and " failed" not in mended.out + mended.err


def test_a_run_folder_that_cannot_be_created_is_reported_and_does_not_stop_others(data, tmp_path, call):
    file = write_sweep(tmp_path / "sweep.toml", data, 1, "lr = [0.005, 0.02]")
    arguments = ["sweep", file, f"--output={tmp_path / 'out'}", "--score=valid_loss"]
    assert call(*arguments, f"--html={tmp_path / 'out/page.html'}").code == 0
    shutil.rmtree(tmp_path / "out/lr=0.005,seed=1")
    (tmp_path / "out/lr=0.005,seed=1").write_text("a file")
    shutil.rmtree(tmp_path / "out/lr=0.02,seed=1")
    failed = call(*arguments, "--json")
    assert failed.code == 5 and "lr=0.005,seed=1" in failed.err and "bug" not in failed.err
    assert (
        "valid_loss" in failed.json["settings"][0]["scores"]
        and "File exists" in failed.json["settings"][1]["runs"][0]["error"]
    )


def test_a_value_given_as_a_number_and_as_text_is_one_run(data, tmp_path, call):
    file = write_sweep(tmp_path / "sweep.toml", data, 1, 'lr = [0.005, "0.005", 0.02]')
    planned = call("sweep", file, f"--output={tmp_path / 'out'}", "--dry-run")
    assert planned.out.splitlines() == ["2 runs", "lr=0.005,seed=1", "lr=0.02,seed=1"]


def test_a_signal_ends_the_sweep_and_its_runs(data, tmp_path):
    file = write_sweep(tmp_path / "sweep.toml", data, 100_000, "lr = [0.005, 0.02]")
    output = tmp_path / "out"
    process = subprocess.Popen(
        [forked_nmt(), "sweep", str(file), f"--output={output}"],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    wait_for(lambda: (output / "lr=0.005,seed=1/checkpoints/update-10/manifest.json").exists(), process, 120)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + signal.SIGTERM, b"")
    assert holder_of(output / "lr=0.005,seed=1/.lock") is None and not (output / "lr=0.02,seed=1").exists()


def test_search_options_are_tuned_by_bleu_and_translate_can_use_the_best(trained, tmp_path, texts, call):
    file, output = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(f'[translate]\nmodel = "{trained}"\nengine = "torch"\nalpha = [0.0, 3.0]\nbeam_size = 4\n')
    swept = call("sweep", file, f"--output={output}", *texts, "--json", "--quiet")
    assert swept.code == 0, swept.err
    scores = {}
    for alpha in (0.0, 3.0):
        search = ["--model", trained, "--engine=torch", f"--alpha={alpha}"]
        evaluated = call("evaluate", *search, *texts, "--metrics=bleu", "--json", "--quiet")
        scores[alpha] = evaluated.json[0]["value"]
    shown = {row["values"]["alpha"]: row["scores"]["bleu"]["mean"] for row in swept.json["settings"]}
    assert shown == pytest.approx(scores)
    best = swept.json["best"]
    assert scores[best["alpha"]] == max(scores.values()) and best["beam_size"] == 4
    name = swept.json["settings"][0]["runs"][0]["run"]
    translated = call("translate", "--config", output / "best.toml", texts[0].partition("=")[2], "--quiet")
    assert translated.code == 0 and translated.out == (Path(name) / "translation.txt").read_text()
    (tmp_path / "parts.py").write_text("")
    table = call("sweep", file, f"--output={output}", *texts, f"--plugin={tmp_path / 'parts.py'}", "--quiet").out
    use = f"nmt translate --config {output / 'best.toml'} --plugin {tmp_path / 'parts.py'}"
    assert f"# the best settings, for: {use}\n" in table
    file.write_text(
        f'[translate]\nmodel = "{tmp_path / "none"}"\nengine = "torch"\nalpha = [0.0, 3.0]\nbeam_size = 4\n'
    )
    failed = call("sweep", file, f"--output={output}", *texts, "--quiet")
    assert failed.code == 5 and not (output / "best.toml").exists()  # scores of another model would mislead


COMET = """
from types import SimpleNamespace

def load_from_checkpoint(path):
    def predict(samples, **options):
        return SimpleNamespace(scores=[len(pair["mt"]) / 100 for pair in samples])
    return SimpleNamespace(predict=predict)
"""


def test_options_of_metrics_are_passed_to_them(trained, tmp_path, texts, call, monkeypatch):
    """A stand-in for COMET's library prefers long translations."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/comet.py").write_text(COMET)
    (tmp_path / "model.ckpt").touch()
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    file, output = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(f'[translate]\nmodel = "{trained}"\nengine = "torch"\nbeam_size = [1, 2]\n')
    metrics = ["--metrics=comet,bleu", "--comet-model", tmp_path / "model.ckpt", "--tokenize=char"]
    swept = call("sweep", file, f"--output={output}", *texts, *metrics, "--json", "--quiet")
    assert swept.code == 0, swept.err
    for row in swept.json["settings"]:
        folder = Path(row["runs"][0]["run"])
        lengths = list(map(len, (folder / "translation.txt").read_text().splitlines()))
        assert row["scores"]["comet"]["mean"] == pytest.approx(statistics.fmean(lengths))
        assert "tok:char" in (folder / "scores.json").read_text()
    for command in ("report", "plot"):
        assert_refused(call(command, output), 2, "`nmt sweep`")
    refused = call("sweep", file, f"--output={output}", *texts, "--metrics=comet", "--dry-run")
    assert_refused(refused, 2, "--comet-model")


def test_extended_texts_are_translated_and_scored_again(trained, tmp_path, texts, call):
    file = tmp_path / "sweep.toml"
    file.write_text(f'[translate]\nmodel = "{trained}"\nengine = "torch"\nbeam_size = 1\n')
    command = ["sweep", file, f"--output={tmp_path / 'out'}", *texts, "--json", "--quiet"]
    source, reference = (Path(flag.partition("=")[2]) for flag in texts)
    translation = tmp_path / "out/run/translation.txt"

    def bleu() -> float:
        return call(*command).json["settings"][0]["scores"]["bleu"]["mean"]

    before = bleu()
    reference.write_text("kis\n" * 20)
    translated = translation.stat().st_mtime_ns
    assert bleu() < before and translation.stat().st_mtime_ns == translated  # only scored again
    source.write_text(source.read_text() + "ban kis\n")
    reference.write_text(translation.read_text() + "BAN KIS\n")
    assert bleu() > before and translation.read_text().count("\n") == 21


def test_a_step_that_fails_when_repeated_does_not_count_as_done(trained, tmp_path, texts, call):
    (tmp_path / "bad.de").write_bytes(b"\xff\n" * 20)
    file = tmp_path / "sweep.toml"
    file.write_text(f'[translate]\nmodel = "{trained}"\nengine = "torch"\nbeam_size = 1\n')
    command = ["sweep", file, f"--output={tmp_path / 'out'}", "--json", "--quiet"]
    first = call(*command, *texts)
    failed = call(*command, texts[0], f"--reference={tmp_path / 'bad.de'}")
    assert first.code == 0 and failed.code == 5 and "evaluate failed with exit status 3" in failed.err, failed.err
    again = call(*command, *texts)
    assert again.code == 0 and again.json["settings"] == first.json["settings"]


def test_a_gpu_without_a_number_is_distributed_among_runs_and_a_numbered_one_is_not():
    for settings, taken in (
        ({}, True),
        ({"device": "auto"}, True),
        ({"device": "cuda"}, True),
        ({"device": "cuda:1"}, False),
    ):
        assert ("device" in sweep._slot_options(settings)) == taken
    assert sweep._slot_options({"device": "cuda", "threads": 1}) == ["device"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("adam_betas = 0.9", "--adam-betas"),
        ("adam_betas = { low = 0.1, high = 0.9 }", "cannot have a range"),
        ("lr = [1979-05-27, 0.1]", "lr"),
    ],
)
def test_a_value_of_the_wrong_type_is_rejected(line, told, data, tmp_path, call):
    file = write_sweep(tmp_path / "sweep.toml", data, 1, line)
    refused = call("sweep", file, f"--output={tmp_path / 'out'}", "--trials=2", "--dry-run")
    assert refused.code == 2 and told in refused.err and "bug" not in refused.err, refused.err


def test_a_replaced_model_translates_again(trained, tmp_path, texts, call):
    file, checkpoints = tmp_path / "sweep.toml", [f"--checkpoint={path}" for path in Checkpoints(trained).all()]
    average = ["average", f"--output={tmp_path / 'model'}", "--overwrite", "--quiet"]
    file.write_text(
        f'[translate]\nmodel = "{tmp_path / "model"}"\nengine = "torch"\nbeam_size = 1\navoid = "{tmp_path / "avoid"}"\n'
    )
    (tmp_path / "avoid").write_text("")
    sweep = ["sweep", file, f"--output={tmp_path / 'out'}", *texts, "--json", "--quiet"]
    translations = []
    for checkpoint in (checkpoints[0], checkpoints[-1]):
        assert call(*average, checkpoint).code == 0 and call(*sweep).code == 0
        translations.append((tmp_path / "out/run/translation.txt").read_text())
    source, search = texts[0].partition("=")[2], [f"--model={tmp_path / 'model'}", "--engine=torch", "--beam-size=1"]
    assert translations[0] != translations[1] == call("translate", *search, source, "--quiet").out
    assert call(*sweep, "--dry-run").out.startswith("1 runs, 1 of them done\n")
    (tmp_path / "avoid").write_text("LOS\n")
    assert call(*sweep, "--dry-run").out.startswith("1 runs\n")


def test_a_run_is_not_done_if_its_data_was_prepared_again(data, tmp_path, call):
    shutil.copytree(data, tmp_path / "data")
    file = write_sweep(tmp_path / "sweep.toml", tmp_path / "data", 1, 'valid_every = "1u"')
    command = ["sweep", file, f"--output={tmp_path / 'out'}", "--score=valid_loss"]
    assert call(*command).code == 0
    assert call(*command, "--dry-run").out.startswith("1 runs, 1 of them done\n")
    set_fact(Artefact(tmp_path / "data", DATA_KIND), "made_of", "other texts")
    assert call(*command, "--dry-run").out.startswith("1 runs\n")


def test_options_that_contradict_the_sweep_file_are_rejected(trained, data, tmp_path, texts, call):
    file = tmp_path / "sweep.toml"
    file.write_text(f'[translate]\nmodel = "{trained}"\nalpha = [0.0, 1.0]\n')
    assert_refused(call("sweep", file, f"--output={tmp_path / 'out'}"), 2, "--source")
    refused = call("sweep", file, f"--output={tmp_path / 'out'}", *texts, "--metrics=paper-bleu", "--dry-run")
    assert_refused(refused, 2, "metric paper-bleu needs the target language")
    refused = call("sweep", file, f"--output={tmp_path / 'out'}", "--comet-model=m.ckpt")
    assert_refused(refused, 2, "--comet-model", "--source")
    nowhere = f"--source={tmp_path / 'nowhere'}", f"--reference={tmp_path / 'nowhere'}"
    assert_refused(call("sweep", file, f"--output={tmp_path / 'out'}", *nowhere, "--dry-run"), 2, "nowhere: not a file")
    assert_refused(call("sweep", file, f"--output={tmp_path / 'out'}", *texts, "--average=2"), 2, "--average")
    assert_refused(call("sweep", file, f"--output={tmp_path / 'out'}", *texts, "--score=belu"), 2, "'belu'", "'bleu'")
    (tmp_path / "longer").write_text("a\n" * 1000)
    refused = call("sweep", file, f"--output={tmp_path / 'out'}", *texts, f"--reference={tmp_path / 'longer'}")
    assert_refused(refused, 3, "longer has 1,000 (line N")
    refused = call("sweep", write_sweep(file, data, 1, ""), f"--output={tmp_path / 'out'}", "--score=bleu")
    assert_refused(refused, 2, "--score")
    write_corpus(tmp_path / "corpus", 20, 7)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--subword=none"]
    assert call(*prepare, f"--output={tmp_path / 'no-dev'}", "--quiet").code == 0
    refused = call("sweep", write_sweep(file, tmp_path / "no-dev", 1, ""), f"--output={tmp_path / 'out'}")
    assert_refused(refused, 2, "valid_bleu")
    refused = call("sweep", write_sweep(file, data, 1, "devices = 2"), f"--output={tmp_path / 'out'}", "--jobs=2")
    assert_refused(refused, 2, "--jobs", "devices")
    kept = write_sweep(file, data, 1, "keep_last = 1")
    assert_refused(call("sweep", kept, f"--output={tmp_path / 'out'}", *texts, "--average=3"), 2, "--average")
    assert not (tmp_path / "out").exists()
    refused = call("sweep", kept, f"--output={tmp_path / 'out'}", f"--html={tmp_path / 'missing/x.html'}")
    assert_refused(refused, 5, "missing cannot be written")
    assert not list((tmp_path / "out").glob("*"))


def test_a_folder_with_other_files_is_rejected_and_unchanged(data, tmp_path, call):
    file, output = write_sweep(tmp_path / "sweep.toml", data, 10, "lr = [0.005]"), tmp_path / "mine"
    output.mkdir()
    (output / "best.toml").write_text("mine")
    refused = call("sweep", file, f"--output={output}", "--quiet")
    assert_refused(refused, 2, "is not the folder of a sweep")
    assert [path.name for path in output.iterdir()] == ["best.toml"] and (output / "best.toml").read_text() == "mine"


def test_equal_scores_are_ordered_by_the_loss():
    trials = [Trial({"lr": lr}, 1, {}) for lr in (1, 2, 3)]
    rows = {1: (0.0, 6.8), 2: (0.0, 5.9), 3: (0.0, 6.1)}
    jobs = [SimpleNamespace(is_done=True, scores={"bleu": rows[lr][0], "valid_loss": rows[lr][1]}) for lr in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "scores_of", lambda job: job.scores)
        ranked = sweep.ranked_rows(trials, jobs, "bleu")
    assert [row.trials[0].tried["lr"] for row in ranked] == [2, 3, 1]


def test_the_loss_decides_until_bleu_is_meaningful_as_in_training(data, tmp_path, call):
    low, high = {"valid_bleu": 4.0, "valid_loss": 2.0}, {"valid_bleu": 6.0, "valid_loss": 3.0}
    options = sweep.SweepOptions(file="f", output="o")
    given = sweep.SweepOptions(file="f", output="o", score="valid_bleu")
    assert sweep.chosen_score(options, [low, low]) == "valid_loss"
    assert sweep.chosen_score(options, [low, high]) == sweep.chosen_score(given, [low, low]) == "valid_bleu"
    assert sweep.chosen_score(options, []) == sweep.chosen_score(options, [{"valid_bleu": 1.0}]) == "valid_bleu"
    file = write_sweep(tmp_path / "sweep.toml", data, 20, 'lr = [1e-9, 1e-8]\nvalid_metrics = ["none"]')
    swept = call("sweep", file, f"--output={tmp_path / 'out'}", "--json", "--quiet")
    assert swept.code == 0, swept.err
    assert swept.json["score"] == "valid_loss" and swept.json["best"]["lr"] == 1e-8


def test_a_difference_smaller_than_the_deviation_is_a_tie():
    rows = [sweep.Row(scores=[{"bleu": value} for value in values]) for values in ([30, 32], [30, 31], [20, 21], [])]
    assert sweep.ties(rows, "bleu") == [rows[1]]  # 31 and 30.5, deviations 1.41 and 0.71
    assert sweep.ties([sweep.Row(scores=[{"bleu": value}]) for value in (30, 29.99)], "bleu") == []


def test_a_setting_with_failed_seeds_is_not_the_best():
    trials = [Trial({"lr": lr}, seed, {}) for lr in (1, 2, 3) for seed in (1, 2)]
    scores = [30.0, 30.0, None, 31.0, None, None]
    jobs = [SimpleNamespace(is_done=score is not None, scores={"bleu": score}) for score in scores]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "scores_of", lambda job: job.scores)
        ranked = sweep.ranked_rows(trials, jobs, "bleu")
    assert [row.trials[0].tried["lr"] for row in ranked] == [1, 2, 3]


def test_threads_set_in_the_file_override_the_automatic_share(data, tmp_path, texts, call):
    tried, output = "threads = [1, 3]\n[translate]\nthreads = 2", tmp_path / "out"
    file = write_sweep(tmp_path / "sweep.toml", data, 2, tried)
    assert call("sweep", file, f"--output={output}", "--jobs=2", *texts, "--quiet").code == 0
    for threads in (1, 3):
        run = output / f"threads={threads},seed=1"
        assert tomllib.loads((run / "settings.toml").read_text())["threads"] == threads
        commands = [line for line in (run / "commands.log").read_text().splitlines() if line.startswith("$ nmt")]
        assert len(commands) == 3 and not any("--threads" in command for command in commands)


def test_only_losses_and_metrics_count_as_scores_of_a_run():
    record = SimpleNamespace(values={"valid_loss": 2.0, "valid_reward": 0.5, "valid_bleu": 3.0, "lr": 1.0})
    step = SimpleNamespace(command="train")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "read_records", lambda folder: ([], [record]))
        scores = sweep.scores_of(SimpleNamespace(steps=[step], folder=Path("run")))
    assert scores == {"valid_loss": 2.0, "valid_bleu": 3.0}
