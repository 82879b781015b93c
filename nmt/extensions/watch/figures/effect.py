"""The figure of a setting's effect on validation perplexity and BLEU, such as that of label smoothing (section 5.4)."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nmt import register
from nmt.errors import UserError, quoted, unknown
from nmt.extensions.watch.figure import Figure, FigureRow, settings_of
from nmt.extensions.watch.figures.options import EffectFigureOptions
from nmt.extensions.watch.history import named_runs, read_records
from nmt.extensions.watch.pictures.figures import COLOURS
from nmt.log import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SCORES: Final = {"valid_ppl": "perplexity (lower is better)", "valid_bleu": "BLEU (higher is better)"}
MAY_DIFFER: Final = (
    "seed",
    "output",
    "threads",
    "device",
    "devices",
    "log_every",
    "save_every",
    "keep_last",
    "keep_best",
)


@register("figure", "setting-effect", EffectFigureOptions)
class SettingEffect(Figure):
    """The effect of a setting on validation perplexity and BLEU: a dot per run, and the mean and deviation of its seeds.

    Each run counts with its validation of the highest BLEU, or of the lowest perplexity if it has no BLEU.
    """

    title = "Effect of a setting"
    options: EffectFigureOptions

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        folders, setting = named_runs(names), self.options.compared_setting
        settings = {folder: settings_of(str(folder)) for folder in folders}
        for folder, own in settings.items():
            if setting not in own:
                error = unknown("setting for --compared-setting", setting, own, "nmt train --help")
                raise UserError(f"{quoted(folder)}: {error}")
        values = {str(own[setting]) for own in settings.values()}
        if len(values) < 2:
            raise UserError(
                f"{_runs(len(folders))} with {setting} = {quoted(values.pop())}: to see the effect of {setting}, name runs in "
                "which it differs, or a folder of such runs (nmt sweep trains them)"
            )
        _warn_of_other_differences(setting, list(settings.values()))
        rows = [_row(folder, setting, settings[folder]) for folder in folders]
        if len({row["last_update"] for row in rows}) > 1:
            log.warn("the runs have different numbers of updates (wait until all of them have ended)")
        return sorted(rows, key=lambda row: _rank(row[setting]))

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        setting = next(iter(rows[0]))
        values = list(dict.fromkeys(row[setting] for row in rows))
        scores = [name for name in SCORES if any(row[name] is not None for row in rows)]
        canvas.set_size_inches(4.6 * len(scores), 4)
        canvas.set_layout_engine("constrained")
        canvas.suptitle(f"Effect of {setting.replace('_', ' ')} on validation scores", fontweight="bold")
        for number, (axes, name) in enumerate(
            zip(canvas.subplots(1, len(scores), squeeze=False).flat, scores, strict=True)
        ):
            found = [[row[name] for row in rows if row[setting] == value and row[name] is not None] for value in values]
            for place, points in enumerate(found):
                axes.plot([place] * len(points), points, "o", color=COLOURS[number], alpha=0.4, markersize=6)
            drawn = [place for place, points in enumerate(found) if points]
            means = [statistics.fmean(found[place]) for place in drawn]
            deviations = [statistics.stdev(found[place]) if len(found[place]) > 1 else 0.0 for place in drawn]
            axes.errorbar(
                drawn, means, deviations, color=COLOURS[number], marker="_", markersize=18, capsize=6, linewidth=1.5
            )
            for place, mean in zip(drawn, means, strict=True):
                axes.annotate(f"{mean:.4g}", (place, mean), (12, 4), textcoords="offset points", fontsize=9)
            axes.set(xlabel=setting.replace("_", " "), ylabel=SCORES[name], xlim=(-0.5, len(values) - 0.3))
            axes.set_xticks(
                range(len(values)),
                [f"{value}\n({_runs(len(points))})" for value, points in zip(values, found, strict=True)],
            )
            axes.grid(axis="y", alpha=0.3)
            axes.margins(y=0.2)


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _row(folder: Path, setting: str, values: dict[str, Any]) -> FigureRow:
    """A run's value of the setting, with its best validation. Raises UserError if it has none."""
    validations = [record for record in read_records(folder)[1] if "valid_ppl" in record.values]
    if not validations:
        raise UserError(f"{quoted(folder)}: the run has no validation yet (wait for the first one)")
    best = max(
        validations, key=lambda record: (record.values.get("valid_bleu", -math.inf), -record.values["valid_ppl"])
    )
    scores = {name: best.values.get(name) for name in SCORES}
    value = values[setting]
    given = value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return {
        setting: given,
        "seed": values.get("seed"),
        "run": str(folder),
        "update": best.update,
        "last_update": validations[-1].update,
        **scores,
    }


def _rank(value: float | str) -> tuple[bool, float, str]:
    """A sort key: numbers by size, then texts."""
    return (True, 0.0, value) if isinstance(value, str) else (False, value, "")


def _warn_of_other_differences(setting: str, settings: Sequence[dict[str, Any]]) -> None:
    names = dict.fromkeys(name for values in settings for name in values if name not in (setting, *MAY_DIFFER))
    differing = [name for name in names if len({str(values.get(name)) for values in settings}) > 1]
    if differing:
        log.warn(f"the runs also differ in {', '.join(differing)}, which may be the cause of a different score")
