"""The gradients of micro-batches as CUDA graphs."""

from dataclasses import replace
from typing import Any

from nmt import UserError, register
from nmt.extensions.fast.training_speedups.options import CapturedTrainingOptions
from nmt.training_speedups.base import TrainingSpeedup


@register("training-speedup", "capture", CapturedTrainingOptions)
class CapturedTraining(TrainingSpeedup):
    """The gradient of a micro-batch, replayed as a CUDA graph."""

    def change_updater(self, run: Any) -> None:
        """See TrainingSpeedup."""
        if not self.options.capture:
            return
        from nmt.extensions.fast.captured_passes import CapturedPasses

        check_capture(run)
        captured = CapturedPasses(run.updater.objective, run.updater.precision)
        run.updater = replace(run.updater, passes=captured)


def check_capture(run: Any) -> None:
    """Raise UserError if a run on this device, of this model and criterion, cannot be captured."""
    if run.device.type != "cuda":
        raise UserError(f"--capture: CUDA graphs need a GPU, and this is {run.device} (leave it out)")
    if run.world.size > 1:
        raise UserError("--capture: only for one device yet (leave it out)")
    for kind, part in (("model", run.model), ("criterion", run.criterion)):
        declared = "can_be_captured" in vars(type(part))  # a subclass may do more
        if not (declared and part.can_be_captured):
            changes = "what it does changes with the data or the update"
            raise UserError(
                f"--capture: not for --{kind} {part.part_name} with these options: {changes} (leave it out)"
            )
