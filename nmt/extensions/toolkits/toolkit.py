"""The interface of toolkits: the programs whose models `nmt import` reads and `nmt export` writes.

A registered toolkit is built as `cls(options)`. The options are those of the command. An options class of a toolkit gives
flags to `nmt export`; `reads = False` or `writes = False` in it means that nmt cannot read or cannot write the toolkit's models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nmt.checkpoint import LoadedModel
from nmt.errors import UserError
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles


@dataclass(frozen=True)
class ScoredPair:
    """A pair that a toolkit has scored.

    source, target: our ids, without EOS
    log_probs: of the tokens of the target, and of EOS unless the translation was cut off, in nats
    """

    source: list[int]
    target: list[int]
    log_probs: list[float]


class Toolkit:
    """Reads or writes the models of a toolkit, or both.

    order: `nmt import --format auto` asks the toolkits in this order, lowest first, then by name
    kind: the kind in the manifest of a written folder; by default the toolkit's name
    package: the Python package that computes `scores`; empty if there is none
    """

    order: ClassVar[int] = 0
    kind: ClassVar[str] = ""
    package: ClassVar[str] = ""
    part_name: ClassVar[str]

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Whether the names in a path look like a model of this toolkit."""
        return False

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        """Read a model. Raises ArtefactError for damaged files, UserError for a model that nmt cannot compute."""
        raise UserError(f"--format {self.part_name}: nmt does not read the models of this toolkit")

    def check(self) -> None:
        """Raise UserError or InputError if the options cannot work. Called before the model is loaded."""

    def write(self, loaded: LoadedModel, output: Path) -> str:
        """Write a model, whole or not at all, and return what the command prints.

        Raises UserError for a model that the toolkit cannot compute.
        """
        raise UserError(f"--format {self.part_name}: nmt does not write models for this toolkit")

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        """Random pairs, scored by the toolkit's own program."""
        return iter(())
