"""`nmt sweep`: train or translate with many combinations of settings, and compare the scores."""

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final, cast

from nmt import registry
from nmt.artefact import MANIFEST, Artefact
from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.evaluate import build_metrics
from nmt.data.shards import DATA_KIND, PreparedData
from nmt.engines.base import MODEL_KINDS
from nmt.errors import ArtefactError, UserError, quoted, unknown
from nmt.extensions.sweep.jobs import Job, Step, run_jobs
from nmt.extensions.sweep.trials import MAX_TRIALS, Sweep, Trial, read_sweep
from nmt.extensions.watch.cli.plot import line_charts
from nmt.extensions.watch.history import SWEPT_FILE, read_records, read_scores
from nmt.extensions.watch.pictures.figures import Curve, LineChart, check_matplotlib
from nmt.extensions.watch.pictures.page import html_page, html_table
from nmt.extensions.watch.table_formats import TableStyle, formatted_table
from nmt.files import check_output_file, read_bytes, sha256, write_file, write_output
from nmt.locks import Lock
from nmt.log import log
from nmt.metrics.base import Metric
from nmt.options import MAX_PROCESSES, REQUIRED, flag_of, names_of, opt, toml_line
from nmt.report.run_status import VALIDATION_PREFIX
from nmt.runs import find_model
from nmt.text.corpus import count_lines, misaligned
from nmt.text.pipeline import Pipeline
from nmt.train.options import MIN_BLEU, TrainOptions

TRANSLATION_FILE: Final = "translation.txt"
TRANSLATION_INPUTS: Final = ("model", "rerank", "shortlist", "glossary", "avoid", "unk_dictionary")
SCORES_FILE: Final = "scores.json"
BEST_FILE: Final = "best.toml"
SLOT_OPTIONS: Final = ("device", "threads")
SHARED_DEVICES: Final = (("device", "auto"), ("device", "cuda"))  # values that leave the choice of a GPU to the slot
MODEL_FOLDER: Final = "model"
MAX_LISTED_TRIALS: Final = 20  # maximum number of run names to print


@registry.open_options_class(shared=["metric"])
class SweepOptions:
    file: str = opt(REQUIRED, "TOML file with the values to try", group="Input and output", common=True)
    output: str = opt(
        REQUIRED,
        "folder for all runs; an existing sweep is resumed",
        aliases=("o",),
        group="Input and output",
        common=True,
        metavar="FOLDER",
    )
    jobs: int = opt(
        1,
        "parallel runs, which share threads or GPUs",
        minimum=1,
        maximum=MAX_PROCESSES,
        group="Speed and memory",
        common=True,
    )
    trials: int | None = opt(
        None,
        "combinations to draw at random (default: all)",
        minimum=1,
        maximum=MAX_TRIALS,
        group="Trials",
        common=True,
    )
    trials_seed: int = opt(1, "random seed for --trials", group="Trials")
    seeds: int = opt(
        1,
        "training runs per combination, one per seed",
        minimum=1,
        group="Trials",
        common=True,
    )
    average: int | None = opt(
        None,
        "translate with the average of the newest N checkpoints instead of the best one",
        minimum=1,
        group="Scores",
    )
    source: str | None = opt(
        None,
        "file to translate and score with each model",
        aliases=("s",),
        needs=("reference",),
        group="Scores",
        common=True,
        metavar="FILE",
    )
    reference: tuple[str, ...] = opt(
        (),
        "raw reference translations of --source",
        aliases=("r", "ref"),
        needs=("source",),
        group="Scores",
        common=True,
        metavar="FILE",
    )
    metrics: tuple[str, ...] = opt(
        ("bleu",), "metrics to score with, such as bleu,chrf", group="Scores", common=True, metavar="METRIC"
    )
    score: str | None = opt(
        None,
        "score that chooses the best run: one of --metrics, or a validation score such as valid_ppl",
        group="Scores",
    )
    html: str | None = opt(
        None,
        "also write the table and charts to this HTML file (needs matplotlib)",
        group="Input and output",
        metavar="FILE",
    )
    dry_run: bool = opt(False, "only print the number of runs and their names", group="Trials", common=True)
    table: TableStyle = opt(
        "text",
        "print the table as text, markdown, csv (full precision) or latex",
        group="Input and output",
        excludes=("json",),
    )
    json: bool = opt(False, "print JSON", group="Input and output")

    def __post_init__(self) -> None:
        if self.source is None and (given := registry.shared_values("metric", self)):
            flags = ", ".join(map(flag_of, given))
            raise ValueError(f"{flags}: options of metrics need translations (add --source and --reference)")

    @property
    def texts(self) -> list[Path]:
        """The files of --source and --reference."""
        return [Path(text) for text in (self.source, *self.reference) if text is not None]

    @property
    def metric_names(self) -> list[str]:
        """The names of --metrics; none without --source."""
        return names_of(self.metrics) if self.source is not None else []

    @property
    def score_name(self) -> str:
        return self.score or next(iter(self.metric_names), f"{VALIDATION_PREFIX}bleu")


