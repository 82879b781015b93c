"""The options of positions in self-attention. Imports no torch, so that `--help` is fast."""

from typing import Final, Literal

from nmt import opt, options_class
from nmt.options import size_opt

ROTARY: Final = ("rotary", "sinusoidal-rotary")  # values of --positions with rotations in self-attention


@options_class
class RelativePositionOptions:
    relative_distance: int = size_opt(
        16, "largest relative distance, k in the paper; longer distances are clipped to it"
    )
    relative_heads: Literal["shared", "separate"] = opt(
        "shared", "whether the heads of a layer share their relative-position vectors"
    )
    relative_values: bool = opt(True, "add relative positions to values too, not only to keys")
