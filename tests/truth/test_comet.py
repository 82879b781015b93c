"""COMET as a metric and as the utility of mbr, with a stand-in for its library that is called as the library is."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from conftest import records_of, train_arguments
from extras import EXTRAS, named_packages
from refusals import assert_refused
from scorers import RandomScorer, random_sources

from nmt import UserError, registry
from nmt.extensions.scores.metrics.comet import Comet, CometOptions
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions
from nmt.symbols import EOS

V = 9
SHARED = {"max_len_a": 0, "max_len_b": 4, "sampling_seed": 3}


def text(tokens):
    return " ".join(str(token) for token in tokens if token > EOS)


def likeness(pair):
    """A made-up score that depends on all three texts and is never the same twice."""
    src, mt, ref = (set(pair[key].split()) for key in ("src", "mt", "ref"))
    return (len(mt & ref) + 0.3 * len(src & mt) - 0.1 * len(mt)) / 10


@pytest.fixture
def library(monkeypatch):
    """A module `comet`; `loaded` has the files that it was asked for."""
    module, loaded = ModuleType("comet"), []

    def load_from_checkpoint(checkpoint_path):
        loaded.append(checkpoint_path)

        def predict(samples, batch_size=16, gpus=1, progress_bar=True):
            assert gpus in (0, 1) and not progress_bar
            return SimpleNamespace(scores=[likeness(pair) for pair in samples], system_score=0.0)

        return SimpleNamespace(predict=predict)

    module.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    return loaded


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.ckpt").touch()
    return str(tmp_path / "model.ckpt")


def test_the_best_translation_has_the_highest_expected_comet(library, model):
    scorer, rows = RandomScorer(12, V), random_sources(12, 5, V)
    values = {"utility": "comet", "utility.comet_model": model, "num_candidates": 16, "n_best": 16}
    values |= {f"candidates.{key}": value for key, value in SHARED.items()}
    decoder = registry.build(registry.choose("decoder", "mbr", values))
    decoder.target, decoder.source_text = SimpleNamespace(decode=text), text
    drawn = Sampling(SamplingOptions(n_best=16, **SHARED)).search(scorer, rows)
    for row, samples, found in zip(rows.tolist(), drawn, decoder.search(scorer, rows), strict=True):
        texts = [text(sample.tokens) for sample in samples]
        expected = {
            own: 100 * np.mean([likeness({"src": text(row), "mt": own, "ref": other}) for other in texts])
            for own in texts
        }
        assert {text(best.tokens): best.score for best in found} == pytest.approx(expected, abs=1e-6)
        assert found[0].score == pytest.approx(max(expected.values()), abs=1e-6)
    assert library == [model]


def test_comet_of_a_file_is_the_mean_over_its_lines(library, model, tmp_path, call):
    lines = {"src": ["1 2 3", "4 5"], "mt": ["1 2 4", "5 5 6"], "ref": ["2 4", "5 6 7"]}
    for name, of_file in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in of_file))
    expected = 100 * np.mean(
        [likeness(dict(zip(lines, row, strict=True))) for row in zip(*lines.values(), strict=True)]
    )
    files = ["--hypothesis", tmp_path / "mt", "--reference", tmp_path / "ref", "--metrics", "comet", "--json"]
    scored = call("evaluate", *files, "--source", tmp_path / "src", "--comet-model", model)
    assert scored.code == 0, scored.err
    [row] = scored.json
    assert row["value"] == pytest.approx(expected) and f"|model:{model}|" in row["signature"]
    assert_refused(call("evaluate", *files, "--comet-model", model), 2, "--source")
    assert_refused(call("evaluate", *files, "--source", tmp_path / "src"), 2, "--comet-model")
    assert_refused(call("evaluate", *files[:4], "--comet-model", model), 2, "--comet-model", "--metrics")


def test_training_can_validate_with_comet(library, model, data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "run", 40, "--best-by=comet", "--no-valid-bleu")
    trained = call(*arguments, "--comet-model", model)
    assert trained.code == 0, trained.err
    dev = data.parent / "dev"
    assert (
        call("translate", "--model", tmp_path / "run", f"{dev}.en", "--output", tmp_path / "out", "--quiet").code == 0
    )
    files = ["--hypothesis", tmp_path / "out", "--reference", f"{dev}.de", "--source", f"{dev}.en"]
    [row] = call("evaluate", *files, "--metrics=comet", "--comet-model", model, "--json").json
    records = records_of(tmp_path / "run")
    validated = [record["valid_comet"] for record in records if "valid_comet" in record]
    assert len(validated) == 2 and max(validated) == pytest.approx(row["value"])
    assert call(*arguments).code == 2  # resumes with the same model only
    assert_refused(call(*train_arguments(data, tmp_path / "other", 1, "--comet-model", model)), 2, "--valid-metrics")


def test_comet_takes_one_reference_and_needs_the_sources(library, model):
    comet = Comet(CometOptions(comet_model=model))
    with pytest.raises(UserError, match="only one reference, not 2"):
        comet(["1"], [["1"], ["2"]], ["1"])
    with pytest.raises(UserError, match="add --source"):
        comet(["1"], [["1"]])


def test_a_missing_library_or_model_is_reported_with_what_to_do(monkeypatch, tmp_path, library):
    values = {"utility": "comet", "utility.comet_model": str(tmp_path / "none.ckpt")}
    mbr = registry.choose("decoder", "mbr", values)
    with pytest.raises(UserError, match=r"none\.ckpt: no such file"):
        registry.build(mbr)
    with pytest.raises(UserError, match="add --comet-model"):
        registry.build(registry.choose("decoder", "mbr", {"utility": "comet"}))
    monkeypatch.setitem(sys.modules, "comet", None)  # as if it were not installed
    with pytest.raises(UserError, match="comet") as refused:
        registry.build(mbr)
    assert named_packages(refused.value) == EXTRAS["comet"]
