"""Run nmt commands on simulated GPUs in one process: one JSON object per line of stdin, its result as a line on stdout.

arguments: of `nmt`; port: where ranks meet; memory_limit: bytes per device, if limited. Result: code, out, err; operations
and waits of the devices; per_update: waits within each update; per_step: waits within each step of a search.
"""

import contextlib
import gc
import io
import json
import os
import sys
from collections import Counter
from typing import Any

import torch
from device import BYTES, simulated, world

import nmt.decoders.base
from nmt.cli.main import run
from nmt.models.base import SearchScorer
from nmt.train.update import Updater


def watched_steps(prepared: Any, steps: list[dict[str, int]]) -> Any:
    """`scorer_for_search` with scorers that record, at each step, the waits for the device since the previous step."""

    def prepare(*args: Any, **kwargs: Any) -> Any:
        scorer = prepared(*args, **kwargs)
        before: list[Counter[str]] = []

        def watch(*arguments: Any) -> Any:
            if before:
                steps.append(dict(world.waits - before.pop()))
            before.append(Counter(world.waits))
            return scorer.step(*arguments)

        return SearchScorer(scorer.start, watch)

    return prepare


def counted(function: Any, totals: list[dict[str, int]]) -> Any:
    """Wrap a function so that each call adds its waits for the device to `totals`."""

    def count(*args: Any, **kwargs: Any) -> Any:
        before = Counter(world.waits)
        result = function(*args, **kwargs)
        totals.append(dict(world.waits - before))
        return result

    return count


def answer(command: dict[str, Any], totals: dict[str, list[dict[str, int]]]) -> dict[str, Any]:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    os.environ["MASTER_PORT"] = str(command["port"])
    gc.collect()  # remains of the previous command take up device memory until then
    world.memory_limit = command.get("memory_limit", BYTES)
    for rows in (world.operations, world.waits, *totals.values()):
        rows.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command["arguments"])
    out.flush()
    facts = {"operations": dict(world.operations), "waits": dict(world.waits), **totals}
    return {"code": code, "out": out.buffer.getvalue().decode(), "err": err.getvalue(), **facts}


def serve() -> None:
    torch.set_num_threads(1)
    totals: dict[str, list[dict[str, int]]] = {"per_update": [], "per_step": []}
    Updater.__call__ = counted(Updater.__call__, totals["per_update"])  # type: ignore[method-assign]
    nmt.decoders.base.scorer_for_search = watched_steps(nmt.decoders.base.scorer_for_search, totals["per_step"])
    with simulated():
        for line in sys.stdin:
            sys.stdout.write(json.dumps(answer(json.loads(line), totals)) + "\n")
            sys.stdout.flush()
