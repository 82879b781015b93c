"""The options of positions in self-attention. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class
from nmt.options import size_opt


@options_class
class RelativePositionOptions:
    relative_distance: int = size_opt(16, "relative positions: larger distances count as this, k in their paper")
    relative_heads: Literal["shared", "separate"] = opt(
        "shared", "relative positions: the heads of a layer share vectors, or have separate ones"
    )
    relative_values: bool = opt(True, "relative positions of values and keys; else of keys only")
