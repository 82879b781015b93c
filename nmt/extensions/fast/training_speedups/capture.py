"""Computes gradients with CUDA graphs. One launch replaces hundreds, which take longer than a small model's computation.

A graph reads and writes fixed addresses, and its sizes never change. So micro-batches are padded to the sizes of a coarse grid,
and gradients keep their addresses from one update to the next. Dropout draws the same masks in a replay as in an ordinary pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import is_not
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nmt import UserError, register
from nmt.batch import Batch, Column
from nmt.columns.base import column_kind
from nmt.criteria.base import Loss
from nmt.device import Precision, autocast, device_of
from nmt.extensions.fast.training_speedups.options import CapturedTrainingOptions
from nmt.symbols import EOS, PAD
from nmt.train.update import PartNames, Passes, Updater, flattened
from nmt.training_speedups.base import TrainingSpeedup

# On Multi30k, updates of 4,096 tokens have 120 shapes and 39 % padding; with a multiple of 4, 240 shapes and 34 % padding.
LENGTH_MULTIPLE: Final = 8
MAX_PASSES: Final = 256


@register("training-speedup", "capture", CapturedTrainingOptions)
class CapturedTraining(TrainingSpeedup):
    """Computes the gradients of a micro-batch by replaying a CUDA graph."""

    def updater(self, updater: Updater, model: Any, criterion: Any) -> Updater:
        """See TrainingSpeedup."""
        check_capture(updater, model, criterion)
        return replace(updater, passes=CapturedPasses(updater.objective, updater.precision))


def check_capture(updater: Updater, model: Any, criterion: Any) -> None:
    """Raise UserError if updates with this device, model and criterion cannot be captured."""
    if (device := device_of(model)).type != "cuda":
        raise UserError(f"--capture needs a GPU for its CUDA graphs, not {device} (drop --capture)")
    if updater.world.size > 1:
        raise UserError("--capture currently supports only one device (drop --capture)")
    for kind, part in (("model", model), ("criterion", criterion)):
        declared = "can_be_captured" in vars(type(part))  # must not be inherited, because a subclass might do more
        if not (declared and part.can_be_captured):
            raise UserError(
                f"--capture does not support --{kind} {part.part_name} with the given options, because its computation "
                "depends on the data or the update (drop --capture)"
            )


def rounded_rows(rows: int) -> int:
    """Round a number of rows up to the grid, by at most an eighth or 7 rows, whichever is more."""
    step = max(8, 1 << max(rows.bit_length() - 4, 0))
    return -(-rows // step) * step


def padded(batch: Batch) -> Batch:
    """Pad a batch to sizes on the grid. The additional rows and positions do not contribute to the loss."""
    source, target = batch.source.shape[1], batch.target.shape[1] - 1
    lengths = (-(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE for length in (source, target))
    return padded_to(batch, rounded_rows(len(batch)), *lengths)


def padded_to(batch: Batch, rows: int, source: int, target: int) -> Batch:
    """Pad a batch with rows and positions that do not contribute to the loss. `clean_source` is dropped.

    rows, source, target: new B, S and T; at least those of the batch
    """
    more = rows - len(batch)
    padded_source = _extended(batch.source, rows, source, PAD)
    if more:
        padded_source[-more:, 0] = EOS  # every row needs a position to attend to
    columns = {}
    for name, column in batch.columns.items():
        kind = column_kind(column.kind)
        values = _extended(column.values, rows, kind.positions(source, target), kind.filler)
        columns[name] = Column(values, column.kind)
    noisy = None if batch.noisy_target_input is None else _extended(batch.noisy_target_input, rows, target, PAD)
    return Batch(padded_source, _extended(batch.target, rows, target + 1, PAD), columns, noisy)


def _extended(values: Tensor, rows: int, length: int | None, fill: int) -> Tensor:
    """Pad values (B, ...) to `rows` rows. Unless `length` is None, also pad values (B, L, ...) to `length` positions."""
    more = [0, rows - len(values)]  # padding before and after, from the last dimension to the first
    if length is not None:
        more = [0, max(0, length - values.shape[1]), *more]
    return pad(values, [0] * (2 * values.dim() - len(more)) + more, value=fill)


def tensors_of(batch: Batch) -> list[Tensor]:
    """The tensors of a padded batch."""
    noisy = [] if batch.noisy_target_input is None else [batch.noisy_target_input]
    return [batch.source, batch.target, *noisy, *(column.values for column in batch.columns.values())]


def sizes(batch: Batch) -> tuple[object, ...]:
    """The shape of each tensor in a padded batch, and the names of the columns."""
    return *(values.shape for values in tensors_of(batch)), *batch.columns


@dataclass
class _Pass:
    """The pass for one shape. batch, factors: its inputs; values: its outputs; graph: None until it is captured"""

    batch: Batch
    factors: Tensor
    parts: PartNames
    values: Tensor
    graph: Any = None


class CapturedPasses(Passes):
    """Computes the gradients of micro-batches, with a CUDA graph if the shape has one.

    objective: the module whose parameters receive gradients, on one device; see nmt.train.parallel
    The first micro-batch of a shape is computed normally; the second one is captured.
    """

    def __init__(self, objective: nn.Module, precision: Precision) -> None:
        self.objective, self.precision = objective, precision
        self.device = next(objective.parameters()).device
        self._stream = torch.cuda.Stream(self.device)
        self._gave_back = False
        self._tensors: list[Tensor] = []
        self.forget()

    def forget(self) -> None:
        """Release the memory of all graphs."""
        self._passes: dict[tuple[Any, ...], _Pass] = {}  # least recently used first
        self._pool: Any = None

    def gave_memory_back(self) -> bool:
        """Whether graphs were released when memory ran out, so that the same batch may fit now. Resets the answer to False."""
        gave_back, self._gave_back = self._gave_back, False
        return gave_back

    def __call__(self, batch: Batch, factors: Mapping[str, float]) -> tuple[PartNames, Tensor]:
        """Add the gradient of a micro-batch to the gradients of the parameters.

        batch: on the CPU, not padded; factors: factor of each part of the training loss, by name
        returns: the loss as returned by `flattened`; valid until the next call
        """
        self._keep_addresses()
        batch = padded(batch).pin()
        on_cpu = torch.tensor(list(factors.values()), dtype=torch.float32).pin_memory()
        key = (tuple(factors), *sizes(batch))
        captured = self._passes.pop(key, None)
        caller_stream = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(caller_stream)
        try:
            with torch.cuda.stream(self._stream):
                if captured is None:
                    inputs = batch.to(self.device), on_cpu.to(self.device)
                    captured = _Pass(*inputs, *self._gradient(inputs[0], factors, inputs[1]))
                else:
                    for place, values in zip(tensors_of(captured.batch), tensors_of(batch), strict=True):
                        place.copy_(values, non_blocking=True)
                    captured.factors.copy_(on_cpu, non_blocking=True)
                    self._replay(captured, factors)
        except Exception:  # perhaps out of memory
            self._gave_back = self._pool is not None
            self.forget()
            raise
        caller_stream.wait_stream(self._stream)
        if len(self._passes) == MAX_PASSES:
            del self._passes[next(iter(self._passes))]
        self._passes[key] = captured
        return captured.parts, captured.values

    def _keep_addresses(self) -> None:
        """Forget the graphs if a tensor that they read or write was replaced. Also give each parameter a gradient tensor."""
        trained = [parameter for parameter in self.objective.parameters() if parameter.requires_grad]
        for parameter in trained:  # gradients are missing at the start and after a rollback
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        tensors = [*self.objective.parameters(), *self.objective.buffers(), *gradients]
        if len(tensors) != len(self._tensors) or any(map(is_not, tensors, self._tensors)):
            self.forget()
            self._tensors = tensors

    def _replay(self, captured: _Pass, factors: Mapping[str, float]) -> None:
        if captured.graph is None:
            graph = torch.cuda.CUDAGraph()
            # Only the gradients, the batch and the values outlive a pass, and they are read before the next pass.
            with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                captured.parts, captured.values = self._gradient(captured.batch, factors, captured.factors)
            captured.graph, self._pool = graph, graph.pool()
        captured.graph.replay()

    def _gradient(self, batch: Batch, factors: Mapping[str, float], values: Tensor) -> tuple[PartNames, Tensor]:
        """Compute the gradient. factors: used only for its names; values: the factors, on the device"""
        with autocast(self.device, self.precision):
            loss: Loss = self.objective(batch)
        totals = torch.stack([loss.trained[name].total for name in factors if name in loss.trained])
        (totals * values[: len(totals)]).sum().backward()
        return flattened(loss)
