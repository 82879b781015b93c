"""The commands as a user chains them: prepare, train, average, translate, evaluate and score, for every model."""

import json
import math
from pathlib import Path

import pytest
from conftest import TINY, train_arguments, write_corpus
from safetensors.numpy import load_file

from nmt.checkpoint import Checkpoints

SCORING = Path(__file__).parents[3] / "shared/data/scoring"
RNNSEARCH = ["--model=rnnsearch", "--hidden-size=24", "--embedding-size=16", "--attention-size=16", "--maxout-size=16"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("test")
    write_corpus(folder / "test", 15, 3)
    return folder / "test"


def test_average_is_the_mean_of_the_last_checkpoints_and_shows_their_losses(data, trained, tmp_path, nmt):
    made = nmt("average", "--run", trained, "--last=3", "--output", tmp_path / "m", "--score", data, "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert told["averaged"] == ["update-20", "update-30", "update-40"]
    assert list(told["scores"]) == [*told["averaged"], "m"]
    parts = [load_file(trained / f"checkpoints/{name}/model.safetensors") for name in told["averaged"]]
    for name, mean in load_file(tmp_path / "m/model.safetensors").items():
        expected = sum(part[name].astype("float64") for part in parts) / 3
        assert abs(mean - expected).max() < 1e-7
    last = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()][-1]
    assert told["scores"]["update-40"]["loss"] == pytest.approx(last["valid_loss"], rel=1e-6)


def test_average_takes_named_or_best_checkpoints_and_refuses_what_is_not_there(trained, tmp_path, nmt):
    best = Checkpoints(trained).ranked()[0]
    assert nmt("average", "--run", trained, "--best=1", "--output", tmp_path / "b").returncode == 0
    assert (tmp_path / "b/model.safetensors").read_bytes() == (best / "model.safetensors").read_bytes()
    assert (
        nmt("average", "--checkpoint", best, trained / "checkpoints/update-10", "--output", tmp_path / "n").returncode
        == 0
    )
    assert nmt("average", "--run", trained, "--last=5", "--output", tmp_path / "x").returncode == 2
    assert nmt("average", "--run", trained, "--last=2", "--output", tmp_path / "b").returncode == 2
    damaged = nmt("average", "--checkpoint", tmp_path / "nowhere", "--output", tmp_path / "x")
    assert damaged.returncode == 4 and not (tmp_path / "x").exists()


def test_a_run_translates_with_its_best_checkpoint_and_a_model_folder_needs_nothing_else(
    trained, corpus, tmp_path, nmt
):
    best = Checkpoints(trained).ranked()[0]
    text = corpus.with_suffix(".en").read_bytes()
    moved = tmp_path / "elsewhere"
    best.rename(moved)
    try:
        alone = nmt("translate", "--model", moved, input=text)
    finally:
        moved.rename(best)
    assert alone.returncode == 0, alone.stderr
    assert nmt("translate", "--model", trained, input=text).stdout == alone.stdout
    assert alone.stdout.count(b"\n") == 15


def test_evaluate_gives_the_same_scores_from_a_file_and_from_a_model_always_with_signature(
    trained, corpus, tmp_path, nmt
):
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    (tmp_path / "out").write_bytes(nmt("translate", "--model", trained, input=source.read_bytes()).stdout)
    from_file = nmt("evaluate", "--hypothesis", tmp_path / "out", "--reference", reference, "--json")
    from_model = nmt("evaluate", "--model", trained, "--source", source, "--reference", reference, "--json")
    assert from_file.returncode == from_model.returncode == 0, from_model.stderr
    assert json.loads(from_file.stdout) == json.loads(from_model.stdout)
    assert [row["metric"] for row in json.loads(from_file.stdout)] == ["bleu", "chrf", "ter"]
    assert all("version:" in row["signature"] for row in json.loads(from_file.stdout))
    assert b"version:" in nmt("evaluate", "--hypothesis", tmp_path / "out", "--reference", reference).stdout
    short = nmt("evaluate", "--hypothesis", source, "--reference", Path(__file__))
    assert short.returncode == 3 and b"15 lines" in short.stderr


@pytest.mark.skipif(not SCORING.is_dir(), reason="the published outputs are not beside the checkout")
@pytest.mark.parametrize("system", ["en-de/wmt13.google.de", "en-fr/wmt13.bergamot-base-memory.fr"])
def test_evaluate_reproduces_published_bleu(system, nmt):
    pair = system.split("/")[0]
    reference = SCORING / pair / f"wmt13.ref.{system[-2:]}.gz"
    found = nmt(
        "evaluate", "--hypothesis", SCORING / f"{system}.gz", "--reference", reference, "--metrics=bleu", "--json"
    )
    published = float((SCORING / f"{system}.bleu").read_text())
    assert round(json.loads(found.stdout)[0]["value"], 1) == published


def test_score_is_the_log_probability_that_beam_search_reports(trained, corpus, tmp_path, nmt):
    source = corpus.with_suffix(".en")
    found = nmt("translate", "--model", trained, "--json", input=source.read_bytes()).stdout.decode().splitlines()
    best = [json.loads(line) for line in found]
    (tmp_path / "out").write_text("".join(one["text"] + "\n" for one in best))
    given = ["score", "--model", trained, "--source", source, "--target", tmp_path / "out"]
    scores = [float(line) for line in nmt(*given).stdout.split()]
    assert scores == pytest.approx([one["candidates"][0]["log_prob"] for one in best], abs=1e-4)
    detailed = [json.loads(line) for line in nmt(*given, "--per-token", "--json").stdout.splitlines()]
    for one in detailed:
        assert math.fsum(token["log_prob"] for token in one["tokens"]) == pytest.approx(one["log_prob"], abs=1e-6)
        assert one["tokens"][-1]["token"] == "</s>"


def test_rnnsearch_goes_through_the_same_commands(data, corpus, tmp_path, nmt):
    arguments = [argument for argument in train_arguments(data, tmp_path / "run", 20) if argument not in TINY]
    trained = nmt(*arguments, *RNNSEARCH, "--batch-tokens=400", "--lr=0.1", "--threads=1")
    assert trained.returncode == 0, trained.stderr
    assert nmt("average", "--run", tmp_path / "run", "--last=2", "--output", tmp_path / "m").returncode == 0
    source, reference = corpus.with_suffix(".en"), corpus.with_suffix(".de")
    assert nmt("translate", "--model", tmp_path / "m", input=source.read_bytes()).stdout.count(b"\n") == 15
    assert nmt("score", "--model", tmp_path / "m", "--source", source, "--target", reference).stdout.count(b"\n") == 15
    assert nmt("evaluate", "--model", tmp_path / "m", "--source", source, "--reference", reference).returncode == 0


def test_data_of_another_vocabulary_is_refused(data, trained, tmp_path, nmt):
    write_corpus(tmp_path / "other", 50, 9)
    prepared = ["--source-lang=en", "--target-lang=de", "--train", tmp_path / "other", "--valid", tmp_path / "other"]
    assert nmt("prepare", *prepared, "--subword=bpe", "--vocab-size=60", "--output", tmp_path / "d").returncode == 0
    scored = nmt("average", "--run", trained, "--last=1", "--output", tmp_path / "m", "--score", tmp_path / "d")
    assert scored.returncode == 4 and b"another vocabulary" in scored.stderr
    goes_on = nmt(*train_arguments(tmp_path / "d", trained, 50))
    assert goes_on.returncode in (2, 4)
    assert (
        nmt("prepare", *prepared, "--vocabulary", Checkpoints(trained).best(), "--output", tmp_path / "e").returncode
        == 0
    )
    scored = nmt("average", "--run", trained, "--last=1", "--output", tmp_path / "n", "--score", tmp_path / "e")
    assert scored.returncode == 0, scored.stderr
