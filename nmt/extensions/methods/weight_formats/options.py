"""Declarations of the weight formats. This module does not import torch, so that listing checkpoints is fast."""

from typing import ClassVar

from nmt import options_class


@options_class
class LowRankOptions:
    """Low-rank adapters: products of two matrices, saved in a separate file."""

    file: ClassVar[str] = "adapter.safetensors"
    converts: ClassVar[bool] = False
