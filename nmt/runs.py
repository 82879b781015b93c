"""The checkpoints of a run on disk: the newest whole one, the best, and the one that a run's name stands for.

Reads JSON only, without torch, so that commands that need no network start fast.
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
SETTINGS: Final = "settings.toml"  # of a run
CHECKPOINTS_FOLDER: Final = "checkpoints"
PREFIX: Final = "update-"


def find_model(folder: Path) -> Path:
    """The folder itself, or the best checkpoint of a run; its newest if none has a score."""
    if not (folder / CHECKPOINTS_FOLDER).is_dir():
        return folder
    best = Checkpoints(folder).best()
    if best is None:
        raise ArtefactError(f"{quoted(folder)}: the run has no checkpoint yet (wait for its first, or continue it)")
    return best


class Checkpoints:
    """The checkpoints of a run, `RUN/checkpoints/update-N`; the newest has the highest N."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS_FOLDER

    def all(self) -> list[Path]:
        """Every checkpoint folder with a manifest, oldest first."""
        return [path for path in self.named() if (path / MANIFEST).is_file()]

    def named(self) -> list[Path]:
        """Whatever has the name of a checkpoint, oldest first."""
        try:
            paths = list(self.folder.iterdir())  # unlike `glob` it tells that a folder cannot be read
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
        """The validation score of a checkpoint, higher is better; None if it has none or is unreadable."""
        score = _state(folder).get("score")
        return score if isinstance(score, float) and math.isfinite(score) else None

    def judged_by(self, folder: Path) -> str | None:
        """The name of a checkpoint's score; None if it is unreadable."""
        return _state(folder).get("judged_by")

    def best(self) -> Path | None:
        """The best-scored checkpoint; the newest when none has a score."""
        return next(iter(self.ranked() or self.all()[-1:]), None)

    def ranked(self) -> list[Path]:
        """Checkpoints with a score, best first; of equal scores the older is first.

        Scores of two names, of `--best-by auto`, do not compare: those of the newest checkpoint's name are first.
        """
        scored = [(self.judged_by(path), score, path) for path in self.due() if (score := self.score(path)) is not None]
        newest = scored[-1][0] if scored else None
        return [path for _, _, path in sorted(scored, key=lambda row: (row[0] != newest, -row[1]))]

    def newest_valid(self) -> Artefact | None:
        """The newest whole checkpoint, with a warning for each damaged newer one; None without any checkpoint.

        Raises ArtefactError if there are checkpoints but none is whole, or if another version of nmt wrote the newest.
        """
        folders = self.named()
        if artefact := newest_whole(folders):
            return artefact
        if folders:
            raise ArtefactError(
                f"{quoted(self.folder)}: {len(folders)} checkpoints, none of them whole (copy one back, or name another run)"
            )
        return None

    def prune(self, keep_last: int, keep_best: int) -> None:
        """Delete all checkpoints but the newest, the last ones due and the best. keep_last: 0 keeps all that were due"""
        folders, keep = list[Path](), set[Path]()
        with removing(self.folder):  # a folder that cannot be listed ends no run
            folders = self.all()
            keep = {*folders[-1:], *self.due()[-keep_last:], *self.ranked()[:keep_best]}
        for folder in folders if keep else ():
            if folder not in keep:
                with removing(folder):
                    remove_artefact(folder)


def newest_whole(folders: Sequence[Path]) -> Artefact | None:
    """The last whole checkpoint of some, with a warning for each damaged one after it.

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
    """The progress in a checkpoint; empty if it is unreadable. One of before has its `judged_by` from the settings."""
    try:
        training = read_json(folder / TRAINING)
        settings = training.get("settings", {})
        return {"judged_by": settings.get("best_by"), "settings": settings, **training["progress"]}
    except (ArtefactError, OSError, KeyError, TypeError, AttributeError):
        return {}


def saved_setting(folder: Path, name: str) -> Any:
    """A setting of the training that wrote a checkpoint; None without one."""
    return _state(folder).get("settings", {}).get(name)


def weights_file(artefact: Artefact) -> Path:
    """The file of a model folder or checkpoint that has its weights. The options class of a weight format may declare one."""
    names: list[str] = [
        name for name in registry.declared("weight-format", "file") if name in artefact.manifest["files"]
    ]
    return artefact.folder / (names or [WEIGHTS])[0]


def update_of(folder: Path) -> int:
    """The update number in a checkpoint's name."""
    return int(folder.name[len(PREFIX) :])
