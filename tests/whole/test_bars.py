"""Progress bars on a terminal show label, count and speed of long work; a pipe gets none."""

import gzip
import io
import re
from importlib.util import find_spec

import pytest
from conftest import ENVIRONMENT, SLOW, train_arguments
from rich.console import Console
from terminal import HIDE_CURSOR, SHOW_CURSOR, Terminal, plain

import nmt.log
from nmt.log import Bar, Log

# A plug-in makes the bars appear at once, since the tests' work is short.
AT_ONCE = """
import nmt.log

class AtOnce:
    def __init__(self, seconds, function, arguments):
        self.start = lambda: function(*arguments)

    def cancel(self):
        pass

nmt.log.Timer = AtOnce
"""


@pytest.fixture
def commands(data, trained, tmp_path):
    """Each command with the labels and units of its bars; a bar without a unit shows the time."""
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
        "prepare bpe": (
            [*prepare[:-1], "--vocab-size=60", "--workers=1", f"--output={tmp_path / 'bpe'}"],
            [("counting lines of train", ""), ("sample of train", "pairs"), ("learning bpe", "")],
        ),
        "train": (train_arguments(data, tmp_path / "run", 20, *slow), [("translating", "lines")]),
        "translate": (
            ["translate", model, f"--input={source}", f"--output={tmp_path / 'out'}"],
            [("loading the model", ""), ("translating", "lines")],
        ),
        "evaluate": (["evaluate", model, f"--source={source}", f"--reference={target}"], [("translating", "lines")]),
        "score": (["score", model, *pair], [("scoring", "pairs")]),
        "significance": (
            ["evaluate", "--hypothesis", target, source, f"--reference={target}", "--significance=bootstrap"],
            [("testing by bootstrap", "")],
        ),
        "plot": (
            ["plot", trained, f"--output={tmp_path / 'curves.html'}"],
            [("reading runs", "runs"), ("drawing", "")],
        ),
        "report": (["report", trained], [("reading runs", "runs")]),
        "int8": (
            ["export", model, "--format=int8", f"--output={tmp_path / 'int8'}"],
            [("exporting the model", "")],
        ),
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


COMMANDS = (
    "prepare", "prepare bpe", "doctor", "train", "translate", "evaluate", "significance", "score", "average", "shortlist",
    "export", "int8", "plot", "report",
)  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_progress_bars_for_long_work_and_restores_the_terminal(name, commands, tmp_path):
    if name not in commands:
        pytest.skip("needs ctranslate2")
    arguments, bars = commands[name]
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    if find_spec("matplotlib") is None and name == "plot":
        pytest.skip("needs matplotlib")
    with Terminal(*arguments, f"--plugin={tmp_path / 'at_once.py'}") as shown:
        code, out = shown.end()
    assert code == 0, shown.text
    text = plain(shown.text)
    assert shown.text.rindex(SHOW_CURSOR) > shown.text.rindex(HIDE_CURSOR)
    for label, unit in bars:
        progress = rf"[\d,]+(/[\d,]+)? {unit}" if unit else r"\d:\d\d:\d\d so far"
        assert re.search(rf"^{label} +━+[^\n]* {progress}", text, re.M), shown.text
        assert not re.search(rf"^{label} +━", plain(shown.text[shown.text.rindex(SHOW_CURSOR) :]), re.M)
    assert b"\x1b" not in out and "━".encode() not in out


def test_a_pipe_and_short_work_show_no_bar(data, trained, tmp_path, nmt):
    translate = ["translate", f"--model={trained}", f"--input={data.parent / 'dev.en'}"]
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    piped = nmt(*translate, f"--plugin={tmp_path / 'at_once.py'}", env={**ENVIRONMENT, "FORCE_COLOR": "1"})
    assert piped.returncode == 0 and b"\x1b" not in piped.stderr and b"lines" not in piped.stderr
    with Terminal("shortlist", f"--data={data}", f"--output={tmp_path / 'short'}") as shown:
        assert shown.end()[0] == 0
    assert "\x1b" not in shown.text and "learning" not in shown.text


