"""`nmt translate`: translate text, line by line."""

import contextlib
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from nmt import registry, signals
from nmt.cli.command import Command, Parts, start_is_over
from nmt.cli.prompt import Prompt, is_terminal, is_typed
from nmt.decoders.options import phrases_hint
from nmt.dist import MAX_WAIT_MINUTES, World
from nmt.errors import UserError, needing_torch, quoted
from nmt.files import are_same, check_output_file, new_output, to_json, write_output
from nmt.formats.base import LINES, Languages, format_of, open_format
from nmt.log import log
from nmt.options import AUTO, MAX_PROCESSES, REQUIRED, choice, flag_of, opt, options_class
from nmt.storages.base import text_exists
from nmt.storages.streams import COMPRESSED_ENDINGS
from nmt.translate.options import TranslatorOptions
from nmt.translate.windows import STDIN_NAME, LineEstimate, open_source, place_of
from nmt.viewers.base import Viewer, open_viewers, written_files

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.cli.translations import OutputForm
    from nmt.translate.distributed import SharedTranslator
    from nmt.translate.results import Translation
    from nmt.translate.translator import Translator

NUMBER_NAME: Final = re.compile(r"-?\d*\.?\d+")  # a file name that was probably meant as a number
WRITTEN: Final = "output", "stats"
STDIN: Final = "/dev/stdin"  # links to the file that stdin reads


@options_class
class FileOptions:
    """The options that the help lists first."""

    model: tuple[str, ...] = opt(
        REQUIRED,
        "model or run folder; repeat --model for an ensemble",
        aliases=("m", "path", "models"),
        group="Input and output",
        common=True,
    )
    input: tuple[str, ...] = opt(
        (), "files to translate; - is stdin", aliases=("i",), group="Input and output", common=True
    )
    output: str = opt(
        "-", "file to write; - is stdout", aliases=("o",), metavar="FILE", group="Input and output", common=True
    )


