"""The history of a run, read without torch: its records, its newest checkpoint, its settings, and its scores."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from safetensors import SafetensorError, safe_open

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import ArtefactError, OtherFormatError, UserError, expecting, naming, quoted
from nmt.files import Count, read_bytes
from nmt.options import read_toml
from nmt.report.run_status import METRICS_FILE, VALIDATION_PREFIX
from nmt.runs import Checkpoints, weights_file

_Saved = TypeVar("_Saved")

SWEPT_FILE: Final = "sweep.toml"  # a copy of a sweep's settings, which marks the folder as a sweep
LENGTH_SETTINGS: Final = ("max_updates", "max_epochs", "batch_tokens")  # settings that may differ from the preset
PREFERRED_METRICS: Final = ("paper", "bleu")  # the paper's own BLEU, then sacreBLEU's


@dataclass(frozen=True)
class Record:
    """A line of metrics.jsonl: an update or a validation.

    update: number of the update
    eflop: cost of all updates so far, in 10^18 floating-point operations; None if it was not recorded
    values: the other numbers by name; those of validations start with "valid_". Values that are null, because the number was
        not finite, are skipped
    """

    update: int
    eflop: float | None
    values: Mapping[str, float]


class _RecordKeys(msgspec.Struct):
    update: int
    eflop: float | None = None


Minutes = Annotated[float, msgspec.Meta(ge=0, le=1e12)]  # excludes infinity


class CheckpointFacts(msgspec.Struct):
    """The facts in a checkpoint's manifest, in addition to the list of its files.

    minutes: minutes of training so far
    ranks: number of devices
    cost_is_measured: whether the cost of an update was measured rather than counted by the model
    """

    minutes: Minutes
    update: Count
    ranks: Count
    cost_is_measured: bool = False


class SavedScore(msgspec.Struct):
    """A row of `nmt evaluate --json`."""

    metric: str
    value: float
    signature: str
    system: str = ""


class TranslationStats(msgspec.Struct):
    """The part of the output of `nmt translate --stats` that is used. lines_per_second: speed after the model was loaded"""

    lines_per_second: float


@dataclass(frozen=True)
class History:
    """A run so far.

    folder: folder of the run
    pair: languages, such as "en-de"
    model: name of the model
    preset: the preset that matches the run's settings, except for the length; None if there is none
    parameters: number of weights
    updates: one record per update
    validations: one record per validation, with the cost of the update before it
    newest: facts of the newest checkpoint
    score: BLEU of a test set; None if the user has not named a file with it
    stats: speed of a translation; None if the user has not named a file with it
    """

    folder: Path
    pair: str
    model: str
    preset: str | None
    parameters: int
    updates: Sequence[Record]
    validations: Sequence[Record]
    newest: CheckpointFacts
    score: SavedScore | None = None
    stats: TranslationStats | None = None

    @property
    def eflop(self) -> float | None:
        """The cost of all updates; None if the cost of the last update was not recorded."""
        return self.updates[-1].eflop if self.updates else None

    @property
    def tflops(self) -> float | None:
        """TFLOPS (10^12 operations per second), sustained until the newest checkpoint, including validations and saving."""
        newest = self.newest
        eflop = next((record.eflop for record in reversed(self.updates) if record.update == newest.update), None)
        return None if eflop is None or not newest.minutes else eflop * 1e6 / (60 * newest.minutes)

    @property
    def target_tokens(self) -> float | None:
        """Target tokens of all updates; None if they were not recorded."""
        return self._tokens_until(self.updates[-1].update) if self.updates else None

    @property
    def flops_per_token(self) -> float | None:
        """Floating-point operations of training per target token."""
        return None if self.eflop is None or not self.target_tokens else self.eflop * 1e18 / self.target_tokens

    @property
    def tokens_per_second(self) -> float | None:
        """Target tokens per second, sustained until the newest checkpoint, including the time for validations and saving."""
        tokens = self._tokens_until(self.newest.update)
        return None if tokens is None or not self.newest.minutes else tokens / (60 * self.newest.minutes)

    def _tokens_until(self, update: int) -> float | None:
        tokens = [record.values.get("target_tokens") for record in self.updates if record.update <= update]
        return None if None in tokens else sum(filter(None, tokens))

    @property
    def best_bleu(self) -> Record | None:
        """The validation with the highest BLEU; the first of those that tie."""
        scored = [record for record in self.validations if "valid_bleu" in record.values]
        return max(scored, key=lambda record: record.values["valid_bleu"], default=None)


def read_run(folder: Path) -> History:
    """The history of a run.

    Raises UserError if the folder is not a run, and ArtefactError if it is damaged or has no complete checkpoint.
    """
    updates, validations = read_records(folder)
    checkpoint = _newest(folder)
    settings = read_toml(folder / "settings.toml")
    with expecting("a checkpoint of a run", checkpoint.folder):
        facts = msgspec.convert(checkpoint.manifest, CheckpointFacts)
    model, preset = str(settings.get("model")), _preset(settings)
    return History(folder, _languages(checkpoint), model, preset, _parameters(checkpoint), updates, validations, facts)


def is_run(folder: Path) -> bool:
    """Whether `nmt train` has written to a folder."""
    return (folder / METRICS_FILE).is_file() and not (folder / SWEPT_FILE).is_file()


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, such as those of a sweep, sorted by name."""
    return sorted(path.parent for path in folder.glob(f"*/{METRICS_FILE}") if is_run(path.parent))


