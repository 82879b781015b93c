"""The program `nmt`: imports and calls one command, and turns each error into a message and an exit status."""

import errno
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from types import FrameType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from nmt.cli.commands import commands, find_command
from nmt.dist import end_with_launcher
from nmt.errors import Interrupted, RankFailed, UserError, is_out_of_memory, naming, needing_torch, one_line, quoted
from nmt.registry import loaded_plugins, place_in_plugin
from nmt.signals import WORKING_ON

MEMORY_FLAGS: Final = {
    "train": "--max-tokens, or a smaller model",
    "translate": "--batch-tokens",
    "evaluate": "--batch-tokens",
    "score": "--max-tokens",
    "average": "--max-tokens",
}  # the flag to lower if memory runs out, by command


class _Stdout(FileIO):
    """The file behind stdout. Its errors name "stdout" as the file."""

    def write(self, data: Any) -> int:
        with naming("stdout"):
            return super().write(data)


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit with its status ("Exit statuses and streams" in docs/reference/contract.md)."""
    arguments = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nmt prepare already starts one process per core
    os.umask(os.umask(0o077) | 0o002)  # nmt never creates world-writable files
    os.environ["PYTHONSAFEPATH"] = "1"  # worker processes must not import from the working directory either
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD is ignored, nmt cannot see how its processes end
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    end_with_launcher()
    gc.disable()  # off until the command runs, because imports leave no garbage to collect
    for number in (2, 1):
        try:
            os.fstat(number)
        except OSError:  # the stream is closed, so errors or results would be lost
            if number == 1:
                os.write(2, b"nmt: error: stdout is closed (redirect it to a file or to /dev/null)\n")
            os._exit(5)
    if isinstance(sys.stdout, TextIOWrapper):
        # Always buffered, because unbuffered Python loses output if the disk is full. Always in UTF-8, whatever the locale.
        is_terminal, file = sys.stdout.isatty(), BufferedWriter(_Stdout(1, "w", closefd=False))
        sys.stdout = TextIOWrapper(file, "utf-8", "surrogateescape", newline="\n", line_buffering=is_terminal)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    code = _close_stdout(run(arguments))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a further Ctrl-C ends the process without a traceback
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # otherwise Python flushes it again, and exits with status 120
    # Gloo threads that call the interpreter while it shuts down would abort the process; search threads would delay its exit.
    if "WORLD_SIZE" in os.environ or any(works() for works in WORKING_ON):
        os._exit(code)
    sys.exit(code)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C while no `Signals` is open. During an import, end the process, or torch would continue with half of numpy."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def run(arguments: list[str]) -> int:
    """Run a command and return its exit status. Each error is one line on stderr."""
    debug = "--debug" in arguments
    try:
        with needing_torch(f"`nmt {quoted(' '.join(arguments[:1]))}`"):
            return app(_as_flags(arguments), prog_name="nmt", standalone_mode=False) or 0
    except TyperException as error:
        return _fail(f"{error.format_message()} (nmt --help)", UserError.code, debug)
    except UserError as error:
        return _fail(error.messages, error.code, debug, getattr(error, "correction", ""))
    except Interrupted as error:
        return 128 + error.signal_number
    except RankFailed as error:
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except SystemExit as error:  # typer has completed a word, or the reader of the help has closed the pipe
        if location := place_in_plugin(error):
            return _fail(f"plug-in {location} ended the command: SystemExit: {error}", 2, debug)
        return 141 if error.code else 0
    except OSError as error:
        place = f"{quoted(error.filename)}: " if error.filename else ""
        code = 2 if error.errno == errno.ENAMETOOLONG else 5
        return _fail(f"{place}{error.strerror or error}", code, debug)
    except Exception as error:
        if is_out_of_memory(error):
            cause = quoted(str(error) or "an allocation failed")
            flag = MEMORY_FLAGS.get(arguments[0])
            advice = f" (use a smaller {flag})" if flag else ""
            return _fail(f"out of memory: {cause}{advice}", 5, debug)
        cause = f"{type(error).__name__}: {error}"
        if location := place_in_plugin(error):
            return _fail(f"plug-in {location} failed: {cause} (--debug shows where)", 2, debug)
        if isinstance(error, ValueError) and sys.stdout.closed:
            return _fail("a plug-in has closed stdout, so results cannot be written", 2, debug)
        if loaded := loaded_plugins():
            what = f"a wrong value from the plug-in {', '.join(map(quoted, loaded))}, or a bug in nmt"
            return _fail(f"{what}: {cause} (--debug shows where)", 1, debug)
        return _fail(f"a bug in nmt: {cause} (--debug shows where; please report it)", 1, debug)
    except BaseException as error:  # an exception class of a plug-in, derived from BaseException
        if location := place_in_plugin(error):
            return _fail(f"plug-in {location} failed: {type(error).__name__}: {error} (--debug shows where)", 2, debug)
        raise


def _as_flags(arguments: list[str]) -> list[str]:
    """The command line with `nmt`, `nmt help`, `nmt help COMMAND` and `nmt version` written as flags."""
    first, *rest = arguments or ["help"]
    if first == "help":
        return ["--help"] if rest[:1] in (["help"], ["version"]) else [*rest[:1], "--help", *rest[1:]]
    return ["--version", *rest] if first == "version" else arguments


def _fail(messages: str | Sequence[str], code: int, debug: bool, correction: str = "") -> int:
    """Print errors, one line each, and the corrected command line if there is one. Return the exit status."""
    with suppress(OSError):  # the exit status reports the error too
        if debug:
            traceback.print_exc()
        for message in [messages] if isinstance(messages, str) else messages:
            sys.stderr.write(f"nmt: error: {one_line(message)}\n")
        if correction:
            sys.stderr.write(f"try: {correction}\n")
    return code


class CommandGroup(TyperGroup):
    """All commands. A command is imported when it is called; `nmt --help` imports none."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The flags of `nmt` itself. Their default is False, because typer takes 0.1 s to convert None (it imports pydantic)."""
        params = super().get_params(ctx)
        for param in params:
            param.default = False
            param.metavar = ""  # the help shows no type
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        return list(commands())

    def get_command(self, ctx: Any, name: str) -> TyperCommand | None:
        file = commands().get(name)
        return file and TyperCommand(name, help=file.summary)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from nmt.cli.help import commands_help

        formatter.write(commands_help())

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, TyperCommand, list[str]]:
        name, *rest = args
        error = ""
        if (file := find_command(name)) is None:
            from nmt.cli.corrections import meant_command

            error, name, rest = meant_command(name, rest, commands())
            file = commands()[name]
        from nmt.cli.shell import ShellCommand

        return name, ShellCommand(importlib.import_module(file.module).COMMAND, error), rest


app = typer.Typer(
    name="nmt", cls=CommandGroup, rich_markup_mode=None, context_settings={"help_option_names": ["--help", "-h"]}
)


def _show_version(given: bool) -> None:
    if given:
        from nmt.installation import version_text

        print(version_text())
        raise typer.Exit


@app.callback()
def nmt(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the versions and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Neural machine translation, from parallel text to a translation."""


def _close_stdout(code: int) -> int:
    """Flush and close stdout. Return the exit status: 5 if that fails, 141 if the reader has closed the pipe."""
    try:
        sys.stdout.flush()
        sys.stdout.close()
        return code
    except (OSError, ValueError) as error:  # ValueError if a plug-in has closed stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest of the buffer must not fail again at exit
        if isinstance(error, BrokenPipeError):
            return 141
        return code or _fail(f"stdout: {getattr(error, 'strerror', error)}", 5, debug=False)
