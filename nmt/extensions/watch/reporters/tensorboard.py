"""A reporter that writes a run's metrics as TensorBoard events."""

from collections.abc import Mapping
from functools import cache, partial
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
        # Opened with the first number, because it adds a file, and a finished run must not change.
        self._writer = cache(partial(tensorboard.SummaryWriter, str(folder / "tensorboard")))

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """See Reporter."""
        for name, value in values.items():
            self._writer().add_scalar(name, value, update)

    def close(self) -> None:
        """See Reporter."""
        if self._writer.cache_info().currsize:
            self._writer().close()