def named_runs(names: Iterable[str]) -> list[Path]:
    """The runs that names stand for: a run itself, even if its folder contains others, or all runs in a folder.

    Any other name is returned as it is; reading it will raise an error.
    """
    folders = list(map(Path, names))
    return [run for folder in folders for run in ([] if is_run(folder) else runs_in(folder)) or [folder]]


def runs_here(command: str) -> list[Path]:
    """The working directory if it is a run, and the runs in it and in its subfolder `runs`. Raises UserError if there are none.

    command: the command that the error suggests
    """
    here = Path()
    found = [*([here] if is_run(here) else []), *runs_in(here), *runs_in(here / "runs")]
    if not found:
        raise UserError(f"no runs in this folder or in its subfolder 'runs' (name one: `nmt {command} RUN`)")
    return found


def read_records(folder: Path) -> tuple[list[Record], list[Record]]:
    """The records of a run's updates and validations. An incomplete last line, which is being written, is skipped.

    Raises UserError if the folder is not a run, and ArtefactError for a line that is not a record.
    """
    path = folder / METRICS_FILE
    if (folder / SWEPT_FILE).is_file():
        raise UserError(
            f"{quoted(folder)} is a sweep (run its `nmt sweep` command again to print the table, or with --html for charts)"
        )
    if not path.is_file():
        raise UserError(
            f"{quoted(folder)} is not a run, because it has no {METRICS_FILE} (name a folder that `nmt train --output` wrote)"
        )
    decoder = msgspec.json.Decoder(dict[str, Any])
    updates: list[Record] = []
    validations: list[Record] = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):
        with expecting("a record of a run", f"{path}:{number}"):
            fields = decoder.decode(line)
            keys = msgspec.convert(fields, _RecordKeys)
        values = {
            name: value
            for name, value in fields.items()
            if type(value) in (int, float) and name not in ("update", "eflop")
        }
        if any(name.startswith(VALIDATION_PREFIX) for name in fields):
            validations.append(Record(keys.update, updates[-1].eflop if updates else None, values))
        else:
            updates.append(Record(keys.update, keys.eflop, values))
    return updates, validations


def _newest(run: Path) -> Artefact:
    """The newest complete checkpoint. A run in progress may delete checkpoints in the meantime.

    Raises OtherFormatError if another version of nmt wrote it.
    """
    for folder in reversed(Checkpoints(run).all()):
        try:
            return Artefact(folder, "checkpoint")
        except OtherFormatError:
            raise
        except ArtefactError:
            continue
    raise ArtefactError(f"{quoted(run)}: the run has no complete checkpoint yet (wait until it has saved one)")


def _languages(checkpoint: Artefact) -> str:
    try:
        facts = checkpoint.json("pipeline/pipeline.json")
        return f"{facts['source']['language']}-{facts['target']['language']}"
    except (KeyError, TypeError):
        raise ArtefactError(f"{quoted(checkpoint.folder)}: the text pipeline does not name its languages") from None


def _parameters(checkpoint: Artefact) -> int:
    """The number of weights, from the header of their file; for an adapter, only its own weights."""
    path = weights_file(checkpoint)
    try:
        with naming(path), safe_open(path, framework="numpy") as file:
            names: list[str] = file.keys()
            return sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    except SafetensorError:
        raise ArtefactError(f"{quoted(path)}: not a safetensors file") from None


def _preset(settings: dict[str, Any]) -> str | None:
    """The preset that matches the run's settings, except for the length. Of several, the one with most matching values."""

    def common(preset: Mapping[str, Any]) -> set[str]:
        return {key for key, v in preset.items() if settings.get(key) == (list(v) if isinstance(v, tuple) else v)}

    presets = {name: preset.values for name, preset in registry.presets().items()}
    fitting = {name: common(values) for name, values in presets.items()}
    fitting = {name: keys for name, keys in fitting.items() if presets[name].keys() - LENGTH_SETTINGS <= keys}
    return max(fitting, key=lambda name: len(fitting[name]), default=None)


def read_stats(path: Path) -> TranslationStats:
    """The statistics of a translation. Raises UserError if the file cannot be read, and ArtefactError for other content."""
    return _read(path, TranslationStats, "nmt translate --stats")


def read_scores(path: Path) -> list[SavedScore]:
    """The rows of a file of scores. Raises UserError if it cannot be read, and ArtefactError for other content."""
    return _read(path, list[SavedScore], "nmt evaluate --json")


def read_bleu(path: Path) -> SavedScore:
    """The BLEU in a file of scores.

    Raises UserError if the file cannot be read or does not have the BLEU of one system, and ArtefactError for other content.
    """
    rows = read_scores(path)
    if len({row.system for row in rows}) > 1:
        raise UserError(
            f"{quoted(path)} has the scores of several systems (name a file with the scores of this run only)"
        )
    ranked = [row for metric in PREFERRED_METRICS for row in rows if row.metric == metric]
    if not ranked:
        raise UserError(f"{quoted(path)} has no BLEU (write it with nmt evaluate --json --metrics bleu, or --paper)")
    return ranked[0]


def _read(path: Path, kind: type[_Saved], command: str) -> _Saved:
    """Read JSON that a command wrote."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise UserError(f"{quoted(path)}: file not found (name a file that `{command}` wrote)") from None
    with expecting(f"the output of `{command}`", path):
        return msgspec.convert(json.loads(os.fsdecode(content)), kind)  # file names may have bytes that are not UTF-8
