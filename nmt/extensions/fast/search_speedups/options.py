"""The options of speedups of searches. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class


@options_class
class SearchMatmulOptions:
    matmul: Literal["auto", "torch", "onednn", "numpy"] = opt(
        "auto",
        "library for float32 products on a CPU; auto: measured for each shape, when there is more than one batch",
    )

    def is_active(self) -> bool:
        """Always: `auto` has to choose too."""
        return True


@options_class
class CompiledSearchOptions:
    compile: bool = opt(
        False, "fuse each layer's step with torch.compile; for GPUs; needs a compiler and a minute at the start"
    )


@options_class
class CapturedSearchOptions:
    capture: bool = opt(
        False,
        "replay the layers' steps as CUDA graphs, one launch a step; for GPUs, with caches of rounded sizes",
        excludes=("compile",),
    )
