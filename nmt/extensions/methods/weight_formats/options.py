"""What formats of weights declare. Without torch, so that a list of checkpoints appears at once."""

from typing import ClassVar

from nmt import options_class


@options_class
class LowRankOptions:
    """The weights are a product of matrices, in a file of their own."""

    file: ClassVar[str] = "adapter.safetensors"
    converts: ClassVar[bool] = False
