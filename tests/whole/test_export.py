"""`nmt export`: CTranslate2 gives the same results with an exported model as nmt; models for which it would not are rejected."""

import json
import os
import random
import re
import signal
import sys
from itertools import combinations, product
from pathlib import Path
from typing import get_args

import pytest
import torch
from conftest import WORDS
from extras import EXTRAS, named_packages
from random_models import make_model
from refusals import assert_refused

import nmt.extensions.ctranslate2.export
from nmt import registry
from nmt.artefact import Artefact
from nmt.checkpoint import load_model, save_model, weights_of
from nmt.extensions.ctranslate2.engine import POSITIONS
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.models.layers import EPSILON
from nmt.models.transformer import TransformerOptions
from nmt.options import options_of
from nmt.text.pipeline import Pipeline
from nmt.translate.pair_scores import score

ctranslate2 = pytest.importorskip("ctranslate2")

DOCUMENTS = Path(nmt.__file__).parents[1] / "docs"
COLUMNS = ("norm_position", "tie", "positions", "attention_bias", "output_bias", "heads", "joint")
SHAPES = [  # any two values of two columns occur together in a row
    ("post", "all", "learned", True, False, 4, True),
    ("post", "all", "sinusoidal", False, True, 4, True),
    ("pre", "all", "t2t-sinusoidal", False, False, 1, True),
    ("post", "target", "t2t-sinusoidal", True, True, 4, False),
    ("pre", "target", "learned", False, False, 4, True),
    ("pre", "target", "sinusoidal", True, False, 1, False),
    ("post", "none", "sinusoidal", False, True, 4, True),
    ("post", "none", "t2t-sinusoidal", True, False, 1, True),
    ("pre", "none", "learned", False, True, 1, False),
]
PLUGIN = '''
"""A model that is almost the Transformer."""
from dataclasses import dataclass
from nmt import register
from nmt.models.transformer import Transformer, TransformerOptions

@dataclass(frozen=True, kw_only=True)
class OtherOptions(TransformerOptions):
    pass

@register("model", "other", OtherOptions)
class Other(Transformer):
    """The Transformer, but that a line of its own may do what it likes."""
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that ends its sentences."""
    shape = {"norm_position": "pre", "tie": "none", "positions": "t2t-sinusoidal"}
    return make_model(tmp_path_factory.mktemp("model") / "model", **shape)


@pytest.fixture
def export(call, tmp_path):
    """`export(model, flags)` in this process returns its messages, with the folder called out."""
    return lambda model, *flags: call(
        "export", "--model", model, "--format=ctranslate2", "--output", tmp_path / "out", "--threads=1", *flags
    )


def text(lines: int, seed: int = 5) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(lines)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def opened(folder: Path) -> tuple[ctranslate2.Translator, Pipeline]:
    """An exported folder, opened without anything else."""
    return ctranslate2.Translator(str(folder), intra_threads=1), Pipeline.load(Artefact(folder, "ctranslate2"))


def translate_alone(folder: Path, lines: list[str], **options: object) -> list[str]:
    engine, pipeline = opened(folder)
    ids = {pipeline.target.piece(i): i for i in range(pipeline.target.size)}
    found = engine.translate_batch(list(map(pipeline.source.pieces, lines)), **options)
    return [pipeline.target.decode([ids[piece] for piece in one.hypotheses[0]]) for one in found]


def score_alone(folder: Path, sources: list[str], targets: list[str]) -> list[list[float]]:
    """Nats of each target's tokens and EOS."""
    engine, pipeline = opened(folder)
    found = engine.score_batch(list(map(pipeline.source.pieces, sources)), list(map(pipeline.target.pieces, targets)))
    return [one.log_probs for one in found]


def test_any_two_settings_of_a_transformer_are_exported_together():
    settings = [{row[place] for row in SHAPES} for place in range(len(COLUMNS))]
    types = {option.name: option.type for option in options_of(TransformerOptions)}
    for name, found in zip(COLUMNS, settings, strict=True):
        if name not in ("heads", "joint"):
            annotation = types[name]
            rejected = {"relative", "rotary", "sinusoidal-rotary"}  # see below
            assert found == set(get_args(annotation) or (True, False)) - rejected
    for one, other in combinations(range(len(COLUMNS)), 2):
        never = {("all", False)} if (COLUMNS[one], COLUMNS[other]) == ("tie", "joint") else set()
        assert {(row[one], row[other]) for row in SHAPES} == set(product(settings[one], settings[other])) - never


SORTS = ("equal", "tied", "different", "endless", "control")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_an_exported_transformer_of_any_shape_gives_the_same_translations_and_probabilities(shape, export, tmp_path):
    options = dict(zip(COLUMNS, shape, strict=True))
    folder = make_model(tmp_path / "m", max_positions=6, **options)
    done = export(folder, "--check-lines=30", "--json")
    assert done.code == 0, done.err
    assert [one["search"] for one in done.json["agreements"]] == ["greedy", "beam 4"]
    for one in done.json["agreements"]:
        assert one["lines"] == 30 == sum(one[sort] for sort in SORTS) - one["different"] and one["equal"] > 15

    loaded = load_model(folder, torch.device("cpu"))
    sources = text(30)
    targets = [line if options["joint"] else line.upper() for line in text(30, seed=6)]
    ours = score(loaded.model, loaded.pipeline, sources, targets, 1000, 100)
    for own, other in zip(ours, score_alone(tmp_path / "out", sources, targets), strict=True):
        assert other == pytest.approx(own.log_probs, abs=1e-3)
    assert json.loads((tmp_path / "out/config.json").read_text())["layer_norm_epsilon"] == EPSILON


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 1, "encoder_layers": 1, "decoder_layers": 3},
        {"heads": 3, "d_k": 24, "d_v": 24, "attention_bias": True},
        {"heads": 2, "d_k": 8, "d_v": 8, "norm_position": "pre", "d_ff": 20},
        {"positions": "learned", "max_positions": POSITIONS + 2},
        {"tie_layers": "all", "encoder_layers": 3, "decoder_layers": 2},
        {"norm": "rms", "norm_position": "pre"},
        {"norm": "rms"},
        {"ffn": "glu", "activation": "swish"},
        {"positions": "rotary"},
        {"positions": "rotary", "heads": 2, "d_k": 8, "d_v": 8, "norm_position": "pre"},
        {"kv_heads": 2, "decoder_layers": 2},
        {"kv_heads": 1},
        {
            "norm": "rms",
            "norm_position": "pre",
            "ffn": "glu",
            "activation": "gelu",
            "positions": "rotary",
            "kv_heads": 2,
        },
    ],
)
def test_any_number_of_layers_and_any_head_width_can_be_exported(options, export, tmp_path):
    assert export(make_model(tmp_path / "m", **options)).code == 0


def test_the_exported_folder_alone_gives_the_translations_of_nmt(model, export, call, tmp_path):
    source = write(tmp_path / "source", [*text(15), "", "never-heard-of ban"])
    assert export(model, "--check", source).code == 0
    flags = ["--decoder=greedy", "--max-len-a=0", "--max-len-b=59", "--input", source, "--output", tmp_path / "ours"]
    done = call("translate", "--model", model, *flags)
    assert done.code == 0
    lines = source.read_text().split("\n")[:-1]
    theirs = translate_alone(tmp_path / "out", lines, beam_size=1, max_decoding_length=59)
    assert theirs == (tmp_path / "ours").read_text().split("\n")[:-1]


def test_exports_have_positions_for_long_lines_and_repeat_the_last_learned_one(export, tmp_path):
    folder = make_model(tmp_path / "m", positions="learned", max_positions=6)
    assert export(folder, "--check", write(tmp_path / "long", [" ".join(WORDS * 8)])).code == 0
    options = {"max_input_length": 0, "max_decoding_length": 2}
    assert translate_alone(tmp_path / "out", [" ".join(WORDS[:1] * (POSITIONS - 1))], **options)
    with pytest.raises(RuntimeError, match=f"positions >= {POSITIONS}"):
        translate_alone(tmp_path / "out", [" ".join(WORDS[:1] * POSITIONS)], **options)


def swap_queries_and_keys(spec):
    linear = spec.encoder.layer[0].self_attention.linear[0]
    queries, keys, values = linear.weight.tensor.chunk(3)
    linear.weight.tensor = torch.cat([keys, queries, values]).contiguous()


def begin_at_position_1(spec):
    encodings = spec.decoder.position_encodings.encodings
    encodings.tensor = encodings.tensor.roll(-1, 0).contiguous()


def swap_norms(spec):
    layer = spec.decoder.layer[0]
    layer.self_attention.layer_norm, layer.ffn.layer_norm = layer.ffn.layer_norm, layer.self_attention.layer_norm


def forget_to_scale(spec):
    spec.encoder.scale_embeddings.array = type(spec.encoder.scale_embeddings.array)(0)


def say_nothing_at_the_end(spec):
    spec.config.add_source_eos = False


def forget_a_vector(spec):
    spec.encoder.embeddings[0].weight.tensor[-1] = torch.nan  # of a word that is not in the first line


def alter(monkeypatch, change):
    """Let `change` modify each specification before it is written."""
    right = nmt.extensions.ctranslate2.export.specification

    def altered(loaded):
        spec = right(loaded)
        change(spec)
        return spec

    monkeypatch.setattr(nmt.extensions.ctranslate2.export, "specification", altered)


WRONG = [
    swap_queries_and_keys,
    begin_at_position_1,
    swap_norms,
    forget_to_scale,
    say_nothing_at_the_end,
    forget_a_vector,
]


@pytest.mark.parametrize("spoil", WRONG)
def test_a_wrong_export_is_detected_and_deleted(spoil, model, export, tmp_path, monkeypatch):
    alter(monkeypatch, spoil)
    refused = export(model)
    assert_refused(refused, 4, "CTranslate2's log-probabilities differ from nmt's by")
    assert refused.out == "" and refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_quantized_export_that_gives_nan_is_rejected(model, export, tmp_path, monkeypatch):
    alter(monkeypatch, forget_a_vector)
    assert_refused(export(model, "--quantization=bfloat16"), 4, "differ from nmt's by nan nats")
    assert list(tmp_path.iterdir()) == []


def prefer_odd_ids(spec):
    for table in (spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight, spec.decoder.projection.weight):
        table.tensor[1::2] *= 1 + 1e-6


def test_ties_between_tokens_are_not_reported_as_differences(export, tmp_path, monkeypatch):
    loaded = load_model(make_model(tmp_path / "m"), torch.device("cpu"))
    weights = weights_of(loaded.model)
    table = weights["source_embedding.weight"]
    table[5::2] = table[4:-1:2]  # each word has the same vector as the next
    save_model(tmp_path / "twins", weights, loaded.facts, loaded.pipeline, {})
    alter(monkeypatch, prefer_odd_ids)
    done = export(tmp_path / "twins", "--json")
    assert done.code == 0, done.err
    assert all(one["tied"] > 0 == one["different"] for one in done.json["agreements"])


def test_an_int8_export_is_smaller_and_its_differences_are_reported(model, export, tmp_path):
    size = {}
    for quantization in ("float32", "int8"):
        done = export(model, f"--quantization={quantization}", "--overwrite", "--json")
        assert done.code == 0, done.err
        size[quantization] = (tmp_path / "out/model.bin").stat().st_size
        assert Artefact(tmp_path / "out", "ctranslate2").manifest["quantization"] == quantization
    positions = 4 * POSITIONS * 32  # the table is never quantised
    assert size["int8"] - positions < (size["float32"] - positions) / 2
    rows = [[one[sort] for sort in SORTS] for one in done.json["agreements"]]
    assert all(sum(row) == 100 and row[0] > row[2] > 0 for row in rows), rows


def test_the_length_penalty_that_best_matches_nmt_is_chosen_and_recorded(export, call, tmp_path):
    model, source = make_model(tmp_path / "m"), write(tmp_path / "source", text(15))
    assert export(model).code == 0
    search = json.loads((tmp_path / "out/nmt-search.json").read_text())
    assert search["tuned"] is None
    wanted = search["translate_batch"] | {"length_penalty": 1.2}
    reference = write(tmp_path / "reference", translate_alone(tmp_path / "out", text(15), **wanted))

    done = export(model, "--overwrite", "--tune", source, reference)
    assert done.code == 0, done.err
    search = json.loads((tmp_path / "out/nmt-search.json").read_text())
    tuned, chosen = search["tuned"], search["translate_batch"]["length_penalty"]
    assert tuned["bleu"]["1.2"] == pytest.approx(100)
    nearest = max(tuned["likeness"].values())
    likest = [float(one) for one, found in tuned["likeness"].items() if found == nearest]
    assert chosen == min(likest, key=lambda one: abs(one - 0.5))
    assert call("translate", "--model", model, "--input", source, "--output", tmp_path / "ours").code == 0
    lines = (tmp_path / "ours").read_text().splitlines()
    bleu = Bleu(BleuOptions())
    score = bleu(lines, [reference.read_text().splitlines()])
    assert (tuned["ours"], tuned["signature"]) == (score.value, score.signature)
    for one in ("0.0", "1.2"):
        texts = translate_alone(
            tmp_path / "out", text(15), **search["translate_batch"] | {"length_penalty": float(one)}
        )
        assert tuned["likeness"][one] == pytest.approx(bleu(texts, [lines]).value)
    assert f"nmt\tBLEU {tuned['ours']:.2f}\tbeam|" in done.out
    assert done.out.endswith(f"length_penalty\t{chosen}\n")


def test_models_unsupported_by_ctranslate2_are_rejected_with_the_reason(export, call, tmp_path, monkeypatch):
    def reason(folder: Path, *flags: object) -> str:
        refused = export(folder, *flags)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
        assert not (tmp_path / "out").exists()
        return refused.err

    assert "not 'rnnsearch'" in reason(make_model(tmp_path / "rnn", "rnnsearch"))
    assert "keys and values of the same width" in reason(make_model(tmp_path / "narrow", d_k=4))
    both = reason(tmp_path / "narrow", "--model", tmp_path / "rnn")
    assert "--model names 2 models, but only one can be exported" in both
    wide = make_model(tmp_path / "wide", heads=4, kv_heads=2, d_k=24, d_v=24)
    assert "with --kv-heads 2, CTranslate2 needs heads" in reason(wide)
    assert "are named '</s>'" in reason(make_model(tmp_path / "words", words=("</s>",)))
    assert "relative positions cannot" in reason(make_model(tmp_path / "relative", positions="relative"))
    assert "supports sinusoidal or rotary positions, but not both" in reason(
        make_model(tmp_path / "both", positions="sinusoidal-rotary")
    )
    assert "--attention-window 3" in reason(make_model(tmp_path / "window", attention_window=3))
    assert "in reverse order" in reason(make_model(tmp_path / "turned", right_to_left=True))
    (tmp_path / "plugin.py").write_text(PLUGIN)
    registry.load_plugin(str(tmp_path / "plugin.py"))
    assert "not 'other'" in reason(make_model(tmp_path / "other", "other"))
    assert "pip" not in reason(tmp_path / "narrow", "--tune", "one")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert named_packages(reason(tmp_path / "narrow")) == EXTRAS["ctranslate2"]


def test_wrong_flags_and_missing_files_are_reported_with_their_exit_status(model, export, tmp_path):
    assert export(model, "--check-lines=0").code == 2
    assert export(model, "--quantization=int4").code == 2
    assert export(tmp_path / "nowhere").code == 4
    empty, two = write(tmp_path / "empty", ["", " "]), write(tmp_path / "two", text(3))
    assert export(model, "--check", empty).code == 3
    assert export(model, "--tune", empty, two).code == 3
    assert not (tmp_path / "out").exists()
    assert export(model).code == 0 and export(model).code == 2 and export(model, "--overwrite").code == 0


def test_an_export_does_not_overwrite_its_model(export, tmp_path):
    assert_refused(export(make_model(tmp_path / "out"), "--overwrite"), 2, "expected a folder of kind ctranslate2")
    assert (tmp_path / "out/model.safetensors").exists()


def test_the_program_in_the_documentation_runs(model, call, tmp_path, monkeypatch, capsysbinary):
    program = re.search(r"```python\n(.*?)```", (DOCUMENTS / "how-to/export.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    assert program and call("export", "--model", model, "--output", "model-ct2", "--threads=1").code == 0
    capsysbinary.readouterr()
    exec(program[1].replace("A man is sleeping .", "ban des kit"), {})
    search = json.loads(Path("model-ct2/nmt-search.json").read_text())["translate_batch"]
    translation = translate_alone(Path("model-ct2"), ["ban des kit"], **search)[0]
    assert capsysbinary.readouterr().out.decode() == translation + "\n"


def test_an_interrupted_export_leaves_no_files(model, export, tmp_path, monkeypatch):
    plain = nmt.extensions.ctranslate2.export.compare_engines

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return plain(*arguments)

    monkeypatch.setattr(nmt.extensions.ctranslate2.export, "compare_engines", interrupted)
    assert export(model) == (128 + signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_one_row_per_search_and_nothing_else(model, nmt, tmp_path):
    done = nmt("export", "--model", model, "--output", tmp_path / "out", "--threads=1", "--quiet", "--check-lines=20")
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [row.split("\t") for row in done.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["greedy", "beam 4", "length_penalty"]
    assert all(row[1] == "lines 20" for row in rows[:2])
