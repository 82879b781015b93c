"""The layers of a model by torch.compile."""

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
    """The kernels of each layer, fused by torch.compile."""

    def change_layers(self, model: nn.Module) -> None:
        """See TrainingSpeedup."""
        compile_layers(model)

    def after_updates(self, run: Any) -> None:
        """See TrainingSpeedup."""
        from torch._dynamo.utils import counters

        run.report.line(f"torch.compile made {counters['stats']['unique_graphs']} graphs")


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for varying lengths and batch sizes, one graph for each kind of layer.

    A batch or a length of 1, and validation, need further graphs. Raises UserError when the model has no layers, experts, or a
    recurrence, of which each length would be a graph.
    """
    if any(getattr(module, "is_recurrent", False) for module in model.modules()):
        raise UserError("--compile: a recurrence would be compiled again for each length (leave it out)")
    if any(isinstance(module, FeedForward) and not module.can_be_captured for module in model.modules()):
        raise UserError("--compile: the sizes of products with experts depend on the data (leave it out)")
    allow_graphs()
    for layer in required_layers(model, "--compile"):
        layer.compile(dynamic=True)
