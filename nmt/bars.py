"""Progress bars of rich: label, bar, count, speed and estimated time left."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class SpeedColumn(ProgressColumn):
    """The speed of a task in its unit a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        unit = task.fields["unit"]
        if speed is None:
            return Text(f"{unit}", style="progress.data.speed")
        return Text(f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.2g} {unit}/s", style="progress.data.speed")


def new_bars(console: Console) -> Progress:
    """Bars that leave the screen when they are stopped. stdout is left alone: it may be a file of results."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
    )
