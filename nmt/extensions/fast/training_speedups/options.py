"""The options of speedups of training. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class


@options_class
class TrainingMatmulOptions:
    matmul: Literal["auto", "torch", "onednn"] = opt(
        "auto", "fp32 products on a CPU, by torch or by oneDNN, both exact; auto takes the faster"
    )

    def is_active(self) -> bool:
        """Always: `auto` has to choose too."""
        return True


@options_class
class RecomputedTrainingOptions:
    activation_checkpointing: bool = opt(
        False,
        "keep only the input of each layer and recompute the rest: less memory, a third more work",
        aliases=("checkpoint-activations",),
    )


@options_class
class CompiledTrainingOptions:
    compile: bool = opt(
        False, "fuse each layer's kernels by torch.compile; needs a C++ compiler, and a minute at first"
    )


@options_class
class CapturedTrainingOptions:
    capture: bool = opt(
        False,
        "replay the gradient of a micro-batch as a CUDA graph, one launch in place of hundreds, its sizes padded; for small "
        "models on one GPU",
        excludes=("compile", "activation_checkpointing"),
    )
