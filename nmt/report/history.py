"""What a run's folder tells of it: its records, its newest checkpoint, its settings. It reads text only, never torch."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import ArtefactError, UserError, quoted
from nmt.options import read_toml
from nmt.report.training import METRICS
from nmt.runs import WEIGHTS, Checkpoints

LARGEST_HEADER: Final = 100_000_000  # bytes, as safetensors itself allows
LENGTH_OF_RUN: Final = ("max_updates", "max_epochs", "batch_tokens")  # settings that make no other system of it


class Record(msgspec.Struct):
    """A line of metrics.jsonl: of an update, or of a validation. Not finite is null there and None here."""

    update: int
    loss: float | None = None
    eflop: float | None = None
    valid_loss: float | None = None
    valid_ppl: float | None = None
    valid_bleu: float | None = None


Minutes = Annotated[float, msgspec.Meta(ge=0, le=1e12)]  # no infinity
Count = Annotated[int, msgspec.Meta(ge=0)]


class Facts(msgspec.Struct):
    """What the manifest of a checkpoint says beside its files."""

    minutes: Minutes
    update: Count
    ranks: Count
    cost_is_measured: bool = False


@dataclass(frozen=True)
class History:
    """A run as it stands.

    pair: languages, as "en-de"; preset: whose settings it has, its length aside, None for no preset
    updates: one record an update; validations: one each, its EFLOP that of the update before it
    minutes, update: of training, and where the newest checkpoint stands; devices: that trained it
    """

    folder: Path
    pair: str
    model: str
    preset: str | None
    parameters: int
    updates: Sequence[Record]
    validations: Sequence[Record]
    minutes: float
    update: int
    devices: int
    cost_is_measured: bool

    @property
    def eflop(self) -> float | None:
        """What all updates cost; None where the cost of the last was not recorded."""
        return self.updates[-1].eflop if self.updates else None

    @property
    def tflops(self) -> float | None:
        """What was sustained until the newest checkpoint, validations and all: 10^12 operations a second."""
        done = next((record.eflop for record in reversed(self.updates) if record.update == self.update), None)
        return None if done is None or not self.minutes else done * 1e6 / (60 * self.minutes)

    @property
    def best_bleu(self) -> Record | None:
        """The validation with the highest BLEU, the first of equals."""
        scored = [record for record in self.validations if record.valid_bleu is not None]
        return max(scored, key=lambda record: record.valid_bleu or 0.0, default=None)


def read_run(folder: Path) -> History:
    """Raises UserError when the folder is no run, ArtefactError when it has no whole checkpoint or is damaged."""
    if not (folder / METRICS).is_file():
        raise UserError(f"{quoted(folder)}: is not a run: it has no {METRICS} (nmt train --output)")
    updates, validations = _records(folder / METRICS)
    checkpoint = _newest(folder)
    settings = read_toml(folder / "settings.toml")
    try:
        facts = msgspec.convert(checkpoint.manifest, Facts)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{quoted(checkpoint.folder)}: not the manifest of a checkpoint: {error}") from None
    return History(
        folder=folder,
        pair=_languages(checkpoint),
        model=str(settings.get("model")),
        preset=_preset(settings),
        parameters=_parameters(checkpoint),
        updates=updates,
        validations=validations,
        minutes=facts.minutes,
        update=facts.update,
        devices=facts.ranks,
        cost_is_measured=facts.cost_is_measured,
    )


def _records(path: Path) -> tuple[list[Record], list[Record]]:
    """Those of updates and those of validations. A last line without its end is one that is being written: left out."""
    decoder = msgspec.json.Decoder(Record)
    updates: list[Record] = []
    validations: list[Record] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ArtefactError(f"{quoted(path)}:{number}: not a record of a run: {quoted(error)}") from None
        if any(value is not None for value in (record.valid_loss, record.valid_ppl, record.valid_bleu)):
            record.eflop = updates[-1].eflop if updates else None
            validations.append(record)
        else:
            updates.append(record)
    return updates, validations


def _newest(run: Path) -> Artefact:
    """The newest checkpoint that is there with all its files; a run that goes on may delete one meanwhile."""
    for folder in reversed(Checkpoints(run).all()):
        try:
            return Artefact(folder, "checkpoint")
        except ArtefactError:
            continue
    raise ArtefactError(f"{quoted(run)}: the run has no whole checkpoint yet, which tells its minutes and languages")


def _languages(checkpoint: Artefact) -> str:
    try:
        facts = checkpoint.json("pipeline/pipeline.json")
        return f"{facts['source']['language']}-{facts['target']['language']}"
    except (KeyError, TypeError):
        raise ArtefactError(f"{quoted(checkpoint.folder)}: its pipeline does not say the languages") from None


def _parameters(checkpoint: Artefact) -> int:
    """Numbers in the weights' file, by its header: a length of 8 bytes, then JSON with the shape of each tensor."""
    path = checkpoint.folder / WEIGHTS
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, LARGEST_HEADER)))
        return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ArtefactError(f"{quoted(path)}: not a safetensors file") from None


def _preset(settings: dict[str, Any]) -> str | None:
    """The preset with all of whose values the run was trained, but for its length."""
    for name, preset in registry.presets().items():
        values = {key: value for key, value in preset.values.items() if key not in LENGTH_OF_RUN}
        if all(settings.get(key) == (list(v) if isinstance(v, tuple) else v) for key, v in values.items()):
            return name
    return None
