"""`nmt evaluate`: BLEU, chrF and TER of translations, each with the signature that says how it was computed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nmt.cli.command import Command, Parts
from nmt.cli.scores import System, as_lines, as_rows, as_table, compared_as_rows, compared_as_table
from nmt.errors import InputError, UserError, quoted, unknown
from nmt.log import log
from nmt.metrics.evaluate import (
    METRICS,
    check_metric,
    check_seed,
    check_tokenizer,
    compare,
    evaluate,
    filtered_newstest2014,
    refuse_subwords,
    unequal,
)
from nmt.metrics.paper_bleu import PaperBleu, check_language, language_of
from nmt.options import opt
from nmt.signals import Signals
from nmt.text.corpus import read_lines

STDIN: Final = Path("/dev/stdin")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    reference: tuple[str, ...] = opt((), "raw reference file, or several of one length", aliases=("r", "ref"))
    hypothesis: tuple[str, ...] = opt(
        (),
        "file of translations, detokenised, or several to compare, the first the baseline; - is stdin",
        aliases=("hyp",),
    )
    model: str | None = opt(None, "instead of a hypothesis: translate --source with this model", aliases=("m", "path"))
    source: str | None = opt(None, "with --model: the source file", aliases=("s",))
    data: str | None = opt(None, "with --model: prepared data whose raw test text is used, instead of files")
    set: str | None = opt(None, "with --data: the name of a test or development set; none is the first test set")
    metrics: tuple[str, ...] = opt(METRICS, "which scores: bleu, chrf, ter")
    tokenize: str = opt("13a", "BLEU's tokenizer (13a, intl, char, ...); none for files that are tokenised already")
    lowercase: bool = opt(False, "compare without case")
    paper: bool = opt(False, "instead of --metrics: BLEU under each definition, the paper's own among them")
    target_lang: str | None = opt(
        None, "with --paper: the target language; none is the model's, else the ending of the reference's name: ref.de"
    )
    significance: Literal["none", "bootstrap", "randomization"] = opt(
        "none", "test each hypothesis against the first: sacreBLEU's paired bootstrap or approximate randomization"
    )
    trials: int = opt(0, "with --significance: how many; 0 is sacreBLEU's own: 1000 for bootstrap, else 10000")
    batch_tokens: int | Literal["auto"] = opt("auto", "with --model: source tokens of a batch, as for nmt translate")
    device: str = opt("auto", "with --model: auto, cpu, cuda or cuda:N")
    json: bool = opt(
        False, "print JSON: a row a score with system, metric, value, signature, detail and the search if any"
    )

    def __post_init__(self) -> None:
        if (not self.hypothesis) == (self.model is None):
            raise ValueError("give either --hypothesis, or --model with --source or --data")
        if self.model is None and (self.source or self.data):
            raise ValueError("--source and --data are for --model")
        if self.model is not None and (self.source is None) == (self.data is None):
            raise ValueError("give --model either --source or --data")
        if self.set is not None and self.data is None:
            raise ValueError("--set is for --data")
        if bool(self.reference) != (self.data is None):
            raise ValueError("--reference is missing" if self.data is None else "--data has its own references")
        if self.hypothesis.count("-") > 1:
            raise ValueError("stdin can be read once: give - once")
        if self.significance != "none" and (len(self.hypothesis) < 2 or self.paper):
            raise ValueError("--significance compares the --metrics of two or more files of --hypothesis")
        if self.trials < 0 or (self.trials and self.significance == "none"):
            raise ValueError(f"trials is {self.trials}; it must be at least 0, and is for --significance")
        if self.paper and (self.metrics != METRICS or self.tokenize != "13a" or self.lowercase):
            raise ValueError("--paper has definitions of its own: leave out --metrics, --tokenize and --lowercase")
        if self.target_lang is not None and not self.paper:
            raise ValueError("--target-lang is for --paper")
        if self.batch_tokens != "auto" and self.batch_tokens < 1:
            raise ValueError(f"batch_tokens is {self.batch_tokens}; it must be at least 1, or auto")
        for name in self.metrics:
            check_metric(name)


def run(options: EvaluateOptions, parts: Parts) -> int:
    """Print each score with its signature; 5 when a line could not be translated."""
    if "bleu" in options.metrics:
        check_tokenizer(options.tokenize)
    if options.significance != "none":
        check_seed()
    if options.model is None:
        systems, references = _of_files(options.hypothesis, options.reference)
        for system in systems:
            refuse_subwords(system.name, system.lines)
        for path, lines in zip(options.reference, references, strict=True):
            refuse_subwords(path, lines)
        _print(_shown(options, systems, references))
        return 0
    source, references = _source(options)
    translated = _translate(options, parts, options.model, source)
    _print(_shown(options, [translated], references))
    if translated.num_failed:
        told = f"{translated.num_failed:,} of {len(source.lines):,} lines not translated: scored as empty lines"
        log.warn(f"{source.name}: {told}")
    return 5 if translated.num_failed else 0


Lines = Sequence[str]


def _of_files(names: Sequence[str], references: Sequence[str]) -> tuple[list[System], list[Lines]]:
    """What the files hold that are to be scored or translated, and the references; as many lines each, and some."""
    given = [System(name, read_lines(STDIN if name == "-" else Path(name))) for name in names]
    found: list[Lines] = [read_lines(Path(path)) for path in references]
    for system in given:
        for path, lines in zip(references, found, strict=True):
            if len(lines) != len(system.lines):
                raise unequal(system.name, len(system.lines), path, len(lines))
        if not system.lines:
            raise InputError(f"{quoted(system.name)}: has no lines to score")
    _warn_of_newstest2014([*names, *references], len(found[0]))
    return given, found


def _source(options: EvaluateOptions) -> tuple[System, list[Lines]]:
    """What is to be translated, and its references."""
    if options.data is None:
        given, references = _of_files((options.source or "",), options.reference)
        return given[0], references
    return _of_data(options, options.data)


def _of_data(options: EvaluateOptions, folder: str) -> tuple[System, list[Lines]]:
    """The source and the reference of a set of prepared data."""
    from nmt.data.shards import PreparedData

    data = PreparedData(Path(folder))
    sets = {**data.valid, **data.test}
    name = options.set if options.set is not None else next(iter(data.test), None)
    if name is None:
        raise UserError(f"{quoted(folder)}: has no test set (nmt prepare --test, or name a development set with --set)")
    if name not in sets:
        raise unknown("set", name, sets)
    if not sets[name].source_lines:
        raise InputError(f"{quoted(name)}: has no lines to score")
    _warn_of_newstest2014([folder, name], len(sets[name].source_lines))
    return System(name, sets[name].source_lines), [sets[name].target_lines]


def _warn_of_newstest2014(names: Sequence[str], num_lines: int) -> None:
    if told := filtered_newstest2014(names, num_lines):
        log.warn(told)


def _translate(options: EvaluateOptions, parts: Parts, model: str, source: System) -> System:
    """What a model makes of the source."""
    from nmt.device import Memory, choose_device, keep_pages
    from nmt.translate.batch_size import batch_tokens
    from nmt.translate.requests import Request
    from nmt.translate.translator import Translator, load_scorer

    keep_pages()
    device = choose_device(options.device)
    pipeline, scorer = load_scorer([Path(model)], device)
    decoder, size = parts.build("decoder"), options.batch_tokens
    if size == "auto":
        size = batch_tokens(scorer, Memory(device), decoder.paths, 1)
    translator = Translator(pipeline, scorer, decoder, size)
    language = translator.pipeline.target_lang
    if options.paper:
        check_language(options.target_lang or language)
    log.info(f"{model}: {translator.decoder.signature} on {translator.device}")
    with Signals() as signals:
        requests = [Request(line) for line in source.lines]
        translations = translator.translate(requests, source.name, check=signals.check)
    lines = [one.text for one in translations]
    return System(model, lines, translator.decoder.signature, language, translator.failed.count)


def _shown(options: EvaluateOptions, systems: Sequence[System], references: Sequence[Lines]) -> str:
    """The scores as they are printed."""
    settings = (options.metrics, options.tokenize, options.lowercase)
    if options.significance != "none":
        named = [(system.name, system.lines) for system in systems]
        compared = compare(named, references, *settings, options.significance, options.trials)
        return compared_as_rows(compared) if options.json else compared_as_table(compared)
    if options.paper:
        paper = PaperBleu(references, _language(options, systems))
        scores = [paper.scores(system.lines) for system in systems]
    else:
        scores = [evaluate(system.lines, references, *settings) for system in systems]
    if options.json:
        return as_rows(systems, scores)
    return as_table(systems, scores) if options.paper or len(systems) > 1 else as_lines(scores[0])


def _language(options: EvaluateOptions, systems: Sequence[System]) -> str:
    """The target language: as given, else the model's, else the one that the names of the references end in."""
    found = options.target_lang or systems[0].language
    if found is None:
        endings = {language_of(path) for path in options.reference} - {None}
        found = endings.pop() if len(endings) == 1 else None
    if found is None:
        named = ", ".join(map(quoted, options.reference))
        raise UserError(f"--paper: no one language that {named} ends in, as ref.de does (give --target-lang)")
    return found


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


COMMAND = Command(
    "evaluate", "BLEU, chrF and TER by sacreBLEU, with their signatures.", EvaluateOptions, run, kinds=("decoder",)
)
