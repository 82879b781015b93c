"""Re-ranking by right-to-left models, models of the reverse direction, and language models."""

import json

import pytest
import torch
from conftest import train_arguments, write_corpus
from refusals import assert_refused

from nmt.checkpoint import load_model
from nmt.cli.main import run
from nmt.extensions.searches.wrappers.rerank import RerankModel
from nmt.symbols import BOS, EOS

LINES = ["ban des kit", "lora", "mus den bali kira", "", "den den"]
LANGUAGE_MODEL = ["--preset=language-model", "--layers=1", "--d-model=32", "--d-ff=64", "--heads=2", "--schedule=inverse-sqrt",
                  "--lr=0.005", "--warmup-updates=5", "--batch-tokens=400", "--threads=1", "--matmul=torch"]  # fmt: skip


@pytest.fixture(scope="module")
def models(data, tmp_path_factory):
    """Short runs by name: `right-to-left` shares the vocabulary of `trained`, `channel` has different subwords."""
    folder = tmp_path_factory.mktemp("rerank")
    write_corpus(folder / "c", 300, 1)
    write_corpus(folder / "v", 20, 2)
    files = [f"--train={folder / 'c'}", f"--valid={folder / 'v'}", "--quiet"]
    shared = ["prepare", "--source-lang=en", "--target-lang=de", f"--vocabulary={data}", *files]
    assert run([*shared, f"--output={folder / 'turned'}", "--right-to-left"]) == 0
    own = ["prepare", "--source-lang=de", "--target-lang=en", "--vocab-size=60", *files]
    assert run([*own, f"--output={folder / 'back'}"]) == 0
    mono = [
        "prepare",
        "--source-lang=de",
        "--target-lang=de",
        f"--source={folder / 'c.de'}",
        f"--target={folder / 'c.de'}",
    ]
    assert run([*mono, "--vocab-size=60", f"--output={folder / 'mono'}", "--quiet"]) == 0
    assert run(train_arguments(folder / "turned", folder / "right-to-left", 20)) == 0
    assert run(train_arguments(folder / "back", folder / "channel", 20)) == 0
    language_model = ["train", f"--data={folder / 'mono'}", f"--output={folder / 'language-model'}", *LANGUAGE_MODEL]
    assert run([*language_model, "--max-updates=20", "--quiet"]) == 0
    return folder


@pytest.fixture
def translate(trained, tmp_path, call):
    """`translate(*flags)` returns the result for LINES."""
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    return lambda *flags: call(
        "translate", f"--model={trained}", f"--input={tmp_path / 'lines'}", "--quiet", "--threads=1", *flags
    )


@pytest.fixture
def score(tmp_path, call):
    """`score(model, sources, targets)`: (nats, tokens and EOS) of each pair, by nmt score."""

    def scored(model, sources, targets):
        for name, lines in (("s", sources), ("t", targets)):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        result = call(
            "score",
            f"--model={model}",
            f"--source={tmp_path / 's'}",
            f"--target={tmp_path / 't'}",
            "--per-token",
            "--json",
        )
        rows = [json.loads(line) for line in result.out.splitlines()]
        return [(row["log_prob"], row["tokens"]) for row in rows]

    return scored


@torch.inference_mode()
def word_by_word(model, source, target):
    """Nats of each target word and EOS, computed step by step as in a search. Source and target are ids."""
    state = model.start(torch.tensor([[*source, EOS]]))
    found = []
    for read, said in zip([BOS, *target], [*target, EOS], strict=True):
        log_probs, state = model.step(torch.tensor([read]), state)
        found.append(float(log_probs[0, said]))
    return found


def test_a_right_to_left_model_scores_the_reversed_words(models, trained, score):
    loaded, usual = (load_model(folder, torch.device("cpu")) for folder in (models / "right-to-left", trained))
    words = usual.pipeline.target.encode("BAN DES KIT")
    assert loaded.pipeline.target.encode("BAN DES KIT") == words[::-1] != words
    [(log_prob, tokens)] = score(models / "right-to-left", ["kit des ban"], ["BAN DES KIT"])
    assert [token["token"] for token in tokens] == ["BAN", "DES", "KIT", "</s>"]
    *backwards, end = word_by_word(loaded.model, usual.pipeline.source.encode("kit des ban"), words[::-1])
    assert [token["log_prob"] for token in tokens] == pytest.approx([*backwards[::-1], end], abs=1e-4)
    assert log_prob == pytest.approx(sum(backwards) + end, abs=1e-4)


