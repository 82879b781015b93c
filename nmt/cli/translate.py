"""`nmt translate`: text to text, a line for a line."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmt.cli.command import Command, Parts
from nmt.log import log
from nmt.options import REQUIRED, opt
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
    precision: Literal["fp32", "bf16"] = opt("fp32", "fp32, or bf16 products by autocast")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "buffer_size", "max_source_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it must be at least 1, or none")


def run(options: TranslateOptions, parts: Parts) -> int:
    """Translate the input, as many lines out as in; 5 when a line could not be translated."""
    import torch

    from nmt.infer.stream import new_output, open_source, translate_stream
    from nmt.infer.translator import load_translator

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with open_source(options.input) as source:
        translator = load_translator(
            Path(options.model),
            parts.build("decoder"),
            options.batch_tokens,
            options.max_source_length,
            options.device,
            options.precision,
        )
        log.info(f"{options.model}: {translator.decoder.signature} on {translator.device}, {options.precision}")
        place, show = "stdin" if options.input == "-" else options.input, _shower(options, translator)
        settings = (options.buffer_size, place, options.strict)
        if options.output == "-":
            bad = translate_stream(translator, source, sys.stdout.buffer, show, *settings)
        else:
            with new_output(Path(options.output)) as output:
                bad = translate_stream(translator, source, output, show, *settings)
    counts = {"not UTF-8": bad, "cut": translator.cut.count, "not translated": translator.failed.count}
    if any(counts.values()):
        log.warn(f"{place}: lines " + ", ".join(f"{what}: {count:,}" for what, count in counts.items()))
    return 5 if translator.failed.count else 0


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
