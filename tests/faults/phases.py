"""The commands that are disturbed: how each is called, what it starts from, and what it leaves when nothing disturbs it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conftest import TINY, write_corpus
from random_models import make_model

from nmt.artefact import Artefact
from nmt.runs import Checkpoints

TRAIN: Final = " ".join(
    [
        "train --data=data --output=run --save-every=2u --keep-last=1 --valid-every=4u --log-every=1u --no-valid-bleu",
        *TINY,
    ]
)


@dataclass(frozen=True)
class Phase:
    """A command to disturb, in a folder with the results of the phases before it.

    arguments: of `nmt`
    inputs: names of what it reads; they must not change
    output: the name of what it makes, whole or not there; a run is whole while a checkpoint of it is
    """

    name: str
    arguments: str
    inputs: tuple[str, ...]
    output: str


PHASES: Final = (
    Phase(
        "prepare",
        "prepare --source-lang=en --target-lang=de --train=train --valid=dev --subword=none --workers=1 --output=data",
        ("train.en", "train.de", "dev.en", "dev.de"),
        "data",
    ),
    Phase("train", f"{TRAIN} --max-updates=4", ("data",), "run"),
    Phase("train, continued", f"{TRAIN} --max-updates=6", ("data",), "run"),
    Phase("average", "average --run=run --last=1 --output=model", ("run",), "model"),
    Phase(
        "translate --output",
        "translate --model=model --input=dev.en --output=out.txt --beam-size=1 --threads=1 --engine=torch",
        ("model", "dev.en"),
        "out.txt",
    ),
    Phase(
        "translate, exporting",
        "translate --model=ready --input=dev.en --output=other.txt --threads=1 --engine=ctranslate2",
        ("ready", "dev.en"),
        "other.txt",
    ),
    Phase(
        "shortlist",
        "shortlist --data=data --output=pairs.shortlist --rounds=1 --frequent=10 --overwrite",
        ("data",),
        "pairs.shortlist",
    ),
    Phase("report", "report run --html=report.html", ("run",), "report.html"),
    Phase("export", "export --model=model --format=int8 --output=small --threads=1", ("model",), "small"),
)


def write_inputs(folder: Path) -> None:
    """Write the texts that the first phase reads, and a model that CTranslate2 can run."""
    write_corpus(folder / "train", 60, 1)
    write_corpus(folder / "dev", 8, 2)
    make_model(folder / "ready", norm_position="pre", tie="none")


def content(path: Path) -> Any:
    """The content to compare of a file, a folder made by nmt or a run. Raises UserError if damaged; None: missing."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if (path / "checkpoints").is_dir():
        return _content_of_run(path)
    return _content_of_artefact(path) if path.exists() else None


def _content_of_run(folder: Path) -> Any:
    """The tensors of the newest checkpoint and the metrics. Its other content depends on saves that failed."""
    newest = Checkpoints(folder).newest_valid()
    if newest is None:
        return None
    content = _content_of_artefact(newest.folder)
    tensors = {name: digest for name, digest in content.items() if name.endswith(".safetensors")}
    return newest.folder.name, tensors, (folder / "metrics.jsonl").read_bytes()


def _content_of_artefact(folder: Path) -> dict[str, str]:
    artefact = Artefact(folder, "prepared-data", "checkpoint", "model")
    artefact.check()
    return {name: facts["sha256"] for name, facts in artefact.manifest["files"].items()}
