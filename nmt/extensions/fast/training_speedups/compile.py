"""Compiles the layers of a model with torch.compile for training."""

from typing import Any

from torch import nn

from nmt import UserError, register
from nmt.extensions.fast.search_speedups.compile import allow_graphs
from nmt.extensions.fast.training_speedups.options import CompiledTrainingOptions
from nmt.extensions.fast.training_speedups.recompute import required_layers
from nmt.feed_forwards.base import FeedForward
from nmt.training_speedups.base import TrainingSpeedup


@register("training-speedup", "compile", CompiledTrainingOptions)
class CompiledTraining(TrainingSpeedup):
    """Fuses the kernels of each layer with torch.compile."""

    def change_layers(self, model: nn.Module) -> None:
        """See TrainingSpeedup."""
        compile_layers(model)

    def after_updates(self, run: Any) -> None:
        """See TrainingSpeedup."""
        from torch._dynamo.utils import counters

        run.report.line(f"torch.compile compiled {counters['stats']['unique_graphs']} graphs")


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for varying lengths and batch sizes, with one graph per kind of layer.

    A batch size or length of 1, and validation, need additional graphs. Raises UserError if the model has no layers, or has
    experts or a recurrence, which would need one graph per length.
    """
    if any(getattr(module, "is_recurrent", False) for module in model.modules()):
        raise UserError(
            "--compile does not support recurrent models, whose graphs depend on the sentence length (drop --compile)"
        )
    if any(isinstance(module, FeedForward) and not module.can_be_captured for module in model.modules()):
        raise UserError("--compile does not support experts, whose batch sizes depend on the data (drop --compile)")
    allow_graphs()
    for layer in required_layers(model, "--compile"):
        layer.compile(dynamic=True)
