"""The gradients of micro-batches as CUDA graphs."""

from dataclasses import replace
from typing import Any

from nmt import UserError, register
from nmt.device import device_of
from nmt.extensions.fast.training_speedups.options import CapturedTrainingOptions
from nmt.train.update import Updater
from nmt.training_speedups.base import TrainingSpeedup


@register("training-speedup", "capture", CapturedTrainingOptions)
class CapturedTraining(TrainingSpeedup):
    """The gradient of a micro-batch, replayed as a CUDA graph."""

    def updater(self, updater: Updater, model: Any, criterion: Any) -> Updater:
        """See TrainingSpeedup."""
        from nmt.extensions.fast.captured_passes import CapturedPasses

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
