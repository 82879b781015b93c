"""The options of the reporters of this extension. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class
from nmt.log import log


@options_class
class DisplayOptions:
    """No options: the display is always used on a terminal."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: on a terminal."""
        return log.live


@options_class
class EstimateOptions:
    """No options: every run logs an estimate."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: always."""
        return True


@options_class
class TensorBoardOptions:
    tensorboard: bool = opt(False, "write TensorBoard events to RUN/tensorboard", group="Logging")


@options_class
class WandbOptions:
    wandb: bool = opt(False, "send the values of each log line to Weights & Biases", group="Logging")