@registry.open_options_class("pass", "search-speedup", "filter", "wrapper", "format", "viewer")
class TranslateOptions(TranslatorOptions, FileOptions):
    input_form: Literal["text", "prefix", "phrases", "json"] = opt(
        "text",
        "what each input line contains: text, text ||| prefix, text ||| phrase ||| phrase, or a JSON object",
        group="Constraints and terms",
    )
    format: str = choice(
        "format",
        AUTO,
        "format of the input, such as srt",
        also=(LINES,),
        group="Documents and markup",
        common=True,
    )
    buffer_size: int = opt(2000, "lines to read ahead and sort by length", minimum=1, group="Speed and memory")
    strict: bool = opt(False, "exit with status 3 on invalid UTF-8 instead of replacing it", group="Failures")
    json: bool = opt(False, "print one JSON object per line, with scores", group="Details of the output", common=True)
    stats: str | None = opt(
        None,
        "write the number of lines and the speed to this file as JSON",
        metavar="FILE",
        group="Details of the output",
    )
    devices: int = opt(
        1,
        "number of GPUs or CPU processes to use",
        group="Hardware",
        common=True,
        minimum=1,
        maximum=MAX_PROCESSES,
    )
    timeout: float = opt(
        10.0,
        "minutes to wait for a device that does not answer",
        above=0,
        maximum=MAX_WAIT_MINUTES,
        group="Failures",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_input()
        if self.format == AUTO:
            object.__setattr__(self, "format", format_of(self.input) if self.input_form == "text" else LINES)
        if self.format != LINES:
            self._check_document()
        if self.input.count(STDIN_NAME) > 1:
            raise ValueError("only one input can be - (stdin)")
        read = [("input", STDIN if file == "-" else file) for file in self.input or ("-",)]
        written = [(name, getattr(self, name)) for name in (*WRITTEN, *written_files())]
        files = [(name, file) for name, file in [*read, *written] if file not in (None, "-")]
        for (name, file), (other, other_file) in combinations(files, 2):
            if other != "input" and are_same(file, other_file):
                flags = [flag_of(word) for word in (name, other)]
                raise ValueError(f"{flags[0]} and {flags[1]} name the same file, {quoted(other_file)} (change one)")
        if self.stats == "-":
            raise ValueError("--stats cannot be -, because stdout is for translations (use --stats /dev/stderr)")
        if self.output.endswith(COMPRESSED_ENDINGS):
            raise ValueError(
                f"--output {quoted(self.output)}: cannot write compressed output (drop --output, and add `| gzip > FILE.gz`)"
            )

    def _check_input(self) -> None:
        """Raise ValueError for an input that is a sentence, not a file; the message contains a command that translates it."""
        if text := next((word for word in self.input if " " in word.strip() and not os.path.lexists(word)), None):
            command = shlex.join(["nmt", "translate", *(word for model in self.model for word in ("--model", model))])
            raise ValueError(
                f"'{text}': no such file (to translate a text, pipe it: `echo {shlex.quote(text)} | {command}`)"
            )

    def _check_document(self) -> None:
        """Raise ValueError for options that cannot be used with a document."""
        if len(self.input) != 1 or self.input[0] == STDIN_NAME:
            raise ValueError(
                f"{quoted(' '.join(self.input) or 'stdin')}: only one {self.format} document can be translated at a time "
                f"(name one file, or add --format {LINES} to translate lines)"
            )
        flags = {name: getattr(self, name) for name in ("json", "raw_tokens", "strict")}
        flags["input_form"] = self.input_form != "text"
        if given := [flag_of(name) for name, is_given in flags.items() if is_given]:
            raise ValueError(
                f"{', '.join(given)} cannot be combined with --format {self.format} (drop one of them, or add "
                f"--format {LINES})"
            )


def run(options: TranslateOptions, parts: Parts) -> int:
    """Translate lines of text, from stdin to stdout or from file to file.

    With --n-best N, each line gives up to N lines in Moses' format, `number ||| translation ||| LogProb= nats ||| score`,
    numbered from 0. The exit status is 5 if any line could not be translated.
    """
    world = World.from_environment()
    if options.devices > 1 and world.size == 1:
        with needing_torch("--devices"):
            from nmt.cli.launch import launch

        after = "only whole lines were printed"
        return launch(options.devices, options.device, options.threads, ["translate", *parts.argv], after)
    log.quiet |= not world.leads
    with world.joined("cpu", options.timeout):  # on the CPU, because ranks exchange text
        if world.leads:
            return _lead(options, parts, world)
        from nmt.translate.distributed import serve

        with signals.Signals():  # a signal ends the leader, and with it the other ranks
            serve(_open(options, parts, world, ()), world)
        return 0


def _open(options: TranslateOptions, parts: Parts, world: World, viewers: Sequence[Viewer]) -> "Translator":
    from nmt.translators import open_translator

    settings = options
    if options.format != LINES:
        settings = replace(options, **open_format(options.format, options).settings)
    for viewer in viewers:
        settings = replace(settings, **viewer.settings)
    translator = open_translator(options.model, settings, parts.by_kind["decoder"], world)
    if options.input_form == "phrases" and not translator.engine.takes_phrases:
        raise UserError(f"--input-form phrases needs a search that supports phrases{phrases_hint()}")
    start_is_over()
    return translator


def _lead(options: TranslateOptions, parts: Parts, world: World) -> int:
    from nmt.cli.translations import Printer
    from nmt.translate.line_warnings import LineWarnings
    from nmt.translate.stream import translate_stream

    names = options.input or (STDIN_NAME,)
    for name in names:
        _check_text(name)
    if options.format != LINES:
        return _lead_document(options, parts, world)
    viewers = open_viewers(options)
    translator = _open(options, parts, world, viewers)
    is_json = options.json or options.input_form == "json"
    form: OutputForm = "json" if is_json else "n-best" if translator.engine.n_best > 1 else "text"
    printer = Printer(translator.pipeline.target, form, options.raw_tokens, viewers)
    if form == "text":
        translator.engine.without_scores()
    for viewer in viewers:
        viewer.begin(translator)
    engine = translator.engine
    device = f"{world.size} x {engine.device.partition(':')[0]}" if world.size > 1 else engine.device
    batches = f"batches of {engine.batch_tokens:,} tokens"
    models = " + ".join(options.model)
    log.detail(f"{models}: {engine.signature} on {device}, {options.precision}, {batches}")
    shared, opened = _shared(options, translator, world), _opened(options.output)
    began = time.monotonic()
    mark = f"{translator.pipeline.source_lang}> " if not options.input and is_terminal() else ""
    number = num_failed = num_withheld = 0
    estimate = LineEstimate(*names)
    progress = log.progress("translating", estimate.total, "lines", shown=not is_typed(*names))
    statistics_file = new_output(Path(options.stats)) if options.stats is not None else nullcontext()
    with opened as output, statistics_file as stats_file, shared as line_translator, progress as bar:
        for name in names:
            warnings = LineWarnings(place_of(name))
            with nullcontext(Prompt(mark)) if mark else open_source(name, estimate) as source:
                settings = options.input_form, printer.lines, options.buffer_size, warnings, options.strict, bar, number
                number = translate_stream(line_translator, source, output, *settings)
            warnings.log_counts()
            num_failed += warnings.num_failed
            num_withheld += warnings.num_withheld
        if stats_file is not None:
            stats_file.write(_stats(number, num_failed, num_withheld, time.monotonic() - began))
    for viewer in viewers:
        viewer.end()
    return 5 if num_failed else 0


def _lead_document(options: TranslateOptions, parts: Parts, world: World) -> int:
    """Translate a document. The output is opened last, so that an error leaves no file."""
    from nmt.text.context import DocumentLines
    from nmt.translate.line_warnings import LineWarnings
    from nmt.translate.requests import Request, in_context

    name = options.input[0]
    for written in (options.output, options.stats):
        if written not in (None, "-"):
            check_output_file(Path(written))
    document = open_format(options.format, options).read(Path(name))
    translator = _open(options, parts, world, ())
    if translator.engine.n_best > 1:
        raise UserError(f"--n-best {translator.engine.n_best}: documents have one translation per text (drop --n-best)")
    began, warnings = time.monotonic(), LineWarnings(place_of(name))
    texts = document.texts(Languages(translator.pipeline.source_lang, translator.pipeline.target_lang))
    requests = in_context(list(map(Request, texts)), DocumentLines(translator.context))
    translations: list[Translation] = []
    with (
        _shared(options, translator, world) as line_translator,
        signals.Signals(),
        log.progress("translating", len(texts), "texts") as bar,
    ):
        for start in range(0, len(texts), options.buffer_size):
            window = requests[start : start + options.buffer_size]
            translations += line_translator.translate(window, bar)
    report = document.write(translations, warnings)
    warnings.log_counts()
    log.info(f"{place_of(name)}: {options.format}{f': {report}' if report else ''}")
    with _opened(options.output) as output:
        output.write(document.content())
    if options.stats is not None:
        write_output(Path(options.stats), _stats(len(texts), warnings.num_failed, 0, time.monotonic() - began))
    return 5 if warnings.num_failed else 0


def _shared(
    options: TranslateOptions, translator: "Translator", world: World
) -> "AbstractContextManager[Translator | SharedTranslator]":
    """The translator, or one that shares the lines with the other ranks."""
    if world.size == 1:
        return nullcontext(translator)
    from nmt.translate.distributed import leading

    return leading(translator, world, 60 * options.timeout)


def _opened(output: str) -> AbstractContextManager[BinaryIO]:
    """The output file, or stdout."""
    return new_output(Path(output)) if output != "-" else nullcontext(sys.stdout.buffer)


def _stats(number: int, num_failed: int, num_withheld: int, seconds: float) -> bytes:
    """The content of the --stats file. number: number of lines, or of texts in a document"""
    counts = {"lines": number, "failed": num_failed, "withheld": num_withheld}
    return to_json({**counts, "seconds": seconds, "lines_per_second": number / seconds})


def _check_text(name: str) -> None:
    """Raise UserError for a file that cannot be read or is also stdout. Called before any model is loaded."""
    if name != STDIN_NAME and Path(name).is_dir():
        raise UserError(f"{quoted(name)} is a folder, not a text file (for several models use --model A --model B)")
    if name != STDIN_NAME and not text_exists(Path(name)):
        hint = " (separate the numbers of a flag with commas: 0.7,0.3)" if NUMBER_NAME.fullmatch(name) else ""
        raise UserError(f"{quoted(name)}: no such file{hint}")
    with contextlib.suppress(OSError):  # the descriptor is closed, or does not belong to a file
        given, output = os.fstat(0) if name == STDIN_NAME else Path(name).stat(), os.fstat(1)
        if stat.S_ISREG(given.st_mode) and os.path.samestat(given, output):
            raise UserError(
                f"{place_of(name)}: stdout goes to the same file, so the output would be read again (use another file)"
            )


COMMAND = Command(
    "translate",
    TranslateOptions,
    run,
    kinds=("decoder",),
    positional=("input...",),
    greedy=False,
    ends_start=True,
    group="translate",
    examples=(
        "nmt translate --model model news.en --output news.de",
        'echo "Good morning." | nmt translate --model model',
        "nmt translate --model model movie.srt --output movie.de.srt",
    ),
    headings=(
        "Input and output",
        "Search",
        "Constraints and terms",
        "Documents and markup",
        "Several models",
        "Speed and memory",
        "Hardware",
        "Details of the output",
        "Failures",
    ),
)
