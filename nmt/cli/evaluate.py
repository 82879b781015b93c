"""`nmt evaluate`: score translations against references with BLEU, chrF and TER."""

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
        (),
        "detokenised reference files",
        aliases=("r", "ref"),
        metavar="FILE",
        group="Input and output",
        common=True,
    )
    hypothesis: tuple[str, ...] = opt(
        (),
        "detokenised translations to score; - is stdin",
        group="Input and output",
        common=True,
        aliases=("hyp",),
        excludes=("model",),
    )
    model: str | None = opt(
        None,
        "score this model's translation of --source",
        aliases=("m", "path"),
        group="Input and output",
        common=True,
    )
    source: str | None = opt(
        None,
        "source file, for --model and some metrics",
        aliases=("s",),
        metavar="FILE",
        group="Input and output",
        common=True,
    )
    data: str | None = opt(
        None,
        "data folder with the test set to use instead of files",
        group="Input and output",
        aliases=("d",),
        needs=("model",),
        excludes=("reference",),
    )
    set: str | None = opt(
        None,
        "set in --data to score; if unset, the first test set",
        needs=("data",),
        metavar="NAME",
        group="Input and output",
    )
    metrics: tuple[str, ...] = opt(
        DEFAULT_METRICS, "metrics, such as bleu,chrf", metavar="METRIC", group="Metrics", common=True
    )
    engine: str = opt(AUTO, "search engine for --model", group="Search")
    batch_tokens: int | Literal["auto"] = opt("auto", "source tokens per batch for --model", minimum=1, group="Search")
    device: str = opt("auto", "device for --model: auto, cpu, cuda or cuda:N", group="Search")
    json: bool = opt(False, "print the scores as JSON", group="Input and output", common=True)

    def __post_init__(self) -> None:
        engine_name(self.engine)
        if not self.hypothesis and self.model is None:
            raise ValueError("nothing to score: add --hypothesis, or --model with --source or --data")
        if self.model is not None and (self.source is None) == (self.data is None):
            raise ValueError("--model needs either --source and --reference, or --data (use one of them)")
        if not self.reference and self.data is None:
            raise ValueError("--reference is missing (add --reference FILE with detokenised references)")
        if [*self.hypothesis, self.source].count("-") > 1:
            raise ValueError("only one of --hypothesis and --source can be - (stdin)")
        if "-" in self.reference:
            raise ValueError("--reference cannot be - (only --hypothesis and --source can be stdin)")
        if not self.metric_names:
            raise ValueError("--metrics names no metric (`nmt list metric` lists them)")
        if {"lowercase", "case_sensitive"} <= registry.shared_values("metric", self).keys():
            raise ValueError("--lowercase and --case-sensitive cannot be combined (drop one of them)")

    @property
    def metric_names(self) -> list[str]:
        """The names in --metrics, without duplicates."""
        return names_of(self.metrics)


def run(options: EvaluateOptions, parts: Parts) -> int:
    """Score translations against references with BLEU, chrF and TER, and print sacreBLEU's signatures."""
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
        log.warn(f"{quoted(source.name)}: {count} could not be translated and were scored as empty lines")
        return 5
    return 0


def _checks(options: EvaluateOptions) -> list[TextCheck]:
    return [entry.cls(options) for entry in registry.every("text-check")]


def _metrics(options: EvaluateOptions) -> list[tuple[str, Metric]]:
    """The metrics for the language of the model or of the files. BLEU uses the tokenizer of the model's run, if that is known."""
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
        log.info(f"target language {language}, from the file name (--target-lang or --tokenize overrides it)")
    return build_metrics(options.metric_names, values, language)


def language_of_names(names: Sequence[str]) -> str:
    """The language in the file names, as in ref.zh, if BLEU has a tokenizer for it; empty if there is none or more than one."""
    endings = {Path(text_name(Path(name))).suffix.removeprefix(".") for name in names}
    languages = [ending for ending in endings if language_tokenizer(ending) != language_tokenizer("")]
    return languages[0] if len(languages) == 1 else ""


def build_metrics(names: Sequence[str], values: Mapping[str, object], language: str = "") -> list[tuple[str, Metric]]:
    """The metrics by name, ready for use.

    values: the values of their options by name, see `registry.shared_values`
    language: the language of the texts, if it is known
    Raises UserError for an unknown name, and for an option that only a metric outside `names` has.
    """
    parts = [registry.choose("metric", name, values) for name in names]
    for key in values:
        owners = registry.having("metric", key)
        if len(owners) == 1 and owners[0] not in names:
            flag = flag_of(key)
            raise UserError(f"{flag} has no effect with --metrics {','.join(names)} (add --metrics {owners[0]})")
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
            raise UserError(f"--metrics {name} needs --source")
    if options.source is not None and not any(metric.needs_sources for _, metric in metrics):
        raise UserError(f"--source {quoted(options.source)}: not needed by any of the metrics (drop --source)")
    names = [*options.hypothesis, *([options.source] if options.source is not None else [])]
    files, references = _lines_of_files(options, names)
    return files[: len(options.hypothesis)], references, files[-1] if options.source is not None else None


def _lines_of_files(options: EvaluateOptions, names: Sequence[str]) -> tuple[list[System], list[System]]:
    """The lines of the files to score or to translate, and the references. All have the same number of lines, at least one."""
    systems = [System(name, _lines_of(name)) for name in names]
    references = [System(path, read_lines(Path(path))) for path in options.reference]
    for system, reference in product(systems, references):
        if len(reference.lines) != len(system.lines):
            for check in _checks(options):
                check.compare_lengths(system, reference)
            raise misaligned(Path(system.name), Path(reference.name), len(system.lines), len(reference.lines))
        if not system.lines:
            raise InputError(f"{quoted(system.name)}: no lines to score")
    return systems, references


def _lines_of(name: str) -> Lines:
    """The lines of a file, or the remaining lines of stdin."""
    if name != STDIN_NAME:
        return read_lines(Path(name))
    with open_source(name, LineEstimate(name)) as source:
        content = BytesIO(b"".join(iter(source.read, b"")))
    return [checked_line(place_of(name), number, raw) for number, raw in enumerate(content, 1)]


def _source(options: EvaluateOptions) -> tuple[System, list[System]]:
    """The lines to translate and their references, from files or from a set of a data folder."""
    if options.data is None:
        [source], references = _lines_of_files(options, [options.source or ""])
        return source, references
    from nmt.data.shards import PreparedData

    folder, data = options.data, PreparedData(Path(options.data))
    sets = {**data.valid, **data.test}
    name = options.set if options.set is not None else next(iter(data.test), None)
    if name is None:
        known = f"use --set with a validation set: {', '.join(sets)}" if sets else "nmt prepare --test adds one"
        raise UserError(f"{quoted(folder)}: no test set ({known})")
    if name not in sets:
        raise unknown("set", name, sets)
    if not sets[name].source_lines:
        raise InputError(f"{quoted(name)}: no lines to score")
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
    """The score of each metric."""

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
    """Build the evaluation that the options select."""
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
        "for several hypotheses use --hypothesis A B --reference REF; "
        "for several references use --hypothesis HYP --reference A B"
    ),
    group="translate",
    examples=(
        "nmt evaluate output.de test.de",
        "nmt evaluate a.de b.de --reference test.de --json",
        "nmt evaluate --model model --source test.en --reference test.de",
    ),
)
