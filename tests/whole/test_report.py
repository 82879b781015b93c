"""`nmt report` as a user runs it; the reported cost is exact even for interrupted and older runs."""

import csv
import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from conftest import ENVIRONMENT, records_of, updates_of
from refusals import assert_refused

from nmt import registry
from nmt.checkpoint import load_model
from nmt.data.shards import PreparedData
from nmt.extensions.watch.history import _preset


@pytest.fixture
def copy(trained, tmp_path) -> Path:
    """A copy of the run of 40 updates that tests can modify."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_an_epoch_costs_three_forward_passes_over_its_pairs(data, trained):
    train, model = PreparedData(data).train, load_model(trained, torch.device("cpu")).model
    pairs = [torch.tensor(side, dtype=torch.int64) + 1 for side in (train.source_lengths, train.target_lengths)]
    epoch = 3 * int(model.flops(*pairs).sum())
    updates = updates_of(trained)
    ends = [last for last, first in pairwise(updates) if last["epoch"] < first["epoch"]]
    assert len(ends) > 1
    for last in ends:
        assert last["eflop"] == last["epoch"] * epoch / 10**18


def test_the_table_has_the_published_rows_then_the_runs_with_both_costs(trained, call):
    told = call("report", trained, "--device-tflops=P100")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0].split() == ["system", "BLEU", "En-De", "BLEU", "En-Fr", "cost", "En-De", "cost", "En-Fr", "counted"]
    big = next(line for line in lines if line.startswith("Transformer (big)"))
    assert big.split()[2:] == ["28.4", "41.8", "2.3e19", "2.3e19", "9.7e18"]
    own = next(line for line in lines if line.startswith(f"{trained}: transformer")).split()
    best = max(record.get("valid_bleu") or 0 for record in records_of(trained))
    minutes = json.loads((trained / "checkpoints/update-40/manifest.json").read_bytes())["minutes"]
    parameters = load_model(trained, torch.device("cpu")).model.num_parameters()
    assert own[2] == f"{parameters / 1e6:.1f}M"
    assert own[3:5] == [f"{best:.2f}*", "-"]
    assert float(own[5]) == pytest.approx(9.5e12 * 60 * minutes, rel=0.05)
    assert float(own[7]) == pytest.approx(records_of(trained)[-2]["eflop"] * 1e18, rel=0.05)
    assert "* the best validation BLEU" in told.out


def test_a_named_score_replaces_the_validation_score_and_paper_bleu_replaces_other_scores(trained, tmp_path, call):
    rows = [{"metric": "bleu", "value": 11.0, "signature": "s", "detail": "d", "decoder": None}]
    (tmp_path / "bleu.json").write_text(json.dumps(rows))
    told = call("report", trained, "--json", "--scores", f"{trained}={tmp_path / 'bleu.json'}").json["runs"][0]
    assert (told["bleu"], told["metric"], told["signature"], told["pair"]) == (11.0, "bleu", "s", "en-de")
    (tmp_path / "paper.json").write_text(json.dumps([*rows, {**rows[0], "metric": "paper", "value": 12.0}]))
    shown = call("report", trained, "--scores", f"{trained}={tmp_path / 'paper.json'}").out
    assert "  12.00  " in shown and "*" not in shown


def test_scores_belong_to_the_run_whose_full_name_is_their_prefix(copy, tmp_path, call):
    (tmp_path / "x.json").write_text(json.dumps([{"metric": "bleu", "value": 11.0, "signature": "s", "detail": "d"}]))
    other = Path(shutil.copytree(copy, f"{copy}=0.1"))
    told = call("report", copy, other, "--json", f"--scores={other}={tmp_path / 'x.json'}")
    assert [run["bleu"] for run in told.json["runs"]] == [None, 11.0]


def test_results_on_another_test_set_have_separate_columns_and_speeds_a_separate_table(trained, tmp_path, call):
    stats = {"lines": 30, "failed": 0, "seconds": 2.5, "lines_per_second": 12.0}
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    asked = ("report", trained, "--stats", f"{trained}={tmp_path / 'stats.json'}")
    told, lines = call(*asked, "--json").json["runs"][0], call(*asked, "--test-set", "captions").out.splitlines()
    assert re.split(" {2,}", lines[0])[1:4] == ["BLEU En-De", "BLEU En-Fr", "BLEU En-De captions"]
    own = [line.split() for line in lines if line.startswith(f"{trained}")]
    assert own[0][3:5] == ["-", "-"] and own[0][5].endswith("*")
    updates = updates_of(trained)
    tokens, minutes = sum(record["target_tokens"] for record in updates), told["minutes"]
    assert told["target_tokens"] == tokens and told["sentences_per_second"] == 12
    assert told["flops_per_token"] == pytest.approx(updates[-1]["eflop"] * 1e18 / tokens)
    assert told["tokens_per_second"] == pytest.approx(tokens / (60 * minutes))
    assert own[1][4:6] == [f"{told['tokens_per_second']:,.1f}", "12.0"]
    assert call("report", trained, "--stats", f"{trained}={trained / 'settings.toml'}").code == 4
    assert call("report", trained, "--stats", tmp_path / "stats.json").code == 2


def test_the_json_agrees_with_the_manifest_and_the_records(trained, call):
    told = call("report", trained, "--json", "--device-tflops=0.5").json
    assert len(told["published"]) == 10
    assert told["published"][-1]["cells"]["en-de"]["estimate"] == pytest.approx(2.3e19, rel=0.035)
    own, minutes = (
        told["runs"][0],
        json.loads((trained / "checkpoints/update-40/manifest.json").read_bytes())["minutes"],
    )
    assert (own["update"], own["devices"], own["model"], own["preset"]) == (40, 1, "transformer", None)
    assert own["minutes"] == minutes
    assert own["eflop"] == [record["eflop"] for record in records_of(trained) if "eflop" in record][-1]
    assert own["sustained_tflops"] == pytest.approx(own["eflop"] * 1e6 / (60 * minutes))
    assert own["estimate"] == pytest.approx(0.5e12 * 60 * minutes)


def test_the_page_contains_the_table_and_is_self_contained(copy, tmp_path, call):
    odd = copy.rename(tmp_path / "<b>&run")
    told = call("report", odd, "--html", tmp_path / "page.html")
    assert told.code == 0
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and "<b>" not in text and "src=" not in text and "http" not in text
    assert text.count("<tr") == (1 + 10 + 1) + (1 + 1) and "&lt;b&gt;&amp;run: transformer" in text


def cells_of(line, separator):
    """The cells of a line of Markdown or LaTeX, without their escapes."""
    return [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(rf"(?<!\\){re.escape(separator)}", line)]


def test_markdown_csv_and_latex_tables_have_the_cells_of_the_text_table(copy, tmp_path, call):
    odd = copy.rename(tmp_path / 'a|b_c & "50 %", {x}')
    own, shown = call("report", odd, "--json").json["runs"][0], call("report", odd)
    texts = [re.split(" {2,}", line) for line in shown.out.splitlines()]
    printed = {name: call("report", odd, f"--table={name}") for name in ("text", "markdown", "csv", "latex")}
    assert [told.code for told in printed.values()] == [0] * 4 and printed["text"].out == shown.out

    header, *rows = csv.reader(printed["csv"].out.splitlines())
    assert len(rows) == 11 and {len(row) for row in rows} == {len(header)}
    mine = dict(zip(header, rows[-1], strict=True))
    assert mine["system"].startswith(f"{odd}: ") and mine["BLEU from"] == "validation" and mine["cost En-De"] == ""
    assert float(mine["BLEU En-De"]) == own["best_valid_bleu"] and float(mine["counted"]) == own["eflop"] * 1e18
    assert float(mine["tokens/s"]) == own["tokens_per_second"]

    marked = [cells_of(line[1:-1], "|") for line in printed["markdown"].out.split("\n\n")[0].splitlines()]
    assert marked.pop(1) == ["---", *["---:"] * (len(marked[0]) - 1)]
    assert marked == [row for row in texts[:14] if len(row) > 1]
    assert "a\\|b_c \\&" in printed["markdown"].out  # an underscore inside a word is not markup

    body = [line for line in printed["latex"].out.split("\n\n")[0].splitlines() if line.endswith(r" \\")]
    assert [cells_of(line.removesuffix(r" \\"), "&") for line in body[:-1]] == marked[:-1]
    assert r"a\textbar{}b\_c \& \textquotedbl{}50 \%\textquotedbl{}, \{x\}: transformer" in body[-1]
    assert_refused(call("report", odd, "--table=csv", "--json"), 2, "--table", "--json")


def test_a_run_without_recorded_cost_is_reported_as_such(copy, call):
    lines = [{k: v for k, v in record.items() if k != "eflop"} for record in records_of(copy)]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = call("report", copy)
    assert told.code == 0 and "has no cost yet" in told.out
    assert next(line for line in told.out.splitlines() if line.startswith(f"{copy}: tr")).split()[-1] == "-"


def test_an_incomplete_last_line_is_ignored_and_a_damaged_one_is_status_4(copy, call):
    whole = (copy / "metrics.jsonl").read_bytes()
    expected = call("report", copy).out
    (copy / "metrics.jsonl").write_bytes(whole + b'{"update": 41, "lo')
    assert call("report", copy).out == expected
    (copy / "metrics.jsonl").write_bytes(b"not json\n" + whole)
    assert_refused(call("report", copy), 4, "metrics.jsonl:1")


def test_non_runs_runs_without_checkpoints_and_foreign_scores_are_rejected(data, copy, tmp_path, call):
    assert call("report", data).code == 2
    assert call("report", copy, "--scores=elsewhere=x.json").code == 2
    assert call("report", copy, f"--scores={copy}=nowhere.json").code == 2
    for text, code in (("[]", 2), ("{", 4), ('[{"metric": "ter", "value": 1, "signature": ""}]', 2)):
        (tmp_path / "scores.json").write_text(text)
        assert call("report", copy, f"--scores={copy}={tmp_path / 'scores.json'}").code == code
    for wrong in ("0", "-1", "nan", "inf", "V100"):
        assert call("report", copy, f"--device-tflops={wrong}").code == 2
    weights = copy / "checkpoints/update-40/model.safetensors"
    weights.write_bytes(b"\xff" * weights.stat().st_size)
    assert call("report", copy).code == 4
    manifest = copy / "checkpoints/update-40/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 999}))
    assert_refused(call("report", copy), 4, "has format 999")
    shutil.rmtree(copy / "checkpoints")
    assert_refused(call("report", copy), 4, "no complete checkpoint")


def test_a_run_is_named_after_its_best_matching_preset():
    presets = {name: preset.values for name, preset in registry.presets().items()}
    for name, values in presets.items():
        found = _preset({key: list(value) if isinstance(value, tuple) else value for key, value in values.items()})
        assert found == name or presets[found] == values, (name, found)
    relative = {**presets["transformer-base-relative"], "adam_betas": [0.9, 0.98], "max_updates": 7}
    assert _preset(relative) == "transformer-base-relative"


def test_a_report_is_made_without_torch(trained):
    code = (
        "import sys\nfrom nmt.cli.main import run\n"
        f"code = run(['report', {str(trained)!r}, '--quiet'])\nsys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True).returncode == 0
