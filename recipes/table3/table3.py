"""Settings, table and figure of the recipe for Table 3 of "Attention Is All You Need".

    table3.py settings ROW --scale 4        prints a settings file: the preset of the row, with all widths divided by the scale
    table3.py table --work WORK [--plot]    prints the table of all finished models; --plot also writes WORK/table3.svg

The model folders are WORK/ROW-SEED; see tables.py for their files.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import registry
from nmt.extensions.watch.pictures.figures import render_figure
from nmt.options import toml_line

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tables import cost_of, difference, markdown, mean, perplexity_of, read, runs_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = "base"


class Published(NamedTuple):
    """A row of the paper's Table 3: its preset, what it varies, and the perplexity and BLEU on newstest2013."""

    preset: str
    change: str
    perplexity: float
    bleu: float


ROWS = {
    BASE: Published("transformer-base", "", 4.92, 25.8),
    "a-h1": Published("table3-a-h1", "(A) 1 head", 5.29, 24.9),
    "a-h4": Published("table3-a-h4", "(A) heads / 2", 5.00, 25.5),
    "a-h16": Published("table3-a-h16", "(A) heads x 2", 4.91, 25.8),
    "a-h32": Published("table3-a-h32", "(A) heads x 4", 5.01, 25.4),
    "b-dk16": Published("table3-b-dk16", "(B) d_k / 4", 5.16, 25.1),
    "b-dk32": Published("table3-b-dk32", "(B) d_k / 2", 5.01, 25.4),
    "c-n2": Published("table3-c-n2", "(C) 2 layers", 6.11, 23.7),
    "c-n4": Published("table3-c-n4", "(C) 4 layers", 5.19, 25.3),
    "c-n8": Published("table3-c-n8", "(C) 8 layers", 4.88, 25.5),
    "c-d256": Published("table3-c-d256", "(C) d_model / 2", 5.75, 24.5),
    "c-d1024": Published("table3-c-d1024", "(C) d_model x 2", 4.66, 26.0),
    "c-ff1024": Published("table3-c-ff1024", "(C) d_ff / 2", 5.12, 25.4),
    "c-ff4096": Published("table3-c-ff4096", "(C) d_ff x 2", 4.75, 26.2),
    "d-dropout0": Published("table3-d-dropout0", "(D) dropout 0", 5.77, 24.6),
    "d-dropout2": Published("table3-d-dropout2", "(D) dropout 0.2", 4.95, 25.5),
    "d-smoothing0": Published("table3-d-smoothing0", "(D) label smoothing 0", 4.67, 25.3),
    "d-smoothing2": Published("table3-d-smoothing2", "(D) label smoothing 0.2", 5.47, 25.7),
    "e-learned": Published("table3-e-learned", "(E) learned positions", 4.92, 25.7),
    "big": Published("transformer-big", "big, 3 x updates", 4.33, 26.4),
}
WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
VARIED = (*WIDTHS, "encoder_layers", "decoder_layers", "heads", "dropout", "label_smoothing", "positions")


def settings_of(preset: str, scale: int) -> dict[str, Any]:
    """The settings of a preset that Table 3 varies. scale: divides all widths, which must be multiples of it"""
    settings = {name: value for name, value in registry.find_preset(preset).values.items() if name in VARIED}
    for name in WIDTHS:
        if settings.get(name, 0) % scale:
            raise SystemExit(
                f"table3.py: {preset}: {name} is {settings[name]}, which is no multiple of the scale {scale}"
            )
        if name in settings:
            settings[name] //= scale
    return settings


def finished(work: Path) -> dict[str, list[Path]]:
    """The folders of the finished models of each row, one per seed."""
    found = {name: sorted(file.parent for file in work.glob(f"{name}-[0-9]*/test.json")) for name in ROWS}
    return {name: folders for name, folders in found.items() if folders}


def scores_of(folders: Sequence[Path], part: str) -> list[float]:
    return [read(folder / f"{part}.json")[0]["value"] for folder in folders]


def table_of(work: Path) -> list[str]:
    """The lines of the table and the signature of its scores."""
    runs, signatures = runs_of(work), set()
    rows = [
        [
            *(
                "row",
                "change",
                "parameters, M",
                "perplexity: paper",
                "here",
                "BLEU: paper",
                "development set",
                "test set",
            ),
            *("against base", "seeds", "target tokens, M", "counted PFLOPs", "CPU minutes"),
        ]
    ]
    for name, folders in finished(work).items():
        published = ROWS[name]
        signatures |= {read(folder / "test.json")[0]["signature"] for folder in folders}
        cost = cost_of([folders[0].name], work, runs)
        rows.append(
            [
                *(
                    name,
                    published.change,
                    f"{runs[folders[0].name]['parameters'] / 1e6:.2f}",
                    f"{published.perplexity:.2f}",
                ),
                *(mean([perplexity_of(folder / "run") for folder in folders], 2), f"{published.bleu:.1f}"),
                *(mean(scores_of(folders, part), 2) for part in ("valid", "test")),
                *(difference(folders, BASE), str(len(folders)), f"{cost.tokens / 1e6:.2f}", f"{cost.eflop * 1e3:.3f}"),
                f"{cost.seconds / 60:.0f}",
            ]
        )
    return [*markdown(rows), "", *(f"`{signature}`" for signature in sorted(signatures))]


def draw(figure: "Figure", work: Path) -> None:
    """Draw each row's difference in BLEU from the base model: in the paper, and here on the development set."""
    models = finished(work)
    averages = {name: sum(scores_of(of, "valid")) / len(of) for name, of in models.items()}
    figure.set_size_inches(7, 5)
    axes = figure.add_subplot()
    for name, average in averages.items():
        point = ROWS[name].bleu - ROWS[BASE].bleu, average - averages[BASE]
        axes.plot(*point, "o", color="#0072b2")
        axes.annotate(name, point, xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set_xlabel("BLEU minus that of the base model, in the paper (newstest2013)")
    axes.set_ylabel("the same here (development set)")
    figure.tight_layout()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    settings = commands.add_parser("settings", help="print the settings of a row")
    settings.add_argument("row", choices=ROWS)
    settings.add_argument("--scale", type=int, default=4)
    table = commands.add_parser("table", help="print the table of all finished models")
    table.add_argument("--work", type=Path, required=True)
    table.add_argument("--plot", action="store_true", help="also write WORK/table3.svg")
    given = parser.parse_args(arguments)
    if given.command == "settings":
        for name, value in settings_of(ROWS[given.row].preset, given.scale).items():
            print(toml_line(name, value))
        return
    print("\n".join(table_of(given.work)))
    if given.plot:
        (given.work / "table3.svg").write_bytes(render_figure(lambda figure: draw(figure, given.work), "svg"))


if __name__ == "__main__":
    main()
