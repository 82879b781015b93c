"""The file of a sweep: settings of `nmt train` and `nmt translate` with values to try, and the trials that result."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

from nmt.cli import train, translate
from nmt.cli.command import Command
from nmt.cli.settings import Layer, OptionTable, file_layer
from nmt.errors import UserError, quoted, unknown
from nmt.options import read_toml, to_toml

COMMAND_OF_TABLE: Final[Mapping[str, Command]] = {"train": train.COMMAND, "translate": translate.COMMAND}
SET_BY_SWEEP: Final = {"train": ("output", "dry_run", "json"), "translate": ("input", "output", "format", "json")}
SEED: Final = train.TRAIN_OPTIONS["seed"]
RANGE_KEYS: Final = ("low", "high", "log")
MAX_TRIALS: Final = 1000  # maximum number of combinations; more are probably a mistake
DRAWS_PER_TRIAL: Final = 20  # maximum number of draws per trial; short lists often yield the same values again
DRAWN_DIGITS: Final = 4  # digits of a drawn fraction: enough to repeat the run, and few enough for a folder name
MAX_NAME_CHARACTERS: Final = 120
HASH_CHARACTERS: Final = 8


@dataclass(frozen=True)
class Range:
    """A range to draw numbers from, including both ends. If both are whole numbers, so are the draws. log: draw on a log scale"""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        numbers = [end for end in (self.low, self.high) if type(end) in (int, float) and math.isfinite(end)]
        if len(numbers) < 2 or not self.low < self.high:
            raise ValueError("low and high must be numbers, with low less than high")
        if type(self.log) is not bool or (self.log and self.low <= 0):
            raise ValueError("log must be true or false; with log = true, low must be positive")

    def draw(self, chance: Random) -> float:
        """Draw a number from the range. Fractions have DRAWN_DIGITS digits."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        end = self.high + 1 if whole else self.high
        value = (
            math.exp(chance.uniform(math.log(self.low), math.log(end))) if self.log else chance.uniform(self.low, end)
        )
        value = math.floor(value) if whole else float(f"{value:.{DRAWN_DIGITS}g}")
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    tried: the values that are tried, by key
    seed: the training seed; None without training
    settings: all settings, by command
    """

    tried: Mapping[str, Any]
    seed: int | None
    settings: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The name of the trial's folder, which depends only on its values: `lr=0.001,dropout=0.1,seed=1`."""
        values = dict(self.tried) if self.seed is None else {**self.tried, "seed": self.seed}
        plain = _texts(values) or "run"
        name = re.sub(r"[^\w.,=+-]+", "_", plain, flags=re.ASCII)[:MAX_NAME_CHARACTERS]
        digest = sha256(json.dumps(values, default=str).encode()).hexdigest()[:HASH_CHARACTERS]
        return name if name == plain and not name.startswith((".", "-")) else f"{name.lstrip('.-')}-{digest}"


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file.

    path: path of the file
    fixed: settings that all trials share, by command
    command: the command with values to try
    tried: lists of values, or ranges to draw from, by key
    parts: the tried keys that choose a component, such as `optimizer`
    lacking: for each tuple of values of `parts`, the settings that those components lack and their trials skip
    """

    path: str
    fixed: Mapping[str, Mapping[str, Any]]
    command: str
    tried: Mapping[str, Sequence[Any] | Range]
    parts: Sequence[str]
    lacking: Mapping[tuple[Any, ...], frozenset[str]]

    def trials(self, draws: int | None, draws_seed: int, seeds: int) -> list[Trial]:
        """The trials: `seeds` trials for each combination of values.

        draws: number of different combinations to draw; None takes all
        Raises UserError for a range without draws, too many trials, several seeds without [train], or an invalid seed.
        """
        base = None
        if "train" in self.fixed and "seed" not in self.tried:
            base = SEED.convert(self.fixed["train"].get("seed", 1), _origin(self.path, "train"))
        if seeds > 1 and base is None:
            raise UserError(
                f"{quoted(self.path)}: --seeds {seeds} needs a [train] table whose seed is a number or unset"
            )
        trials = []
        for tried in self._combinations(draws, draws_seed):
            settings = self._fitting({**self.fixed.get(self.command, {}), **tried})
            for seed in [None] if base is None else range(base, base + seeds):
                own = settings | ({} if seed is None else {"seed": seed})
                trials.append(Trial(tried, seed, {**self.fixed, self.command: own}))
        return trials

    def _combinations(self, draws: int | None, draws_seed: int) -> list[dict[str, Any]]:
        ranges = [key for key, values in self.tried.items() if isinstance(values, Range)]
        if draws is None and ranges:
            raise UserError(f"{quoted(self.path)}: '{quoted(ranges[0])}' is a range, which needs --trials N")
        lists = [values for values in self.tried.values() if not isinstance(values, Range)]
        grid_size = math.prod(map(len, lists))
        if draws is None and grid_size > MAX_TRIALS:
            too_many = f"{grid_size:,} combinations exceed the limit of {MAX_TRIALS:,}"
            raise UserError(f"{quoted(self.path)}: {too_many} (use --trials N to draw some of them)")
        if draws is None or (not ranges and draws >= grid_size):
            rows = (dict(zip(self.tried, row, strict=True)) for row in product(*lists))
        else:
            rows = (
                {key: _draw(values, Random(f"{draws_seed} {key} {number}")) for key, values in self.tried.items()}
                for number in range(draws * DRAWS_PER_TRIAL)
            )
        unique_rows: dict[str, dict[str, Any]] = {}
        for row in map(self._fitting, rows):
            unique_rows[_texts(row)] = row
            if len(unique_rows) == draws:
                break
        return list(unique_rows.values())

    def _fitting(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that the trial's components have, and those that no component has (they are reported later).

        settings: all settings of a trial, including those of components that it does not use
        """
        chosen = {key: settings[key] for key in self.parts if key in settings}
        lacking = next(
            keys
            for row, keys in self.lacking.items()
            if all(chosen.get(key, value) == value for key, value in zip(self.parts, row, strict=True))
        )
        return {key: value for key, value in settings.items() if key not in lacking}

    def options(self, trial: Trial) -> dict[str, Any]:
        """The options object of each command of a trial. Raises UserError for settings that the command would reject."""
        options = {}
        for name, settings in trial.settings.items():
            origin = _origin(self.path, name)
            given = {"output": "-", **({"model": "-"} if name == "translate" and "train" in trial.settings else {})}
            command = COMMAND_OF_TABLE[name]
            table, values = command.read([Layer(origin, {**settings, **given})])
            values.convert(table.options)
            try:
                options[name], parts = command.make_options(table, values)
                if command is train.COMMAND:
                    train.refuse_default_sizes(options[name], parts)
            except (
                UserError
            ) as error:  # the message about options that cannot be combined does not say where they were set
                raise type(error)(f"{origin}: {trial.name}: {error}") from None
        return options


