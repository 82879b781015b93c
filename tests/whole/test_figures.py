"""`nmt plot --figure` makes each figure from a run, a model folder or a preset, as a picture or as numbers."""

import csv
import json
import shutil
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest
from conftest import WORDS, small_model, train_arguments
from refusals import assert_refused
from small_models import SMALL

from nmt import registry

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
ATTENTION = ["attention-maps", "attention-focus", "attention-entropy"]
OF_ONE_RUN = [name for name in registry.names("figure") if name != "setting-effect"]
DRAWN = {  # texts in the picture of the run of 40 updates
    "attention-maps": ["head 1", "head 2", "attended token", "attention weight"],
    "attention-focus": ["layer 1, head 2", "encoder self-attention", "the end symbol", "share of the attention in %"],
    "attention-entropy": ["head", "layer", "Entropy of each attention head, in nats"],
    "position-encodings": ["position in the sentence", "the vector of each position (source and target)"],
    "lr-schedule": ["update", "learning rate", "Learning-rate schedule"],
    "layer-costs": ["encoder 1", "decoder 1", "MFLOP per token", "sentence length n, in tokens"],
}


def texts(svg: bytes) -> list[str]:
    return [
        text.text.strip() for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text") if text.text
    ]


@needs_matplotlib
@pytest.mark.parametrize("name", OF_ONE_RUN)
def test_a_run_becomes_a_picture_and_its_numbers(name, trained, tmp_path, call):
    files = {ending: tmp_path / f"figure.{ending}" for ending in ("svg", "json", "tsv")}
    for file in files.values():
        done = call("plot", trained, "--figure", name, "--output", file)
        assert (done.code, done.out) == (0, ""), done.err
    assert set(DRAWN[name]) <= set(texts(files["svg"].read_bytes()))
    numbers = json.loads(files["json"].read_text())
    with files["tsv"].open(newline="") as file:
        table = list(csv.DictReader(file, dialect="excel-tab"))
    as_text = [{key: "" if value is None else str(value) for key, value in row.items()} for row in numbers]
    assert table == as_text and len(numbers) > 1
    printed = call("plot", trained, "--figure", name)
    assert printed.code == 0 and len(printed.out.splitlines()) == 1 + len(numbers)


@needs_matplotlib
@pytest.mark.parametrize("heads", [1, 16])
@pytest.mark.parametrize("name", [*ATTENTION, "layer-costs"])
def test_models_with_one_and_with_many_heads_are_drawn(name, heads, tmp_path, call):
    options = SMALL["transformer"] | {"heads": heads, "tie": "none"}
    model = small_model(tmp_path / "model", **options)
    (tmp_path / "text").write_text(" ".join(WORDS[:8]) + "\n" + WORDS[0] + "\n")
    texts_given = ["--source", tmp_path / "text", "--target", tmp_path / "text"] if name in ATTENTION else []
    done = call("plot", model, "--figure", name, "--output", tmp_path / "figure.html", *texts_given)
    assert done.code == 0, done.err
    numbers = call("plot", model, "--figure", name, "--output", tmp_path / "figure.json", *texts_given)
    rows = json.loads((tmp_path / "figure.json").read_text())
    assert numbers.code == 0 and (name == "layer-costs" or max(row["head"] for row in rows) == heads)
    assert "<svg" in (tmp_path / "figure.html").read_text()


@needs_matplotlib
def test_the_effect_of_label_smoothing_is_drawn_from_the_folder_of_a_sweep(data, tmp_path, call):
    for smoothing in (0.0, 0.1):
        arguments = train_arguments(
            data, tmp_path / f"runs/smoothing-{smoothing}", 20, f"--label-smoothing={smoothing}"
        )
        assert call(*arguments).code == 0
    done = call("plot", tmp_path / "runs", "--figure", "setting-effect", "--output", tmp_path / "effect.svg")
    assert done.code == 0 and "differ" not in done.err, done.err
    drawn = texts((tmp_path / "effect.svg").read_bytes())
    assert {"label smoothing", "perplexity (lower is better)", "0.0", "0.1", "(1 run)"} <= set(drawn)