def test_the_output_of_a_right_to_left_model_is_in_reading_order(models, call, tmp_path):
    source = tmp_path / "source"
    source.write_text("ban des kit lora\n")
    loaded = load_model(models / "right-to-left", torch.device("cpu"))
    flags = ["--json", "--word-scores", "--alignment=soft", "--decoder=greedy", "--quiet", "--min-length=3"]
    result = call("translate", f"--model={models / 'right-to-left'}", f"--input={source}", *flags)
    [one] = result.json["candidates"]
    target = loaded.pipeline.target
    said = [target.encode(token)[0] for token in reversed(one["tokens"])]
    assert one["translation"] == " ".join(one["tokens"]) and len(one["tokens"]) >= 3
    *backwards, end = word_by_word(loaded.model, loaded.pipeline.source.encode("ban des kit lora"), said)
    assert one["word_scores"] == pytest.approx([*backwards[::-1], end], abs=1e-4)
    assert len(one["alignment"]) == len(one["tokens"])


@pytest.mark.parametrize("form", ["prefix", "json"])
def test_a_right_to_left_model_rejects_prefixes_and_texts_to_avoid(models, call, tmp_path, form):
    source = tmp_path / "source"
    source.write_text("ban ||| BAN\n" if form == "prefix" else '{"text": "ban", "avoid": ["BAN"]}\n')
    result = call("translate", f"--model={models / 'right-to-left'}", f"--input={source}", f"--input-form={form}")
    assert_refused(result, 5, "source:1")
    (tmp_path / "avoid").write_text("BAN\n")
    result = call(
        "translate", f"--model={models / 'right-to-left'}", f"--input={source}", f"--avoid={tmp_path / 'avoid'}"
    )
    assert_refused(result, 2, "--avoid")


JUDGES = {"right-to-left": "forward", "language-model": "forward", "channel": "backward"}


@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)])
def test_hypotheses_are_ranked_by_the_weighted_mean_of_the_scores_of_nmt_score(models, translate, score, weights):
    flags = ["--json", "--beam-size=6"]
    before = [json.loads(line)["candidates"] for line in translate(*flags, "--n-best=6").out.splitlines()]
    given = [f"--rerank={models / name}" for name in JUDGES]
    given += ["--rerank-weights=" + ",".join(map(str, weights))] if weights else []
    after = [json.loads(line)["candidates"] for line in translate(*flags, "--n-best=6", *given).out.splitlines()]
    share = [weight / sum(weights or [1] * 4) for weight in weights or [1] * 4]
    changed = False
    for line, old, new in zip(LINES, before, after, strict=True):
        expected = {}
        for one in old:
            scores = [one["score"]]
            for name, direction in JUDGES.items():
                pair = ([line], [one["translation"]]) if direction == "forward" else ([one["translation"]], [line])
                [(log_prob, tokens)] = score(models / name, *pair)
                scores.append(log_prob / ((5 + len(tokens)) / 6) ** 0.6)
            expected[one["translation"]] = scores
        whole = {text: sum(w * s for w, s in zip(share, scores, strict=True)) for text, scores in expected.items()}
        assert [one["translation"] for one in new] == sorted(whole, key=lambda text: -whole[text])
        for one in new:
            assert one["score"] == pytest.approx(whole[one["translation"]], abs=1e-4)
            assert one["scores"] == pytest.approx(expected[one["translation"]], abs=1e-4)
        changed |= [one["translation"] for one in new] != [one["translation"] for one in old]
    assert changed


