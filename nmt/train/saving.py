"""Saves checkpoints: a thread writes a copy of the state, one checkpoint at a time, while training continues."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, Final

import torch
from torch import Tensor

from nmt import signals
from nmt.artefact import new_folder
from nmt.checkpoint import (
    TRAINED_WEIGHTS,
    TRAINING_TENSORS,
    flat_optimizer,
    refuse_not_finite,
    size_of,
    write_model,
    write_tensors,
)
from nmt.dist import full_tensor
from nmt.errors import DivergedError, ResourceError, quoted
from nmt.files import to_json
from nmt.log import log
from nmt.runs import TRAINING
from nmt.train.checkpointing import SavedState
from nmt.train.run import Run, Saving

MAX_FAILED_SAVES: Final = 2  # maximum number of failed saves in a row that do not end the run


def save(run: Run, last: bool) -> None:
    """Copy the state of this update, and let a thread write it and delete the checkpoints that are no longer kept.

    last: whether to wait until it is written
    A failed save does not touch older checkpoints and causes a warning, here or in `finish_save`. The third failure in a row
    and a failure of the last save raise ResourceError.
    """
    finish_save(run)
    progress = asdict(run.progress)
    if run.world.any(run.saved != progress):
        run.saving = _begin(run, progress)
    if last:
        finish_save(run, last)


def finish_save(run: Run, last: bool = False) -> None:
    """Wait for the checkpoint that is being written, if there is one. Raises the errors of `save`, and DivergedError."""
    if run.saving is None:
        return
    (progress, thread, errors), run.saving = run.saving, None
    try:
        if thread is not None:
            thread.join()  # a thread that still frees tensors while the program exits would crash it
        if errors:
            raise errors[0]
        run.saved, run.failed_saves = progress, 0
    except ResourceError as error:
        run.failed_saves += 1
        if last or run.failed_saves > MAX_FAILED_SAVES:
            raise
        log.warn(f"checkpoint of update {progress['update']} not saved: {error}")
    except DivergedError as error:  # the next losses show the divergence too
        if last or run.options.on_divergence == "stop":
            raise
        log.warn(f"checkpoint of update {progress['update']} not saved: {error}")


def save_has_ended(run: Run) -> bool:
    """Whether a save has succeeded or failed since the last call. Raises the errors of `finish_save`."""
    if run.saving is None or (run.saving.thread is not None and run.saving.thread.is_alive()):
        return False
    finish_save(run)
    return True


@contextmanager
def saves_finished(run: Run) -> Iterator[None]:
    """Context that waits for a pending checkpoint if its block raises an error."""
    try:
        yield
    except Exception:
        try:
            finish_save(run)
        except Exception as error:  # the first error ends the run
            log.warn(f"checkpoint not saved: {error}")
        raise


def _begin(run: Run, progress: dict[str, Any]) -> Saving:
    """Copy the state, and start a thread on the leader that writes it."""
    path, facts, state, weights, tensors = _copy(run)
    saving = Saving(progress, None, [])
    if not run.world.leads:
        return saving

    held = signals.innermost().held

    def work() -> None:
        try:
            with held:
                _write(run, path, facts, state, weights, tensors)
        except BaseException as error:
            saving.errors.append(error)

    thread = Thread(target=work, name="saver", daemon=True)
    try:
        state["metrics_offset"] = run.report.offset()
        thread.start()
        return saving._replace(thread=thread)
    except ResourceError as error:
        saving.errors.append(error)
    except RuntimeError:  # no memory for the thread's stack, or too many threads
        work()
    return saving


def _copy(run: Run) -> tuple[Path, dict[str, Any], dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """The arguments of `_write`: copies of everything that updates change. Shards are gathered from all ranks."""
    tensors, plain = flat_optimizer(run.optimizer)
    if run.average is not None:
        tensors |= {f"{TRAINED_WEIGHTS}{name}": weight for name, weight in run.average.parameters.items()}
    weights, tensors = _gathered(run, run.evaluated_weights()), _gathered(run, tensors)
    minutes, settings = round(run.minutes, 3), dict(run.settings)
    state = SavedState(
        progress=run.progress,
        minutes=minutes,
        settings=settings,
        data=run.data.fingerprint,
        optimizer=plain,
        schedule=run.schedule.state_dict(),
        metrics_offset=0,
    )
    facts = {
        "update": run.progress.update,
        "minutes": minutes,
        "flops": run.progress.flops,
        "cost_is_measured": run.model.cost_is_measured,
        "settings": sha256(to_json(dict(sorted(settings.items())))).hexdigest(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "matmul": run.progress.limit.matmul,
        "ranks": run.world.size,
        "data": run.data.fingerprint,
        "vocabulary": run.data.pipeline.hash,
    }
    return run.checkpoints.path(run.progress.update), facts, asdict(state), weights, tensors


def _write(
    run: Run,
    path: Path,
    facts: Mapping[str, Any],
    state: dict[str, Any],
    weights: dict[str, Tensor],
    tensors: dict[str, Tensor],
) -> None:
    """Write a checkpoint, and delete those no longer kept. Does not read anything in `run` that updates change."""
    refuse_not_finite(weights, path)
    if not path.parent.is_dir():  # a newly created folder would lack the run's lock and settings
        raise ResourceError(f"{quoted(path.parent)}: the folder was moved or removed during the run (move it back)")
    run.report.sync()
    with new_folder(path, "checkpoint", facts, size_of(weights) + size_of(tensors)) as folder:
        write_model(folder, weights, run.facts, run.data.pipeline, run.kept.file)
        run.kept.write(folder)
        write_tensors(folder / TRAINING_TENSORS, tensors)
        (folder / TRAINING).write_bytes(to_json(state))
    run.checkpoints.prune(run.options.keep_last, run.options.keep_best)


def _gathered(run: Run, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the full tensors to the leader's memory. Sharded tensors are gathered one at a time."""
    gathered = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if run.world.leads:
            gathered[name] = full.detach().to("cpu", copy=full is tensor)
    return gathered
