"""The interface of toolkits: `nmt import` reads their models, and `nmt export` writes models for them.

A registered toolkit is built as `cls(options)` with the command's options. Its options class adds flags to `nmt export`.
`reads = False` or `writes = False` in that class means that nmt cannot read, or cannot write, the toolkit's models.
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
    """A sentence pair and its scores from the toolkit.

    source, target: nmt ids, without EOS
    log_probs: log-probabilities (nats) of the target's tokens, and of EOS unless the translation was truncated
    """

    source: list[int]
    target: list[int]
    log_probs: list[float]


class Toolkit:
    """Reads or writes the models of a toolkit, or does both.

    order: `nmt import --format auto` tries the toolkits with the lowest order first; names break ties
    kind: kind in the manifest of a written folder; by default the toolkit's name
    package: Python package that computes `scores`; empty if there is none
    """

    order: ClassVar[int] = 0
    kind: ClassVar[str] = ""
    package: ClassVar[str] = ""
    part_name: ClassVar[str]

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Whether the file names at a path look like those of a model of this toolkit."""
        return False

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        """Read a model. Raises ArtefactError for damaged files, and UserError for a model that nmt does not support."""
        raise UserError(f"--format {self.part_name}: nmt cannot read this toolkit's models")

    def check(self) -> None:
        """Raise UserError or InputError if the options cannot work. Called before the model is loaded."""

    def write(self, loaded: LoadedModel, output: Path) -> str:
        """Write a model, completely or not at all, and return the text that the command prints.

        Raises UserError for a model that the toolkit does not support.
        """
        raise UserError(f"--format {self.part_name}: nmt cannot write models for this toolkit")

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        """Yield random pairs with scores from the toolkit's own program."""
        return iter(())