def read_sweep(path: str) -> Sweep:
    """Read the file of a sweep. Raises UserError if it cannot be used."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in read_toml(Path(path)).items():
        table, _, name = key.partition(".")
        if table not in COMMAND_OF_TABLE or not name:
            raise UserError(f"{quoted(path)}: {unknown('table', table, COMMAND_OF_TABLE)}")
        tables.setdefault(table, {})[name] = value
    if not tables:
        raise UserError(f"{quoted(path)} has no settings (write them under [train] or [translate])")
    swept = "train" if "train" in tables else "translate"
    if swept == "train" and "model" in tables.get("translate", {}):
        raise UserError(f"{_origin(path, 'translate')}: [train] already provides the model (drop 'model')")
    fixed, tried = {}, {}
    parts, lacking = list[str](), dict[tuple[Any, ...], frozenset[str]]()
    for name, values in tables.items():
        origin = _origin(path, name)
        grouped = _with_ranges(origin, values)
        part_keys, part_tables = _part_tables(origin, name, grouped)
        fixed[name], of_table = _divided(origin, name, grouped, list(part_tables.values()))
        if name == swept:
            tried, parts = of_table, part_keys
            having = {row: {key for key in grouped if table.find(key)} for row, table in part_tables.items()}
            of_any = set().union(*having.values())
            lacking = {row: frozenset(of_any - keys) for row, keys in having.items()}
        elif of_table:
            key, own = quoted(next(iter(of_table))), "in a second file without [train], after training"
            raise UserError(
                f"{_origin(path, name)}: '{key}' cannot have several values in a file with [train] (try these values {own})"
            )
    return Sweep(path, fixed, swept, tried, parts, lacking)


def _table(origin: str, name: str, settings: Mapping[str, Any]) -> OptionTable:
    """The options of a command, with those of the components that these settings choose."""
    return COMMAND_OF_TABLE[name].read([file_layer(origin, settings)])[0]


def _part_tables(
    origin: str, name: str, grouped: Mapping[str, Any]
) -> tuple[list[str], dict[tuple[Any, ...], OptionTable]]:
    """The keys whose values are components to try, and the command's options for each combination of their values.

    A component may be part of another component that is also tried.
    """
    first = {key: value[0] if isinstance(value, list) and value else value for key, value in grouped.items()}
    keys, tables = list[str](), {(): _table(origin, name, first)}
    while True:
        options = {
            key: [table.find(key) for table in tables.values()] for key in grouped if isinstance(grouped[key], list)
        }
        found = [key for key, of_tables in options.items() if any(option and option.kind for option in of_tables)]
        if found == keys:
            return keys, tables
        keys = found
        rows = product(*(grouped[key] for key in keys))
        tables = {row: _table(origin, name, {**first, **dict(zip(keys, row, strict=True))}) for row in rows}


def _divided(
    origin: str, name: str, grouped: Mapping[str, Any], tables: Sequence[OptionTable]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fixed settings of a table, and those with values to try.

    A list contains values to try. For an option that takes a list, this is a list of lists.
    tables: the options for each combination of components that are tried
    """
    if reserved := [key for key in SET_BY_SWEEP[name] if key in grouped]:
        raise UserError(f"{origin}: '{reserved[0]}' is set by nmt sweep (drop it)")
    fixed, tried = {}, {}
    for key, value in grouped.items():
        option = next((option for table in tables if (option := table.find(key))), None)
        takes_list = option is not None and option.count != 1
        if takes_list and isinstance(value, Range):
            raise UserError(
                f"{origin}: '{quoted(key)}' takes a list, so it cannot have a range (write a list of lists)"
            )
        is_whole = takes_list and not (isinstance(value, list) and value and isinstance(value[0], list))
        if isinstance(value, Range) or (isinstance(value, list) and not is_whole):
            tried[key] = value
        else:
            fixed[key] = value
        if value == [] and key in tried:
            raise UserError(f"{origin}: '{quoted(key)}' has no values to try (add one, or drop it)")
    return fixed, tried


