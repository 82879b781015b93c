"""A command: its own options, the kinds of components it uses, and one function that a notebook could call.

Flags come from options classes, so a flag, a TOML key and a saved key have the same spelling. The chosen components decide
which flags exist: `nmt train --model rnnsearch --help` shows those of rnnsearch.
"""

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nmt import registry
from nmt.cli.settings import Layer, OptionTable, Settings, option_table
from nmt.errors import UserError
from nmt.files import json_text
from nmt.log import log
from nmt.options import COMMAND_LINE, Option, Part, as_dict, make, opt, options_class, options_of

DEFAULTS: Final = {
    "model": "transformer",
    "criterion": "cross-entropy",
    "optimizer": "adam",
    "schedule": "noam",
    "decoder": "beam",
}
ALIASES: Final = {"schedule": ("lr-scheduler",), "model": ("type",)}
KIND_HELP: Final = {
    "model": "network to train (nmt list model)",
    "criterion": "loss to minimise (nmt list criterion)",
    "optimizer": "optimizer (nmt list optimizer)",
    "schedule": "learning-rate schedule (nmt list schedule)",
    "decoder": "search method (nmt list decoder)",
}
KIND_HEADING: Final = {"optimizer": "Learning rate", "schedule": "Learning rate", "decoder": "Search"}
PRESET: Final = Option(
    "preset", str | None, None, "named set of options (nmt list preset)", ("arch", "a", "task"), common=True
)


@options_class
class CommonOptions:
    """The options that every command takes."""

    config: tuple[str, ...] = opt(
        (), "TOML file with settings; flags override it", aliases=("c",), metavar="FILE", common=True
    )
    plugin: tuple[str, ...] = opt((), "load a plug-in: a Python file or module", aliases=("user-dir",), metavar="FILE")
    dump_config: bool = opt(False, "print all settings as TOML with their origins, and exit")
    quiet: bool = opt(False, "write only warnings and errors to stderr", aliases=("q",))
    verbose: bool = opt(False, "also log details, such as the device and batch sizes")
    debug: bool = opt(False, "show the Python traceback of an error")


class MissingError(UserError):
    """The error for required options that are not set."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.options = options
        missing = (f"{option.label} is missing: {option.help}" for option in options)
        super().__init__("; ".join(missing))


def start_is_over() -> None:
    """Start the garbage collector, which `main` has stopped. It ignores everything imported so far."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def print_json(value: object) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json_text(value))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, adding an LF to each."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def texts_of(value: Any) -> Sequence[str]:
    """The texts that a command line or a file sets for an option: none, one or several."""
    return [value] if isinstance(value, str) else value or ()


@dataclass(frozen=True)
class Parts:
    """The chosen components of a command.

    by_kind: each component with its options
    argv: the command line after the command's name
    taken: the names of the command's own options; no key of a component starts with one of them
    given: the origin of each option that is set, by path key: for example a preset, a model, a settings file or a flag
    """

    by_kind: Mapping[str, Part]
    argv: Sequence[str]
    taken: frozenset[str]
    given: Mapping[str, str] = field(default_factory=dict)

    def build(self, kind: str, *context: Any) -> Any:
        """Build the chosen component of a kind; see `registry.build`."""
        return registry.build(self.by_kind[kind], *context)

    def as_dict(self, *kinds: str) -> dict[str, Any]:
        """The settings of the components of some or all kinds, each by its shortest unambiguous key."""
        values: dict[str, Any] = {}
        for kind in kinds or self.by_kind:
            values |= {kind: self.by_kind[kind].name}
            values |= {f"{kind}.{key}": value for key, value in as_dict(self.by_kind[kind].options).items()}
        shorts = {key: key.partition(".")[2] for key in values}
        counts = Counter(short for short in shorts.values() if short and short.partition(".")[0] not in self.taken)
        return {shorts[key] if counts[shorts[key]] == 1 else key: value for key, value in values.items()}


def _settings_of(source: Callable[[Mapping[str, Any]], Layer | None] | None, layers: Sequence[Layer]) -> Layer | None:
    """The settings that a command's `base` or `defaults` adds to the given ones, or None. Help ignores invalid settings."""
    if source is None:
        return None
    given = {key: value for layer in layers for key, value in layer.values.items()}
    with suppress(UserError) if given.get("help") else nullcontext():
        return source(given)
    return None


