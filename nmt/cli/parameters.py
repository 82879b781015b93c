"""Turns options into typer's parameters, and handles flags with several values, which typer lacks."""

import inspect
import re
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import typer
import typer.main
from typer.core import TyperArgument, TyperOption

from nmt import registry
from nmt.errors import UserError
from nmt.options import Option

FLAG: Final = re.compile(r"-[^\d.]")  # the start of a flag; -, -1 and -.5 are values
LETTER: Final = re.compile(r"-[^-\d.]")  # a flag of one letter, possibly with its value attached

OF_FLAG: Final = "__of_flag"  # suffix of the flag's parameter if its option can also be set without a flag

Parameter = TyperOption | TyperArgument


class Flag(NamedTuple):
    """A spelling of an option. negated: whether it sets the option to no, as `--no-overwrite` does"""

    option: Option
    negated: bool


def flags_of(options: Iterable[Option], owner: str = "", taken: Container[str] = ()) -> dict[str, Flag]:
    """The flags of one owner's options by spelling.

    owner: the name of the command or of the component, for the error
    taken: names that a path without its kind must not start with
    Raises UserError if two options have the same spelling.
    """
    flags: dict[str, Flag] = {}
    for option in options:
        short = option.path.partition(".")[2]
        paths = [option.path] if short.partition(".")[0] in taken else dict.fromkeys([option.path, short])
        for path in paths:
            for spelling, negated in option.spellings(path).items():
                if spelling in flags:
                    raise UserError(f"{owner} has two options with the flag '{spelling}' (rename one of them)")
                flags[spelling] = Flag(option, negated)
    return flags


def typer_parameters(options: Sequence[Option], flags: Mapping[str, Flag]) -> list[Parameter]:
    """Typer's parameters for the options of a command line, each named by `name_of`. Values stay text.

    flags: flags by spelling; an option without a flag is left out unless it is positional. An option that can be set
        both ways, `FILE` and `--input FILE`, has two parameters.
    """
    spellings = defaultdict[str, tuple[list[str], list[str]]](
        lambda: ([], [])
    )  # spellings that set the option, and spellings that set it to no
    for spelling, flag in flags.items():
        spellings[flag.option.path_key][flag.negated].append(spelling)
    parameters = []
    for option in options:
        complete = completion(option)
        settings: dict[str, tuple[Any, Any]] = {}
        if option.positional:
            kind: Any = list[str] if option.words is None else str
            settings[name_of(option)] = kind, typer.Argument(metavar=option.label, autocompletion=complete)
        given, negated = spellings[option.path_key]
        if declared := [f"{yes}/{no}" if no else yes for yes, no in zip_longest(given, negated, fillvalue="")]:
            name = name_of(option) + (OF_FLAG if option.positional else "")
            kind = bool if option.type is bool else list[str] if option.count is None else str
            settings[name] = kind, typer.Option(*declared, help=option.help, autocompletion=complete)
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, setting]
            )
            for name, (kind, setting) in settings.items()
        ]

    def command(**values: object) -> None:
        """Do nothing: typer only reads the parameters of this function."""

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params  # type: ignore[return-value]


def name_of(option: Option) -> str:
    """The name of an option's parameter: its path key as an identifier."""
    return option.path_key.replace(".", "__")


def completion(option: Option) -> Callable[[str], list[tuple[str, str]]] | None:
    """The function that lists the possible values of an option, each with its help; None if the shell should list files."""
    if kind := option.kind or ("preset" if option.path_key == "preset" else ""):
        return lambda incomplete: list(registry.summaries(kind).items())
    choices = choices_of(option)
    return (lambda incomplete: [(value, "") for value in choices]) if choices else None


def choices_of(option: Option) -> list[str]:
    """The values that an option's type lists, as in `Literal["log", "linear"]`, converted to text."""
    kinds = (option.type, *get_args(option.type))
    return [str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]


def spread_values(argv: Sequence[str], flags: Mapping[str, Flag], greedy: bool, unfinished: bool = False) -> list[str]:
    """The command line with one value per flag: `--train A B` becomes `--train A --train B`, and `--x 1 2` becomes `--x 1,2`.

    greedy: whether a flag with any number of values takes all words up to the next flag; otherwise it takes one word
    unfinished: whether the last flag may lack its value, which a shell is about to complete
    Words after `--` are not changed. Raises UserError for a flag without its value.
    """
    words, result = deque(argv), list[str]()
    while words and words[0] != "--":
        word = words.popleft()
        spelling, equals, _ = word.partition("=")
        if LETTER.match(word):
            word, equals = word[:2] + word[2:].removeprefix("="), word[2:]  # -c=FILE means -cFILE
            spelling = word[:2]
        option = flags[spelling].option if spelling in flags else None
        if option is None or option.type is bool or equals:
            result.append(word)
            continue
        count = option.count or (len(words) if greedy else 1)
        values: list[str] = []
        while words and len(values) < count and not FLAG.match(words[0]):
            values.append(words.popleft())
        if not values and not (unfinished and not words):
            raise UserError(f"{option.flag} needs a value: {option.wanted} ({option.help})")
        for value in values if option.count is None else [",".join(values)]:
            result += [spelling, value]
    return [*result, *words]


def flag_values(argv: Sequence[str], spellings: Container[str]) -> list[str]:
    """The values of one flag on a command line whose other flags are not known yet. The flag takes one word."""
    before = argv[: argv.index("--")] if "--" in argv else argv
    values = []
    for word, following in zip_longest(before, before[1:], fillvalue="-"):
        spelling, equals, value = word.partition("=")
        if spelling in spellings and (equals or not FLAG.match(following)):
            values.append(value if equals else following)
    return values
