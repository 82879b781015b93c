"""Measure the cost that each training method adds to an update, alternating with plain training, on one CPU thread.

    python benchmarks/methods.py --source train.en --target train.de [--pairs 4000] [--rounds 3]

Prints the CPU time of an update relative to plain training: the median over the rounds, and their range. The time of a run
with few updates is subtracted from that of one with many, to exclude start and end; making the batches is included.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from nmt.cli.main import run

FEW, MANY = 3, 15  # updates
SETTINGS: Final = (
    "--preset=transformer-tiny",
    "--batch-tokens=2048",
    "--threads=1",
    "--matmul=torch",
    "--valid-every=1000u",
    "--save-every=1000u",
    "--quiet",
)
METHODS: Final = {
    "plain": "",
    "plain again": "",
    "--criterion r-drop": "--criterion=r-drop",
    "--subword-sampling 0.1": "--subword-sampling=0.1",
    "--source-word-dropout 0.1 --target-word-dropout 0.1": "--source-word-dropout=0.1 --target-word-dropout=0.1",
    "--case-noise 0.1 --typo-noise 0.05": "--case-noise=0.1 --typo-noise=0.05",
    "--ema 0.999": "--ema=0.999",
    "--z-loss 1e-4": "--z-loss=1e-4",
    "--criterion guided-alignment": "--criterion=guided-alignment",
    "--criterion unlikelihood": "--criterion=unlikelihood",
    "--criterion distillation": "--criterion=distillation --teacher={model}",
    "--criterion in-place-distillation": "--criterion=in-place-distillation",
    "--lora-rank 8": "--init-from={model} --lora-rank=8",
    "--freeze 'encoder.*'": "--init-from={model} --freeze=encoder.*",
    "--optimizer muon": "--optimizer=muon --lr=1e-3",
    "--optimizer schedule-free": "--optimizer=schedule-free --schedule=constant --lr=1e-3",
}


def checked(*arguments: str) -> None:
    if code := run(list(arguments)):
        raise SystemExit(f"nmt {' '.join(arguments)} ended with code {code}")


def prepare(work: Path, source: Path, target: Path, pairs: int) -> None:
    """Make prepared data, the same with word links, and a model trained for a few updates."""
    for name, path, lang in (("train", source, "en"), ("train", target, "de")):
        with path.open(encoding="utf-8") as lines:
            (work / f"{name}.{lang}").write_text("".join(itertools.islice(lines, pairs)), encoding="utf-8")
    langs = "--source-lang=en", "--target-lang=de"
    text = f"--train={work / 'train'}"
    form = "--normalization=nfkc"
    checked("prepare", *langs, text, "--vocab-size=8000", form, f"--output={work / 'data'}", "--quiet")
    checked(
        "prepare", *langs, text, f"--vocabulary={work / 'data'}", "--align", f"--output={work / 'linked'}", "--quiet"
    )
    checked("train", f"--data={work / 'data'}", f"--output={work / 'first'}", "--max-updates=2", *SETTINGS)
    checked("average", f"--run={work / 'first'}", "--last=1", f"--output={work / 'model'}", "--quiet")


def seconds_per_update(work: Path, flags: list[str], names: "itertools.count[int]") -> float:
    """CPU seconds of an update with these flags."""
    spent, data = [], work / ("linked" if "--criterion=guided-alignment" in flags else "data")
    for updates in (FEW, MANY):
        output = work / f"run{next(names)}"
        before = time.process_time()
        checked("train", f"--data={data}", f"--output={output}", f"--max-updates={updates}", *SETTINGS, *flags)
        spent.append(time.process_time() - before)
    return (spent[1] - spent[0]) / (MANY - FEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(work, given.source, given.target, given.pairs)
        ratios: dict[str, list[float]] = {name: [] for name in METHODS}
        for _ in range(given.rounds):
            spent = {
                name: seconds_per_update(work, flags.format(model=work / "model").split(), names)
                for name, flags in METHODS.items()
            }
            for name, seconds in spent.items():
                ratios[name].append(seconds / spent["plain"])
    print("| method | CPU time per update relative to plain training | range |\n|---|---|---|")
    for name, found in ratios.items():
        print(f"| `{name}` | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} |")


if __name__ == "__main__":
    main()