def test_translations_and_the_bar_do_not_mix_on_one_terminal(trained, data, tmp_path, nmt):
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    (tmp_path / "more.gz").write_bytes(gzip.compress((data.parent / "dev.en").read_bytes()))
    command = ["translate", f"--model={trained}", data.parent / "dev.en", tmp_path / "more.gz", "--buffer-size=20"]
    printed = nmt(*command).stdout.decode().splitlines()
    with Terminal(*command, f"--plugin={tmp_path / 'at_once.py'}", shared=["stdout"]) as shown:
        assert shown.end()[0] == 0
    bars = [line for line in shown.lines if re.match("(translating|loading the model) ", line)]
    assert [line for line in shown.lines if line.strip() and line not in bars] == printed
    translating = [line for line in bars if line.startswith("translating")]
    totals = [int(total.replace(",", "")) for line in translating for total in re.findall(r"/([\d,]+) lines", line)]
    assert totals and totals[-1] == pytest.approx(len(printed), rel=0.5), "an estimate over both files"


def test_typed_input_has_no_bar(trained, tmp_path):
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    command = ["translate", f"--model={trained}", "-", f"--plugin={tmp_path / 'at_once.py'}"]
    with Terminal(*command, shared=["stdin"]) as shown:
        shown.type(b"ban\n\x04")
        code, out = shown.end()
    assert (code, out.count(b"\n")) == (0, 1)
    assert "loading the model" in shown.text and "translating" not in shown.text


class Due:
    """A timer that is due when the test sets it off."""

    def __init__(self, seconds, function, arguments):
        self.seconds, self.fire = seconds, lambda: function(*arguments)

    def start(self):
        Due.last = self

    def cancel(self):
        self.fire = None


@pytest.fixture
def screen(monkeypatch):
    """A log, and the terminal that it writes to."""
    log, screen = Log(), io.StringIO()
    log._console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(Log, "live", True)
    monkeypatch.setattr(nmt.log, "Timer", Due)
    return log, screen


def test_a_bar_appears_after_a_delay_and_disappears_on_an_error(screen):
    log, screen = screen
    with pytest.raises(ZeroDivisionError), log.progress("work", 10, "steps") as bar:
        bar.advance(5)
        assert Due.last.seconds == nmt.log.MIN_BAR_SECONDS and screen.getvalue() == ""
        Due.last.fire()
        assert "5/10 steps" in plain(screen.getvalue())
        raise ZeroDivisionError
    assert Due.last.fire is None and screen.getvalue().rindex(SHOW_CURSOR) > screen.getvalue().rindex(HIDE_CURSOR)
    with log.progress("work") as bar:
        late = Due.last.fire
    length = len(screen.getvalue())
    late()  # the timer fires while its work ends
    assert len(screen.getvalue()) == length


def test_progress_shows_only_what_is_known(monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(nmt.log.time, "monotonic", lambda: seconds[0])
    bars = Bar("work"), Bar("work", None, "steps"), Bar("work", 3000, "steps"), Bar("work", lambda: 1000, "steps")
    seconds[0] += 100
    assert [bar.text() for bar in bars[:2]] == ["0:01:40 so far", "0 steps, 0:01:40 so far"]
    for bar in bars[1:]:
        bar.advance(1500)
    assert [bar.text() for bar in bars[1:]] == [
        "1,500 steps, 15 steps/s, 0:01:40 so far",
        "1,500/3,000 steps, 15 steps/s, ETA 0:01:40",
        "1,500/1,500 steps, 15 steps/s, ETA 0:00:00",  # an estimate that was too low
    ]


def test_without_a_terminal_long_work_writes_a_line_after_a_minute_and_then_less_often(monkeypatch, capsys):
    seconds = [0.0]
    monkeypatch.setattr(nmt.log.time, "monotonic", lambda: seconds[0])
    with Log().progress("work", 100_000, "steps") as bar:
        for _ in range(6000):
            seconds[0] += 1
            bar.advance()
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("work: 60/100,000 steps, ")
    shown = [line.partition("/")[0].removeprefix("work: ") for line in others]
    assert shown[:5] == ["120", "240", "480", "960", "1,560"] and len(shown) < 15
    quiet = Log()
    quiet.quiet = True
    for log, is_shown in ((quiet, True), (Log(), False)):
        with log.progress("work", shown=is_shown) as bar:
            seconds[0] += 1000
            bar.advance()
    assert capsys.readouterr().err == ""
