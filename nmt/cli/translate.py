"""`nmt translate`: text to text, a line for a line."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmt.cli.command import Command, Parts
from nmt.dist import MOST_MINUTES, World
from nmt.log import log
from nmt.options import REQUIRED, opt
from nmt.signals import Signals
from nmt.text.corpus import clean

if TYPE_CHECKING:  # torch is imported when the command runs
    from nmt.infer.translator import Translation, Translator


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    model: str = opt(REQUIRED, "model folder, or run folder (its best checkpoint)", aliases=("m", "path"))
    input: str = opt("-", "file to translate, plain or compressed; - is stdin", aliases=("i",))
    output: str = opt("-", "file for the translations; - is stdout", aliases=("o",))
    batch_tokens: int = opt(2000, "source tokens of a batch, padding counted")
    buffer_size: int = opt(2000, "lines that are read ahead and sorted by length; less where no line is waiting")
    max_source_length: int = opt(1024, "tokens of a line; a longer one is cut there, and named")
    strict: bool = opt(False, "end with code 3 at bytes that are not UTF-8, instead of replacing them")
    raw_tokens: bool = opt(False, "print the tokens as the model says them, with a space between")
    json: bool = opt(False, "print a JSON object a line: text, and candidates with tokens, log_prob (nats) and score")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    devices: int = opt(1, "processes on this machine, a device each, that share the lines out; the order stays")
    timeout: float = opt(10.0, "minutes that one of several devices may be waited for")
    precision: Literal["fp32", "bf16"] = opt("fp32", "fp32, or bf16 products by autocast")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "buffer_size", "max_source_length", "devices"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.timeout <= MOST_MINUTES:
            raise ValueError(f"timeout is {self.timeout}; it must be above 0, and at most {MOST_MINUTES:,}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it must be at least 1, or none")


def run(options: TranslateOptions, parts: Parts) -> int:
    """Translate the input, as many lines out as in; 5 when a line could not be translated."""
    world = World.of_environment()
    if options.devices > 1 and world.size == 1:
        from nmt.cli.launch import flags_of_each, launch

        of_each = flags_of_each(options.devices, options.device, options.threads)
        return launch(options.devices, ["translate", *parts.argv, *of_each], "what was printed is whole lines")
    log.quiet |= not world.leads
    with world.joined("cpu", options.timeout):  # what is exchanged is text
        return _lead(options, parts, world) if world.leads else _serve(options, parts, world)


def _translator(options: TranslateOptions, parts: Parts, world: World) -> "Translator":
    from nmt.device import choose_device, use_threads
    from nmt.infer.translator import load_translator

    use_threads(options.threads)
    decoder, device = parts.build("decoder"), choose_device(options.device, world.local_rank)
    sizes = (options.batch_tokens, options.max_source_length)
    return load_translator(Path(options.model), decoder, *sizes, str(device), options.precision)


def _serve(options: TranslateOptions, parts: Parts, world: World) -> int:
    """Translate what the leader gives; a signal ends the leader, and by it the others."""
    from nmt.infer.shared import serve

    with Signals() as signals:
        serve(_translator(options, parts, world), world, signals)
    return 0


def _lead(options: TranslateOptions, parts: Parts, world: World) -> int:
    from nmt.infer.shared import leading
    from nmt.infer.stream import new_output, open_source, translate_stream

    with open_source(options.input) as source:
        translator = _translator(options, parts, world)
        on = f"{world.size} x {translator.device.type}" if world.size > 1 else f"{translator.device}"
        log.info(f"{options.model}: {translator.decoder.signature} on {on}, {options.precision}")
        place, show = "stdin" if options.input == "-" else options.input, _shower(options, translator)
        settings = (options.buffer_size, place, options.strict)
        shared_out = leading(translator, world, 60 * options.timeout) if world.size > 1 else nullcontext(translator)
        opened = new_output(Path(options.output)) if options.output != "-" else nullcontext(sys.stdout.buffer)
        with opened as output, shared_out as shared:
            bad = translate_stream(shared, source, output, show, *settings)
    counts = {"not UTF-8": bad, "cut": shared.cut.count, "not translated": shared.failed.count}
    if any(counts.values()):
        log.warn(f"{place}: lines " + ", ".join(f"{what}: {count:,}" for what, count in counts.items()))
    return 5 if shared.failed.count else 0


def _shower(options: TranslateOptions, translator: "Translator") -> "Callable[[int, Translation], str]":
    """How a translation is printed: its line, the n-best list of Moses, or JSON."""
    piece = translator.pipeline.target.piece

    def said(text: str, tokens: list[int]) -> str:
        return clean(" ".join(map(piece, tokens))) if options.raw_tokens else text

    def as_json(number: int, translation: "Translation") -> str:
        candidates = [
            {
                "text": one.text,
                "tokens": [piece(token) for token in one.tokens],
                "log_prob": one.log_prob,
                "score": one.score,
            }
            for one in translation.candidates
        ]
        return json.dumps({"text": translation.text, "candidates": candidates}, ensure_ascii=False) + "\n"

    def as_n_best(number: int, translation: "Translation") -> str:
        rows = [(said(one.text, one.tokens), one.log_prob, one.score) for one in translation.candidates] or [
            ("", 0.0, 0.0)
        ]
        return "".join(
            f"{number} ||| {text} ||| LogProb= {log_prob:.6f} ||| {score:.6f}\n" for text, log_prob, score in rows
        )

    def as_text(number: int, translation: "Translation") -> str:
        best = translation.candidates[:1]
        return (said(best[0].text, best[0].tokens) if best else "") + "\n"

    if options.json:
        return as_json
    return as_n_best if translator.decoder.n_best > 1 else as_text


COMMAND = Command(
    "translate",
    "Translate lines of text, from stdin to stdout or from file to file. With --n-best N each line gives up to N lines in "
    "Moses' form, `number ||| translation ||| LogProb= nats ||| score`, numbers from 0.",
    TranslateOptions,
    run,
    kinds=("decoder",),
)
