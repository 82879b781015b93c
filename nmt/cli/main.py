"""The command `nmt`: a table of commands, each imported only when it is called; exit codes; the care of stdout."""

import gc
import importlib
import os
import sys
import traceback
from io import TextIOWrapper
from typing import Final

from nmt import __version__
from nmt.errors import Interrupted, ReportedElsewhere, UserError, is_out_of_memory, one_line, quoted, unknown

COMMANDS: Final = {
    "prepare": "Make training data of parallel text",
    "doctor": "What is wrong with a corpus, before a week of training on it",
    "train": "Train a model on prepared data; go on where the last run stopped",
    "average": "Average checkpoints of a run into a model",
    "export": "A model with weights of 8 bits; or for CTranslate2, checked to translate as ours does",
    "translate": "Translate stdin to stdout, a line for a line",
    "shortlist": "Which target words may translate each source word: faster translation with large vocabularies",
    "evaluate": "BLEU, chrF and TER with their signature",
    "score": "Log-probability of given translations",
    "report": "Table 2 of the paper with runs of yours: BLEU, training cost, learning curves",
    "list": "The parts that can be named: models, criteria, optimizers, schedules, decoders, presets",
    "describe": "One part, preset or model folder: what it is and its options",
}


def main(argv: list[str] | None = None) -> None:
    """Run a command and leave the process with its exit code (docs/contract.md, rules 1-3)."""
    arguments = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's products are for processes of one thread, side by side
    gc.disable()  # until the command runs: of what is imported before nothing is garbage, and looking takes its time
    for number in (2, 1):
        try:
            os.fstat(number)
        except OSError:  # nothing could be told, so nothing is done
            if number == 1:
                os.write(2, b"nmt: error: stdout is closed (give it a file or /dev/null)\n")
            os._exit(5)
    if isinstance(sys.stdout, TextIOWrapper):  # results are the same bytes under every locale
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    sys.exit(_close_stdout(run(arguments)))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; what went wrong is told on stderr in one line."""
    debug = "--debug" in arguments
    try:
        return _dispatch(arguments)
    except UserError as error:
        return _fail(str(error), error.code, debug)
    except Interrupted as error:
        return 128 + error.signal_number
    except ReportedElsewhere as error:
        return error.code
    except KeyboardInterrupt:
        return 130
    except SystemExit:  # how rich, which prints the help, says that the reader went away
        return 141
    except BrokenPipeError:
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", 5, debug)
    except Exception as error:
        if is_out_of_memory(error):
            found = f"out of memory: {quoted(str(error) or 'no more can be had')}"
            return _fail(f"{found} (give a smaller --max-tokens, --batch-tokens to nmt translate)", 5, debug)
        return _fail(f"a bug in nmt: {type(error).__name__}: {error} (--debug shows where; please report it)", 1, debug)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"nmt: error: {one_line(message)}\n")
    return code


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h"):
        print(_overview())
        return 0
    if name in ("--version", "-V"):
        print(f"nmt {__version__}")
        return 0
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    command = importlib.import_module(f"nmt.cli.{name}").COMMAND
    return int(command.invoke(arguments[1:]))


def _overview() -> str:
    rows = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    return (
        f"nmt {__version__}: neural machine translation\n\nusage: nmt COMMAND [OPTIONS]\n\n{rows}\n\n"
        "nmt COMMAND --help tells a command's options; nmt --version the version."
    )


def _close_stdout(code: int) -> int:
    """Flush and close stdout checked: 5 when it fails, a quiet 141 when the reader went away."""
    try:
        sys.stdout.flush()
        sys.stdout.close()
        return code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer must not fail again at exit
        if isinstance(error, BrokenPipeError):
            return 141
        return code or _fail(f"stdout: {error.strerror}", 5, debug=False)
