"""Bars of commands on a terminal: label, count and speed of long work, and nothing of them in a pipe."""

import io
import re
from importlib.util import find_spec

import pytest
from conftest import ENVIRONMENT, SLOW, train_arguments
from rich.console import Console
from terminal import HIDE_CURSOR, SHOW_CURSOR, Terminal, plain

import nmt.log
from nmt.log import Log

AT_ONCE = "import nmt.log\nnmt.log.MIN_BAR_SECONDS = 0.0\n"  # a plug-in: the work of tests is short


@pytest.fixture
def commands(data, trained, tmp_path):
    """Each command with the labels and units of its bars."""
    corpus = data.parent
    source, target = corpus / "dev.en", corpus / "dev.de"
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={corpus / 'train'}", "--subword=none"]
    (tmp_path / "slow.py").write_text(SLOW)
    slow = [f"--plugin={tmp_path / 'slow.py'}", "--decoder=slow", "--valid-batch-tokens=20", "--no-quiet"]
    model, pair = f"--model={trained}", [f"--source={source}", f"--target={target}"]
    average = ["average", f"--run={trained}", "--last=2", f"--score={data}", f"--output={tmp_path / 'mean'}"]
    made = {
        "prepare": ([*prepare, "--workers=1", f"--output={tmp_path / 'data'}"], [("train", "pairs")]),
        "doctor": (["doctor", data, "--workers=1", "--fail-on=never"], [("train", "pairs")]),
        "train": (train_arguments(data, tmp_path / "run", 20, *slow), [("translating", "lines")]),
        "translate": (
            ["translate", model, f"--input={source}", f"--output={tmp_path / 'out'}"],
            [("translating", "lines")],
        ),
        "evaluate": (["evaluate", model, f"--source={source}", f"--reference={target}"], [("translating", "lines")]),
        "score": (["score", model, *pair], [("scoring", "pairs")]),
        "average": (average, [("averaging", "checkpoints"), ("scoring", "models"), ("loss on dev", "pairs")]),
        "shortlist": (
            ["shortlist", f"--data={data}", f"--output={tmp_path / 'short'}"],
            [("learning a shortlist", "pairs")],
        ),
    }
    if find_spec("ctranslate2"):
        export = ["export", f"--model={trained}", "--format=ctranslate2", f"--output={tmp_path / 'ct2'}"]
        made["export"] = (export, [("translating", "lines")])
    return made


@pytest.mark.parametrize(
    "name", ["prepare", "doctor", "train", "translate", "evaluate", "score", "average", "shortlist", "export"]
)
def test_a_command_shows_bars_of_long_work_and_leaves_the_terminal_as_it_was(name, commands, tmp_path):
    if name not in commands:
        pytest.skip("needs ctranslate2")
    arguments, bars = commands[name]
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    with Terminal(*arguments, f"--plugin={tmp_path / 'at_once.py'}") as shown:
        code, out = shown.end()
    assert code == 0, shown.text
    text = plain(shown.text)
    assert shown.text.rindex(SHOW_CURSOR) > shown.text.rindex(HIDE_CURSOR)
    for label, unit in bars:
        assert re.search(rf"^{label} ━+[^\n]* \d+/\d+ [^\n]*{unit}", text, re.M), shown.text
        assert f"{label} ━" not in plain(shown.text[shown.text.rindex(SHOW_CURSOR) :])
    assert b"\x1b" not in out and "━".encode() not in out


def test_a_pipe_and_short_work_show_no_bar(data, trained, tmp_path, nmt):
    translate = ["translate", f"--model={trained}", f"--input={data.parent / 'dev.en'}"]
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    piped = nmt(*translate, f"--plugin={tmp_path / 'at_once.py'}", env={**ENVIRONMENT, "FORCE_COLOR": "1"})
    assert piped.returncode == 0 and b"\x1b" not in piped.stderr and b"lines" not in piped.stderr
    with Terminal("shortlist", f"--data={data}", f"--output={tmp_path / 'short'}") as shown:
        assert shown.end()[0] == 0
    assert "\x1b" not in shown.text and "learning" not in shown.text


def test_a_bar_appears_after_its_time_and_goes_with_an_error(monkeypatch):
    log, screen = Log(), io.StringIO()
    log._console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(Log, "live", True)
    seconds = [100.0]
    monkeypatch.setattr(nmt.log.time, "monotonic", lambda: seconds[0])
    with pytest.raises(ZeroDivisionError), log.progress("work", 10, "steps") as bar:
        seconds[0] += nmt.log.MIN_BAR_SECONDS - 0.1
        bar.advance(2)
        assert screen.getvalue() == "" and log.bars is None
        seconds[0] += 0.2
        bar.advance(3)
        assert "5/10" in plain(screen.getvalue())
        raise ZeroDivisionError
    assert log.bars is None and screen.getvalue().rindex(SHOW_CURSOR) > screen.getvalue().rindex(HIDE_CURSOR)
