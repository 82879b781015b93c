"""The interface of training speedups, which make the same training faster.

A speedup is active if one of its options differs from its default, or if its options class says so through `is_active`.
Its options are options of `nmt train`.
"""

from typing import Any, ClassVar

from torch import nn


class TrainingSpeedup:
    """A faster way to train. A registered speedup is built as `cls(options)`, with the options of `nmt train`.

    order: the speedup with the lowest order is applied first
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def change_layers(self, model: nn.Module) -> None:
        """Change how the layers of a newly built model are called, before the model is wrapped for all ranks."""

    def updater(self, updater: Any, model: Any, criterion: Any) -> Any:
        """Return the object that makes updates: `updater` (nmt.train.update.Updater), or a replacement."""
        return updater

    def before_updates(self, run: Any) -> None:
        """Choose what is faster on this device, such as kernels. Called before micro-batches are tried and updates are made.

        The choice is stored in `run.progress.limit`, which checkpoints save.
        """

    def after_updates(self, run: Any) -> None:
        """Log a summary at the end of a run."""