@dataclass
class Row:
    """The runs of one combination of values. scores: the scores of each run, by name; empty for an unfinished run"""

    trials: list[Trial] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        return [scores[name] for scores in self.scores if name in scores]

    def mean(self, name: str) -> float | None:
        values = self.values(name)
        return statistics.fmean(values) if values else None

    def deviation(self, name: str) -> float | None:
        """The sample standard deviation, with n - 1; None for fewer than two runs."""
        values = self.values(name)
        return statistics.stdev(values) if len(values) > 1 else None


def run(options: SweepOptions) -> int:
    """Train a model, or translate, with each combination of values, and print a table of the scores, best first.

    The same command resumes the sweep. A failed run does not stop the others; the exit status is then 5.
    """
    if options.html is not None:
        check_matplotlib("--html")
    sweep = read_sweep(options.file)
    _check(options, sweep)
    trials = sweep.trials(options.trials, options.trials_seed, options.seeds)
    with log.progress("checking settings", len(trials), "runs") as bar:
        for trial in trials[:: options.seeds]:
            training = sweep.options(trial).get("train")
            _check_score(options, training)
            _check_average(options, training)
            bar.advance(options.seeds)
    if options.score_name not in options.metric_names:
        for folder in dict.fromkeys(trial.settings["train"]["data"] for trial in trials):
            _check_data(Path(folder), options.score_name)
    folder = Path(options.output)
    texts = list(map(_digest, options.texts))
    jobs = [Job(folder / trial.name, steps_of(trial, options, texts)) for trial in trials]
    if options.dry_run:
        print_lines(_dry_run(trials, jobs))
        return 0
    _check_folder(folder)
    with Lock(folder), log.progress("sweeping", len(jobs), "runs") as bar:
        if options.html is not None:
            check_output_file(Path(options.html))  # the file may be in the sweep's folder, which now exists
        write_file(folder / SWEPT_FILE, read_bytes(Path(options.file)))
        bar.advance(sum(job.is_done for job in jobs))

        def ended(job: Job) -> None:
            bar.advance()
            if job.error:
                log.error(f"{quoted(job.folder)}: {job.error}")
            else:
                log.info(f"{quoted(job.folder)}: done")

        run_jobs(jobs, slots_of(options, sweep), registry.loaded_plugins(), ended)
    score = chosen_score(options, [scores_of(job) for job in jobs if job.is_done])
    if score != options.score_name:
        log.info(f"no run has a BLEU above {MIN_BLEU:g}, so the best run is chosen by {score} (--score overrides this)")
    rows = ranked_rows(trials, jobs, score)
    best = {} if rows[0].mean(score) is None else rows[0].trials[0].settings
    if best:
        write_file(folder / BEST_FILE, _toml(best[sweep.command]).encode(errors="surrogateescape"))
    else:
        (folder / BEST_FILE).unlink(missing_ok=True)  # an old file may come from a sweep with different inputs
    _print(options, sweep, rows, score, best.get(sweep.command, {}))
    if tied := ties(rows, score):
        names = ", ".join(row.trials[0].name for row in tied[:MAX_LISTED_TRIALS])
        log.warn(f"the {score} of {names} differs from the best by less than the standard deviation (use more --seeds)")
    num_failed = sum(not job.is_done for job in jobs)
    if num_failed:
        log.warn(f"{num_failed:,} of {len(jobs):,} runs failed (run the same command again to retry them)")
    return 5 if num_failed else 0


