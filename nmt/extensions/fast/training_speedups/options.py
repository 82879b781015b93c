"""Options of the training speedups. This module does not import torch, so that `--help` is fast."""

from typing import Literal

from nmt import opt, options_class


@options_class
class TrainingMatmulOptions:
    matmul: Literal["auto", "torch", "onednn"] = opt(
        "auto",
        "library for fp32 matrix products on a CPU; auto uses the faster one",
        group="Speed and memory",
    )

    def is_active(self) -> bool:
        """Always True, because even `auto` has to choose a library."""
        return True


@options_class
class RecomputedTrainingOptions:
    activation_checkpointing: bool = opt(
        False,
        "recompute each layer's activations in the backward pass: less memory, a third more computation",
        group="Speed and memory",
        aliases=("checkpoint-activations",),
    )


@options_class
class CompiledTrainingOptions:
    compile: bool = opt(
        False,
        "fuse the kernels of each layer with torch.compile; takes a minute at the start",
        group="Speed and memory",
    )


@options_class
class CapturedTrainingOptions:
    capture: bool = opt(
        False,
        "compute gradients with CUDA graphs; speeds up small models on one GPU",
        group="Speed and memory",
        excludes=("compile", "activation_checkpointing"),
    )
