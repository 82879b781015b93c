"""`nmt status`: show how runs are doing, or why they ended."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.tables import table_lines
from nmt.errors import ArtefactError, quoted
from nmt.extensions.watch.history import named_runs, read_records, runs_here
from nmt.locks import LOCK, holder_of
from nmt.log import log
from nmt.options import opt, options_class
from nmt.quantities import clock, size
from nmt.report.run_status import METRICS_FILE, STATUS_FILE, VALIDATION_PREFIX, SavedStatus, loss_text, read_status
from nmt.runs import Checkpoints, update_of

DIED: Final = (
    "the process ended without recording why: it was killed by `kill -9` or ran out of memory, or the machine stopped"
)
LATE_LINES: Final = 3  # number of log intervals after which the last logged speed no longer describes the run
MIN_LATE_SECONDS: Final = 60.0  # a run counts as late only after this time, because a validation may take as long
RUNS_HEADER: Final = "run", "state", "update", "loss", "best", "ETA", "last record"
RIGHT: Final = (2, 3, 5, 6)  # right-aligned columns, which contain numbers
UNKNOWN: Final = f"no process holds the run, and there is no {STATUS_FILE} that says why"


@options_class
class StatusOptions:
    run: tuple[str, ...] = opt(
        (),
        "run folders, or folders of runs (default: those in . and in runs)",
        group="Input and output",
    )
    json: bool = opt(False, "print JSON", group="Input and output", common=True)


def run(options: StatusOptions) -> int:
    """Print how runs are doing, or why they ended: update, loss, best checkpoint, speed and time left.

    Several runs are printed as a table with one row each. The exit status is 4 if any of them cannot be read.
    """
    folders = named_runs(options.run) if options.run else runs_here("status")
    if len(options.run) == 1 and folders == [Path(options.run[0])]:
        values = run_status(folders[0])
        if options.json:
            print_json(values)
        else:
            print_lines(table_lines(_rows(values)))
        return 0
    rows, code = [], 0
    for folder in folders:
        try:
            rows.append(run_status(folder))
        except ArtefactError as error:
            log.error(str(error))
            code = error.code
    if options.json:
        print_json(rows)
    elif rows:
        print_lines(table_lines([RUNS_HEADER, *map(_cells, rows)], right=RIGHT))
    return code


def _cells(values: dict[str, Any]) -> tuple[str, ...]:
    """A row in the table of several runs."""
    update, total, best = values["update"], values["total"], values["best"]
    state = values["state"] if values["reason"] is None or values["state"] == "died" else values["reason"]
    score = "" if values["best_score"] is None else f"{values['best_by']} {values['best_score']:.4f} "
    return (
        quoted(values["run"]),
        "late" if values["late"] else state,
        "" if update is None else f"{update:,}" + (f"/{total:,}" if total else ""),
        "" if values["loss"] is None else f"{values['loss']:.4f}",
        "" if best is None else f"{score}at {update_of(Path(best)):,}",
        "" if values["seconds_left"] is None else clock(values["seconds_left"]),
        f"{clock(values['age_seconds'])} ago",
    )


def run_status(folder: Path) -> dict[str, Any]:
    """The values of `nmt status --json`; unknown values are None. Raises UserError if the folder is not a run."""
    updates, validations = read_records(folder)
    saved, holder = read_status(folder / STATUS_FILE), holder_of(folder / LOCK)
    last = updates[-1] if updates else None
    values = {} if last is None else last.values
    losses: Mapping[str, float | None] = values
    loss_updates = None if last is None else (last.update, last.update)
    if saved is not None and saved.loss_updates is not None:
        losses, loss_updates = {"loss": saved.loss, "nll": saved.nll}, saved.loss_updates
    checkpoints = Checkpoints(folder)
    best = checkpoints.best()
    best_by = None if best is None else checkpoints.judged_by(best)
    of_best = [record.values for record in validations if best is not None and record.update == update_of(best)]
    state = _state(saved, holder)
    current = saved or SavedStatus()
    age = round(max(0.0, time.time() - (folder / METRICS_FILE).stat().st_mtime), 1)
    is_running = state["state"] == "running"
    is_late = is_running and age > max(MIN_LATE_SECONDS, LATE_LINES * (current.line_seconds or 0.0))
    return {
        "run": str(folder),
        **state,
        "update": None if last is None else last.update,
        "total": current.total,
        "epoch": values.get("epoch"),
        "loss": losses.get("loss"),
        "nll": losses.get("nll"),
        "loss_updates": loss_updates,
        "tokens_per_second": current.tokens_per_second,
        "memory": current.memory,
        "seconds_left": current.seconds_left if is_running and not is_late else None,
        "best": None if best is None else str(best),
        "best_by": best_by,
        "best_score": of_best[-1].get(f"{VALIDATION_PREFIX}{best_by}") if of_best else None,
        "age_seconds": age,
        "late": is_late,
    }


def _state(saved: SavedStatus | None, holder: str | None) -> dict[str, Any]:
    """The state, host and pid. state: running, ended, died (without recording why) or unknown (from an older nmt)"""
    if holder is not None:
        place = re.fullmatch(r"(.*) pid (\d+)", holder)
        host, pid = (place[1], int(place[2])) if place else (holder, None)
        return {"state": "running", "reason": None, "message": None, "host": host, "pid": pid}
    if saved is None:
        state, reason, message = "unknown", None, UNKNOWN
    elif saved.end is None:
        state, reason, message = "died", "killed", DIED
    else:
        state, reason, message = "ended", str(saved.end.reason), saved.end.message
    return {"state": state, "reason": reason, "message": message, "host": None, "pid": None}


def _rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and texts of the known values."""
    state = values["state"]
    if state == "running":
        state += f" on {quoted(values['host'])}, process {values['pid']}"
        if values["late"]:
            state = f"no update for {clock(values['age_seconds'])}; {state}"
    else:
        state += "".join(f": {quoted(values[name])}" for name in ("reason", "message") if values[name] is not None)
    rows = [("run", quoted(values["run"])), ("state", state)]
    if values["update"] is not None:
        total = "" if not values["total"] else f"/{values['total']:,} ({values['update'] / values['total']:.0%})"
        epoch = "" if values["epoch"] is None else f", epoch {values['epoch']:.0f}"
        rows.append(("update", f"{values['update']:,}{total}{epoch}"))
    if values["loss"] is not None:
        text = loss_text(values["loss"], values["nll"], digits=2).removeprefix("loss ")
        first, last = values["loss_updates"]
        mean = f"update {last:,}" if first == last else f"mean of updates {first:,} to {last:,}"
        rows.append(("training loss", f"{text}, {mean}"))
    if values["best"] is not None:
        score = values["best_score"]
        score = " (not validated)" if score is None else f" ({values['best_by']} {score:.4f})"
        rows.append(("best", f"{quoted(values['best'])}{score}"))
    if values["tokens_per_second"] is not None:
        when = " before that" if values["late"] else ""
        rows.append(("speed", f"{values['tokens_per_second']:,.0f} tokens/s{when}"))
    if values["memory"] is not None:
        rows.append(("memory", f"{size(values['memory'])} at the peak"))
    if values["seconds_left"] is not None:
        rows.append(("ETA", clock(values["seconds_left"])))
    return [*rows, ("last record", f"{clock(values['age_seconds'])} ago")]


COMMAND = Command(
    "status",
    StatusOptions,
    run,
    positional=("run...",),
    greedy=False,
    group="train",
    examples=(
        "nmt status run",
        "nmt status runs",
        "nmt status run --json",
    ),
)
