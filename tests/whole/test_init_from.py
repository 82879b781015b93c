"""`nmt train --init-from`: a new run starts with the weights of a trained model, and only the requested state."""

import json
import math
import os
import re
import shutil
import signal

import pytest
import torch
from conftest import records_of, reseal, train_arguments, write_corpus
from refusals import assert_refused
from safetensors.numpy import load_file

from nmt.batch import dummy_batch
from nmt.checkpoint import load_model, weights_of
from nmt.runs import Checkpoints, find_model, update_of
from nmt.train.update import UpdateGivenUp

STILL = ("--optimizer=sgd", "--lr=1e-30")  # an update that does not change the weights


def weights(folder):
    return {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the best checkpoint of the trained run, with a manifest that allows changes."""
    return shutil.copytree(find_model(trained), tmp_path / "model")


def test_a_run_starts_from_the_weights_of_a_run_or_checkpoint_and_everything_else_is_new(
    data, trained, model, tmp_path, call
):
    for number, given in enumerate((trained, model)):
        output = tmp_path / f"run-{number}"
        more = ("--dropout=0.3", *STILL, f"--init-from={given}")
        begun = call(*train_arguments(data, output, 1, *more), "--no-quiet")
        assert begun.code == 0, begun.err
        assert f"starts with the weights of {find_model(given)}" in begun.err
        assert weights(output / "checkpoints/update-1") == weights(model)
        state = json.loads((output / "checkpoints/update-1/training.json").read_text())
        assert state["progress"]["update"] == 1 and state["progress"]["position"]["epoch"] == 1


def test_a_run_resumes_bit_for_bit_without_its_initial_model(data, model, tmp_path, call):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    given = (f"--init-from={model}", "--valid-every=10u")
    assert call(*train_arguments(data, whole, 20, *given)).code == 0
    assert call(*train_arguments(data, cut, 10, *given)).code == 0
    shutil.rmtree(model)
    assert_refused(call(*train_arguments(data, cut, 20)), 2, f"init_from: {model} -> None")
    written_otherwise = f"--init-from={model.parent / 'cut' / '..' / model.name}/"
    assert call(*train_arguments(data, cut, 10, written_otherwise, "--valid-every=10u")).code == 0
    assert call("train", "--config", cut / "settings.toml", "--max-updates=20", "--quiet").code == 0
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert weights(cut / "checkpoints/update-20") == weights(whole / "checkpoints/update-20")


def test_a_different_architecture_is_status_4_and_the_differences_are_listed(data, model, tmp_path, call):
    refused = call(*train_arguments(data, tmp_path / "run", 1, f"--init-from={model}", "--d-ff=128", "--heads=4"))
    assert_refused(refused, 4, "(d_ff: 64 -> 128; heads: 2 -> 4; use the same")
    assert not (tmp_path / "run").exists()
    own = ("--model=language-model", "--layers=1", "--heads=2", "--d-model=32", "--d-ff=64", "--valid-metrics=none")
    paths = (f"--data={data}", f"--output={tmp_path / 'run'}", f"--init-from={model}")
    other = call("train", *paths, *own, "--max-updates=1", "--threads=1", "--quiet")
    assert_refused(other, 4, "model: transformer -> language-model")
    assert not (tmp_path / "run/checkpoints/update-1").exists()


def test_a_different_vocabulary_is_status_4_and_data_prepared_with_the_models_vocabulary_works(
    data, model, tmp_path, call
):
    write_corpus(tmp_path / "corpus", 50, 7)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    assert call(*prepare, "--subword=bpe", "--vocab-size=60", f"--output={tmp_path / 'other'}").code == 0
    arguments = [f"--init-from={model}", *STILL, "--valid-metrics=none"]
    refused = call(*train_arguments(tmp_path / "other", tmp_path / "run", 1, *arguments))
    assert_refused(refused, 4, model, "--vocabulary")
    assert call(*prepare, f"--vocabulary={model}", f"--output={tmp_path / 'same'}").code == 0
    taken = call(*train_arguments(tmp_path / "same", tmp_path / "run", 1, *arguments))
    assert taken.code == 0, taken.err


def metrics(run):
    """The records of a run without its cost, which covers only its own updates."""
    rows = records_of(run)
    return [{key: value for key, value in row.items() if key != "eflop"} for row in rows]


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_run_initialised_with_a_full_state_equals_the_resumed_run(ema, data, tmp_path, call):
    more = ("--valid-every=10u", *([f"--ema={ema}"] if ema else []))
    assert call(*train_arguments(data, tmp_path / "whole", 20, *more)).code == 0
    given = (f"--init-from={tmp_path / 'whole/checkpoints/update-10'}", "--init-state=all")
    assert call(*train_arguments(data, tmp_path / "fork", 20, *more, *given)).code == 0
    assert metrics(tmp_path / "fork") == [row for row in metrics(tmp_path / "whole") if row["update"] > 10]
    for name in ("model", "training"):
        whole, fork = (
            load_file(tmp_path / run / f"checkpoints/update-20/{name}.safetensors") for run in ("whole", "fork")
        )
        assert whole.keys() == fork.keys()
        assert all(whole[key].tobytes() == fork[key].tobytes() for key in whole)


def test_epochs_are_counted_from_the_start_of_the_data(data, tmp_path, call, monkeypatch):
    monkeypatch.setattr("nmt.extensions.watch.reporters.estimate.FIRST_SECONDS", 0.0)
    assert call(*train_arguments(data, tmp_path / "first", 20)).code == 0
    given = ("--max-epochs=2", f"--init-from={tmp_path / 'first'}", "--init-state=schedule")
    arguments = train_arguments(data, tmp_path / "run", 1000, *given)
    dry = call(*arguments, "--dry-run", "--json").json
    done = call(*arguments, "--no-quiet")
    last = records_of(tmp_path / "run")[-1]["update"]
    assert done.code == 0 and last > 24
    assert dry["first"] == 21 and abs(dry["last"] - last) <= 2
    assert abs(int(re.search(r"to update ([\d,]+), at", done.err)[1].replace(",", "")) - last) <= 2
    again = call(
        *train_arguments(data, tmp_path / "run", 1000, "--max-epochs=3", *given[1:]), "--dry-run", "--json"
    ).json
    assert again["first"] == last + 1 and abs(again["last"] - (last + (last - 20) / 2)) <= 2


def test_a_signal_in_the_first_update_saves_no_counted_checkpoint(data, tmp_path, call, monkeypatch):
    assert call(*train_arguments(data, tmp_path / "whole", 10)).code == 0
    given = (f"--init-from={tmp_path / 'whole/checkpoints/update-10'}", "--init-state=all")

    def given_up(run, data):
        os.kill(os.getpid(), signal.SIGTERM)
        raise UpdateGivenUp

    with monkeypatch.context() as patch:
        patch.setattr("nmt.train.trainer.make_update", given_up)
        assert call(*train_arguments(data, tmp_path / "fork", 20, *given)).code == 128 + signal.SIGTERM
    assert call(*train_arguments(data, tmp_path / "fork", 20, *given)).code == 0
    assert [update_of(path) for path in Checkpoints(tmp_path / "fork").due()] == [20]


def test_a_full_state_includes_measured_choices(data, tmp_path, call):
    """The way of computing products and the micro-batch size after running out of memory decide last bits and dropout."""
    whole, fork = tmp_path / "whole", tmp_path / "fork"
    assert call(*train_arguments(data, whole, 10)).code == 0
    state = json.loads((whole / "checkpoints/update-10/training.json").read_bytes())
    state["progress"]["limit"]["max_micro_batch_tokens"] = 77
    reseal(whole / "checkpoints/update-10", "training.json", json.dumps(state).encode())
    given = (f"--init-from={whole / 'checkpoints/update-10'}", "--init-state=all")
    for output, begin in ((fork, given), (whole, ())):
        assert call(*train_arguments(data, output, 20, *begin)).code == 0
        progress = json.loads((output / "checkpoints/update-20/training.json").read_bytes())["progress"]
        assert progress["limit"] == state["progress"]["limit"]
    assert weights(fork / "checkpoints/update-20") == weights(whole / "checkpoints/update-20")


def test_a_full_state_includes_skipped_updates_the_loss_scale_and_rollbacks(data, tmp_path, call):
    whole, fork, more = tmp_path / "whole", tmp_path / "fork", ("--valid-every=10u", "--ema=0.99", "--precision=fp16")
    assert call(*train_arguments(data, whole, 10, *more)).code == 0
    state = json.loads((whole / "checkpoints/update-10/training.json").read_bytes())
    of_state = {"skipped": 6, "scale": {"factor": 2.0**13, "good": 4}, "rollbacks": [{"at": 8, "to": 5}]}
    state["progress"] |= of_state
    reseal(whole / "checkpoints/update-10", "training.json", json.dumps(state).encode())
    given = (f"--init-from={whole / 'checkpoints/update-10'}", "--init-state=all")
    for output, begin in ((fork, given), (whole, ())):
        assert call(*train_arguments(data, output, 20, *more, *begin)).code == 0
    assert metrics(fork) == [row for row in metrics(whole) if row["update"] > 10]
    assert weights(fork / "checkpoints/update-20") == weights(whole / "checkpoints/update-20")
    progress = json.loads((fork / "checkpoints/update-20/training.json").read_bytes())["progress"]
    assert {key: progress[key] for key in of_state} == of_state | {"scale": {"factor": 2.0**13, "good": 14}}
    plain = call(*train_arguments(data, tmp_path / "plain", 11, "--ema=0.99", *given))  # fp32 has no loss scale
    assert plain.code == 0, plain.err


@pytest.mark.parametrize(("taken", "first"), [("none", 1), ("optimizer", 1), ("schedule", 11)])
def test_the_parts_of_a_state_that_are_not_loaded_start_from_scratch(taken, first, data, trained, tmp_path, call):
    checkpoint = trained / "checkpoints/update-10"
    given = (f"--init-from={checkpoint}", f"--init-state={taken}", "--batch-tokens=300", "--save-every=1u")
    assert call(*train_arguments(data, tmp_path / "run", first, *given)).code == 0
    [row] = (row for row in metrics(tmp_path / "run") if "lr" in row)
    assert row["update"] == first and math.isclose(row["lr"], 0.005 * first / 20) and row["epoch"] == 1
    saved = load_file(tmp_path / f"run/checkpoints/update-{first}/training.safetensors")
    assert saved["0.step"] == (1 if taken == "none" else 11)
    position = json.loads((tmp_path / f"run/checkpoints/update-{first}/training.json").read_text())["progress"][
        "position"
    ]
    assert (position["epoch"], position["part"]) == (1, None) and 0 < position["pairs"] < 150


def test_a_missing_or_incompatible_state_is_status_2_with_advice(data, trained, tmp_path, call):
    assert call("average", "--run", trained, "--last=1", "--output", tmp_path / "model").code == 0
    write_corpus(tmp_path / "corpus", 50, 7)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    assert call(*prepare, f"--vocabulary={trained}", f"--output={tmp_path / 'other'}").code == 0
    given = f"--init-from={trained}"
    for of_data, *more, message in [
        (
            data,
            f"--init-from={tmp_path / 'model'}",
            "--init-state=optimizer",
            "has no training state (use a run or checkpoint",
        ),
        (data, given, "--init-state=optimizer", "--optimizer=sgd", "(optimizer: adam -> sgd; use the same"),
        (data, given, "--init-state=all", "--batch-tokens=300", "(batch_tokens: 400 -> 300; use the same"),
        (tmp_path / "other", given, "--init-state=all", "on different data than"),
        (data, "--init-state=all", "--init-state needs --init-from"),
        (
            data,
            given,
            "--init-state=schedule",
            "--max-updates=40",
            "where this run already ends: --max-updates 40 is reached",
        ),
    ]:
        assert_refused(call(*train_arguments(of_data, tmp_path / "run", 50, *more)), 2, message)
    assert call(*train_arguments(data, tmp_path / "sgd", 10, "--optimizer=sgd")).code == 0
    more = "--optimizer=sgd", "--momentum=0.9", f"--init-from={tmp_path / 'sgd'}", "--init-state=optimizer"
    assert_refused(call(*train_arguments(data, tmp_path / "run", 50, *more)), 2, "(momentum: 0.0 -> 0.9; use the same")
    taken = call(*train_arguments(tmp_path / "other", tmp_path / "run", 45, given, "--init-state=schedule"))
    assert taken.code == 0, taken.err


@pytest.mark.parametrize("fault", ["no such folder", "prepared data", "a flipped byte", "no weights"])
def test_an_invalid_or_damaged_model_is_status_4_and_leaves_no_checkpoint(fault, data, model, tmp_path, call):
    given, file = model, model / "model.safetensors"
    if fault == "a flipped byte":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif fault == "no weights":
        file.unlink()
    else:
        given = data if fault == "prepared data" else tmp_path / "none"
    refused = call(*train_arguments(data, tmp_path / "run", 1, f"--init-from={given}"))
    assert refused.code == 4 and str(given) in refused.err and refused.err.count("\n") == 1, refused.err
    assert not list(tmp_path.glob("run/checkpoints/*"))
    assert call(*train_arguments(data, tmp_path / "run", 1, f"--init-from={given}", "--dry-run")).code == 4


@pytest.mark.parametrize(("lr", "expected"), [(0.005, 0.0025), (0.004, 0.004)])
def test_the_state_of_a_schedule_is_loaded_only_with_the_same_options(lr, expected, data, trained, tmp_path, call):
    first, plateau = tmp_path / "first", ("--schedule=plateau", "--warmup-updates=0", "--no-valid-bleu")
    assert call(*train_arguments(data, first, 10, *plateau, "--valid-every=1u")).code == 0
    state = json.loads((first / "checkpoints/update-10/training.json").read_bytes())
    state["schedule"] |= {"falls": 1}
    reseal(first / "checkpoints/update-10", "training.json", json.dumps(state).encode())
    given = (*plateau, f"--lr={lr}", f"--init-from={first / 'checkpoints/update-10'}", "--init-state=schedule")
    assert call(*train_arguments(data, tmp_path / "run", 11, *given)).code == 0
    assert metrics(tmp_path / "run")[0]["lr"] == expected


def test_an_invalid_schedule_state_is_status_4_and_its_file_is_named(data, tmp_path, call):
    first, plateau = tmp_path / "first", ("--schedule=plateau", "--no-valid-bleu")
    assert call(*train_arguments(data, first, 10, *plateau)).code == 0
    checkpoint = first / "checkpoints/update-10"
    state = json.loads((checkpoint / "training.json").read_bytes())
    given = (f"--init-from={checkpoint}", "--init-state=schedule")
    for output, begin, falls in ((first, (), "many"), (first, (), -100_000), (tmp_path / "run", given, "many")):
        reseal(checkpoint, "training.json", json.dumps({**state, "schedule": {"falls": falls}}).encode())
        refused = call(*train_arguments(data, output, 20, *plateau, *begin))
        assert_refused(refused, 4, f"{checkpoint}/training.json: not a state of this schedule")


DEEPER = {
    "transformer": ("--norm-position=pre", "--encoder-layers=3", "--decoder-layers=2"),
    "transformer of experts": (
        "--norm-position=pre",
        "--ffn=moe",
        "--experts=2",
        "--expert-every=1",
        "--encoder-layers=3",
        "--decoder-layers=2",
    ),
    "language-model": ("--layers=3", "--norm-position=pre"),
    "bytenet": ("--encoder-layers=3", "--decoder-layers=2", "--max-dilation=2"),
}
SHORT = ("--threads=1", "--batch-tokens=200", "--schedule=inverse-sqrt", "--lr=0.005")
SIZES = {
    "language-model": ("--heads=2", "--d-model=32", "--d-ff=64", "--valid-metrics=none"),
    "bytenet": ("--hidden-size=16",),
}
SHALLOW = {
    "--encoder-layers=3": "--encoder-layers=1",
    "--decoder-layers=2": "--decoder-layers=1",
    "--layers=3": "--layers=1",
}


@pytest.mark.parametrize("name", DEEPER)
def test_a_deepened_model_gives_identical_outputs_at_first_and_its_new_layers_learn(name, tmp_path, call):
    write_corpus(tmp_path / "corpus", 60, 7)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    prepare += [f"--valid={tmp_path / 'corpus'}", f"--output={tmp_path / 'data'}"]
    assert call(*prepare, f"--subword={'char' if name == 'bytenet' else 'none'}").code == 0

    def train(output, depth, updates, *more):
        model = name.split()[0]
        sizes = SIZES.get(model, ("--heads=2", "--d-model=32", "--d-ff=64"))
        given = (*SHORT, f"--max-updates={updates}", "--quiet", *more)
        paths = (f"--data={tmp_path / 'data'}", f"--output={tmp_path / output}", f"--model={model}")
        return call("train", *paths, *sizes, *depth, *given)

    shallow = [SHALLOW.get(option, option) for option in DEEPER[name]]
    assert train("first", shallow, 5).code == 0
    begun = train("same", DEEPER[name], 1, *STILL, "--deepen", f"--init-from={tmp_path / 'first'}", "--no-quiet")
    assert begun.code == 0 and "; the added layers do not change the outputs at first" in begun.err, begun.err
    first, same = (load_model(find_model(tmp_path / run), torch.device("cpu")).model for run in ("first", "same"))
    assert len(weights_of(same)) > len(weights_of(first))
    batch = dummy_batch(3, 7, 5)
    with torch.no_grad():
        expected, found = (model.output(model(batch).features) for model in (first.eval(), same.eval()))
    assert torch.equal(found, expected)
    learnt = train("learnt", DEEPER[name], 3, "--deepen", f"--init-from={tmp_path / 'first'}")
    assert learnt.code == 0, learnt.err
    after = weights_of(load_model(find_model(tmp_path / "learnt"), torch.device("cpu")).model)
    unchanged = [key for key, weight in weights_of(same).items() if torch.equal(weight, after[key])]
    assert not unchanged


def test_impossible_deepening_is_rejected_with_advice(data, model, tmp_path, call):
    for code, *more, message in [
        (2, "--encoder-layers=2", "--deepen", "--norm-position pre"),
        (4, "--encoder-layers=2", "encoder_layers: 1 -> 2; use the same"),
        (2, "--encoder-layers=2", "--deepen", "--init-state=all", "--deepen and --init-state cannot be combined"),
        (4, "--encoder-layers=2", "--deepen", "--d-ff=128", "d_ff: 64 -> 128; use the same"),
    ]:
        assert_refused(call(*train_arguments(data, tmp_path / "run", 1, f"--init-from={model}", *more)), code, message)
    pre = (*STILL, "--norm-position=pre")
    assert call(*train_arguments(data, tmp_path / "pre", 1, *pre)).code == 0
    refused = call(*train_arguments(data, tmp_path / "run", 1, *pre, "--deepen", f"--init-from={tmp_path / 'pre'}"))
    assert_refused(refused, 2, "does not have fewer layers")
    assert_refused(call(*train_arguments(data, tmp_path / "run", 1, *pre, "--deepen")), 2, "--deepen", "--init-from")


def test_a_run_takes_the_models_options_unless_flags_or_files_override_them(data, model, tmp_path, call):
    facts = json.loads((model / "options.json").read_text())
    facts["options"]["dropout"] = 0.25
    reseal(model, "options.json", json.dumps(facts).encode())
    run, own = tmp_path / "run", tmp_path / "own.toml"
    own.write_text("dropout = 0.15\n")
    bare = ["train", f"--data={data}", f"--output={run}", f"--init-from={model}", "--valid-metrics=none", *STILL]
    bare += ["--max-updates=1", "--batch-tokens=200", "--threads=1", "--device=cpu", "--preset=transformer-tiny"]

    dumped = call(*bare, "--dump-config")
    assert dumped.code == 0, dumped.err
    assert f"dropout = 0.25  # model {model}" in dumped.out and f"d_model = 32  # model {model}" in dumped.out
    assert "label_smoothing = 0.1  # preset transformer-tiny" in dumped.out
    assert "dropout = 0.15  # " + str(own) in call(*bare, f"--config={own}", "--dump-config").out
    assert "dropout = 0.5  # the command line" in call(*bare, f"--config={own}", "--dropout=0.5", "--dump-config").out

    begun = call(*bare, "--quiet")
    assert begun.code == 0, begun.err
    shutil.rmtree(model)
    ended = call(*bare, "--quiet")  # the options come from its own checkpoint
    assert ended.code == 0, ended.err
    shutil.rmtree(run)
    assert_refused(call(*bare, "--quiet"), 4, model)
    assert not run.exists()


def dumped(call, *arguments):
    """The settings printed by `--dump-config`, each with its origin."""
    printed = call("train", *arguments, "--dump-config")
    assert printed.code == 0, printed.err
    rows = re.findall(r"^(\w+) = (.*)  # (.*)$", printed.out, re.M)
    return {key: (value.strip('"'), origin) for key, value, origin in rows}


def test_fine_tuning_chooses_sizes_for_its_data_unless_files_flags_or_presets_override_them(
    data, model, tmp_path, call
):
    given = [f"--data={data}", f"--output={tmp_path / 'run'}", f"--init-from={model}"]
    settings = dumped(call, *given)
    taken = {key: value for key, (value, origin) in settings.items() if origin == "fine-tuning"}
    assert taken["batch_tokens"] == "512" and taken["max_updates"] == "500" and taken["patience"] == "5"
    assert taken["schedule"] == "inverse-sqrt" and taken["valid_every"] == taken["save_every"] == "50u"
    assert dumped(call, data, *given[1:]) == settings  # the data named without its flag
    (tmp_path / "own.toml").write_text("patience = 7\nlr = 1e-3\n")
    own = dumped(call, *given, f"--config={tmp_path / 'own.toml'}", "--max-updates=20000", "--warmup-updates=9")
    assert own["patience"][0] == "7" and own["lr"] == ("0.001", str(tmp_path / "own.toml"))
    assert own["warmup_updates"] == ("9", "the command line") and own["valid_every"] == ("1000u", "fine-tuning")
    for more in (["--preset=transformer-tiny"], ["--init-state=all"]):  # these have sizes already, or resume a run
        assert "fine-tuning" not in {origin for _, origin in dumped(call, *given, *more).values()}
    assert "patience" not in {k for k, (_, o) in dumped(call, *given, "--max-epochs=3").items() if o == "fine-tuning"}
    adapted = dumped(call, *given, "--lora-rank=2")
    assert adapted["lr"][1] == "fine-tuning" and float(adapted["lr"][0]) > float(settings["lr"][0])


def test_fine_tuning_reports_its_sizes_and_keeps_them_when_resumed(data, model, tmp_path, call):
    run = tmp_path / "run"
    given = [f"--data={data}", f"--output={run}", f"--init-from={model}", "--valid-metrics=none", "--threads=1"]
    begun = call("train", *given, "--max-minutes=0.001", "--lr=1e-3")
    assert begun.code == 0 and "fine-tuning settings" in begun.err and "--batch-tokens 512 " in begun.err, begun.err
    settings = run / "settings.toml"
    settings.write_text(settings.read_text().replace('valid_every = "50u"', 'valid_every = "77u"'))
    assert dumped(call, *given)["valid_every"][0] == "77u" and float(dumped(call, *given)["lr"][0]) == 1e-3
    resumed = call("train", *given, "--max-minutes=0.001")
    assert resumed.code == 0 and "fine-tuning settings" not in resumed.err, resumed.err


def test_a_preset_for_a_different_model_does_not_change_the_model(data, model, tmp_path, call):
    given = [f"--data={data}", f"--output={tmp_path / 'run'}", f"--init-from={model}", "--preset=rnnsearch-small"]
    dumped = call("train", *given, "--dump-config", "--no-quiet")
    assert dumped.code == 0 and 'model = "transformer"' in dumped.out and "d_model = 32" in dumped.out, dumped.err
    assert "preset rnnsearch-small: its model rnnsearch is replaced" in dumped.err


def test_a_sweep_uses_the_options_of_the_model(data, model, tmp_path, call):
    table = ("[train]", f'data = "{data}"', f'init_from = "{model}"', "max_updates = 1", "batch_tokens = 200")
    more = ("threads = 1", 'valid_metrics = ["none"]', 'device = "cpu"', "dropout = [0.1, 0.2]")
    (tmp_path / "sweep.toml").write_text("\n".join((*table, *more)))
    done = call("sweep", tmp_path / "sweep.toml", "--output", tmp_path / "sweep", "--score=valid_loss", "--quiet")
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "sweep/dropout=0.2,seed=1/checkpoints/update-1/options.json").read_text())
    assert facts["options"]["d_model"] == 32 and facts["options"]["dropout"] == 0.2
