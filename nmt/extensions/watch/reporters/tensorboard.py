"""A reporter that writes a run's metrics as TensorBoard events."""

from collections.abc import Mapping
from pathlib import Path

from nmt import register
from nmt.extensions.watch.reporters.options import TensorBoardOptions
from nmt.installation import required
from nmt.reporters.base import Reporter


@register("reporter", "tensorboard", TensorBoardOptions)
class TensorBoard(Reporter):
    """Writes TensorBoard events to RUN/tensorboard (needs the extra `tensorboard`)."""

    def __init__(self, options: TensorBoardOptions, folder: Path) -> None:
        """See Reporter."""
        tensorboard = required("torch.utils.tensorboard", "--tensorboard", "tensorboard")
        self._writer = tensorboard.SummaryWriter(str(folder / "tensorboard"))

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """See Reporter."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        """See Reporter."""
        self._writer.close()
