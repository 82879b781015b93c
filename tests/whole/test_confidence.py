"""Calibration, confidences and contrastive test sets as a user runs them."""

import json
import math
import shutil
from pathlib import Path

import pytest
from conftest import write_corpus
from refusals import assert_refused


@pytest.fixture
def model(trained, tmp_path, call) -> Path:
    """A model folder."""
    assert call("average", f"--run={trained}", "--last=1", f"--output={tmp_path / 'model'}", "--quiet").code == 0
    return tmp_path / "model"


@pytest.fixture
def pairs(tmp_path) -> list[str]:
    """The flags of 20 pairs of lines."""
    write_corpus(tmp_path / "dev", 20, 2)
    return [f"--source={tmp_path / 'dev.en'}", f"--target={tmp_path / 'dev.de'}"]


def scores(call, model, pairs) -> list[dict]:
    return [
        json.loads(line) for line in call("score", "--model", model, *pairs, "--json", "--per-token").out.splitlines()
    ]


def confidences(call, model, source: Path, *flags: str) -> list[dict]:
    translated = call("translate", "--model", model, source, "--json", "--quiet", *flags)
    assert translated.code == 0, translated.err
    return [json.loads(line) for line in translated.out.splitlines()]


def test_calibration_stores_a_temperature_that_confidences_then_use(model, pairs, tmp_path, call):
    rows = scores(call, model, pairs)
    num_tokens = sum(len(row["tokens"]) for row in rows)
    source = tmp_path / "dev.en"
    plain = confidences(call, model, source, "--min-confidence=0")
    shutil.copytree(model, tmp_path / "before")
    result = call("score", "--model", model, *pairs, "--calibrate", "--json")
    assert result.code == 0, result.err
    before, after = result.json
    assert sum(before["counts"]) == sum(after["counts"]) == num_tokens
    assert before["nll"] == pytest.approx(-sum(row["log_prob"] for row in rows) / num_tokens, abs=1e-4)
    assert after["nll"] < before["nll"] and before["temperature"] == 1
    parts = zip(after["rights"], after["confidences"], strict=True)
    assert after["ece"] == pytest.approx(sum(abs(right - sure) for right, sure in parts) / num_tokens)
    manifest = json.loads((model / "manifest.json").read_bytes())
    assert manifest.pop("temperature") == after["temperature"] != 1
    assert manifest == json.loads((tmp_path / "before/manifest.json").read_bytes())

    again = call("score", "--model", model, *pairs, "--calibrate", "--json")
    assert again.json == result.json  # a temperature is fitted to the weights, and not to an earlier one
    shown = call("score", "--model", model, *pairs, "--calibrate").out.splitlines()
    assert shown[0].split()[0] == "confidence" and len(shown) == 13
    assert shown[-1].startswith(f"temperature {after['temperature']:.4f}: ECE {after['ece']:.4f}, nll ")

    calibrated = confidences(call, model, source, "--min-confidence=0")
    hotter = after["temperature"] > 1
    for old, new in zip(plain, calibrated, strict=True):
        assert old["translation"] == new["translation"]
        cold, own = (row["candidates"][0]["confidence"] for row in (old, new))
        assert 0 < own < 1 and (own < cold) == hotter
    (tmp_path / "out.de").write_text("".join(row["translation"] + "\n" for row in plain))
    given = scores(call, tmp_path / "before", [pairs[0], f"--target={tmp_path / 'out.de'}"])
    for row, old in zip(given, plain, strict=True):
        assert old["candidates"][0]["confidence"] == pytest.approx(
            math.exp(row["log_prob"] / len(row["tokens"])), abs=1e-4
        )


def test_a_translation_below_the_minimum_confidence_becomes_an_empty_line_and_is_counted(model, pairs, tmp_path, call):
    source, stats = tmp_path / "dev.en", tmp_path / "stats.json"
    rows = confidences(call, model, source, "--min-confidence=0")
    sure = [row["candidates"][0]["confidence"] for row in rows]
    least = sorted(sure)[7]
    command = ["translate", "--model", model, source, f"--min-confidence={least!r}", f"--stats={stats}"]
    result = call(*command)
    expected = [row["translation"] if p >= least else "" for row, p in zip(rows, sure, strict=True)]
    assert (result.code, result.out.split("\n")[:-1]) == (0, expected)
    num_withheld = sum(p < least for p in sure)
    assert 0 < num_withheld < 20 and json.loads(stats.read_bytes())["withheld"] == num_withheld
    assert f"{num_withheld} withheld because of low confidence" in result.err
    assert "confidences are not calibrated for this model (run nmt score --calibrate)" in result.err
    for row, p, old in zip(confidences(call, model, source, f"--min-confidence={least!r}"), sure, rows, strict=True):
        assert row["translation"] == (old["translation"] if p >= least else "")
        assert row["candidates"] == old["candidates"]  # a program may still look
    best = call(*command, "--n-best=2", "--quiet").out.splitlines()
    assert [line for line in best if line.split(" ||| ")[1].strip() == ""] and len(best) == 40 - num_withheld
    for flags, message in (
        (["--split"], "--split and --min-confidence cannot be combined"),
        (["--engine=ctranslate2"], "needs --engine torch"),
    ):
        assert_refused(call(*command, *flags), 2, message)


