"""The options of this extension's reporters. Imports no torch, so that `--help` is fast."""

from nmt import opt, options_class
from nmt.log import log


@options_class
class DisplayOptions:
    """No options: the display is always used on a terminal."""

    def is_active(self) -> bool:
        """Whether the display is used without an option: True on a terminal."""
        return log.live


@options_class
class EstimateOptions:
    """No options: every run logs an estimate."""

    def is_active(self) -> bool:
        """Whether the estimate is made without an option: always True."""
        return True


@options_class
class TensorBoardOptions:
    tensorboard: bool = opt(False, "write TensorBoard events to RUN/tensorboard", group="Logging")


@options_class
class WandbOptions:
    wandb: bool = opt(False, "send the values of each log line to Weights & Biases", group="Logging")
