"""Reports all errors in a command line at once, and the corrected line. Imported only when there is an error."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from nmt import registry
from nmt.cli import peers
from nmt.cli.command import PRESET, Command, MissingError
from nmt.cli.parameters import FLAG, LETTER, Flag, choices_of, flags_of
from nmt.cli.settings import HELP, Layer, OptionTable, file_layer, option_table
from nmt.errors import UsageError, UserError, nearest, quoted, unknown
from nmt.options import COMMAND_LINE, REQUIRED, Option, flag_of, read_toml

YES: Final = ("yes", "true", "1", "on")
NO: Final = ("no", "false", "0", "off")
YAML: Final = "settings files are TOML here: --config FILE.toml"
MIN_TYPO_SIMILARITY: Final = 0.75  # similarity of an unknown flag to the one that was probably meant
MAX_ROUNDS: Final = 8  # repeated because a correction may uncover further errors

Certainty = Literal["open", "certain", "same"]


class Correction(NamedTuple):
    """An error in a command line, and the words that replace the wrong ones.

    at, num_words: position and number of the wrong words; if the number is 0, `words` are inserted
    kind: "open" if only the user knows what to write, so that no corrected line is shown; "certain" if the user meant `words`;
        "same" if `words` mean exactly what was written, which is then accepted with a note
    """

    message: str
    at: int
    num_words: int
    words: Sequence[str] = ()
    kind: Certainty = "open"


class GivenFlag(NamedTuple):
    """A flag in a command line.

    at: its position
    attached: the value in the same word, as in `--beam-size=4`
    following: the words between this flag and the next
    """

    at: int
    flag: str
    attached: str | None
    following: Sequence[str]

    @property
    def values(self) -> list[str]:
        return [*([] if self.attached is None else [self.attached]), *self.following]

    def num_words(self, num_values: int) -> int:
        """The number of words that the flag and its first values take up."""
        return max(1, num_values + (self.attached is None))


def correct(
    command: Command,
    words: Sequence[str],
    error: UserError | None,
    load: Callable[[list[str]], object],
    name_error: str = "",
) -> list[str]:
    """Load the corrected command line, and return a note for each word that nmt only spells differently.

    words: the words after the command's name; error: what is wrong with them, if known
    load: reads a command line, or raises UserError
    name_error: an error in the command's name
    Raises UsageError with all errors, and with the corrected line if it is certain and can be read.
    """
    line, problems = list(words), [Correction(name_error, 0, 0, kind="certain")] if name_error else []
    for _ in range(MAX_ROUNDS):
        if error is None and {*HELP}.isdisjoint(line):
            try:
                load(line)
            except UserError as further:
                error = further
        if error is None:
            break
        examined = _Line(command, line)
        if not (found := examined.problems() or examined.missing(error)):
            if problems and error.code == UserError.code:  # also report what is still wrong, such as a missing folder
                problems += [Correction(message, 0, 0) for message in error.messages]
            break
        problems += found
        line, error = _corrected(line, found), None
        if name_error and line[-2:] == [*words[-2:]] and line[-1].isupper() and line[-2] in line[:-2]:
            line = line[:-2]  # `--init-from MODEL`, added with the command, is already set
    if all(problem.kind == "same" for problem in problems):
        if error is not None:
            raise error
        return [problem.message for problem in problems]
    added = {word for problem in problems for word in problem.words if word.isupper()}.difference(words)
    messages = dict.fromkeys(
        problem.message
        for problem in problems
        if problem.kind != "same" and not any(f"'{placeholder}'" in problem.message for placeholder in added)
    )
    suggested = shlex.join(["nmt", command.name, *line])
    is_shown = suggested.isprintable() and all(problem.kind != "open" for problem in problems)
    raise UsageError([*messages], suggested if is_shown else "")


def meant_command(name: str, words: Sequence[str], known: Iterable[str]) -> tuple[str, str, list[str]]:
    """The error for an unknown command, the command that was probably meant, and the words after its name.

    words: the words after the unknown name; known: the names of all commands
    Raises UserError unless exactly one command is similar.
    """
    if told := peers.tables()["commands"].get(name.removesuffix(".py").replace("_", "-")):
        line, _, remark = told.partition("; ")
        meant, *more = line.split()
        return f"unknown command '{name}' (use nmt {line}{f'; {remark}' if remark else ''})", meant, [*words, *more]
    error, near = unknown("command", name, known, "nmt help"), nearest(name, known)
    if len(near) != 1:
        raise error
    return str(error), near[0], list(words)


def _corrected(line: Sequence[str], problems: Sequence[Correction]) -> list[str]:
    """The command line with the replacements. A replacement that several errors share appears once."""
    seen, changes = set[tuple[str, ...]](), list[tuple[Correction, Sequence[str]]]()
    for problem in sorted(problems, key=lambda each: each.at):
        setting, words = tuple(problem.words[:2]), problem.words
        is_whole = bool(problem.num_words and setting) and (len(words) < 3 or words[2].startswith("-"))
        changes.append((problem, words[2:] if is_whole and setting in seen else words))
        seen.add(setting)
    corrected = list(line)
    for problem, words in reversed(changes):
        corrected[problem.at : problem.at + problem.num_words] = words
    return corrected


class _Line:
    """A command line with errors.

    words: the words after the command's name
    """

    def __init__(self, command: Command, words: Sequence[str]) -> None:
        self.command, self.words = command, words
        self.end = words.index("--") if "--" in words else len(words)
        self.items = self._read_items(flags_of(chain(*command.own_groups().values())))
        self.table, self.has_all_options = self._read_options()
        self.items = self._read_items(self.table.flags)
        self.given = {item.flag for item in self.items}

    def problems(self) -> list[Correction]:
        """The errors in flags and their values or, if there are none, the errors in words without a flag.

        If the name of a component is wrong, only errors in such names are returned, because other options depend on them.
        """
        found = [problem for item in self.items if (problem := self._problem_of(item)) is not None]
        return found if found or not self.has_all_options else self._unexpected()

    def missing(self, error: UserError) -> list[Correction]:
        """The required options that are not set, each with a placeholder for its value. error: the error that the line raised"""
        if not isinstance(error, MissingError):
            return []
        free, found = self._free(), list[Correction]()
        for option in error.options:
            message, value = f"{option.label} is missing: {option.help}", option.name.upper()
            folder = next((at for at in free if Path(self.words[at]).is_dir()), None)
            if option.name == "model" and folder is not None:
                message = f"--model is missing (did you mean --model {quoted(self.words[folder])}?)"
                found.append(Correction(message, folder, 0, [option.flag], kind="certain"))
            elif option.positional:
                found.append(Correction(message, max(free, default=-1) + 1, 0, [value], kind="certain"))
            else:
                message += f" (add {option.flag} {value})"
                found.append(Correction(message, self.end, 0, [option.flag, value], kind="certain"))
        return found

    def _read_items(self, flags: Mapping[str, Flag]) -> list[GivenFlag]:
        starts, items = [at for at, word in enumerate(self.words[: self.end]) if FLAG.match(word)], list[GivenFlag]()
        for at, end in zip(starts, [*starts[1:], self.end], strict=False):
            word = self.words[at]
            flag, equals, value = word.partition("=")
            is_long = peers.long_flag(flag) in flags or peers.has(self.command.name, flag)
            if (chooser := flags.get(word[:2])) and _is_chooser(chooser.option):
                is_long |= word[2:].removeprefix("=") not in _choices(chooser.option)  # -alpha is not -a lpha
            if LETTER.match(word) and not (len(flag) > 2 and is_long):
                flag, equals, value = word[:2], word[2:], word[2:].removeprefix("=")
            items.append(GivenFlag(at, flag, value if equals else None, self.words[at + 1 : end]))
        return items

    def _read_options(self) -> tuple[OptionTable, bool]:
        """The options, and whether all chosen components are known. If not, the options are those of the default components."""
        command, own = self.command, self.command.own_groups()
        flags, layers = flags_of(chain(*own.values())), list[Layer]()
        known = (item for item in self.items if item.flag in flags and item.values)
        given: dict[str, Any] = {flags[item.flag].option.path_key: item.values[0] for item in known}
        try:
            given_files = (item.values for item in self.items if item.flag in ("--config", "-c"))
            paths = chain(*(values if command.greedy else values[:1] for values in given_files))
            layers = [file_layer(path, read_toml(Path(path))) for path in paths]
            layers = [*command.bases([*layers, Layer(COMMAND_LINE, given)]), *layers]
        except UserError:
            if "preset" in given and given["preset"] not in registry.presets():
                return option_table(command.name, own, []), False
        try:
            return option_table(command.name, own, layers, self.words), True
        except UserError:
            return option_table(command.name, own, []), False

    def _free(self) -> list[int]:
        """The positions of the words that belong to no flag."""
        start = self.items[0].at if self.items else self.end
        counts = ((item.at, item.num_words(self._num_values(item)), 1 + len(item.following)) for item in self.items)
        after_flags = (range(at + of_flag, at + of_all) for at, of_flag, of_all in counts)
        return [*range(start), *chain(*after_flags), *range(self.end + 1, len(self.words))]

    def _num_values(self, item: GivenFlag) -> int:
        """The number of words that are values of this flag; 0 if the command does not have it."""
        option = self.table.flags[item.flag].option if item.flag in self.table.flags else None
        if option is None or option.type is bool:
            return 0
        if item.attached is not None:
            return 1
        return min(option.count or (len(item.following) if self.command.greedy else 1), len(item.following))

    def _problem_of(self, item: GivenFlag) -> Correction | None:
        """The error in a flag or its values; None if there is none."""
        flag = self.table.flags.get(item.flag)
        option = flag.option if flag else None
        if not self.has_all_options and (option is None or not _is_chooser(option)):
            return None
        if option is not None and option.path_key == "devices" and (found := self._devices(item)) is not None:
            return found
        own = (
            None if option is None else self._switch(item, option) if option.type is bool else self._value(item, option)
        )
        takes_any = option is None or _is_chooser(option) or str in (option.type, *get_args(option.type))
        if item.values and own is None and not takes_any:
            return None
        if found := self._peers(item, option):
            return found
        return self._unknown(item) if option is None and item.flag not in HELP else own

    def _problem(
        self, item: GivenFlag, num_values: int, message: str, *words: str, kind: Certainty = "open"
    ) -> Correction:
        return Correction(message, item.at, item.num_words(num_values), words, kind)

    def _peers(self, item: GivenFlag, option: Option | None) -> Correction | None:
        """The error for a flag of another toolkit, or for that toolkit's name for a component."""
        spellings = [item.flag]
        if option is not None:
            spellings += option.spellings() if _is_chooser(option) else [option.flag]
        answers = (peers.answer(self.command.name, flag, item.values) for flag in spellings)
        is_ours = peers.long_flag(item.flag) in self.table.flags or option is not None
        answer = next(filter(None, answers), None)
        if answer is None or (is_ours and (answer.words is None or (item.values and not answer.num_values))):
            return None
        if answer.is_same and [*(answer.words or ())] == [item.flag, *item.values[: answer.num_values]]:
            return None  # the same spelling in both toolkits
        given = quoted(" ".join([item.flag, *item.values[: answer.num_values]]))
        what = f"unknown flag '{item.flag}'" if option is None else f"{given} is not accepted"
        message = f"{what} ({answer.text})"
        kind: Certainty = "open" if answer.words is None else "certain"
        if answer.is_same:
            message, kind = f"{given}: read as {answer.text.removeprefix('use ')}", "same"
        words = [*(answer.words or ())]
        if "BEAM" in words:
            message = message.replace("BEAM", self._beam_size())
            words = [self._beam_size() if word == "BEAM" else word for word in words]
        num_values = max(answer.num_values, min(1, len(item.values))) if kind == "open" else answer.num_values
        return self._problem(item, num_values, message, *words, kind=kind)

    def _beam_size(self) -> str:
        """The beam size that the line sets, or the default; Marian's n-best lists have this length."""
        given = [item.values[0] for item in self.items if item.flag in ("--beam-size", "-b") and item.values]
        return (given or [str(self.table.flags["--beam-size"].option.default)])[-1]

    def _unknown(self, item: GivenFlag) -> Correction:
        """The error for a flag that the command does not have."""
        flag, table, name = item.flag, self.table, self.command.name
        one_value = int(item.attached is not None or (item.values != [] and not Path(item.values[0]).exists()))
        dashed = flag if len(flag) == 2 else peers.long_flag(flag)
        if dashed in table.flags:
            return self._problem(item, 0, f"{flag}: read as {dashed}", *self._spelled(item, dashed), kind="same")
        what = f"unknown flag '{quoted(flag)}'"
        if len(claims := table.claims.get(dashed, ())) > 1:
            flags = " or ".join(flag_of(claim.option.path_key) for claim in claims)
            return self._problem(item, one_value, f"flag '{flag}' is ambiguous (use {flags})")
        if inner := [option.flag for option in table.options if "." in option.path and dashed in option.spellings()]:
            return self._replaced(item, f"{what} (use {' or '.join(inner)})", inner)
        if choosers := self._components_with(dashed):
            chosen_by = ", ".join(" ".join(chooser) for chooser in choosers)
            message = f"{what} (it belongs to {chosen_by}{'' if len(choosers) > 1 else ': add that'})"
            if len(choosers) == 1 and choosers[0][0] not in self.given:
                return Correction(message, item.at, 0, choosers[0], "certain")
            return self._problem(item, one_value, message)
        if LETTER.match(flag):
            long = sorted({option.flag for option in table.options if option.flag.startswith(f"-{flag.lower()}")})
            hint = f"use the full name of a flag: {', '.join(long)}" if long else f"`nmt help {name}` lists the flags"
            return self._problem(item, one_value, f"{what} ({hint})")
        known = [
            each
            for each, meant in table.flags.items()
            if (meant.option.type is not bool if one_value else item.values or meant.option.type is bool)
        ]
        if near := nearest(dashed, [*known, "--help"]):
            return self._replaced(item, f"{what} (did you mean {' or '.join(near)}?)", near)
        return self._problem(item, one_value, f"{what} (drop it; `nmt help {name}` lists the flags)", kind="certain")

    def _spelled(self, item: GivenFlag, flag: str) -> list[str]:
        """The flag in another spelling, with its attached value if there is one."""
        return [flag if item.attached is None else f"{flag}={item.attached}"]

    def _replaced(self, item: GivenFlag, message: str, flags: Sequence[str]) -> Correction:
        """The error for a flag, with the flags that were probably meant."""
        if len(flags) > 1:
            return self._problem(item, min(1, len(item.values)), message)
        if SequenceMatcher(None, item.flag.strip("-"), flags[0].strip("-")).ratio() < MIN_TYPO_SIMILARITY:
            return self._problem(item, min(1, len(item.values)), message)  # the flag may mean something else
        return self._problem(item, 0, message, *self._spelled(item, flags[0]), kind="certain")

    def _components_with(self, flag: str) -> list[list[str]]:
        """The components that were not chosen but have this flag, each as the words that choose it."""
        return [
            [chooser.flag, name]
            for chooser in self.table.options
            if chooser.kind and _is_mentioned(flag, chooser.kind)
            for name in registry.names(chooser.kind)
            if any(
                flag in flags_of([option])
                for option in registry.options_within(chooser.kind, name, registry.choice_from(), chooser.path_key)
            )
        ]

    def _switch(self, item: GivenFlag, option: Option) -> Correction | None:
        """The error for a value such as yes or no after a flag that takes none."""
        word = item.values[0] if item.values else ""
        if (word.lower() not in (*YES, *NO) and item.attached is None) or (LETTER.match(item.flag) and item.attached):
            return None
        yes, no = option.flag, f"--no-{option.flag[2:]}"
        message = f"{item.flag} takes no value, but got '{quoted(word)}' (use {yes} or {no})"
        meant = yes if (word.lower() in YES) != self.table.flags[item.flag].negated else no
        return self._problem(item, 1, message, meant, kind="certain" if word.lower() in (*YES, *NO) else "open")

    def _value(self, item: GivenFlag, option: Option) -> Correction | None:
        """The error for the values of a flag that the command has."""
        num_values = self._num_values(item)
        values = item.values[:num_values]
        if not values:
            message = f"{option.flag} needs a value: {option.wanted} ({option.help})"
            return self._problem(item, 0, message, option.flag, option.name.upper())
        if choices := _choices(option):
            return self._choice(item, option, choices) if values[0] not in choices and len(values) == 1 else None
        try:
            option.convert(values if option.count is None else ",".join(values))
        except UserError as error:
            number = _as_integer(values[0])
            for fixed in {number, f"{number}u"} - {"", "u"}:
                with suppress(UserError):
                    option.convert(fixed)
                    return self._problem(item, num_values, f"{error} (use {fixed})", item.flag, fixed, kind="certain")
            placeholder = [item.flag, option.name.upper()] if option.default is REQUIRED else []
            return self._problem(item, num_values, str(error), *placeholder)
        return None

    def _choice(self, item: GivenFlag, option: Option, choices: Sequence[str]) -> Correction | None:
        """The error for a value that an option does not accept."""
        value = item.values[0]
        same = value.replace("_", "-").lower()
        if same in choices:
            message = f"{item.flag} {value}: read as {option.flag} {same}"
            return self._problem(item, 1, message, item.flag, same, kind="same")
        try:
            if option.kind:
                registry.find(option.kind, value)
            elif _is_chooser(option):
                registry.find_preset(value)
            else:
                option.convert(value)
        except UserError as error:
            near = nearest(value, choices)
            if len(near) == 1:
                return self._problem(item, 1, str(error), item.flag, near[0], kind="certain")
            return self._problem(item, 1, str(error))
        return None

    def _devices(self, item: GivenFlag) -> Correction | None:
        """The error for GPU indices (Marian's syntax) where the number of GPUs is expected."""
        values = [*takewhile(lambda value: value.replace(",", "").isdecimal(), item.values)]
        numbers = [number for value in values for number in value.split(",")]
        if len(numbers) < 2 and numbers != ["0"]:
            return None
        given, count = f"{item.flag} {' '.join(values)}", str(len(numbers))
        kind: Certainty = "same"
        message = f"{given}: read as {item.flag} {count}"
        if numbers != [str(number) for number in range(len(numbers))]:
            chosen = f"CUDA_VISIBLE_DEVICES={','.join(numbers)} chooses these GPUs"
            message, kind = f"{given}: must be the number of GPUs (use {item.flag} {count}; {chosen})", "certain"
        return self._problem(item, len(values), message, item.flag, count, kind=kind)

    def _unexpected(self) -> list[Correction]:
        """The errors for words that belong to no flag and have no other meaning."""
        positional = [option for option in self.table.options if option.positional]
        required = [option for option in self.table.options if option.default is REQUIRED and not option.positional]
        lacking = [option for option in required if self.given.isdisjoint(option.spellings())]
        slots, found = list(positional), list[Correction]()
        for at in self._free():
            word = self.words[at]
            if word.endswith((".yaml", ".yml")):
                found.append(Correction(f"unexpected argument '{quoted(word)}' ({YAML})", at, 1, kind="certain"))
                continue
            option = slots[0] if slots else None
            if option is not None and (option.words is None or self.given.isdisjoint(option.spellings())):
                slots = slots[option.words or 0 :]
                continue
            slots = slots[1:]
            what = f"unexpected argument '{quoted(word)}'"
            if len(lacking) == 1 and not found and option is None and not self.command.more_words:
                flag = lacking[0].flag
                hint = f"did you mean {flag} {shlex.quote(quoted(word))}?"
                found.append(Correction(f"{what}; {hint}", at, 0, [flag], "certain"))
                continue
            labels = " ".join(["nmt", self.command.name, *(option.label for option in positional)])
            hint = self.command.more_words or f"`{labels}` takes no further argument"
            if option is not None:
                hint = f"{option.flag} is set too: drop one of them"
            found.append(Correction(f"{what} ({hint})", at, 1))
        return found


def _is_mentioned(flag: str, kind: str) -> bool:
    """Whether any file of a kind's components mentions a flag. Checking this avoids importing all components."""
    last = flag.rpartition(".")[2].strip("-").removeprefix("no-")
    word = re.compile(rf"\b(no[-_])?{'[-_]'.join(map(re.escape, last.split('-')))}\b")
    files = {path for entry in registry.files(kind) for path in (entry, entry.with_name("options.py"))}
    return any(word.search(path.read_text(encoding="utf-8")) for path in files if path.exists())


def _is_chooser(option: Option) -> bool:
    return bool(option.kind) or option.path_key == PRESET.name


def _choices(option: Option) -> list[str]:
    """The allowed values of an option that takes one of several names."""
    if _is_chooser(option):
        return registry.names(option.kind) if option.kind else [*registry.presets(), "none"]
    return [] if str in get_args(option.type) else choices_of(option)


def _as_integer(text: str) -> str:
    """A number such as 5,000, 1e5 or 16k as plain digits (5000, 100000, 16000); empty for any other text."""
    with suppress(ValueError):
        number = float(re.sub("k$", "e3", text.lower().replace(",", "").replace("_", "")))
        return str(int(number)) if number.is_integer() else ""
    return ""
