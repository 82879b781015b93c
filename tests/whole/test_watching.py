"""What a user sees of a training run: log lines, the live display, `nmt status` and `nmt plot`."""

import json
import math
import re
import signal
import time
from pathlib import Path

import pytest
from conftest import CLIFF, train_arguments, updates_of
from terminal import HIDE_CURSOR, SHOW_CURSOR, Terminal, plain

from nmt.runs import Checkpoints, update_of
from nmt.train.run import Run

LINE = re.compile(
    r"Ep\. (?P<epoch>\d+) : Up\. (?P<update>\d+)/(?P<total>\d+) : loss (?P<loss>\S+) "
    r": nll (?P<nll>\S+) nats/token \(ppl (?P<ppl>\S+)\) : tokens/s (?P<speed>\d+) "
    r": ETA (?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d) : memory (?P<memory>\d+\.\d\d) GB"
)


def records(run: Path) -> dict[int, dict]:
    """The records of updates by number."""
    return {row["update"]: row for row in updates_of(run)}


def lines(text: str) -> list[dict[str, float]]:
    """The numbers of each training line."""
    return [{name: float(value) for name, value in found.groupdict().items()} for found in LINE.finditer(text)]


def test_a_log_line_shows_updates_losses_speed_remaining_time_and_memory(data, tmp_path, call):
    arguments = train_arguments(data, tmp_path / "run", 10, "--log-every=1u", "--label-smoothing=0.1", "--no-quiet")
    trained = call(*arguments)
    assert trained.code == 0, trained.err
    recorded, shown = records(tmp_path / "run"), lines(trained.err)
    assert [row["update"] for row in shown] == list(range(2, 11))
    assert "Up. 1/10 : " in trained.err and "ETA unknown" in trained.err  # the first update gives no speed
    for row in shown:
        record = recorded[int(row["update"])]
        assert (row["total"], row["epoch"]) == (10, record["epoch"])
        assert row["loss"] == pytest.approx(record["loss"], abs=1e-4)
        assert row["nll"] == pytest.approx(record["nll"], abs=1e-4) and row["nll"] != row["loss"]
        assert row["ppl"] == pytest.approx(math.exp(record["nll"]), rel=1e-3)
        assert row["speed"] > 0 and row["memory"] > 0.05
    assert [shown[-1][name] for name in ("hours", "minutes", "seconds")] == [0, 0, 0]


def test_the_total_is_the_last_update_even_for_resumed_runs_and_limits_in_epochs(data, tmp_path, call):
    for updates in (10, 20):
        trained = call(*train_arguments(data, tmp_path / "run", updates, "--no-quiet"))
        assert [row["total"] for row in lines(trained.err)][-1] == updates
    trained = call(*train_arguments(data, tmp_path / "epochs", 1000, "--max-epochs=2", "--no-quiet"))
    last = max(records(tmp_path / "epochs"))
    rows = lines(trained.err)
    assert rows[-1]["update"] == rows[-1]["total"] == last < 1000
    assert all(abs(row["total"] - last) <= 2 for row in rows if row["update"] > 1)


def clock_of(monkeypatch, seconds):
    """Make the clock of a run show `seconds(update)` after each update, however long it took."""
    agree = Run.agree

    def agree_by_updates(run):
        agree(run)
        run.seconds = seconds(run.progress.update)

    monkeypatch.setattr(Run, "agree", agree_by_updates)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.01, [1, 2, 5, 10, 15, 30, 33]),
        (20.0, [1, 2, 3, 5, 6, 9, 10, 12, 15, 18, 21, 24, 27, 30, 33]),  # every third, and the first ones
        (100.0, list(range(1, 34))),
    ],
)
def test_the_first_updates_are_logged_and_then_every_interval_of_updates_or_minutes(
    seconds, expected, data, tmp_path, call, monkeypatch
):
    clock_of(monkeypatch, lambda update: seconds * update)
    assert call(*train_arguments(data, tmp_path / "run", 33, "--log-every=15u,1m", "--no-valid-bleu")).code == 0
    written = re.findall(r" Up\. (\d+)/33 : loss", (tmp_path / "run/train.log").read_text())
    assert [int(update) for update in written] == expected
    assert [row["update"] for row in updates_of(tmp_path / "run")] == list(range(1, 34))


def told(run, *options):
    """(line number, line) of the train.log line that names all of these options."""
    rows = enumerate((run / "train.log").read_text().splitlines())
    return [(number, row) for number, row in rows if all(option in row for option in options)]


def test_a_run_whose_time_ends_during_warmup_warns_after_a_minute_and_can_withdraw_it(
    data, tmp_path, call, monkeypatch
):
    more = ("--max-minutes=2", "--warmup-updates=20", "--log-every=1u", "--no-valid-bleu")
    monkeypatch.setattr("nmt.extensions.watch.reporters.estimate.FIRST_SHARE", 1.0)
    # At update 6, after a minute at 10 s each, update 12 would be the last; from update 8 on each takes half a second.
    clock_of(monkeypatch, lambda update: 10.0 * min(update, 8) + 0.5 * max(update - 8, 0))
    assert call(*train_arguments(data, tmp_path / "run", 1000, *more)).code == 0
    (warned, warning), (withdrawn, _) = told(tmp_path / "run", "--max-minutes")[:2]
    assert "--warmup-updates" in warning
    lines_of = [number for number, row in told(tmp_path / "run", " Up. ")]
    assert lines_of[4] < warned < lines_of[6] and withdrawn > lines_of[7]
    assert len(told(tmp_path / "run", "--max-minutes")) == 3  # the last line says why the run ended
    assert len(told(tmp_path / "run", "estimate: ")) == 1

    clock_of(monkeypatch, lambda update: 10.0 * update)
    assert call(*train_arguments(data, tmp_path / "slow", 1000, *more)).code == 0
    assert len(told(tmp_path / "slow", "--max-minutes")) == 2  # the warning was right

    clock_of(monkeypatch, lambda update: 2.0 * update)
    assert call(*train_arguments(data, tmp_path / "fast", 1000, *more)).code == 0
    assert len(told(tmp_path / "fast", "--max-minutes")) == 1


