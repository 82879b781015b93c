"""`nmt evaluate`: score translations against references: BLEU, chrF and TER with signatures."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Final, Literal

from nmt import registry, signals
from nmt.cli.command import Command, Parts
from nmt.cli.scores import as_lines, as_rows, as_table
from nmt.errors import InputError, UserError, quoted, unknown
from nmt.evaluations.base import Evaluation, System, TextCheck
from nmt.log import log
from nmt.metrics.base import Lines, Metric, References
from nmt.metrics.bleu import language_tokenizer
from nmt.options import AUTO, flag_of, names_of, opt
from nmt.runs import find_model, saved_setting
from nmt.text.corpus import checked_line, misaligned, read_lines, text_name
from nmt.translate.options import engine_name
from nmt.translate.windows import STDIN_NAME, LineEstimate, open_source, place_of

DEFAULT_METRICS: Final = ("bleu", "chrf", "ter")


@registry.open_options_class("evaluation", "text-check", shared=["metric"])
class EvaluateOptions:
    reference: tuple[str, ...] = opt(
        (), "raw reference file, or several of one length", aliases=("r", "ref"), metavar="FILE"
    )
    hypothesis: tuple[str, ...] = opt(
        (),
        "file of translations, detokenised, or several to compare, the first the baseline; - is stdin",
        aliases=("hyp",),
        excludes=("model",),
    )
    model: str | None = opt(None, "instead of a hypothesis: translate --source with this model", aliases=("m", "path"))
    source: str | None = opt(
        None, "the source file, for --model and for metrics that read it", aliases=("s",), metavar="FILE"
    )
    data: str | None = opt(
        None,
        "prepared data whose raw test text is used, instead of files",
        aliases=("d",),
        needs=("model",),
        excludes=("reference",),
    )
    set: str | None = opt(
        None, "name of a test or development set of --data; none is the first test set", needs=("data",), metavar="NAME"
    )
    metrics: tuple[str, ...] = opt(DEFAULT_METRICS, "metrics by name, `bleu,chrf` (nmt list metric)", metavar="METRIC")
    engine: str = opt(AUTO, "with --model: what searches, as for nmt translate")
    batch_tokens: int | Literal["auto"] = opt(
        "auto", "with --model: source tokens of a batch, as for nmt translate", minimum=1
    )
    device: str = opt("auto", "with --model: auto, cpu, cuda or cuda:N")
    json: bool = opt(
        False, "print JSON: a row per score with system, metric, value, signature, detail and the search if any"
    )

    def __post_init__(self) -> None:
        engine_name(self.engine)
        if not self.hypothesis and self.model is None:
            raise ValueError("give either --hypothesis, or --model with --source or --data")
        if self.model is not None and (self.source is None) == (self.data is None):
            raise ValueError("--model: give either --source and --reference, or --data")
        if not self.reference and self.data is None:
            raise ValueError("--reference is missing (raw reference file)")
        if [*self.hypothesis, self.source].count("-") > 1:
            raise ValueError("- is given twice, but stdin is one text (name a file for one of them)")
        if "-" in self.reference:
            raise ValueError("--reference -: must be a file (--hypothesis and --source read stdin)")
        if not self.metric_names:
            raise ValueError("--metrics names no metric (nmt list metric)")
        if {"lowercase", "case_sensitive"} <= registry.shared_values("metric", self).keys():
            raise ValueError("--lowercase and --case-sensitive exclude each other (leave one of them out)")

    @property
    def metric_names(self) -> list[str]:
        """The names of --metrics, each once."""
        return names_of(self.metrics)


def run(options: EvaluateOptions, parts: Parts) -> int:
    """BLEU, chrF and TER by sacreBLEU, with their signatures."""
    evaluation = _evaluation(options)
    metrics = _metrics(options) if evaluation.uses_metrics else []
    if options.model is None:
        systems, texts, source = _read_files(options, metrics)
    else:
        source, texts = _source(options)
        systems = [_translate(options, parts, options.model, source, evaluation)]
    checks = _checks(options)
    for check in checks:
        check.examine(systems, texts)
    for check in checks:
        systems, texts = ([replace(text, lines=check.lines(text.lines)) for text in side] for side in (systems, texts))
        evaluation.changes += f"|{change}" if (change := check.signature()) else ""
    references = [text.lines for text in texts]
    doubts = (doubt for check in checks for doubt in check.doubts(list(dict(metrics).values()), references))
    for doubt in dict.fromkeys(doubts):
        log.warn(doubt)
    with log.progress(evaluation.task):
        text = evaluation.text(systems, references, None if source is None else source.lines, metrics)
    sys.stdout.write(text)
    if source is not None and (num_failed := systems[0].num_failed):
        count = f"{num_failed:,} of {len(systems[0].lines):,} lines"
        log.warn(f"{quoted(source.name)}: {count} not translated: scored as empty lines")
        return 5
    return 0


def _checks(options: EvaluateOptions) -> list[TextCheck]:
    return [entry.cls(options) for entry in registry.every("text-check")]


def _metrics(options: EvaluateOptions) -> list[tuple[str, Metric]]:
    """The metrics for the language of the model or of the files; BLEU has the tokenizer of the model's run, if it knows that."""
    values = registry.shared_values("metric", options)
    if options.model is not None:
        from nmt.artefact import Artefact
        from nmt.engines.base import kind_of_folder
        from nmt.text.pipeline import Pipeline

        folder = find_model(Path(options.model))
        tokenizer = saved_setting(folder, "bleu_tokenize")
        values = ({"tokenize": tokenizer} if tokenizer else {}) | values
        language = Pipeline.load(Artefact(folder, kind_of_folder(folder))).target_lang
    elif language := language_of_names([*options.reference, *options.hypothesis]):
        log.info(f"target language {language}, by the ending of a file name (--target-lang or --tokenize overrides it)")
    return build_metrics(options.metric_names, values, language)


