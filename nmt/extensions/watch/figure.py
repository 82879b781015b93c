"""The interface of figures, which `nmt plot --figure NAME` draws, and the models and settings that they are made from.

A registered figure is built as `cls(options)` with the command's options. Its numbers are a table, which is also what it draws
and what the command prints or writes as JSON or TSV.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch

from nmt import registry
from nmt.checkpoint import LoadedModel, build_model, load_model
from nmt.cli.command import DEFAULTS
from nmt.errors import UserError, quoted, unknown
from nmt.models.base import Model
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.options import read_toml
from nmt.runs import SETTINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FigureRow = Mapping[str, Any]
"""A row of a figure's numbers: texts and numbers by column. The name of a column ends with its unit."""

ANY_ENTRIES: Final = 64  # size of a vocabulary that does not matter


class Figure(ABC):
    """A figure about models or runs.

    title: what the figure shows, in a few words
    """

    title: ClassVar[str]
    part_name: ClassVar[str]

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        """The numbers, at least one row; all rows have the same columns. Raises UserError if there is nothing to draw.

        names: runs, model folders or presets
        """

    @abstractmethod
    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        """Draw the numbers that `rows` has returned on an empty matplotlib figure, and set its size."""

    def only(self, names: Sequence[str]) -> str:
        """The only name. Raises UserError if there are several, such as the models of an ensemble."""
        if len(names) > 1:
            given = ", ".join(map(quoted, names))
            raise UserError(f"--figure {self.part_name} draws a single model, not several ({given}): name one")
        return names[0]


def settings_of(name: str) -> dict[str, Any]:
    """The settings of a run or of a preset. Raises UserError if the name stands for neither."""
    if (Path(name) / SETTINGS).is_file():
        return read_toml(Path(name) / SETTINGS)
    if Path(name).exists():
        raise UserError(f"{quoted(name)} is not a run, because it has no {SETTINGS} (name a run or a preset)")
    return dict(_preset(name))


def open_model(name: str) -> LoadedModel:
    """The trained model of a run (its best checkpoint) or of a model folder."""
    if not Path(name).exists() and name in registry.presets():
        raise UserError(f"{quoted(name)} is a preset, without a trained model (name a run or a model folder)")
    return load_model(Path(name), torch.device("cpu"))


def model_of(name: str, entries: int = ANY_ENTRIES) -> Model:
    """The network of a run, a model folder or a preset; only that of a preset is not trained.

    entries: size of a preset's vocabulary, which has no data to tell it
    """
    if Path(name).exists():
        return open_model(name).model
    values = _preset(name)
    chosen = registry.choose("model", values.get("model", DEFAULTS["model"]), values)
    return build_model(
        ModelFacts.of(chosen.name, chosen.options, Vocabularies(entries, entries, True)), Path(name)
    ).eval()


def _preset(name: str) -> Mapping[str, Any]:
    if name not in registry.presets():
        raise unknown("run, model folder or preset", name, registry.presets(), "nmt list preset")
    return registry.find_preset(name).values
