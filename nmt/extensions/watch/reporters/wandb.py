"""A reporter that sends a run's metrics to Weights & Biases."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nmt import register
from nmt.extensions.watch.reporters.options import WandbOptions
from nmt.files import write_file
from nmt.installation import required
from nmt.reporters.base import Reporter

WANDB_ID_FILE: Final = "wandb-id"


@register("reporter", "wandb", WandbOptions)
class Wandb(Reporter):
    """Sends the numbers of log lines and validations to Weights & Biases (needs the extra `wandb`).

    If an interrupted run is resumed, its record at Weights & Biases is resumed too, by its id.
    """

    def __init__(self, options: WandbOptions, folder: Path) -> None:
        """See Reporter."""
        wandb = required("wandb", "--wandb", "wandb")
        id_file = folder / WANDB_ID_FILE
        if not id_file.is_file():
            write_file(id_file, uuid.uuid4().hex.encode())
        self._run = wandb.init(dir=folder, name=folder.name, id=id_file.read_text(), resume="allow")

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """See Reporter."""
        self._run.log(dict(values), step=update)

    def close(self) -> None:
        """See Reporter."""
        self._run.finish()
