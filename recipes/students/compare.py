"""Compare BLEU and sentences per second of several models, each with several engines and searches, on one thread.

    compare.py --source test.en --reference test.de --work FOLDER teacher=MODEL student=MODEL

All are timed alternately in several rounds; a row has the median. --plot FILE.svg (needs matplotlib) adds a figure.
"""

import argparse
import json
import shlex
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from nmt.errors import UserError
from nmt.extensions.watch.pictures.figures import COLOURS, check_matplotlib, render_figure
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.text.corpus import read_lines

WAYS = {  # ways of translating: flags of `nmt translate`
    "built-in engine, beam 5": "--engine torch --beam-size 5",
    "built-in engine, beam 1, int8": "--engine torch --beam-size 1 --precision int8",
    "built-in engine, beam 1, int8, shortlist": "--engine torch --beam-size 1 --precision int8 --shortlist {shortlist}",
    "CTranslate2, beam 5": "--engine ctranslate2 --beam-size 5",
    "CTranslate2, beam 5, int8": "--engine ctranslate2 --beam-size 5 --precision int8",
    "CTranslate2, beam 2, int8": "--engine ctranslate2 --beam-size 2 --precision int8",
    "CTranslate2, beam 1": "--engine ctranslate2 --beam-size 1",
    "CTranslate2, beam 1, int8": "--engine ctranslate2 --beam-size 1 --precision int8",
    "CTranslate2, beam 1, int8, shortlist": "--engine ctranslate2 --beam-size 1 --precision int8 --shortlist {shortlist}",
}


@dataclass
class Row:
    """A model with a way of translating. speeds: sentences per second in each round"""

    model: str
    way: str
    command: list[str]
    output: Path
    bleu: float = 0.0
    speeds: list[float] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)


def rows_of(given: argparse.Namespace) -> list[Row]:
    """A row for each model and way."""
    rows = []
    for named in given.models:
        model, _, folder = named.partition("=")
        for number, (way, flags) in enumerate(WAYS.items()):
            output = given.work / f"{model}.{number}.txt"
            command = [
                *shlex.split(given.nmt),
                "translate",
                f"--model={folder}",
                f"--input={given.source}",
                "--threads=1",
            ]
            command += [
                *shlex.split(flags.format(shortlist=shlex.quote(str(given.shortlist)))),
                *shlex.split(given.search),
            ]
            command += [f"--output={output}", f"--stats={output.with_suffix('.json')}", "--quiet"]
            rows.append(Row(model, way, command, output))
    return rows


def measure(rows: list[Row], rounds: int, reference: list[str], metric: Bleu) -> list[Row]:
    """Translate with each row in turn, several times; returns the rows without those that an engine rejects."""
    refused = []
    for _ in range(rounds):
        for row in (row for row in rows if row not in refused):
            code = subprocess.run(row.command).returncode
            if code == 2:  # such as a model that CTranslate2 cannot run
                refused.append(row)
                continue
            if code:
                raise SystemExit(code)
            row.speeds.append(json.loads(row.output.with_suffix(".json").read_text())["lines_per_second"])
    measured = [row for row in rows if row.speeds]
    for row in measured:
        row.bleu = metric(read_lines(row.output), [reference], None).value
    return measured


def print_table(rows: list[Row]) -> None:
    teacher = rows[0]
    print(f"{'model':<12} {'by':<40} {'BLEU':>6} {'sentences/s':>12} {'by ' + teacher.model:>12}")
    for row in rows:
        ratio = f"{row.speed / teacher.speed:.2f}"
        print(f"{row.model:<12} {row.way:<40} {row.bleu:6.2f} {row.speed:12.1f} {ratio:>12}")


def plot(rows: list[Row], path: Path) -> None:
    """Draw the rows, one colour per model, with speed on a logarithmic axis, and a line through the Pareto-optimal ones."""

    def draw(figure) -> None:  # type: ignore[no-untyped-def]
        figure.set_size_inches(8, 4.5)
        axes = figure.subplots()
        for colour, model in zip(COLOURS, dict.fromkeys(row.model for row in rows), strict=False):
            own = sorted((row.speed, row.bleu) for row in rows if row.model == model)
            best = [(speed, bleu) for i, (speed, bleu) in enumerate(own) if bleu >= max(row[1] for row in own[i:])]
            axes.plot(*zip(*own, strict=True), "o", color=colour)
            axes.plot(*zip(*best, strict=True), "-", color=colour, label=model)
        axes.set_xscale("log")
        for axis_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis_formatter(lambda speed, _: f"{speed:g}" if f"{speed:g}"[0] in "125" else "")
        axes.set_xlabel("sentences per second, one thread")
        axes.set_ylabel("BLEU")
        axes.legend()

    path.write_bytes(render_figure(draw, path.suffix.removeprefix(".")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="NAME=FOLDER; speed ratios are relative to the first")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for translations")
    parser.add_argument("--shortlist", type=Path, required=True)
    parser.add_argument("--nmt", default="nmt")
    parser.add_argument("--search", default="", help="more flags of nmt translate")
    parser.add_argument("--tokenize", default="13a", help="BLEU's tokenizer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    metric = Bleu(BleuOptions(tokenize=given.tokenize))
    try:
        metric.check()
        if given.plot:
            check_matplotlib("--plot")
    except UserError as error:
        raise SystemExit(f"compare.py: error: {error}") from None
    given.work.mkdir(parents=True, exist_ok=True)
    rows = measure(rows_of(given), given.rounds, read_lines(given.reference), metric)
    if not rows:
        raise SystemExit("compare.py: error: no engine runs any of the models")
    print_table(rows)
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