def test_a_folder_that_is_marked_as_a_sweep_gives_its_runs(data, trained, tmp_path, call):
    sweep = tmp_path / "sweep"
    for name, smoothing in (("a", "0.1"), ("b", "0.2")):
        shutil.copytree(trained, sweep / name)
        settings = (sweep / name / "settings.toml").read_text()
        line = next(line for line in settings.splitlines() if line.startswith("label_smoothing"))
        (sweep / name / "settings.toml").write_text(settings.replace(line, f"label_smoothing = {smoothing}"))
    (sweep / "sweep.toml").write_text("")
    shown = call("plot", sweep, "--figure", "setting-effect")
    assert shown.code == 0 and len(shown.out.splitlines()) == 3, shown.err


def test_presets_are_drawn_without_a_run_but_not_their_attention(call, tmp_path):
    for name in ("position-encodings", "lr-schedule", "layer-costs"):
        assert call("plot", "transformer-mini", "--figure", name).code == 0
    assert_refused(call("plot", "transformer-mini", "--figure", "attention-entropy"), 2, "transformer-mini", "preset")
    assert_refused(call("plot", "table3-e-learned", "--figure", "position-encodings"), 2, "table3-e-learned")
    assert_refused(call("plot", "transformer-minni", "--figure", "layer-costs"), 2, "transformer-mini")


@pytest.mark.parametrize("name", [*ATTENTION, "position-encodings", "layer-costs"])
def test_several_models_are_refused(name, trained, call):
    assert_refused(call("plot", trained, trained, "--figure", name), 2, f"--figure {name}", trained)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("model", ["bytenet", "memory-network"])
def test_a_model_without_attention_is_refused(name, model, tmp_path, call):
    folder = small_model(tmp_path / "model", model, **SMALL[model])
    (tmp_path / "text").write_text(WORDS[0] + "\n")
    given = ["--source", tmp_path / "text", "--target", tmp_path / "text"]
    assert_refused(call("plot", folder, "--figure", name, *given), 2, folder, model, "attention")


def test_what_a_figure_lacks_is_said(trained, tmp_path, call):
    model = small_model(tmp_path / "model", **SMALL["transformer"])
    assert_refused(call("plot", model, "--figure", "attention-focus"), 2, "--source", "--target", model)
    assert_refused(call("plot", model, "--figure", "lr-schedule"), 2, model)
    assert_refused(call("plot", trained, "--figure", "setting-effect"), 2, "label_smoothing")
    assert_refused(call("plot", trained, "--figure", "setting-effect", "--compared-setting", "dropuot"), 2, "'dropout'")
    assert_refused(call("plot", trained, "--figure", "attention-maps", "--drawn-layer", "3"), 2, "--drawn-layer")
    assert_refused(call("plot", trained, "--figure", "attention-maps", "--drawn-pair", "21"), 3, "--drawn-pair")
    rotary = small_model(tmp_path / "rotary", **SMALL["transformer"], positions="rotary")
    assert_refused(call("plot", rotary, "--figure", "position-encodings"), 2, rotary, "--positions")


def test_a_flag_of_another_figure_is_refused(trained, call):
    assert_refused(call("plot", trained, "--drawn-layer", "1"), 2, "--drawn-layer", "--figure attention-")
    assert_refused(
        call("plot", trained, "--figure", "lr-schedule", "--length", "5"), 2, "--length", "--figure layer-costs"
    )
    assert_refused(call("plot", trained, "--figure", "lr-schedule", "--values", "loss"), 2, "--values")
    assert_refused(call("plot", trained, "--figure", "lr-schedule", "--output", "x.pdf"), 2, "x.pdf", ".json")