@dataclass(frozen=True)
class Command:
    """A command of `nmt`.

    options: its own options class
    run: called with an options object, and with Parts if the command has kinds. It returns an exit status or None, and its
        docstring is the help
    group: the heading of `nmt --help` that lists it, a key of nmt.cli.commands.GROUPS
    examples: three command lines for its help, each at most 78 characters, with a comment
    headings: the headings that come first in its help, in this order
    kinds: the kinds of components whose flags it has
    positional: names of options that can also be set without a flag, in order; `NAME...` takes all others. Such
        arguments name the input of the command: text files, data, runs or models. Outputs and settings need their flags
    inferred: names of required options that `base` may set, so that the usage leaves them out
    more_words: advice for the error about a surplus argument
    greedy: whether a flag with any number of values takes all words up to the next flag, so that arguments without a flag
        come first. Otherwise it takes one word
    preload: modules that `run` always needs. They are imported before the garbage collector starts, because it would slow
        the import of torch by a fifth
    ends_start: whether `run` itself calls `start_is_over` after its imports
    base: maps the settings of files and flags to further settings, which these override; None if there are none
    defaults: like base, but presets also override its settings
    """

    name: str
    options: type
    run: Callable[..., int | None]
    group: str
    examples: Sequence[str] = ()
    headings: Sequence[str] = ("Input and output",)
    kinds: Sequence[str] = ()
    positional: Sequence[str] = ()
    inferred: Sequence[str] = ()
    more_words: str = ""
    greedy: bool = True
    preload: Sequence[str] = ()
    ends_start: bool = False
    base: Callable[[Mapping[str, Any]], Layer | None] | None = None
    defaults: Callable[[Mapping[str, Any]], Layer | None] | None = None

    @property
    def summary(self) -> str:
        """The help as one paragraph."""
        return " ".join((self.run.__doc__ or "").split())

    def own_groups(self) -> dict[str, list[Option]]:
        """The options that do not belong to a component, by their heading in the help."""
        kinds = [
            Option(
                kind,
                str,
                DEFAULTS[kind],
                KIND_HELP[kind],
                ALIASES.get(kind, ()),
                group=heading if (heading := KIND_HEADING.get(kind, "")) in self.headings else "",
                common=kind in ("model", "schedule"),
                kind=kind,
            )
            for kind in self.kinds
        ]
        return {
            "Options": options_of(self.options, positional=self.positional),
            "Components": [*kinds, replace(PRESET, common="model" in self.kinds)] if kinds else [],
            "Common": options_of(CommonOptions),
        }

    def check(self, table: OptionTable, settings: Settings, argv: Sequence[str] = ()) -> tuple[Any, Parts] | None:
        """Convert the settings, and return the result of `make_options`; None if they will only be printed."""
        settings.convert(table.options)
        common = make(CommonOptions, settings.values)
        log.quiet, log.verbose = common.quiet, common.verbose
        if not common.dump_config:
            return self.make_options(table, settings, argv)
        self._chosen_parts(settings.values)  # an invalid setting is an error; a missing one is not
        return None

    def call(self, checked: tuple[Any, Parts] | None, table: OptionTable, settings: Settings) -> int:
        """Run the command, or print its settings, and return the exit status. checked: the result of `check`"""
        for line in settings.notes:
            log.info(line)
        if checked is None:
            sys.stdout.write(settings.dump(table.groups))
            return 0
        for module in self.preload:
            importlib.import_module(module)
        if not self.ends_start:
            start_is_over()
        options, parts = checked
        return (self.run(options, parts) if self.kinds else self.run(options)) or 0

    def make_options(self, table: OptionTable, settings: Settings, argv: Sequence[str] = ()) -> tuple[Any, Parts]:
        """The options object, and the chosen components.

        settings: already converted
        argv: the command line after the command's name
        Raises MissingError, and UserError for values that cannot be combined.
        """
        values = settings.values
        if missing := settings.missing(table.options):
            raise MissingError(missing)
        options: Any = make(self.options, values)
        return options, Parts(self._chosen_parts(values), argv, table.taken, settings.origins)

    def _chosen_parts(self, values: Mapping[str, Any]) -> dict[str, Part]:
        """The chosen component of each kind. Raises UserError if a component's options cannot be combined."""
        return {
            kind: registry.choose(kind, values.get(kind, DEFAULTS[kind]), registry.values_below(kind, values))
            for kind in self.kinds
        }

    def bases(self, layers: Sequence[Layer]) -> list[Layer]:
        """The settings that files and flags override: `defaults`, the preset, and `base`, in this order."""
        bases = list[Layer]()
        names = [PRESET.convert(layer.values["preset"], layer.origin) for layer in layers if "preset" in layer.values]
        if self.kinds and names and names[-1]:
            preset = registry.find_preset(names[-1])
            bases.append(Layer(f"preset {preset.name}", preset.values))
        first, last = _settings_of(self.defaults, layers), _settings_of(self.base, layers)
        return [layer for layer in (first, *bases, last) if layer is not None]

    def has_defaults(self, layers: Sequence[Layer]) -> bool:
        """Whether `defaults` sets any option for these files and flags."""
        return _settings_of(self.defaults, layers) is not None

    def read(
        self, files: Sequence[Layer], flags: Mapping[str, Any] = registry.NO_VALUES, argv: Sequence[str] = ()
    ) -> tuple[OptionTable, Settings]:
        """The options, and their values from bases and files, not converted yet.

        flags: the values that the command line sets for the command's own options
        argv: the command line after the command's name, whose flags choose components
        """
        bases, own = self.bases([*files, Layer(COMMAND_LINE, flags)]), self.own_groups()
        table, settings = option_table(self.name, own, [*bases, *files], argv), Settings()
        for base in bases:
            of_base = option_table(self.name, own, [Layer("the chosen components", table.chosen), base])
            settings.overlay_base(base, of_base, table.chosen)
        for file in files:
            settings.overlay(file, table)
        return table, settings
