"""`nmt evaluate`: BLEU, chrF and TER of translations, each with the signature that says how it was computed."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.cli.command import Command, Parts
from nmt.errors import InputError, UserError, quoted
from nmt.infer.evaluate import Metric, evaluate
from nmt.options import opt
from nmt.text.corpus import read_lines


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    reference: tuple[str, ...] = opt((), "raw reference file, or several of one length", aliases=("r", "ref"))
    hypothesis: str | None = opt(None, "file of translations, detokenised", aliases=("hyp",))
    model: str | None = opt(None, "instead of a hypothesis: translate --source with this model", aliases=("m", "path"))
    source: str | None = opt(None, "with --model: the source file", aliases=("s",))
    metrics: tuple[Metric, ...] = opt(("bleu", "chrf", "ter"), "which scores: bleu, chrf, ter")
    tokenize: str = opt("13a", "BLEU's tokenizer (13a, intl, char, ...); none for files that are tokenised already")
    lowercase: bool = opt(False, "compare without case")
    batch_tokens: int = opt(2000, "with --model: source tokens of a batch")
    device: str = opt("auto", "with --model: auto, cpu, cuda or cuda:N")
    json: bool = opt(False, "print JSON")

    def __post_init__(self) -> None:
        if not self.reference:
            raise ValueError("--reference is missing")
        if (self.hypothesis is None) == (self.model is None):
            raise ValueError("give either --hypothesis, or --model with --source")
        if (self.model is None) != (self.source is None):
            raise ValueError("--model and --source belong together")


def run(options: EvaluateOptions, parts: Parts) -> None:
    """Print each score with its signature."""
    references = [read_lines(Path(path)) for path in options.reference]
    hypotheses = read_lines(Path(options.hypothesis)) if options.hypothesis else _translate(options, parts)
    name = options.hypothesis or f"the translations of {options.source}"
    for path, lines in zip(options.reference, references, strict=True):
        if len(lines) != len(hypotheses):
            raise InputError(f"{quoted(name)} has {len(hypotheses):,} lines, {quoted(path)} has {len(lines):,}")
    if not hypotheses:
        raise InputError(f"{quoted(name)}: has no lines to score")
    scores = evaluate(hypotheses, references, options.metrics, options.tokenize, options.lowercase)
    if options.json:
        rows: list[dict[str, Any]] = [vars(score) for score in scores]
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{score.detail}  {score.signature}\n" for score in scores)


def _translate(options: EvaluateOptions, parts: Parts) -> list[str]:
    from nmt.checkpoint import load_model
    from nmt.device import choose_device
    from nmt.infer.translator import Translator

    if options.model is None or options.source is None:
        raise UserError("--model and --source belong together")
    loaded = load_model(Path(options.model), choose_device(options.device))
    translator = Translator(loaded.pipeline, loaded.model, parts.build("decoder"), options.batch_tokens)
    return [translation.text for translation in translator.translate(read_lines(Path(options.source)))]


COMMAND = Command(
    "evaluate", "BLEU, chrF and TER by sacreBLEU, with their signatures.", EvaluateOptions, run, kinds=("decoder",)
)
