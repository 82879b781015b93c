"""A command: its own options, the kinds of components it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key have one spelling. Which components are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
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
PRESET: Final = Option("preset", str | None, None, "a named set of options (nmt list preset)", ("arch", "a", "task"))


@options_class
class CommonOptions:
    """The options that every command takes."""

    config: tuple[str, ...] = opt(
        (), "TOML file of settings; a later file wins over an earlier, a flag over both", aliases=("c",), metavar="FILE"
    )
    plugin: tuple[str, ...] = opt(
        (), "Python file or module that registers components", aliases=("user-dir",), metavar="FILE"
    )
    dump_config: bool = opt(False, "print the settings as TOML, each with its origin, and stop")
    quiet: bool = opt(False, "write only warnings and errors to stderr", aliases=("q",))
    verbose: bool = opt(False, "also write details to stderr: the search with its options, device, batch sizes")
    debug: bool = opt(False, "show the traceback of an error")


class MissingError(UserError):
    """The error for required options that nobody has set."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.options = options
        missing = (f"{option.label} is missing: {option.help}" for option in options)
        super().__init__("; ".join(missing))


def start_is_over() -> None:
    """Start the garbage collector, which `main` has stopped; what is imported so far is left out."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def print_json(value: object) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json_text(value))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, which have no LF yet."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def texts_of(value: Any) -> Sequence[str]:
    """What a command line or a file gives for an option, as texts: none, one or several."""
    return [value] if isinstance(value, str) else value or ()


@dataclass(frozen=True)
class Parts:
    """The chosen components of a command.

    by_kind: each component with its options
    argv: the command line after the command's name
    taken: the names of the command's own options, which no key of a component begins with
    given: where each option was set, by path key: a preset, a model, a settings file or a flag; the others have defaults
    """

    by_kind: Mapping[str, Part]
    argv: Sequence[str]
    taken: frozenset[str]
    given: Mapping[str, str] = field(default_factory=dict)

    def build(self, kind: str, *context: Any) -> Any:
        """The object of the chosen component of a kind; see `registry.build`."""
        return registry.build(self.by_kind[kind], *context)

    def as_dict(self, *kinds: str) -> dict[str, Any]:
        """The settings of the components of some kinds, or of all, by the shortest keys that are unambiguous among them."""
        values: dict[str, Any] = {}
        for kind in kinds or self.by_kind:
            values |= {kind: self.by_kind[kind].name}
            values |= {f"{kind}.{key}": value for key, value in as_dict(self.by_kind[kind].options).items()}
        shorts = {key: key.partition(".")[2] for key in values}
        counts = Counter(short for short in shorts.values() if short and short.partition(".")[0] not in self.taken)
        return {shorts[key] if counts[shorts[key]] == 1 else key: value for key, value in values.items()}


@dataclass(frozen=True)
class Command:
    """A command of `nmt`.

    options: its own options class
    run: called with an options object, and with Parts when the command has kinds; returns an exit code or None. Its
        docstring is the help
    group: the heading of `nmt --help` that lists it, a key of nmt.cli.commands.GROUPS
    examples: three command lines for its help, each at most 78 characters, with a comment
    headings: the order of the headings of its help; headings that are not named follow
    kinds: the kinds of components whose flags it takes
    positional: names of options that words without a flag give too, in order; `NAME...` takes all that remain. Such words
        name what the command works on: files of text, data, runs or models. Output and settings have flags alone
    more_words: what to write in place of a word too many, for its error
    greedy: whether a flag of any number of values takes all words up to the next flag, so that words without a flag come
        first; if not, it takes one word
    preload: modules that `run` always needs. They are imported before the garbage collector starts, which would slow the
        import of torch by a fifth
    ends_start: whether `run` itself calls `start_is_over`, after it has imported what its options need
    base: from what files and flags give for its own options, further settings below those; None for none
    defaults: the same for settings below presets
    """

    name: str
    options: type
    run: Callable[..., int | None]
    group: str
    examples: Sequence[str] = ()
    headings: Sequence[str] = ("Input and output",)
    kinds: Sequence[str] = ()
    positional: Sequence[str] = ()
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
        """The options that do not belong to a component, by heading of --help."""
        kinds = [
            Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ALIASES.get(kind, ()), kind=kind)
            for kind in self.kinds
        ]
        return {
            "Options": options_of(self.options, positional=self.positional),
            "Components": [*kinds, PRESET] if kinds else [],
            "Common": options_of(CommonOptions),
        }

    def check(self, table: OptionTable, settings: Settings, argv: Sequence[str] = ()) -> tuple[Any, Parts] | None:
        """Convert the settings, and return what `make_options` makes of them; None if they are only to be printed."""
        settings.convert(table.options)
        common = make(CommonOptions, settings.values)
        log.quiet, log.verbose = common.quiet, common.verbose
        return None if common.dump_config else self.make_options(table, settings, argv)

    def call(self, checked: tuple[Any, Parts] | None, table: OptionTable, settings: Settings) -> int:
        """Run the command with its settings, or print them, and return the exit status. checked: the result of `check`"""
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

        settings: converted
        argv: the command line after the command's name
        Raises UserError for values that do not go together, and MissingError.
        """
        values = settings.values
        if missing := settings.missing(table.options):
            raise MissingError(missing)
        options: Any = make(self.options, values)
        parts = {
            kind: registry.choose(kind, values.get(kind, DEFAULTS[kind]), registry.values_below(kind, values))
            for kind in self.kinds
        }
        return options, Parts(parts, argv, table.taken, settings.origins)

    def bases(self, layers: Sequence[Layer]) -> list[Layer]:
        """What stands below files and flags: `defaults`, the preset that the last of them names, and `base`."""
        bases, given = list[Layer](), {key: value for layer in layers for key, value in layer.values.items()}
        names = [PRESET.convert(layer.values["preset"], layer.origin) for layer in layers if "preset" in layer.values]
        if self.kinds and names and names[-1]:
            preset = registry.find_preset(names[-1])
            bases.append(Layer(f"preset {preset.name}", preset.values))
        for further, place in ((self.base, len(bases)), (self.defaults, 0)):
            with suppress(UserError) if given.get("help") else nullcontext():
                if further is not None and (layer := further(given)) is not None:
                    bases.insert(place, layer)
        return bases

    def has_defaults(self, layers: Sequence[Layer]) -> bool:
        """Whether what files and flags give makes `defaults` set something."""
        given = {key: value for layer in layers for key, value in layer.values.items()}
        with suppress(UserError) if given.get("help") else nullcontext():
            return self.defaults is not None and self.defaults(given) is not None
        return False

    def read(
        self, files: Sequence[Layer], flags: Mapping[str, Any] = registry.NO_VALUES, argv: Sequence[str] = ()
    ) -> tuple[OptionTable, Settings]:
        """The options, and their values of bases and files, not converted yet.

        flags: the values of the command line for the command's own options
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
