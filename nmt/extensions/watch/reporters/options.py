"""The options of the reporters of this extension. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class
from nmt.log import log


@options_class
class DisplayOptions:
    """None: a display is there on a terminal."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: on a terminal."""
        return log.live


@options_class
class EstimateOptions:
    """None: each run logs an estimate."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: always."""
        return True


@options_class
class TensorBoardOptions:
    tensorboard: bool = opt(False, "write events for TensorBoard to RUN/tensorboard")


@options_class
class WandbOptions:
    wandb: bool = opt(False, "send the same numbers to Weights & Biases; its own variables name project and mode")