def _with_ranges(origin: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the keys of each range, such as `lr.low` and `lr.high`, into one value."""
    grouped: dict[str, Any] = {}
    for path, value in values.items():
        key, _, end = path.rpartition(".")
        if key and end in RANGE_KEYS:
            if key in values:
                raise UserError(f"{origin}: '{quoted(key)}' has both a value and a range (drop one of them)")
            grouped.setdefault(key, {})[end] = value
        else:
            grouped[path] = value
    for key, value in grouped.items():
        if isinstance(value, dict):
            try:
                grouped[key] = Range(**value)
            except (TypeError, ValueError) as error:
                why = "low or high is missing" if isinstance(error, TypeError) else str(error)
                raise UserError(
                    f"{origin}: '{quoted(key)}': {why} (write a range as {{ low = 0.1, high = 0.5, log = false }})"
                ) from None
    return grouped


def _origin(path: str, table: str) -> str:
    return f"{path} [{table}]"


def _draw(values: Sequence[Any] | Range, chance: Random) -> Any:
    return values.draw(chance) if isinstance(values, Range) else chance.choice(values)


def _texts(values: Mapping[str, Any]) -> str:
    """Values as written in a folder name. That name identifies a trial, so `1` and `"1"` are the same value."""
    return ",".join(f"{key}={_text(value)}" for key, value in values.items())


def _text(value: Any) -> str:
    """A value as written in a folder name."""
    return ":".join(map(_text, value)) if isinstance(value, list) else to_toml(value).strip('"')
