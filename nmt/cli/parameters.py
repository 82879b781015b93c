"""The flags of options, and options as typer's parameters, which complete the words of a shell."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
import typer.main
from typer.core import TyperArgument, TyperOption

from nmt import registry
from nmt.errors import UserError
from nmt.options import Option

Parameter = TyperOption | TyperArgument


class Flag(NamedTuple):
    """A spelling of an option. negated: it sets the option to no, as `--no-overwrite`"""

    option: Option
    negated: bool


def flags_of(options: Iterable[Option], owner: str = "", taken: Container[str] = ()) -> dict[str, Flag]:
    """The flags of one owner's options by spelling; UserError where two options have one.

    owner: the name of the command or of the part, for the error
    taken: names that a path without the kind at its front must not begin with
    """
    flags: dict[str, Flag] = {}
    for option in options:
        short = option.path.partition(".")[2]
        paths = [option.path] if short.partition(".")[0] in taken else dict.fromkeys([option.path, short])
        for path in paths:
            for spelling, negated in option.spellings(path).items():
                if spelling in flags:
                    raise UserError(f"flag '{spelling}' of {owner} is also another option of it (rename one of them)")
                flags[spelling] = Flag(option, negated)
    return flags


def typer_parameters(options: Sequence[Option], flags: Mapping[str, Flag]) -> list[Parameter]:
    """The parameters of typer for the options of a command line.

    flags: by spelling; an option without a flag there is left out, unless words may give it. An option that can be given
        both ways, `FILE` and `--input FILE`, has two parameters.
    """
    spellings = defaultdict[str, tuple[list[str], list[str]]](lambda: ([], []))  # that set it, and that set it to no
    for spelling, flag in flags.items():
        spellings[flag.option.path_key][flag.negated].append(spelling)
    parameters = []
    for option in options:
        complete, name = completion(option), option.path_key.replace(".", "__")
        settings: dict[str, tuple[Any, Any]] = {}
        if option.positional:
            kind: Any = list[str] if option.words is None else str
            settings[name] = kind, typer.Argument(metavar=option.label, autocompletion=complete)
        given, negated = spellings[option.path_key]
        if declared := [f"{yes}/{no}" if no else yes for yes, no in zip_longest(given, negated, fillvalue="")]:
            kind = bool if option.type is bool else list[str] if option.count is None else str
            settings[f"{name}__of_flag"] = kind, typer.Option(*declared, help=option.help, autocompletion=complete)
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, setting]
            )
            for name, (kind, setting) in settings.items()
        ]

    def command(**values: object) -> None:
        """Typer reads a command's parameters from a function."""

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params  # type: ignore[return-value]


def completion(option: Option) -> Callable[[str], list[tuple[str, str]]] | None:
    """The function that lists the values that an option may have, each with its help; None where the shell lists files."""
    if kind := option.kind or ("preset" if option.path_key == "preset" else ""):
        return lambda incomplete: list(registry.summaries(kind).items())
    choices = [
        value
        for kind in (option.type, *get_args(option.type))
        if get_origin(kind) is Literal
        for value in get_args(kind)
    ]
    return (lambda incomplete: [(str(value), "") for value in choices]) if choices else None