FRAME = ("run", "epoch", "loss", "speed", "memory", "next", "best")  # how the lines of the live display start


def long_run(data: Path, output: Path, *more: str) -> Terminal:
    arguments = train_arguments(data, output, 100_000, "--valid-every=10u", "--no-quiet", *more)
    return Terminal(*arguments)


def frame_lines(text: str) -> list[str]:
    return [line.rstrip() for line in plain(text).splitlines() if line.split(" ")[0] in FRAME]


def test_a_terminal_shows_the_run_live_at_any_width_and_is_restored_by_a_signal(data, tmp_path):
    with long_run(data, tmp_path / "run", "--best-by=loss") as run:
        run.wait_for(lambda: re.search(r"^best .*update-\d+ \(loss \d", plain(run.text), re.M))
        run.resize(60)
        resized = len(run.text)
        run.wait_for(lambda: len(frame_lines(run.text[resized:])) > 4 * len(FRAME))
        run.process.send_signal(signal.SIGTERM)
        code, out = run.end()
    assert (code, out) == (143, b"")
    last = {line.split(" ")[0]: line for line in frame_lines(run.text[:resized])}
    assert re.search(r"━.* [\d,]+/100,000 updates, \d:\d\d:\d\d so far, ETA \d+:\d\d:\d\d$", last["run"])
    assert re.search(r"━.* \d+, \d+ %$", last["epoch"])
    assert re.search(r"[▁▂▃▄▅▆▇█]{2}.* loss \d\.\d+ : nll \d\.\d+ nats/token \(ppl \d", last["loss"])
    assert re.search(r"^valid bleu +[▁▂▃▄▅▆▇█]+ +\d", plain(run.text), re.M)
    assert re.search(r"[\d,]+ tokens/s", last["speed"]) and re.search(r"0\.\d\d GB", last["memory"])
    assert re.search(r"validation in 0:00:\d\d, checkpoint in 0:00:\d\d", last["next"])
    width = max(map(len, frame_lines(run.text[resized:])[len(FRAME) :]))
    assert 40 < width <= 60
    assert any(re.match(r"\[[\d :-]+\] \[valid\] ", line) for line in run.lines), "validations stand above the display"
    assert not lines(plain(run.text)), "the display has the numbers of updates"
    assert lines((tmp_path / "run/train.log").read_text())
    assert run.text.count(HIDE_CURSOR) == 1 and run.text.rindex(SHOW_CURSOR) > run.text.rindex(HIDE_CURSOR)
    assert frame_lines(run.text[run.text.rindex(SHOW_CURSOR) :]) == []
    stopped = next(i for i, line in enumerate(run.lines) if "stopped by signal 15" in line)
    assert re.match(r"\[[\d :-]+\] stopped by signal 15", run.lines[stopped])


def test_an_error_is_printed_on_a_separate_line_below_the_last_frame(data, tmp_path):
    (tmp_path / "cliff.py").write_text(CLIFF)
    with long_run(data, tmp_path / "run", f"--plugin={tmp_path / 'cliff.py'}", "--schedule=cliff") as run:
        code, _ = run.end()
    assert code == 7, run.text
    error = plain(run.text[run.text.rindex(SHOW_CURSOR) :]).strip()
    assert re.fullmatch(r"nmt: error: update \d+: loss or gradient was not finite 10 times in a row.*", error)


def test_a_run_survives_the_hangup_of_its_terminal(data, tmp_path):
    never = ("--save-every=100000u", "--valid-every=100000u")
    with long_run(data, tmp_path / "run", *never, "--log-every=1u") as run:
        run.wait_for(lambda: "tokens/s" in run.text)
        run.hang_up()
        time.sleep(1.5)  # its display and log go nowhere
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGHUP)
        code, _ = run.end()
    assert code == 129
    assert "stopped by signal 1 " in (tmp_path / "run/train.log").read_text()
    assert [update_of(path) for path in Checkpoints(tmp_path / "run").all()] == [max(records(tmp_path / "run"))]


def test_only_results_go_to_stdout_and_a_pipe_gets_no_live_display(data, tmp_path, nmt):
    arguments = train_arguments(data, tmp_path / "run", 20, "--no-quiet", "--json")
    with Terminal(*arguments) as shown:
        code, out = shown.end()
    assert code == 0 and json.loads(out)["update"] == 20
    assert "best checkpoint" in shown.text
    piped = nmt(*train_arguments(data, tmp_path / "piped", 20, "--no-quiet"), env={"FORCE_COLOR": "1"})
    assert piped.returncode == 0 and b"\x1b" not in piped.stderr and b"\r" not in piped.stderr
    assert lines(piped.stderr.decode())