def test_all_hypotheses_of_the_beam_are_ranked_even_if_only_the_best_is_shown(models, translate):
    given = [f"--rerank={models / 'language-model'}", "--beam-size=5"]
    whole = [line.split(" ||| ") for line in translate(*given, "--n-best=5").out.splitlines()]
    assert [row[0] for row in whole] == ["0"] * 5 + ["1"] * 5 + ["2"] * 5 + ["3"] + ["4"] * 5
    label, _, scores, *two = whole[0][2].split()
    assert (label, scores, len(two)) == ("LogProb=", "Scores=", 2)
    best = [next(row[1] for row in whole if row[0] == str(number)) for number in range(len(LINES))]
    assert translate(*given).out.splitlines() == best
    two = [line.split(" ||| ")[1] for line in translate(*given, "--n-best=2").out.splitlines()]
    assert two[:2] == [row[1] for row in whole[:2]]
    fewer = translate(*given, "--rerank-candidates=1", "--n-best=2").out.splitlines()
    assert {line.split(" ||| ")[1] for line in fewer[:2]} == {
        line.split(" ||| ")[1] for line in translate("--beam-size=5", "--n-best=2").out.splitlines()[:2]
    }
    assert translate(*given, "--batch-tokens=1", "--replicas=2").out.splitlines() == best


def test_models_that_cannot_rerank_are_rejected_with_the_reason(models, translate, trained):
    for flags, reason in [
        (["--rerank-weights=1,2"], "--rerank-weights needs --rerank"),
        (
            [f"--rerank={trained}", "--decoder=greedy"],
            "needs several candidates per line, but this search finds only one (use --decoder beam)",
        ),
        ([f"--model={models / 'right-to-left'}"], "cannot form an ensemble"),
        ([f"--rerank={trained}", "--rerank-weights=1"], "--rerank-weights: must be 2 non-negative numbers"),
        ([f"--rerank={trained}", "--rerank-weights=1,-1"], "--rerank-weights: must be 2 non-negative numbers"),
        ([f"--rerank={trained}", "--rerank-candidates=9"], "--rerank-candidates: --n-best 9: must be at most"),
        ([f"--rerank={models / 'foreign'}"], "foreign: a de-fr model cannot re-rank en-de"),
    ]:
        if "foreign" in flags[0]:
            corpus = models / "f"
            write_corpus(corpus, 50, 3)
            files = [f"--source={corpus}.en", f"--target={corpus}.de", f"--output={models / 'fd'}", "--quiet"]
            assert run(["prepare", "--source-lang=de", "--target-lang=fr", "--vocab-size=60", *files]) == 0
            assert run(train_arguments(models / "fd", models / "foreign", 1, "--no-valid-bleu")) == 0
        result = translate(*flags)
        assert (result.code, result.out) == (2, "")
        assert reason in result.err


def test_a_rerank_model_without_finite_probabilities_fails_only_its_lines(translate, broken):
    result = translate(f"--rerank={broken}")
    assert (result.code, result.out) == (5, "\n" * len(LINES))
    assert translate(f"--rerank={broken}", "--rerank-weights=1,0").out == translate().out  # it is not counted
    assert result.err.count("a --rerank model gives no candidate a finite probability") == len(LINES) - 1


def test_a_rerank_model_out_of_memory_scores_smaller_batches_and_fails_only_single_lines(
    models, translate, monkeypatch
):
    given, plain, sizes = f"--rerank={models / 'language-model'}", RerankModel.log_probs, []

    def forgetful(self, texts, candidates, *settings):
        if len(set(texts)) > 1:
            raise MemoryError
        sizes.append(len(texts))
        if texts[0] == "lora":
            raise RuntimeError("no such word")
        return plain(self, texts, candidates, *settings)

    expected = translate(given).out.splitlines()
    monkeypatch.setattr(RerankModel, "log_probs", forgetful)
    result = translate(given)
    assert result.code == 5 and result.err.count("not translated: RuntimeError: no such word") == 1
    assert result.out.splitlines() == ["" if line == "lora" else one for line, one in zip(LINES, expected, strict=True)]
    assert sizes == [4] * 4


def test_a_language_model_is_rejected_for_translation(data, tmp_path, call):
    result = call(
        "train", f"--data={data}", f"--output={tmp_path / 'run'}", *LANGUAGE_MODEL[1:], "--model=language-model"
    )
    assert_refused(result, 2, "--valid-metrics")