def _check_folder(folder: Path) -> None:
    """Raise UserError for a folder that contains files but is not the folder of a sweep."""
    names = [path.name for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else []
    if names and SWEPT_FILE not in names:
        raise UserError(f"{quoted(folder)} contains files, but is not the folder of a sweep (use a different --output)")


def _check(options: SweepOptions, sweep: Sweep) -> None:
    """Raise UserError for options that contradict the file."""
    trains = "train" in sweep.fixed
    if not trains and (options.source is None or options.average is not None):
        scoring, average = "it needs --source and --reference (add both)", "--average has no checkpoints (drop it)"
        raise UserError(f"{quoted(sweep.path)} has no [train], so {scoring if options.source is None else average}")
    if options.jobs > 1 and any(settings.get("devices", 1) != 1 for settings in sweep.fixed.values()):
        raise UserError(f"--jobs {options.jobs} and `devices` cannot be combined (drop one of them)")
    build_metrics(options.metric_names, registry.shared_values("metric", options))
    for text in options.texts:
        if not text.is_file():
            raise UserError(f"{quoted(text)}: not a file (a sweep reads it several times, so it cannot be a pipe)")
    counts = list(map(count_lines, options.texts))
    for text, count in zip(options.texts, counts, strict=True):
        if count != counts[0]:
            raise misaligned(options.texts[0], text, counts[0], count)


def _metric(name: str) -> type[Metric]:
    return cast(type[Metric], registry.find("metric", name).cls)


def _check_score(options: SweepOptions, training: TrainOptions | None) -> None:
    """Raise UserError for a --score that no run would have. training: the options of a run; None without training"""
    if options.score is None and training is not None:
        return  # every training run has a loss
    of_validation = [] if training is None else ["loss", "ppl", *training.metrics]
    known = options.metric_names + [f"{VALIDATION_PREFIX}{name}" for name in of_validation]
    if options.score_name not in known:
        if options.score_name in registry.names("metric"):
            needed = f"add --source, --reference and --metrics {options.score_name}"
            raise UserError(f"--score {options.score_name} needs translations ({needed})")
        raise unknown("score", options.score_name, known)


def _check_average(options: SweepOptions, training: TrainOptions | None) -> None:
    """Raise UserError if a run would keep fewer checkpoints than --average needs."""
    if options.average and training is not None and 0 < training.keep_last < options.average:
        raise UserError(
            f"--average {options.average}: each run keeps only {training.keep_last} checkpoints (raise keep_last)"
        )


def _check_data(folder: Path, score: str) -> None:
    """Raise UserError for prepared data without the validation set that a validation score needs."""
    try:
        has_set = bool(PreparedData(folder).valid)
    except ArtefactError:
        return  # the run reports what is wrong with its data
    if not has_set:
        which = f"no validation set for the score {score}"
        raise UserError(f"{quoted(folder)}: {which} (prepare the data with --valid, or use --source and --reference)")


def _digest(path: Path) -> str:
    """The sha256 of a file, or of the manifest in a folder, which lists the hashes of its files; empty for a pipe."""
    path = path / MANIFEST if path.is_dir() else path
    return sha256(path) if path.is_file() else ""


def _digests_of(search: Mapping[str, Any]) -> list[str]:
    """The digests of the models and files that settings of `nmt translate` name."""
    given = (search.get(name, ()) for name in TRANSLATION_INPUTS)
    paths = [path for value in given for path in ([value] if isinstance(value, str) else value)]
    return [_digest(find_model(Path(path))) for path in paths]


def steps_of(trial: Trial, options: SweepOptions, texts: Sequence[str]) -> list[Step]:
    """The commands of a trial: train, average, translate, evaluate. texts: sha256 of the source and the references"""
    folder = Path(options.output) / trial.name
    steps, model = [], list[str]()
    if "train" in trial.settings:
        training = trial.settings["train"]
        data = _digest(Path(training["data"]))
        steps.append(
            Step("train", [f"--output={folder}"], _toml(training), [data], slot_options=_slot_options(training))
        )
        trained = folder
        if options.average is not None:
            trained = folder / MODEL_FOLDER
            average = [f"--run={folder}", f"--last={options.average}", f"--output={trained}", "--overwrite"]
            steps.append(Step("average", average))
        model = [f"--model={trained}"]
    if options.source is not None:
        output = folder / TRANSLATION_FILE
        translate = [*model, f"--input={options.source}", f"--output={output}"]
        search = trial.settings.get("translate", {})
        inputs = [*texts[:1], *_digests_of(search)]
        steps.append(Step("translate", translate, _toml(search), inputs, slot_options=_slot_options(search)))
        metrics = options.metric_names
        evaluate = [
            f"--hypothesis={output}",
            "--reference",
            *options.reference,
            f"--metrics={','.join(metrics)}",
            *(f"{flag_of(name)}={value}" for name, value in _metric_values(trial, options).items()),
            "--json",
        ]
        if any(_metric(name).needs_sources for name in metrics):
            evaluate.append(f"--source={options.source}")
        steps.append(Step("evaluate", evaluate, inputs=texts, output=SCORES_FILE))
    return steps


def _metric_values(trial: Trial, options: SweepOptions) -> dict[str, Any]:
    """The options of the metrics, with the target language of the data or the model for metrics that use it."""
    values, takers = registry.shared_values("metric", options), registry.having("metric", "target_lang")
    models = trial.settings.get("translate", {}).get("model", "")
    model = models if isinstance(models, str) else models[0]
    folder = trial.settings["train"]["data"] if "train" in trial.settings else model
    language = _language_of(Path(folder)) if set(takers) & set(options.metric_names) else ""
    return ({"target_lang": language} if language else {}) | values


@cache
def _language_of(folder: Path) -> str:
    """The target language of prepared data, a run or a model; empty if it cannot be read, because the command reports that."""
    try:
        return Pipeline.load(Artefact(find_model(folder), DATA_KIND, *MODEL_KINDS)).target_lang
    except ArtefactError:
        return ""


def _slot_options(settings: Mapping[str, Any]) -> list[str]:
    """The slot options that these settings leave open, including the device if it is a GPU without a number."""
    return [key for key in SLOT_OPTIONS if key not in settings or (key, settings[key]) in SHARED_DEVICES]


def slots_of(options: SweepOptions, sweep: Sweep) -> list[dict[str, Any]]:
    """Additional options for the commands in each slot: a share of the threads, or a GPU."""
    settings = sweep.fixed[sweep.command]
    device = str(settings.get("device", "auto"))
    if options.jobs == 1 or device not in ("auto", "cuda", "cpu"):
        return [{}] * options.jobs
    import torch

    from nmt.device import choose_device

    if choose_device(device).type == "cuda":
        return [{"device": f"cuda:{slot % torch.cuda.device_count()}"} for slot in range(options.jobs)]
    return [{"threads": max(1, torch.get_num_threads() // options.jobs)}] * options.jobs


def scores_of(job: Job) -> dict[str, float]:
    """The scores of a finished job: each metric of its translation, and its best validation scores."""
    scores: dict[str, float] = {}
    commands = [step.command for step in job.steps]
    if "train" in commands:
        known = {f"{VALIDATION_PREFIX}{name}" for name in ("loss", "ppl", *registry.names("metric"))}
        for record in read_records(job.folder)[1]:
            for name, value in record.values.items():
                if name in known:
                    better = max if sign_of(name) > 0 else min
                    scores[name] = better(scores.get(name, value), value)
    if "evaluate" in commands:
        scores |= {row.metric: row.value for row in read_scores(job.folder / SCORES_FILE)}
    return scores


def sign_of(score: str) -> int:
    """1 if higher scores are better, as for most metrics; -1 if lower ones are, as for losses."""
    name = score.removeprefix(VALIDATION_PREFIX)
    return 1 if name in registry.names("metric") and _metric(name).higher_is_better else -1


def ranked_rows(trials: Sequence[Trial], jobs: Sequence[Job], score: str) -> list[Row]:
    """One row per combination of values, ordered by the mean of a score: best first, rows with failed runs last.

    Means without the failed seeds would be too optimistic. Validation loss breaks ties, because a BLEU of 0 says nothing.
    """
    rows: dict[str, Row] = {}
    for trial, job in zip(trials, jobs, strict=True):
        row = rows.setdefault(repr(trial.tried), Row())
        row.trials.append(trial)
        row.jobs.append(job)
        row.scores.append(scores_of(job) if job.is_done else {})

    def rank(row: Row) -> tuple[float, bool, float, float]:
        mean, loss = row.mean(score), row.mean(f"{VALIDATION_PREFIX}loss")
        has_failed = any(not job.is_done for job in row.jobs)
        return mean is None, has_failed, -sign_of(score) * (mean or 0.0), math.inf if loss is None else loss

    return sorted(rows.values(), key=rank)


def chosen_score(options: SweepOptions, scores: Sequence[Mapping[str, float]]) -> str:
    """The score that chooses the best run: --score if given, otherwise BLEU, or the loss if BLEU is too low to mean anything.

    scores: the scores of each finished run
    """
    name, loss = options.score_name, f"{VALIDATION_PREFIX}loss"
    is_bleu = options.score is None and name.removeprefix(VALIDATION_PREFIX) == "bleu"
    is_low = all(of_run.get(name, 0.0) <= MIN_BLEU for of_run in scores)
    return loss if is_bleu and is_low and any(loss in of_run for of_run in scores) else name


def ties(rows: Sequence[Row], score: str) -> list[Row]:
    """The rows whose mean differs from the first row's by less than the larger of the two deviations."""

    def deviation(row: Row) -> float:
        return max(one.deviation(score) or 0.0 for one in (rows[0], row))

    best = rows[0].mean(score) or 0.0
    return [row for row in rows[1:] if (mean := row.mean(score)) is not None and abs(best - mean) < deviation(row)]


def _dry_run(trials: Sequence[Trial], jobs: Sequence[Job]) -> Iterator[str]:
    done = sum(job.is_done for job in jobs)
    yield f"{len(trials):,} runs{f', {done:,} of them done' if done else ''}"
    yield from (trial.name for trial in trials[:MAX_LISTED_TRIALS])
    if len(trials) > MAX_LISTED_TRIALS:
        yield f"... and {len(trials) - MAX_LISTED_TRIALS:,} more"


def _toml(settings: Mapping[str, Any]) -> str:
    return "".join(f"{toml_line(key, value)}\n" for key, value in settings.items())


def _print(options: SweepOptions, sweep: Sweep, rows: Sequence[Row], score: str, best: Mapping[str, Any]) -> None:
    """Print the table and the best settings, and write the page. best: settings of the command; empty if no run has a score"""
    names = dict.fromkeys([score, *sorted({name for row in rows for one in row.scores for name in one})])
    header = [*sweep.tried, *names, "run" if options.seeds == 1 else "runs"]
    table = [
        [
            *(str(row.trials[0].tried.get(key, "-")) for key in sweep.tried),
            *(_cell(row, name) for name in names),
            _runs(row),
        ]
        for row in rows
    ]
    if options.html is not None:
        cells = [[escape(cell) for cell in line] for line in table]
        charts = [chart.as_svg() for chart in [*_charts(sweep, rows, score), *_curves(rows)]]
        write_output(Path(options.html), html_page("nmt sweep", [html_table(header, cells), *charts]).encode())
    if options.json:
        tied = [dict(row.trials[0].tried) for row in ties(rows, score)]
        print_json({"score": score, "best": dict(best), "tied": tied, "settings": list(map(_as_json, rows))})
        return
    if options.table == "csv":
        print_lines(formatted_table(list(_exact_rows(options, sweep, rows, list(names))), "csv"))
        return
    right = range(len(sweep.tried), len(header) - 1)
    print_lines(formatted_table([header, *table], options.table, right))
    if best and options.table == "text":
        use = f"nmt {sweep.command} --config {quoted(Path(options.output) / BEST_FILE)}"
        plugins = "".join(f" --plugin {quoted(plugin)}" for plugin in registry.loaded_plugins())
        sys.stdout.write(f"\n# the best settings, for: {use}{plugins}\n{_toml(best)}")


def _exact_rows(
    options: SweepOptions, sweep: Sweep, rows: Sequence[Row], names: Sequence[str]
) -> Iterator[Sequence[str]]:
    """The header and rows of the table at full precision. Deviations have separate columns, and unknown values are empty."""
    has_deviations = options.seeds > 1
    deviations = [f"{name} deviation" for name in names] if has_deviations else []
    yield [*sweep.tried, *names, *deviations, "runs" if has_deviations else "run"]
    for row in rows:
        numbers = [*map(row.mean, names), *(map(row.deviation, names) if has_deviations else ())]
        values = (str(row.trials[0].tried.get(key, "")) for key in sweep.tried)
        yield [*values, *("" if number is None else repr(number) for number in numbers), _runs(row)]


def _cell(row: Row, name: str) -> str:
    mean, deviation, digits = row.mean(name), row.deviation(name), 2 if sign_of(name) > 0 else 4
    text = "-" if mean is None else f"{mean:.{digits}f}"
    return text if deviation is None else f"{text} +- {deviation:.{digits}f}"


def _runs(row: Row) -> str:
    """The folder of a single run, or how many of several runs are done."""
    failed = [job for job in row.jobs if not job.is_done]
    if len(row.jobs) == 1:
        return quoted(row.jobs[0].folder) + (" (failed)" if failed else "")
    return f"{len(row.jobs) - len(failed)} of {len(row.jobs)}"


def _as_json(row: Row) -> dict[str, Any]:
    names = sorted({name for scores in row.scores for name in scores})
    runs = [
        {"run": str(job.folder), "seed": trial.seed, "scores": scores, "error": job.error or None}
        for trial, job, scores in zip(row.trials, row.jobs, row.scores, strict=True)
    ]
    means = {name: {"mean": row.mean(name), "deviation": row.deviation(name)} for name in names}
    return {"values": dict(row.trials[0].tried), "scores": means, "runs": runs}


def _charts(sweep: Sweep, rows: Sequence[Row], score: str) -> Iterator[LineChart]:
    """Charts of the best score for each value, one chart per numeric setting. rows: best first"""
    for key in sweep.tried:
        best: dict[float, float] = {}
        for row in rows:
            value, mean = row.trials[0].tried.get(key), row.mean(score)
            if isinstance(value, int | float) and type(value) is not bool and mean is not None:
                best.setdefault(value, mean)
        if best:
            yield LineChart(f"Best {score} by {key}", key, score, [Curve(score, sorted(best.items()))])


def _curves(rows: Sequence[Row]) -> list[LineChart]:
    """The validation curves of all finished training runs, best first."""
    jobs = [job for row in rows for job in row.jobs if job.is_done and job.steps[0].command == "train"]
    runs = [(quoted(job.folder.name), read_records(job.folder)[1]) for job in jobs]
    return line_charts(runs, [], ["updates"])


COMMAND = Command(
    "sweep",
    SweepOptions,
    run,
    positional=("file",),
    greedy=False,
    group="train",
    examples=(
        "nmt sweep sweep.toml --output sweep --dry-run",
        "nmt sweep sweep.toml --output sweep --seeds 3",
        "nmt sweep sweep.toml --output sweep --source test.en --reference test.de",
    ),
)
