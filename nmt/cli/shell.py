"""Connects a command to typer: reads its command line, shows its help, and completes words in a shell."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from typer.core import TyperCommand
from typer.exceptions import TyperException

from nmt import registry
from nmt.cli.command import Command, texts_of
from nmt.cli.parameters import (
    FLAG,
    LETTER,
    OF_FLAG,
    Flag,
    Parameter,
    flags_of,
    name_of,
    spread_values,
    typer_parameters,
)
from nmt.cli.settings import HELP, Layer, file_layer
from nmt.errors import UserError, quoted
from nmt.options import COMMAND_LINE, Option, read_toml

KIND: Final = re.compile(r"^(--(?:no-)?)[^.]+\.")  # a kind at the start of a flag: `--decoder.` or `--no-decoder.`


class HelpRequest(NamedTuple):
    """A request for help. others: the other words; is_short: whether `-h` was used; topic: the KIND in `--help KIND`"""

    others: list[str]
    is_short: bool
    topic: str


def help_request(argv: Sequence[str], kinds: Sequence[str]) -> HelpRequest | None:
    """The help request in a command line (-h, --help or --help KIND), or None."""
    at = next((i for i, word in enumerate(argv) if word in (*HELP, "--")), len(argv))
    if argv[at:] == [] or argv[at] == "--":
        return None
    topic = argv[at + 1] if argv[at + 1 : at + 2] and argv[at + 1] in kinds else ""
    after = dropwhile(lambda word: not FLAG.match(word), argv[at + 1 :])  # skips further words of the request
    return HelpRequest([*argv[:at], *after], argv[at] == "-h", topic)


class ShellCommand(TyperCommand):
    """A command for typer.

    The chosen components decide which parameters exist, so arguments are read twice: for the command's own options, then for all.
    """

    def __init__(self, command: Command, name_error: str = "") -> None:
        """name_error: an error in the command's name, or an empty text"""
        settings = {"help_option_names": HELP, "ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(command.name, help=command.summary, context_settings=settings)
        self.command, self.name_error = command, name_error
        self.parameters = dict[
            tuple[str, ...], list[Parameter]
        ]()  # cached by their flags, because typer is slow to create them

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read and check the settings, or print the help and exit. Raises UsageError with all errors."""
        ctx.args = []
        if ctx.resilient_parsing:  # a shell is completing a word, and the other words may be wrong
            with suppress(UserError):
                self._read(ctx, args)
            return []
        error = None
        if not self.name_error:
            try:
                self._load(ctx, args)
            except UserError as first:
                error = first
        if error or self.name_error:
            from nmt.cli.corrections import correct

            notes = correct(self.command, args, error, partial(self._load, ctx), self.name_error)
            self.settings.notes += notes
        return []

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The flags that complete a word. Full names such as `--decoder.alpha` are included only if the word has a dot."""
        spellings = [{*param.opts, *param.secondary_opts} for param in self.get_params(ctx)]
        longer = {flag for flags in spellings for flag in flags if KIND.sub(r"\1", flag) in flags - {flag}}
        items = super().shell_complete(ctx, incomplete)
        return [item for item in items if "." in incomplete or item.value not in longer]

    def invoke(self, ctx: Any) -> int:
        return self.command.call(self.checked, self.table, self.settings)

    def _load(self, ctx: Any, words: list[str]) -> None:
        self._read(ctx, words)
        self.checked = self.command.check(self.table, self.settings, self.argv)

    def _read(self, ctx: Any, words: list[str]) -> None:
        """Read the settings of a command line, not converted yet. Raises UserError for the first error."""
        command, asked = self.command, None if ctx.resilient_parsing else help_request(words, self.command.kinds)
        self.argv, self.is_unfinished = asked.others if asked else list(words), bool(asked or ctx.resilient_parsing)
        values, words = self._own_values(ctx)
        if plugins := values.get("plugin", ()):
            for plugin in plugins:
                registry.load_plugin(plugin)
            values, words = self._own_values(ctx)  # read again, because a plug-in may add options
        if asked:
            values["help"] = True
        files = [file_layer(path, read_toml(Path(path))) for path in values.get("config", ())]
        self.table, self.settings = command.read(files, values, self.argv)
        if command.kinds:
            values, words = self._parse(ctx, self.table.options, self.table.flags)
            if command.has_defaults([*files, Layer(COMMAND_LINE, values)]):  # these may depend on DATA, known only now
                self.table, self.settings = command.read(files, values, self.argv)
                values, words = self._parse(ctx, self.table.options, self.table.flags)
        if asked:
            self._show_help(asked)
            ctx.exit()
        self._refuse_unknown(values, words)
        self.settings.overlay(Layer(COMMAND_LINE, values), self.table)

    def _show_help(self, asked: HelpRequest) -> None:
        from nmt.cli.help import command_sections, show_component_help, show_help

        command, values = self.command, self.settings.values
        if asked.topic:
            show_component_help(self.table, asked.topic, values)
        else:
            sections = command_sections(self.table.groups, command.headings)
            kinds = None if asked.is_short else command.kinds
            show_help(command, sections, values, kinds)

    def _own_values(self, ctx: Any) -> tuple[dict[str, Any], list[str]]:
        """The result of `_parse` for the command's own options, except words that a component's flag may take."""
        options = list(chain(*self.command.own_groups().values()))
        if self.command.kinds:
            options = [option for option in options if not option.positional]
        return self._parse(ctx, options, flags_of(options))

    def _parse(
        self, ctx: Any, options: Sequence[Option], flags: Mapping[str, Flag]
    ) -> tuple[dict[str, Any], list[str]]:
        """The values that the command line sets, as text by path key, and the words that belong to no option."""
        spellings = tuple(flags)
        if spellings not in self.parameters:
            self.parameters[spellings] = [*typer_parameters(options, flags)]
        self.params = [*self.parameters[spellings]]
        end = self.argv.index("--") if "--" in self.argv else len(self.argv)
        # `-model` means `--model`, not `-m odel`
        unknown = [
            word
            for word in self.argv[:end]
            if LETTER.match(word) and (word[:2] not in flags or f"-{word}".partition("=")[0] in flags)
        ]
        argv = [*(word for word in self.argv[:end] if word not in unknown), *self.argv[end:]]
        try:
            found, words, _ = self.make_parser(ctx).parse_args(
                spread_values(argv, flags, self.command.greedy, self.is_unfinished)
            )
        except TyperException as error:
            raise UserError(error.format_message()) from None
        values: dict[str, Any] = {}
        for option in options:
            of_flag, of_words = (found.get(name_of(option) + ending) for ending in (OF_FLAG, ""))
            if option.count is None:
                given: Any = [*texts_of(of_flag), *texts_of(of_words)] or None
            else:
                if of_flag is not None and of_words is not None:  # the option is set twice
                    words = [of_words, *words]
                given = of_words if of_flag is None else of_flag
            if given is not None:
                values[option.path_key] = given
        return values, [*words, *unknown]

    def _refuse_unknown(self, values: Mapping[str, Any], words: Sequence[str]) -> None:
        """Raise UserError for unknown flags and unexpected arguments."""
        after_dashes = self.argv[self.argv.index("--") :] if "--" in self.argv else []
        positional = (values.get(option.path_key) for option in self.table.options if option.positional)
        texts = [text for value in positional for text in texts_of(value) if text in self.argv]
        if unknown := [*(text for text in texts if FLAG.match(text) and text not in after_dashes), *words]:
            raise UserError(f"unexpected argument '{quoted(unknown[0])}'")
