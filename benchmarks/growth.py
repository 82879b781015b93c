"""Measure how time and memory of an update grow with its tokens, the width and depth of the model, and sentence length.

    python benchmarks/growth.py [--work runs/growth] [--points 4] [--threads 2]

Each point is `nmt train --dry-run` on generated sentences of equal length: three updates after a first one, or passes over
part of an update if updates are slow. Tables have the measured time and the counted FLOPs, both relative to the first
point: if they differ, work other than matrix products takes the time. Also writes WORK/growth.html with plots.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from nmt.extensions.watch.pictures.figures import Curve, LineChart
from nmt.extensions.watch.pictures.page import html_page

NMT = [sys.executable, "-m", "nmt"]
WORDS: Final = 4000
USUAL: Final = {"batch_tokens": 4096, "width": 256, "depth": 3, "length": 24}
SERIES: Final = {
    "batch_tokens": [1024, 2048, 4096, 8192, 16384],
    "width": [128, 256, 512, 1024],
    "depth": [1, 2, 4, 8],
    "length": [8, 24, 72, 216, 432],
}
LABELS: Final = {
    "batch_tokens": "target tokens of an update",
    "width": "width of the model",
    "depth": "layers of encoder and of decoder",
    "length": "tokens of a sentence",
}


def data_of(work: Path, length: int) -> Path:
    """Make prepared data with sentences of equal length, including EOS."""
    data, text = work / f"data-{length}", work / f"text-{length}"
    if not data.exists():
        chance = random.Random(length)
        rows = max(400, 80_000 // length)
        for side in ("xx", "yy"):
            lines = (" ".join(f"{side}{chance.randrange(WORDS)}" for _ in range(length - 1)) for _ in range(rows))
            Path(f"{text}.{side}").write_text("".join(f"{line}\n" for line in lines))
        asked = ["prepare", "--source-lang=xx", "--target-lang=yy", f"--train={text}", f"--output={data}", "--quiet"]
        subprocess.run([*NMT, *asked, "--tokenizer=none", "--subword=none", "--max-length=0"], check=True)
    return data


def measured(given: argparse.Namespace, point: dict[str, int]) -> dict[str, float]:
    """The result of the dry run for a point."""
    data, width = data_of(given.work, point["length"]), point["width"]
    command = [*NMT, "train", f"--data={data}", f"--output={given.work / 'run'}", "--dry-run", "--json"]
    command += [f"--d-model={width}", f"--d-ff={4 * width}", f"--heads={width // 64}", f"--threads={given.threads}"]
    command += [f"--encoder-layers={point['depth']}", f"--decoder-layers={point['depth']}"]
    command += [f"--batch-tokens={point['batch_tokens']}", "--max-tokens=1000000", "--quiet"]
    told: dict[str, float] = json.loads(subprocess.check_output(command))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/growth"))
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--points", type=int, default=5, help="maximum number of points per series")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    charts = []
    for name in given.series:
        values = SERIES[name][: given.points]
        found = [measured(given, {**USUAL, name: value}) for value in values]
        first = found[0]
        print(
            f"\n| {LABELS[name]} | s an update | GFLOP/s | times the first: time | FLOPs | peak MB |\n"
            + "|---" * 6
            + "|"
        )
        for value, told in zip(values, found, strict=True):
            times = f"{told['seconds'] / first['seconds']:.2f} | {told['flops'] / first['flops']:.2f}"
            speed = told["flops"] / told["seconds"] / 1e9
            print(
                f"| {value:,} | {told['seconds']:.3f} | {speed:.0f} | {times} | {told['memory'] / 1e6:,.0f} |",
                flush=True,
            )
        curves = [
            Curve(label, [(value, told[key] / first[key]) for value, told in zip(values, found, strict=True)])
            for label, key in {"time": "seconds", "counted FLOPs": "flops", "memory": "memory"}.items()
        ]
        charts.append(LineChart(f"an update by {LABELS[name]}", LABELS[name], "times the first", curves).as_svg())
    (given.work / "growth.html").write_text(html_page("How an update grows", charts))


if __name__ == "__main__":
    main()
