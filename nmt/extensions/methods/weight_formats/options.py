"""Declarations of the weight formats. They do not import torch, so checkpoints are listed at once."""

from typing import ClassVar

from nmt import options_class


@options_class
class LowRankOptions:
    """Low-rank adapters: products of two matrices, saved in a separate file."""

    file: ClassVar[str] = "adapter.safetensors"
    converts: ClassVar[bool] = False
