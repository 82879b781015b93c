"""The options of a command and of its chosen parts, and the keys and flags that name each of them."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nmt import registry
from nmt.cli.arguments import Flag
from nmt.errors import UserError
from nmt.options import Option, to_toml

HELP: Final = ("--help", "-h")


@dataclass(frozen=True)
class OptionTable:
    """The options of a command and of its chosen parts.

    groups: options by heading of --help: the command's own, and those of each part
    flags: the flags by spelling
    ambiguous: the options that a spelling fits, if they belong to several parts
    taken: the names of the command's own options; a key that begins with one of them leaves out no kind
    """

    groups: Mapping[str, Sequence[Option]]
    flags: Mapping[str, Flag]
    ambiguous: Mapping[str, Sequence[Option]]
    taken: frozenset[str]

    @property
    def options(self) -> list[Option]:
        return [option for group in self.groups.values() for option in group]

    def find(self, key: str) -> Option | None:
        """The option of a key, with or without the kind at its front. UserError where several parts have it."""
        matches = [option for option in self.options if option.path_key == key]
        if not matches and key.partition(".")[0] not in self.taken:
            matches = [option for option in self.options if option.path and short_key(option) == key]
        if len(matches) > 1:
            keys = " or ".join(to_toml(option.path_key) for option in matches)
            raise UserError(f"setting '{key}' is ambiguous (write {keys})")
        return matches[0] if matches else None


def short_key(option: Option) -> str:
    """The key of a part's option without the kind at its front."""
    return option.path_key.partition(".")[2]


def paths_of(option: Option, taken: Container[str]) -> list[str]:
    """The paths that may stand before an option's name: the whole one and, if it cannot be misread, the one without kind."""
    short = option.path.partition(".")[2]
    return [option.path] if short.partition(".")[0] in taken else list(dict.fromkeys([option.path, short]))


def option_table(
    command: str,
    groups: Mapping[str, Sequence[Option]],
    kinds: Mapping[str, str],
    choice: Callable[[Option], str],
) -> OptionTable:
    """The options of a command with its parts.

    groups: the command's own options by heading; the parts stand before the last of them
    kinds: the name of the chosen part of each kind
    choice: the name of the part that an option of a part chooses
    Raises UserError where two options of one owner have one spelling.
    """
    own = [option for group in groups.values() for option in group]
    taken = frozenset(option.name for option in own)
    flags = _spellings(f"nmt {command}", own, taken)
    parts = _headed(kinds, choice)

    claims: dict[str, list[Flag]] = {}
    for heading, options in parts.items():
        for spelling, flag in _spellings(heading, options, taken).items():
            if spelling not in (*flags, *HELP):
                claims.setdefault(spelling, []).append(flag)
    by_path: dict[str, Option] = {}
    for option in (option for options in parts.values() for option in options):
        short = f"--{short_key(option)}".replace("_", "-")
        spellings = [short, f"--no-{short[2:]}"] if option.type is bool else [short]
        is_short = all([flag.option for flag in claims.get(spelling, ())] == [option] for spelling in spellings)
        by_path[option.path_key] = replace(option, key=short_key(option) if is_short else option.path_key)
    unique = {s: Flag(by_path[c[0].option.path_key], c[0].negated) for s, c in claims.items() if len(c) == 1}
    ambiguous = {s: [by_path[flag.option.path_key] for flag in c] for s, c in claims.items() if len(c) > 1}
    *first, last = groups
    headed = {heading: [by_path[option.path_key] for option in options] for heading, options in parts.items()}
    return OptionTable(
        {**{heading: groups[heading] for heading in first}, **headed, last: groups[last]},
        {**flags, **unique},
        ambiguous,
        taken,
    )


def _headed(kinds: Mapping[str, str], choice: Callable[[Option], str]) -> dict[str, list[Option]]:
    """The options of the chosen parts and of the parts within them, by heading: `criterion.decoder sampling`."""
    groups: dict[str, list[Option]] = {}
    for kind, name in kinds.items():
        names = {kind: name}
        for option in registry.options_within(kind, name, choice, kind):
            groups.setdefault(f"{option.path} {names[option.path]}", []).append(option)
            if option.kind:
                names[option.path_key] = choice(option)
    return groups


def _spellings(owner: str, options: Iterable[Option], taken: Container[str]) -> dict[str, Flag]:
    """The flags of one owner's options by spelling; UserError where two options have one."""
    flags: dict[str, Flag] = {}
    for option in options:
        for spelling, negated in (
            (s, n) for path in paths_of(option, taken) for s, n in option.spellings(path).items()
        ):
            if option.positional:
                continue
            if spelling in flags:
                raise UserError(f"flag '{spelling}' of {owner} is also another option of it (rename one of them)")
            flags[spelling] = Flag(option, negated)
    return flags
