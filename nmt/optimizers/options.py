"""The options of the built-in optimizers. Without torch, so that `--help` answers at once."""

from typing import Final

from nmt import opt, options_class

MIN_EPS: Final = 1e-38  # a smaller one is 0 in float32, and divides 0 by 0 for unused embeddings
DECOUPLED_DECAY: Final = "share of each weight subtracted an update, times the learning rate"


@options_class
class AdamOptions:
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.98), "decay of the gradient's first and second moments", minimum=0, below=1
    )
    adam_eps: float = opt(1e-9, "added to the root of the second moment; 1e-9 in the paper", minimum=MIN_EPS)
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient; 0 in the paper", aliases=("wd",), minimum=0)


@options_class
class AdamWOptions(AdamOptions):
    weight_decay: float = opt(0.01, DECOUPLED_DECAY, aliases=("wd",), minimum=0)