def language_of_names(names: Sequence[str]) -> str:
    """The language in which file names end, as in ref.zh, if BLEU has a tokenizer for it; empty for none or several."""
    endings = {Path(text_name(Path(name))).suffix.removeprefix(".") for name in names}
    languages = [ending for ending in endings if language_tokenizer(ending) != language_tokenizer("")]
    return languages[0] if len(languages) == 1 else ""


def build_metrics(names: Sequence[str], values: Mapping[str, object], language: str = "") -> list[tuple[str, Metric]]:
    """The metrics by name, ready to be used. UserError for an unknown name, and for an option of one other metric alone.

    values: of their options by name, see `registry.shared_values`
    language: of the texts, where it is known
    """
    parts = [registry.choose("metric", name, values) for name in names]
    for key in values:
        owners = registry.having("metric", key)
        if len(owners) == 1 and owners[0] not in names:
            flag = flag_of(key)
            raise UserError(f"{flag}: has no effect with --metrics {','.join(names)} (give --metrics {owners[0]})")
    metrics: list[tuple[str, Metric]] = [(part.name, registry.build(part)) for part in parts]
    for _, metric in metrics:
        metric.use_language(language)
        metric.check()
    return metrics


def _read_files(
    options: EvaluateOptions, metrics: Sequence[tuple[str, Metric]]
) -> tuple[list[System], list[System], System | None]:
    """The systems of --hypothesis, the references, and the source if --source is given."""
    for name, metric in metrics:
        if metric.needs_sources and options.source is None:
            raise UserError(f"--metrics {name}: needs the source lines (give --source)")
    if options.source is not None and not any(metric.needs_sources for _, metric in metrics):
        raise UserError(f"--source {quoted(options.source)}: no metric of --metrics reads the source (leave it out)")
    names = [*options.hypothesis, *([options.source] if options.source is not None else [])]
    files, references = _lines_of_files(options, names)
    return files[: len(options.hypothesis)], references, files[-1] if options.source is not None else None


