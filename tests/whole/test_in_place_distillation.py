"""A model is trained at all depths and exported at some of them."""

import json

import pytest
from conftest import kill_after_update_10, train_arguments
from refusals import assert_refused

FLAGS = ("--criterion=in-place-distillation", "--encoder-layers=2", "--decoder-layers=2", "--seed=2")


@pytest.fixture(scope="module")
def deep(data, tmp_path_factory, nmt):
    run = tmp_path_factory.mktemp("deep") / "run"
    assert nmt(*train_arguments(data, run, 20, *FLAGS)).returncode == 0
    return run


def test_a_killed_run_resumes_bit_for_bit(data, deep, tmp_path, call):
    cut = tmp_path / "cut"
    kill_after_update_10(train_arguments(data, cut, 100_000, *FLAGS), cut)
    assert call(*train_arguments(data, cut, 20, *FLAGS)).code == 0
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (cut / file).read_bytes() == (deep / file).read_bytes()


def test_an_export_of_fewer_layers_translates(deep, tmp_path, call):
    small = tmp_path / "small"
    written = call(
        "export", "--model", deep, "--format=model", "--encoder-layers=1", "--decoder-layers=1", "--output", small
    )
    assert written.code == 0, written.err
    options = json.loads((small / "options.json").read_text())["options"]
    assert (options["encoder_layers"], options["decoder_layers"]) == (1, 1)
    (tmp_path / "text").write_text("one two\n")
    translated = call("translate", "--model", small, "--input", tmp_path / "text")
    assert translated.code == 0 and translated.out.count("\n") == 1
    rounded = call("export", "--model", deep, "--format=int8", "--decoder-layers=1", "--output", tmp_path / "int8")
    assert rounded.code == 0, rounded.err


def test_an_export_keeps_the_calibration_only_with_all_layers(deep, tmp_path, call):
    whole = tmp_path / "whole"
    assert call("export", "--model", deep, "--format=model", "--output", whole).code == 0
    manifest = json.loads((whole / "manifest.json").read_bytes())
    (whole / "manifest.json").write_text(json.dumps(manifest | {"temperature": 1.5}))
    for name, flags, kept in (("same", [], 1.5), ("small", ["--decoder-layers=1"], None)):
        assert call("export", "--model", whole, "--format=model", "--output", tmp_path / name, *flags).code == 0
        assert json.loads((tmp_path / name / "manifest.json").read_bytes()).get("temperature") == kept


def test_missing_depths_are_rejected_and_nothing_is_written(deep, tmp_path, call):
    refused = call("export", "--model", deep, "--format=model", "--encoder-layers=3", "--output", tmp_path / "out")
    assert_refused(refused, 2, "has only 2 layers")
    assert not (tmp_path / "out").exists()
