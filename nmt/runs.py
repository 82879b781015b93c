"""The checkpoints of a run on disk: the newest intact one, the best one, and the one that a run folder stands for.

This module reads only JSON and does not import torch, so that commands that need no model start quickly.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nmt import registry
from nmt.artefact import MANIFEST, Artefact, remove_artefact, removing
from nmt.errors import ArtefactError, OtherFormatError, quoted
from nmt.files import read_json
from nmt.log import log

WEIGHTS: Final = "model.safetensors"
TRAINING: Final = "training.json"
SETTINGS: Final = "settings.toml"  # the settings file of a run
CHECKPOINTS_FOLDER: Final = "checkpoints"
PREFIX: Final = "update-"


def find_model(folder: Path) -> Path:
    """The folder itself; for a run, its best checkpoint, or its newest one if none has a score."""
    if not (folder / CHECKPOINTS_FOLDER).is_dir():
        return folder
    best = Checkpoints(folder).best()
    if best is None:
        raise ArtefactError(
            f"{quoted(folder)}: the run has no checkpoint yet (wait for the first one, or resume the run)"
        )
    return best


class Checkpoints:
    """The checkpoints of a run, `RUN/checkpoints/update-N`; the newest has the highest N."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS_FOLDER

    def all(self) -> list[Path]:
        """Every checkpoint folder with a manifest, oldest first."""
        return [path for path in self.named() if (path / MANIFEST).is_file()]

    def named(self) -> list[Path]:
        """Everything that is named like a checkpoint, oldest first."""
        try:
            paths = list(self.folder.iterdir())  # unlike `glob`, this raises an error if the folder cannot be read
        except (FileNotFoundError, NotADirectoryError):
            return []
        numbered = (path for path in paths if path.name.startswith(PREFIX) and path.name[len(PREFIX) :].isdecimal())
        return sorted(numbered, key=update_of)

    def path(self, update: int) -> Path:
        return self.folder / f"{PREFIX}{update}"

    def due(self) -> list[Path]:
        """The checkpoints that an uninterrupted run would have written, oldest first."""
        return [path for path in self.all() if _state(path).get("save_due") is not False]

    def score(self, folder: Path) -> float | None:
        """The validation score of a checkpoint; higher is better. None if it has no score or is unreadable."""
        score = _state(folder).get("score")
        return score if isinstance(score, float) and math.isfinite(score) else None

    def judged_by(self, folder: Path) -> str | None:
        """The name of the metric behind a checkpoint's score; None if it is unreadable."""
        return _state(folder).get("judged_by")

    def best(self) -> Path | None:
        """The checkpoint with the best score, or the newest one if none has a score."""
        return next(iter(self.ranked() or self.all()[-1:]), None)

    def ranked(self) -> list[Path]:
        """Checkpoints with a score, best first. In a tie, the older one comes first.

        With `--best-by auto`, checkpoints can have scores from two metrics, which are not comparable. Those with the newest
        checkpoint's metric come first.
        """
        scored = [(self.judged_by(path), score, path) for path in self.due() if (score := self.score(path)) is not None]
        newest = scored[-1][0] if scored else None
        return [path for _, _, path in sorted(scored, key=lambda row: (row[0] != newest, -row[1]))]

    def newest_valid(self) -> Artefact | None:
        """The newest intact checkpoint, with a warning for each newer damaged one; None if there are no checkpoints.

        Raises ArtefactError if all checkpoints are damaged, or if another version of nmt wrote the newest one.
        """
        folders = self.named()
        if artefact := newest_whole(folders):
            return artefact
        if folders:
            raise ArtefactError(
                f"{quoted(self.folder)}: all {len(folders)} checkpoints are damaged (restore one, or choose another run)"
            )
        return None

    def prune(self, keep_last: int, keep_best: int) -> None:
        """Delete all checkpoints except the newest, the best, and the last `keep_last` that were due (0: all that were due)."""
        folders, keep = list[Path](), set[Path]()
        with removing(self.folder):  # an unreadable folder must not end the run
            folders = self.all()
            keep = {*folders[-1:], *self.due()[-keep_last:], *self.ranked()[:keep_best]}
        for folder in folders if keep else ():
            if folder not in keep:
                with removing(folder):
                    remove_artefact(folder)


def newest_whole(folders: Sequence[Path]) -> Artefact | None:
    """The last intact checkpoint, with a warning for each damaged one after it.

    Raises OtherFormatError if another version of nmt wrote the last one.
    """
    for folder in reversed(folders):
        try:
            artefact = Artefact(folder, "checkpoint")
            artefact.check()
            return artefact
        except OtherFormatError:
            raise
        except ArtefactError as error:
            log.warn(f"{error}; trying the previous checkpoint")
    return None


def _state(folder: Path) -> dict[str, Any]:
    """The progress stored in a checkpoint; empty if it is unreadable. In older checkpoints, `judged_by` is in the settings."""
    try:
        training = read_json(folder / TRAINING)
        settings = training.get("settings", {})
        return {"judged_by": settings.get("best_by"), "settings": settings, **training["progress"]}
    except (ArtefactError, OSError, KeyError, TypeError, AttributeError):
        return {}


def saved_setting(folder: Path, name: str) -> Any:
    """A setting of the training run that wrote a checkpoint; None if it has no such setting."""
    return _state(folder).get("settings", {}).get(name)


def weights_file(artefact: Artefact) -> Path:
    """The weights file of a model folder or checkpoint. The options class of a weight format can declare a different name."""
    names: list[str] = [
        name for name in registry.declared("weight-format", "file") if name in artefact.manifest["files"]
    ]
    return artefact.folder / (names or [WEIGHTS])[0]


def update_of(folder: Path) -> int:
    """The update number in a checkpoint's name."""
    return int(folder.name[len(PREFIX) :])
