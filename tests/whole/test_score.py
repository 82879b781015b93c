"""`nmt score`: every pair of lines gets one line, whatever the lines and the model."""

import json
import os
import signal
import sys

import pytest
import torch
from conftest import write_corpus
from refusals import assert_refused

import nmt.scorings.base
import nmt.translate.pair_scores
from nmt.checkpoint import load_model
from nmt.cli.score import ScoreOptions, _line
from nmt.symbols import BOS, EOS
from nmt.translate.results import PairScore


@pytest.fixture
def score(tmp_path, call):
    """`score(model, sources, targets, *flags)`"""

    def scored(model, sources, targets, *flags):
        for name, lines in (("s", sources), ("t", targets)):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return call("score", "--model", model, "--source", tmp_path / "s", "--target", tmp_path / "t", *flags)

    return scored


@torch.inference_mode()
def word_by_word(loaded, source, target):
    """log p(target EOS | source EOS) in nats, computed step by step as in a search."""
    state = loaded.model.start(torch.tensor([[*loaded.pipeline.source.encode(source), EOS]]))
    total, before = 0.0, BOS
    for word in [*loaded.pipeline.target.encode(target), EOS]:
        log_probs, state = loaded.model.step(torch.tensor([before]), state)
        total += float(log_probs[0, word])
        before = word
    return total


def test_an_empty_line_is_scored_as_only_the_end_symbol_on_either_side(trained, score):
    sources, targets = ["ban des", "", "  ", "ban"], ["", "BAN DES", "", "BAN"]
    result = score(trained, sources, targets, "--per-token", "--json")
    assert (result.code, result.err) == (0, "")
    rows = [json.loads(line) for line in result.out.splitlines()]
    loaded = load_model(trained, torch.device("cpu"))
    for source, target, row in zip(sources, targets, rows, strict=True):
        assert [token["token"] for token in row["tokens"]] == [*target.split(), "</s>"]
        assert row["log_prob"] == pytest.approx(word_by_word(loaded, source, target), abs=1e-4)


def test_scores_do_not_depend_on_batch_or_chunk_sizes(trained, score, tmp_path, monkeypatch):
    write_corpus(tmp_path / "c", 30, 5)
    lines = [(tmp_path / f"c.{side}").read_text().splitlines() for side in ("en", "de")]
    whole = [float(line) for line in score(trained, *lines).out.split()]
    assert len(whole) == 30
    monkeypatch.setattr(nmt.scorings.base, "WINDOW_LINES", 7)
    monkeypatch.setattr(nmt.translate.forced_decoding, "LOGIT_CHUNK_ROWS", 3)
    assert [float(line) for line in score(trained, *lines, "--max-tokens=20").out.split()] == pytest.approx(
        whole, abs=1e-5
    )


def test_a_line_that_is_too_long_is_reported_and_the_others_are_scored(trained, score, tmp_path):
    sources, targets = ["ban", "ban " * 9, "des", "ban"], ["BAN", "BAN", "BAN " * 9, "BAN " * 8]
    result = score(trained, sources, targets, "--max-length=8")
    assert result.code == 5
    assert [line == "nan" for line in result.out.splitlines()] == [False, True, True, False]
    assert [f"s:{number}: no score: " in result.err for number in range(1, 5)] == [False, True, True, False]
    assert "2 of 4 pairs have no score" in result.err.splitlines()[-1]
    assert score(trained, sources, targets).code == 0
    assert score(trained, [], []) == (0, "", "")
    result = score(trained, ["ban", "b" * 513], ["x" * 513, "BAN"], "--max-length=8")
    assert (result.code, result.out) == (5, "nan\nnan\n") and result.err.count("more than 512 characters") == 2


@pytest.mark.parametrize("side", ["--source", "--target"])
def test_either_side_can_be_stdin_but_not_both(trained, score, call, tmp_path, monkeypatch, side):
    lines = ["ban des", "", "lora", "ban"], ["BAN", "DES", "", "kit " * 9]
    wanted = score(trained, *lines, "--max-length=8", "--json")
    files = {"--source": tmp_path / "s", "--target": tmp_path / "t"}
    with files[side].open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        words = [word for flag, file in files.items() for word in (flag, "-" if flag == side else file)]
        result = call("score", "--model", trained, *words, "--max-length=8", "--json")
    assert wanted.code == result.code == 5 and result.out == wanted.out
    assert ("stdin:4: no score" if side == "--source" else "s:4: no score") in result.err
    assert_refused(call("score", "--model", trained, "--source", "-", "--target", "-"), 2, "--source", "--target")


def test_a_model_without_finite_probabilities_gives_null_and_fails(broken, score):
    result = score(broken, ["ban", "des"], ["BAN", ""], "--json", "--per-token")
    assert result.code == 5
    assert result.out == 2 * '{"log_prob": null, "tokens": []}\n'
    assert result.err.count("the model's probabilities are not finite") == 2
    assert score(broken, ["ban"], ["BAN"]).out == "nan\n"


def test_a_log_probability_of_zero_is_printed_without_a_sign():
    options = ScoreOptions(model="m", source="s", target="t", per_token=True)
    assert _line(options, PairScore(-1e-9, ["</s>"], [-0.0])) == "0.000000\t</s>:0.0000\n"


def test_a_signal_ends_scoring_after_the_lines_being_written(trained, score, monkeypatch):
    plain, calls = nmt.translate.pair_scores.score, []

    def interrupted(*arguments):
        pairs = plain(*arguments)
        calls.append(len(pairs))
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return pairs

    monkeypatch.setattr(nmt.scorings.base, "WINDOW_LINES", 3)
    monkeypatch.setattr(nmt.scorings.base, "score", interrupted)
    result = score(trained, ["ban"] * 10, ["BAN"] * 10)
    assert (result.code, result.out.count("\n"), calls) == (128 + signal.SIGTERM, 6, [3, 3])