def test_impossible_calibrations_are_rejected(trained, model, pairs, call):
    refused = call("score", "--model", trained, *pairs, "--calibrate")
    assert_refused(refused, 4, "expected a model folder (nmt average)")
    refused = call("score", "--model", model, *pairs, "--calibrate", "--per-token")
    assert_refused(refused, 2, "--calibrate", "--per-token")
    manifest = json.loads((model / "manifest.json").read_bytes())
    (model / "manifest.json").write_text(json.dumps({**manifest, "temperature": -1}))
    refused = call("translate", "--model", model, "--engine=torch", pairs[0].partition("=")[2])
    assert_refused(refused, 4, "must be a positive number, not -1")


def test_a_contrastive_set_counts_references_scored_above_all_alternatives(model, pairs, tmp_path, call):
    references = (tmp_path / "dev.de").read_text().splitlines()
    wrong = {"first": [line[::-1] for line in references], "second": ["KIT " + line for line in references]}
    wrong["first"][0] = references[0]  # a tie
    wrong["second"][1] = wrong["first"][2] = wrong["second"][2] = ""  # one line with one, and one without any
    for name, lines in wrong.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    kinds = ["odd" if i % 2 else "even" for i in range(20)]
    (tmp_path / "kinds").write_text("".join(f"{kind}\n" for kind in kinds))

    def values(target: Path) -> list[float]:
        given = call("score", "--model", model, pairs[0], f"--target={target}", "--json", "--normalize").out
        return [json.loads(line)["log_prob"] for line in given.splitlines()]

    of_references = values(tmp_path / "dev.de")
    of_wrong = {name: values(tmp_path / name) for name in wrong}
    others = [[of_wrong[name][i] for name in wrong if wrong[name][i]] for i in range(20)]
    right = {i: of_references[i] > max(row) for i, row in enumerate(others) if row}
    assert right[0] is False and 2 not in right and 0 < sum(right.values()) < 19

    files = [str(tmp_path / name) for name in wrong]
    command = [
        "score",
        "--model",
        model,
        *pairs,
        "--normalize",
        "--contrast",
        *files,
        f"--category={tmp_path / 'kinds'}",
    ]
    shown = call(*command, "--json")
    assert shown.code == 0, shown.err
    assert shown.json["all"] == {"lines": 19, "right": sum(right.values()), "accuracy": sum(right.values()) / 19}
    for kind in ("even", "odd"):
        own = [is_right for i, is_right in right.items() if kinds[i] == kind]
        assert shown.json["categories"][kind] == {"lines": len(own), "right": sum(own), "accuracy": sum(own) / len(own)}
    for name, file in zip(wrong, files, strict=True):
        above = [of_references[i] > of_wrong[name][i] for i in range(20) if wrong[name][i]]
        assert shown.json["files"][file] == {
            "lines": len(above),
            "right": sum(above),
            "accuracy": sum(above) / len(above),
        }
    table = call(*command).out.splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == ["all lines", "even", "odd", *files]


def test_a_line_equal_to_its_reference_is_a_tie_in_any_batch(model, pairs, tmp_path, call):
    words = [line.split() for line in (tmp_path / "dev.de").read_text().splitlines() if line.strip()]
    references = [" ".join(line[: 1 + i % 4]) for i, line in enumerate(words * 3)]
    wrong = [line if i % 2 else " ".join([line, *words[i % len(words)]] * 4) for i, line in enumerate(references)]
    for name, lines in {"ref": references, "wrong": wrong, "src": references}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    kinds = "".join(f"{'equal' if i % 2 else 'other'}\n" for i in range(len(references)))
    (tmp_path / "kinds").write_text(kinds)
    files = f"--source={tmp_path / 'src'}", f"--target={tmp_path / 'ref'}", f"--category={tmp_path / 'kinds'}"
    counts = call("score", "--model", model, *files, "--contrast", tmp_path / "wrong", "--json").json["categories"]
    assert counts["equal"]["lines"] >= 20 and counts["equal"]["right"] == 0 and counts["other"]["right"] > 0


def test_a_contrastive_set_of_different_length_is_rejected_and_a_missing_score_counts_as_wrong(
    broken, model, pairs, tmp_path, call
):
    short = tmp_path / "short"
    short.write_text("BAN\n")
    assert_refused(call("score", "--model", model, *pairs, "--contrast", short), 3, "has more lines than")
    refused = call("score", "--model", model, *pairs, "--contrast", tmp_path / "dev.en", f"--category={short}")
    assert_refused(refused, 3, "1 categories for 20 references")
    assert_refused(call("score", "--model", model, *pairs, f"--category={short}"), 2, "--category", "--contrast")
    refused = call("score", "--model", model, pairs[0], "--target=-", "--contrast", short)
    assert_refused(refused, 2, "--contrast reads its files several times")
    result = call("score", "--model", broken, *pairs, "--contrast", tmp_path / "dev.en", "--json")
    assert result.code == 5 and result.json["all"] == {"lines": 20, "right": 0, "accuracy": 0}
