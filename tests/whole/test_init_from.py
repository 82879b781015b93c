"""`nmt train --init-from`: a new run begins with the weights of a trained model, and with nothing else of it."""

import json
import shutil

import pytest
from conftest import train_arguments, write_corpus
from safetensors.numpy import load_file

from nmt.runs import find_model

STILL = ("--optimizer=sgd", "--lr=1e-30")  # an update that changes no weight


def weights(folder):
    return {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the best checkpoint of the trained run, with a manifest that allows changes."""
    return shutil.copytree(find_model(trained), tmp_path / "model")


def test_a_run_begins_with_the_weights_of_a_run_or_checkpoint_and_all_else_is_new(data, trained, model, tmp_path, call):
    for number, given in enumerate((trained, model)):
        output = tmp_path / f"run-{number}"
        more = ("--dropout=0.3", *STILL, f"--init-from={given}")
        begun = call(*train_arguments(data, output, 1, *more), "--no-quiet")
        assert begun.code == 0, begun.err
        assert f"begins with the weights of {find_model(given)}" in begun.err
        assert weights(output / "checkpoints/update-1") == weights(model)
        state = json.loads((output / "checkpoints/update-1/training.json").read_text())
        assert state["progress"]["update"] == 1 and state["progress"]["position"]["epoch"] == 1


def test_a_run_goes_on_bit_for_bit_without_the_model_that_it_began_from(data, model, tmp_path, call):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    given = (f"--init-from={model}", "--valid-every=10u")
    assert call(*train_arguments(data, whole, 20, *given)).code == 0
    assert call(*train_arguments(data, cut, 10, *given)).code == 0
    shutil.rmtree(model)
    refused = call(*train_arguments(data, cut, 20))
    assert refused.code == 2 and f"init_from: {model} -> None" in refused.err
    written_otherwise = f"--init-from={model.parent / 'cut' / '..' / model.name}/"
    assert call(*train_arguments(data, cut, 10, written_otherwise, "--valid-every=10u")).code == 0
    assert call("train", "--config", cut / "settings.toml", "--max-updates=20", "--quiet").code == 0
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert weights(cut / "checkpoints/update-20") == weights(whole / "checkpoints/update-20")


def test_another_architecture_is_4_and_the_differences_are_listed(data, model, tmp_path, call):
    refused = call(*train_arguments(data, tmp_path / "run", 1, f"--init-from={model}", "--d-ff=128", "--heads=4"))
    assert refused.code == 4 and "(d_ff: 64 -> 128; heads: 2 -> 4; give the same" in refused.err
    own = ("--model=language-model", "--layers=1", "--heads=2", "--d-model=32", "--d-ff=64", "--valid-metrics=none")
    paths = (f"--data={data}", f"--output={tmp_path / 'run'}", f"--init-from={model}")
    other = call("train", *paths, *own, "--max-updates=1", "--threads=1", "--quiet")
    assert other.code == 4 and "model: transformer -> language-model" in other.err
    assert not (tmp_path / "run/checkpoints/update-1").exists()


def test_another_vocabulary_is_4_and_prepared_with_the_models_own_it_is_taken(data, model, tmp_path, call):
    write_corpus(tmp_path / "corpus", 50, 7)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'corpus'}", "--quiet"]
    assert call(*prepare, "--subword=bpe", "--vocab-size=60", f"--output={tmp_path / 'other'}").code == 0
    arguments = [f"--init-from={model}", *STILL, "--valid-metrics=none"]
    refused = call(*train_arguments(tmp_path / "other", tmp_path / "run", 1, *arguments))
    assert refused.code == 4 and f"nmt prepare --vocabulary {model}" in refused.err
    assert call(*prepare, f"--vocabulary={model}", f"--output={tmp_path / 'same'}").code == 0
    taken = call(*train_arguments(tmp_path / "same", tmp_path / "run", 1, *arguments))
    assert taken.code == 0, taken.err


@pytest.mark.parametrize("fault", ["no such folder", "prepared data", "a flipped byte", "no weights"])
def test_a_model_that_is_none_or_damaged_is_4_and_leaves_no_checkpoint(fault, data, model, tmp_path, call):
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
