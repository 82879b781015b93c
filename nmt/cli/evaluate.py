"""`nmt evaluate`: BLEU, chrF and TER of translations, each with the signature that says how it was computed."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nmt.cli.command import Command, Parts
from nmt.errors import InputError, UserError, quoted, unknown
from nmt.infer.evaluate import METRICS, Score, check_metric, check_tokenizer, evaluate, num_split
from nmt.log import log
from nmt.options import opt
from nmt.signals import Signals
from nmt.text.corpus import read_lines

STDIN: Final = Path("/dev/stdin")
LINES_WITH_SUBWORDS: Final = 0.1  # the share of lines beyond which it is no accident


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    reference: tuple[str, ...] = opt((), "raw reference file, or several of one length", aliases=("r", "ref"))
    hypothesis: str | None = opt(None, "file of translations, detokenised; - is stdin", aliases=("hyp",))
    model: str | None = opt(None, "instead of a hypothesis: translate --source with this model", aliases=("m", "path"))
    source: str | None = opt(None, "with --model: the source file", aliases=("s",))
    data: str | None = opt(None, "with --model: prepared data whose raw test text is used, instead of files")
    set: str | None = opt(None, "with --data: the name of a test or development set; none is the first test set")
    metrics: tuple[str, ...] = opt(METRICS, "which scores: bleu, chrf, ter")
    tokenize: str = opt("13a", "BLEU's tokenizer (13a, intl, char, ...); none for files that are tokenised already")
    lowercase: bool = opt(False, "compare without case")
    batch_tokens: int = opt(2000, "with --model: source tokens of a batch")
    device: str = opt("auto", "with --model: auto, cpu, cuda or cuda:N")
    json: bool = opt(False, "print JSON: a row a score with metric, value, signature, detail, and the search if any")

    def __post_init__(self) -> None:
        if (self.hypothesis is None) == (self.model is None):
            raise ValueError("give either --hypothesis, or --model with --source or --data")
        if self.model is None and (self.source or self.data):
            raise ValueError("--source and --data are for --model")
        if self.model is not None and (self.source is None) == (self.data is None):
            raise ValueError("give --model either --source or --data")
        if self.set is not None and self.data is None:
            raise ValueError("--set is for --data")
        if bool(self.reference) != (self.data is None):
            raise ValueError("--reference is missing" if self.data is None else "--data has its own references")
        if self.batch_tokens < 1:
            raise ValueError(f"batch_tokens is {self.batch_tokens}; it must be at least 1")
        for name in self.metrics:
            check_metric(name)


@dataclass(frozen=True)
class Translated:
    """What a model made of the source. decoder: the search's signature; num_failed: lines it could not translate."""

    lines: list[str]
    decoder: str
    num_failed: int


def run(options: EvaluateOptions, parts: Parts) -> int:
    """Print each score with its signature; 5 when a line could not be translated."""
    if "bleu" in options.metrics:
        check_tokenizer(options.tokenize)
    name, given, references = _of_data(options, options.data) if options.data is not None else _of_files(options)
    if not given:
        raise InputError(f"{quoted(name)}: has no lines to score")
    settings = (options.metrics, options.tokenize, options.lowercase)
    if options.model is None:
        _warn_of_subwords(name, given)
        _show(options, evaluate(given, references, *settings), None)
        return 0
    translated = _translate(options, parts, options.model, name, given)
    _show(options, evaluate(translated.lines, references, *settings), translated.decoder)
    if translated.num_failed:
        log.warn(f"{name}: {translated.num_failed:,} of {len(given):,} lines not translated: scored as empty lines")
    return 5 if translated.num_failed else 0


Lines = Sequence[str]


def _of_files(options: EvaluateOptions) -> tuple[str, Lines, Sequence[Lines]]:
    """The name and the lines of what is to be scored or translated, and the references."""
    name = options.hypothesis or options.source or ""
    given, references = (
        read_lines(STDIN if name == "-" else Path(name)),
        [read_lines(Path(path)) for path in options.reference],
    )
    for path, lines in zip(options.reference, references, strict=True):
        if len(lines) != len(given):
            raise InputError(f"{quoted(name)} has {len(given):,} lines, {quoted(path)} has {len(lines):,}")
    return name, given, references


def _of_data(options: EvaluateOptions, folder: str) -> tuple[str, Lines, Sequence[Lines]]:
    """The name, the source lines and the reference of a set of prepared data."""
    from nmt.data.shards import PreparedData

    data = PreparedData(Path(folder))
    sets = {**data.valid, **data.test}
    name = options.set if options.set is not None else next(iter(data.test), None)
    if name is None:
        raise UserError(f"{quoted(folder)}: has no test set (nmt prepare --test, or name a development set with --set)")
    if name not in sets:
        raise unknown("set", name, sets)
    return name, sets[name].source_lines, [sets[name].target_lines]


def _show(options: EvaluateOptions, scores: Sequence[Score], decoder: str | None) -> None:
    if options.json:
        rows = [{**vars(score), "decoder": decoder} for score in scores]
        shown = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    else:
        shown = "".join(f"{score.detail}  {score.signature}\n" for score in scores)
    sys.stdout.buffer.write(shown.encode())
    sys.stdout.buffer.flush()


def _warn_of_subwords(name: str, lines: Lines) -> None:
    count = num_split(lines)
    if count > LINES_WITH_SUBWORDS * len(lines):
        log.warn(
            f"{name}: {count:,} of {len(lines):,} lines look split into subwords (tokens that end in @@ or begin with "
            "\u2581); scores want detokenised text"
        )


def _translate(options: EvaluateOptions, parts: Parts, model: str, source: str, lines: Lines) -> Translated:
    from nmt.infer.translator import load_translator

    translator = load_translator(Path(model), parts.build("decoder"), options.batch_tokens, device=options.device)
    log.info(f"{model}: {translator.decoder.signature} on {translator.device}")
    with Signals() as signals:
        translations = translator.translate(lines, source, check=signals.check)
    return Translated([one.text for one in translations], translator.decoder.signature, translator.failed.count)


COMMAND = Command(
    "evaluate", "BLEU, chrF and TER by sacreBLEU, with their signatures.", EvaluateOptions, run, kinds=("decoder",)
)
