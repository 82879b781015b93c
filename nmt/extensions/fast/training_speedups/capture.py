"""The gradient of a micro-batch as a CUDA graph: one launch in place of hundreds, which take longer than a small model's work.

A graph reads and writes fixed addresses, and its sizes never change. So micro-batches are padded to sizes of a coarse grid, and
the gradients stay where they are from one update to the next. Dropout draws in a replay what it draws in the pass itself.
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

# Multi30k in updates of 4,096 tokens has 120 shapes, 39 % of whose cells are padding; by a multiple of 4, 240 and 34 %.
LENGTH_MULTIPLE: Final = 8
MAX_PASSES: Final = 256


@register("training-speedup", "capture", CapturedTrainingOptions)
class CapturedTraining(TrainingSpeedup):
    """The gradient of a micro-batch, replayed as a CUDA graph."""

    def updater(self, updater: Updater, model: Any, criterion: Any) -> Updater:
        """See TrainingSpeedup."""
        check_capture(updater, model, criterion)
        return replace(updater, passes=CapturedPasses(updater.objective, updater.precision))


def check_capture(updater: Updater, model: Any, criterion: Any) -> None:
    """Raise UserError if updates on this device, of this model and criterion, cannot be captured."""
    if (device := device_of(model)).type != "cuda":
        raise UserError(f"--capture: CUDA graphs need a GPU, and this is {device} (leave it out)")
    if updater.world.size > 1:
        raise UserError("--capture: only for one device yet (leave it out)")
    for kind, part in (("model", model), ("criterion", criterion)):
        declared = "can_be_captured" in vars(type(part))  # a subclass may do more
        if not (declared and part.can_be_captured):
            changes = "what it does changes with the data or the update"
            raise UserError(
                f"--capture: not for --{kind} {part.part_name} with these options: {changes} (leave it out)"
            )


def rounded_rows(rows: int) -> int:
    """The next number of rows of the grid: at most an eighth, or 7, more."""
    step = max(8, 1 << max(rows.bit_length() - 4, 0))
    return -(-rows // step) * step


def padded(batch: Batch) -> Batch:
    """The batch with sizes of the grid; the further rows and positions count in no loss."""
    source, target = batch.source.shape[1], batch.target.shape[1] - 1
    lengths = (-(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE for length in (source, target))
    return padded_to(batch, rounded_rows(len(batch)), *lengths)


def padded_to(batch: Batch, rows: int, source: int, target: int) -> Batch:
    """The batch with further rows and positions, which count in no loss; without `clean_source`.

    rows, source, target: B, S and T, at least those of the batch
    """
    more = rows - len(batch)
    padded_source = _extended(batch.source, rows, source, PAD)
    if more:
        padded_source[-more:, 0] = EOS  # no row is without a position to attend to
    columns = {}
    for name, column in batch.columns.items():
        kind = column_kind(column.kind)
        values = _extended(column.values, rows, kind.positions(source, target), kind.filler)
        columns[name] = Column(values, column.kind)
    noisy = None if batch.noisy_target_input is None else _extended(batch.noisy_target_input, rows, target, PAD)
    return Batch(padded_source, _extended(batch.target, rows, target + 1, PAD), columns, noisy)


def _extended(values: Tensor, rows: int, length: int | None, fill: int) -> Tensor:
    """values: (B, ...) or (B, L, ...), with rows, and with positions unless length is None, to these numbers"""
    more = [0, rows - len(values)]  # before and after, from the last dimension to the first
    if length is not None:
        more = [0, max(0, length - values.shape[1]), *more]
    return pad(values, [0] * (2 * values.dim() - len(more)) + more, value=fill)


def tensors_of(batch: Batch) -> list[Tensor]:
    """The tensors of a padded batch."""
    noisy = [] if batch.noisy_target_input is None else [batch.noisy_target_input]
    return [batch.source, batch.target, *noisy, *(column.values for column in batch.columns.values())]


def sizes(batch: Batch) -> tuple[object, ...]:
    """The shape of each tensor of a padded batch, with the names of the columns."""
    return *(values.shape for values in tensors_of(batch)), *batch.columns


@dataclass
class _Pass:
    """The pass of one shape. batch, factors: what it reads; values: what it writes; graph: None until it is captured"""

    batch: Batch
    factors: Tensor
    parts: PartNames
    values: Tensor
    graph: Any = None


class CapturedPasses(Passes):
    """Computes gradients of micro-batches, from graphs where they exist.

    objective: whose parameters' gradients are added to, see nmt.train.parallel; of one device
    The first micro-batch of a shape is computed plainly, the second one is captured.
    """

    def __init__(self, objective: nn.Module, precision: Precision) -> None:
        self.objective, self.precision = objective, precision
        self.device = next(objective.parameters()).device
        self._stream = torch.cuda.Stream(self.device)
        self._gave_back = False
        self._tensors: list[Tensor] = []
        self.forget()

    def forget(self) -> None:
        """Give the memory of all graphs back."""
        self._passes: dict[tuple[Any, ...], _Pass] = {}  # the least recently used first
        self._pool: Any = None

    def gave_memory_back(self) -> bool:
        """Whether graphs were given up when memory ran out last: then the same batch may fit without them. Answers once."""
        gave_back, self._gave_back = self._gave_back, False
        return gave_back

    def __call__(self, batch: Batch, factors: Mapping[str, float]) -> tuple[PartNames, Tensor]:
        """Add the gradient of a micro-batch to those of the parameters.

        batch: on the CPU, not padded; factors: of the trained parts of the loss, by name
        returns: the loss as `flattened` gives it, until the next call
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
        except Exception:  # out of memory, perhaps
            self._gave_back = self._pool is not None
            self.forget()
            raise
        caller_stream.wait_stream(self._stream)
        if len(self._passes) == MAX_PASSES:
            del self._passes[next(iter(self._passes))]
        self._passes[key] = captured
        return captured.parts, captured.values

    def _keep_addresses(self) -> None:
        """Forget the graphs if a tensor that they read or write was replaced; each parameter gets a gradient to add to."""
        trained = [parameter for parameter in self.objective.parameters() if parameter.requires_grad]
        for parameter in trained:  # at the beginning, and after a rollback
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
            # All that outlives a pass is the gradients, the batch and the values, which are read before the next pass.
            with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                captured.parts, captured.values = self._gradient(captured.batch, factors, captured.factors)
            captured.graph, self._pool = graph, graph.pool()
        captured.graph.replay()

    def _gradient(self, batch: Batch, factors: Mapping[str, float], values: Tensor) -> tuple[PartNames, Tensor]:
        """factors: whose names count; values: the same numbers on the device"""
        with autocast(self.device, self.precision):
            loss: Loss = self.objective(batch)
        totals = torch.stack([loss.trained[name].total for name in factors if name in loss.trained])
        (totals * values[: len(totals)]).sum().backward()
        return flattened(loss)
