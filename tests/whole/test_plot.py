"""`nmt plot` draws every curve of several runs, in each of its forms."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import records_of, updates_of
from extras import EXTRAS, named_packages
from refusals import assert_refused

from nmt.extensions.watch.pictures import figures

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
COLOURS = figures.COLOURS


@pytest.fixture
def copy(trained, tmp_path) -> Path:
    """A run of 20 updates without checkpoints: the first half of the run of 40 updates."""
    run = Path(shutil.copytree(trained, tmp_path / "half"))
    rows = [row for row in records_of(run) if row["update"] <= 20]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.rmtree(run / "checkpoints")
    return run


def svg_charts(page: str) -> dict[str, ElementTree.Element]:
    """The charts of a page by their titles."""
    roots = [ElementTree.fromstring(f"<svg{part.split('</svg>')[0]}</svg>") for part in page.split("<svg")[1:]]
    return {root.find("{*}title").text: root for root in roots}


def num_points(chart: ElementTree.Element, colour: str) -> list[int]:
    """The number of points of each line in a colour: the curve and its sample in the legend."""
    paths = (path for path in chart.iter("{http://www.w3.org/2000/svg}path") if colour in path.get("style", ""))
    return [path.get("d").count("L") + 1 for path in paths]


def test_a_terminal_plot_shows_every_curve_of_every_run_on_common_scales(trained, copy, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = call("plot", trained, copy)
    assert shown.code == 0, shown.err
    monkeypatch.chdir(trained)
    assert call("plot").out == call("plot", ".").out != ""
    charts = shown.out.split("\n\n")
    titles = ["Training loss", "Validation loss", "Validation perplexity", "Validation BLEU", "Learning rate"]
    assert [chart.partition(" (")[0] for chart in charts] == titles
    losses = [row["loss"] for row in updates_of(trained)]
    head, first, *rows = charts[0].splitlines()
    assert head == "Training loss (nats per target token) by updates, to 40"
    assert first == f"{trained}: last {losses[-1]:.4g}, lowest {min(losses):.4g}, highest {max(losses):.4g}"
    assert rows[0].startswith(f"{max(losses):.4g} |") and rows[5].startswith(f"{min(losses):.4g} |")
    assert rows[6] == f"{copy}: last {losses[19]:.4g}, lowest {min(losses[:20]):.4g}, highest {max(losses[:20]):.4g}"
    whole, half = (max(len(row.partition("|")[2]) for row in part) for part in (rows[:6], rows[7:]))
    assert max(map(len, rows[:6])) == 60 and half == round(whole / 2)


def test_plotted_values_are_chosen_by_name(trained, call, tmp_path):
    shown = call("plot", trained, "--values", "gradient_norm,lr")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/run").symlink_to(trained)
    together = call("plot", tmp_path / "runs", "--values", "gradient_norm,lr")
    assert together.out == call("plot", tmp_path / "runs/run", "--values", "gradient_norm,lr").out != ""
    assert [line for line in shown.out.splitlines() if " by updates" in line] == [
        "Training gradient_norm (gradient_norm) by updates, to 40",
        "Learning rate (learning rate) by updates, to 40",
    ]
    assert_refused(call("plot", trained, "--values", "valid_blue"), 2, "'valid_bleu'")


@needs_matplotlib
def test_the_page_is_self_contained_and_draws_every_curve_by_updates_and_by_cost(trained, copy, tmp_path, call):
    odd = copy.rename(tmp_path / "<b>&run")
    told = call("plot", trained, odd, "--output", tmp_path / "page.html")
    assert (told.code, told.out) == (0, ""), told.err
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and "<b>" not in text and "src=" not in text
    assert all(reference.startswith("#") for reference in re.findall(r'href="([^"]*)', text))
    assert set(re.findall(r"https?:[^\"]*", text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    drawn = svg_charts(text)
    names = ("Training loss", "Validation loss", "Validation perplexity", "Validation BLEU", "Learning rate")
    assert list(drawn) == [f"{name} by {axis}" for name in names for axis in ("updates", "EFLOP")]
    chart = drawn["Training loss by updates"]
    assert 40 in num_points(chart, COLOURS[0]) and 20 in num_points(chart, COLOURS[1])
    assert any("<b>&run" in (label.text or "") for label in chart.iter() if label.text)


@needs_matplotlib
def test_every_value_of_a_criterion_or_metric_gets_a_curve(trained, tmp_path, call):
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    rows = records_of(copy)
    for row in rows:
        row |= {"reward": -row["loss"]} if "loss" in row else {"valid_chrf": row["update"] / 2, "valid_gone": None}
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("plot", copy, "--output", tmp_path / "page.html").code == 0
    drawn = svg_charts((tmp_path / "page.html").read_text())
    axes = [f"{name} by {axis}" for name in ("Training reward", "Validation chrf") for axis in ("updates", "EFLOP")]
    assert list(drawn)[10:] == axes
    assert 40 in num_points(drawn["Training reward by updates"], COLOURS[0])
    assert sum("valid_chrf" in row for row in rows) in num_points(drawn["Validation chrf by EFLOP"], COLOURS[0])


@needs_matplotlib
def test_svg_and_png_combine_all_charts_in_one_figure(trained, copy, tmp_path, call):
    for name in ("curves.svg", "curves.PNG"):
        assert call("plot", trained, copy, "-o", tmp_path / name).code == 0
    root = ElementTree.fromstring((tmp_path / "curves.svg").read_text())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for title in ("Training loss", "Validation loss", "Validation perplexity", "Validation BLEU", "Learning rate"):
        assert title in texts
    lengths = num_points(root, COLOURS[0])
    assert lengths.count(40) == 2  # loss and learning rate
    png = (tmp_path / "curves.PNG").read_bytes()
    assert png.startswith(b"\x89PNG")
    columns, rows = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    scale = figures.PNG_PIXELS_PER_POINT
    assert (columns, rows) == (2 * scale * figures.WIDTH_PIXELS, 3 * scale * figures.HEIGHT_PIXELS)


def test_invalid_outputs_are_rejected_before_anything_is_read(tmp_path, trained, data, call, monkeypatch):
    assert_refused(call("plot", tmp_path / "no-run", "--output", tmp_path / "curves.pdf"), 2, ".svg, .png, .html")
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    told = call("plot", tmp_path / "no-run", "--output", tmp_path / "page.html")
    assert (told.code, told.out) == (2, "") and named_packages(told.err) == EXTRAS["plots"]
    assert not (tmp_path / "page.html").exists()
    assert call("plot", trained).code == 0  # characters need no package
    assert call("plot", data).code == 2 and call("plot").code == 2


def test_a_run_without_updates_and_a_damaged_record_are_reported(copy, call):
    (copy / "metrics.jsonl").write_bytes(b"")
    assert_refused(call("plot", copy), 2, "no updates to draw yet")
    (copy / "metrics.jsonl").write_bytes(b"not json\n")
    assert_refused(call("plot", copy), 4, "metrics.jsonl:1")
