"""The options of the built-in optimizers. This module does not import torch, so that `--help` is fast."""

from typing import Final

from nmt import opt, options_class

MIN_EPS: Final = 1e-38  # smaller values are 0 in float32, and the updates of unused embeddings would be 0 / 0
DECOUPLED_DECAY: Final = "decoupled weight decay: an update shrinks weights by this fraction times the learning rate"


@options_class
class AdamOptions:
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.98), "decay rates of the gradient's first and second moments", minimum=0, below=1
    )
    adam_eps: float = opt(1e-9, "constant added to the root of the second moment", minimum=MIN_EPS)
    weight_decay: float = opt(
        0.0, "weight of the L2 penalty added to the gradient", group="Regularization", aliases=("wd",), minimum=0
    )


@options_class
class AdamWOptions(AdamOptions):
    weight_decay: float = opt(0.01, DECOUPLED_DECAY, group="Regularization", aliases=("wd",), minimum=0)
