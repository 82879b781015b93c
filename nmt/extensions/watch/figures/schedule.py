"""The figure of learning-rate schedules, such as equation 3 of "Attention Is All You Need"."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from nmt import register, registry
from nmt.cli.command import DEFAULTS
from nmt.errors import UserError, one_line, quoted
from nmt.extensions.watch.figure import Figure, FigureRow, model_of, settings_of
from nmt.extensions.watch.figures.options import ScheduleFigureOptions
from nmt.extensions.watch.history import is_run, read_records
from nmt.extensions.watch.pictures.figures import COLOURS, LINE_STYLES
from nmt.schedules.base import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NUM_UPDATES: Final = 400  # points of a curve
MAX_DOTS: Final = 20  # recorded learning rates that are drawn
BEHIND: Final = {"color": "white", "alpha": 0.8, "pad": 1}  # keeps a text readable above other curves


@register("figure", "lr-schedule", ScheduleFigureOptions)
class LearningRateSchedule(Figure):
    """The learning rate of each update as its schedule computes it, and as a run has recorded it."""

    title = "Learning-rate schedule"
    options: ScheduleFigureOptions

    def rows(self, names: Sequence[str]) -> list[FigureRow]:
        return [row for name in names for row in self._rows_of(name)]

    def _rows_of(self, name: str) -> list[FigureRow]:
        values = settings_of(name)
        recorded = (
            {record.update: record.values.get("lr") for record in read_records(Path(name))[0]}
            if is_run(Path(name))
            else {}
        )
        limit = values.get("max_updates")
        last = self.options.updates or (limit if isinstance(limit, int) else max(recorded, default=0))
        if last < 2:
            raise UserError(f"{quoted(name)} does not say how many updates it has (add --updates)")
        kind = values.get("schedule", DEFAULTS["schedule"])
        schedule: Schedule = registry.build(registry.choose("schedule", kind, values), model_of(name).width, last)
        label = f"{one_line(name)} ({kind})"
        updates = sorted({*np.linspace(1, last, NUM_UPDATES).round().astype(int).tolist(), *_peak(schedule, last)})
        return [
            {"schedule": label, "update": update, "lr": schedule(update), "recorded_lr": recorded.get(update)}
            for update in updates
        ]

    def draw(self, canvas: "Canvas", rows: Sequence[FigureRow]) -> None:
        labels = list(dict.fromkeys(row["schedule"] for row in rows))
        canvas.set_size_inches(8, 4.4)
        canvas.set_layout_engine("constrained")
        axes = canvas.subplots()
        axes.set_title(self.title, loc="left", fontweight="bold")
        axes.set(xlabel="update", ylabel="learning rate")
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        for number, label in enumerate(labels):
            own = [row for row in rows if row["schedule"] == label]
            colour, style = COLOURS[number % len(COLOURS)], LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)]
            axes.plot(
                [row["update"] for row in own], [row["lr"] for row in own], style, color=colour, label=f" {label}"
            )
            seen = [row for row in own if row["recorded_lr"] is not None]
            dots = seen[:: max(1, len(seen) // MAX_DOTS)]
            if dots:
                points = [row["update"] for row in dots], [row["recorded_lr"] for row in dots]
                axes.plot(*points, "o", color=colour, markersize=4, label=f" {label}, recorded")
            best = max(own, key=lambda row: row["lr"])
            text = f"{best['lr']:.2g} at update {best['update']:,}"
            axes.annotate(
                text, (best["update"], best["lr"]), (6, 0), textcoords="offset points", fontsize=9, bbox=BEHIND
            )
        axes.set_ylim(bottom=0)
        axes.margins(y=0.1)
        axes.legend()


def _peak(schedule: Schedule, last: int) -> list[int]:
    """The update with the highest learning rate, which lies at the end of a warm-up, and its neighbours."""
    low, high = 1, last
    while low < high:  # the learning rate rises up to the peak
        middle = (low + high) // 2
        low, high = (middle + 1, high) if schedule(middle + 1) > schedule(middle) else (low, middle)
    return [update for update in (low - 1, low, low + 1) if 1 <= update <= last]
