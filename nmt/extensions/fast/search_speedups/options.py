"""Options of the search speedups. This module does not import torch, so that `--help` is fast."""

from typing import Literal

from nmt import opt, options_class


@options_class
class SearchMatmulOptions:
    matmul: Literal["auto", "torch", "onednn", "numpy"] = opt(
        "auto",
        "library for float32 matrix products on a CPU; auto measures which is fastest",
        group="Speed and memory",
    )

    def is_active(self) -> bool:
        """Always True, because even `auto` has to choose a library."""
        return True


@options_class
class CompiledSearchOptions:
    compile: bool = opt(
        False,
        "fuse the kernels of each layer with torch.compile; takes a minute at the start",
        group="Speed and memory",
    )


@options_class
class CapturedSearchOptions:
    capture: bool = opt(
        False,
        "replay search steps as CUDA graphs to save kernel launches; needs a GPU",
        group="Speed and memory",
        excludes=("compile",),
    )