def _lines_of_files(options: EvaluateOptions, names: Sequence[str]) -> tuple[list[System], list[System]]:
    """The lines of files to score or to translate, and the references: as many lines each, and at least one."""
    systems = [System(name, _lines_of(name)) for name in names]
    references = [System(path, read_lines(Path(path))) for path in options.reference]
    for system, reference in product(systems, references):
        if len(reference.lines) != len(system.lines):
            for check in _checks(options):
                check.compare_lengths(system, reference)
            raise misaligned(Path(system.name), Path(reference.name), len(system.lines), len(reference.lines))
        if not system.lines:
            raise InputError(f"{quoted(system.name)}: has no lines to score")
    return systems, references


def _lines_of(name: str) -> Lines:
    """The lines of a file, or of stdin from where it is on."""
    if name != STDIN_NAME:
        return read_lines(Path(name))
    with open_source(name, LineEstimate(name)) as source:
        content = BytesIO(b"".join(iter(source.read, b"")))
    return [checked_line(place_of(name), number, raw) for number, raw in enumerate(content, 1)]


def _source(options: EvaluateOptions) -> tuple[System, list[System]]:
    """The lines to translate, and their references: of files, or of a set of prepared data."""
    if options.data is None:
        [source], references = _lines_of_files(options, [options.source or ""])
        return source, references
    from nmt.data.shards import PreparedData

    folder, data = options.data, PreparedData(Path(options.data))
    sets = {**data.valid, **data.test}
    name = options.set if options.set is not None else next(iter(data.test), None)
    if name is None:
        known = f"--set names a development set: {', '.join(sets)}" if sets else "nmt prepare --test adds one"
        raise UserError(f"{quoted(folder)}: has no test set ({known})")
    if name not in sets:
        raise unknown("set", name, sets)
    if not sets[name].source_lines:
        raise InputError(f"{quoted(name)}: has no lines to score")
    return System(name, sets[name].source_lines), [System(name, sets[name].target_lines)]


def _translate(options: EvaluateOptions, parts: Parts, model: str, source: System, evaluation: Evaluation) -> System:
    """Translate the source lines with a model."""
    from nmt.translate.line_warnings import LineWarnings
    from nmt.translate.options import TranslatorOptions
    from nmt.translators import open_translator

    settings = TranslatorOptions(
        engine=options.engine, batch_tokens=options.batch_tokens, device=options.device, replicas=1
    )
    translator = open_translator([model], settings, parts.by_kind["decoder"])
    translator.engine.without_scores()
    language = translator.pipeline.target_lang
    evaluation.check_language(language)
    log.detail(f"{model}: {translator.engine.signature} on {translator.engine.device}")
    warnings = LineWarnings(place_of(source.name), length_flag="")
    with signals.Signals():
        lines = translator.texts(source.lines, warnings)
    warnings.log_counts()
    return System(model, lines, translator.engine.signature, language, warnings.num_failed)


class MetricScores(Evaluation):
    """A score of each metric."""

    def text(
        self,
        systems: Sequence[System],
        references: References,
        sources: Lines | None,
        metrics: Sequence[tuple[str, Metric]],
    ) -> str:
        scores = [[(name, metric(system.lines, references, sources)) for name, metric in metrics] for system in systems]
        signed = [[(name, replace(of, signature=of.signature + self.changes)) for name, of in row] for row in scores]
        if self.options.json:
            return as_rows(systems, signed)
        return as_table(systems, signed) if len(systems) > 1 else as_lines(signed[0])


def _evaluation(options: EvaluateOptions) -> Evaluation:
    """What the options ask for."""
    asked = registry.active("evaluation", options)
    built: Evaluation = asked[0].cls(options) if asked else MetricScores(options)
    return built


COMMAND = Command(
    "evaluate",
    EvaluateOptions,
    run,
    kinds=("decoder",),
    positional=("hypothesis", "reference"),
    more_words=(
        "for several hypotheses use --hypothesis A B --reference REF, "
        "for several references --hypothesis HYP --reference A B"
    ),
    group="translate",
    examples=(
        "nmt evaluate output.de test.de",
        "nmt evaluate a.de b.de --reference test.de --json",
        "nmt evaluate --model model --source test.en --reference test.de",
    ),
)
