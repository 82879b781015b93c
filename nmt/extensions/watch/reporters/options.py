"""The options of the reporters of this extension. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class DisplayOptions:
    """A display has no options: it is there on a terminal."""


@options_class
class EstimateOptions:
    """An estimate has no options: each run logs one."""


@options_class
class TensorBoardOptions:
    tensorboard: bool = opt(False, "write events for TensorBoard to RUN/tensorboard")


@options_class
class WandbOptions:
    wandb: bool = opt(False, "send the same numbers to Weights & Biases; its own variables name project and mode")
