"""Write a table of a recipe's models: costs, development perplexity and BLEU, and tests against other models.

    tables.py --work runs/ladder --against same-updates -- base=base-1,base-2,base-3 r-drop=r-drop-1 risk=risk-1+base-1

Each row is NAME=FOLDER,FOLDER with one folder of WORK per seed. Folders after a + add their costs: earlier models and texts.
A folder has `run`, `valid.json` and `test.json` (from nmt evaluate), `against-LABEL.json` (from its significance test), and CPU
times (.NAME.cpu, from steps.sh). WORK/report.json is from nmt report.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_TRAINING = (".valid.", ".test.", ".blind.")  # CPU times of these outputs are no part of a model's cost


@dataclass(frozen=True)
class Cost:
    """What a model and the models and texts before it cost. tokens: target tokens; seconds: of one core"""

    tokens: float
    eflop: float
    seconds: float


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def runs_of(work: Path) -> dict[str, dict[str, Any]]:
    """The runs of WORK/report.json, by the path of their folder in WORK."""
    return {Path(run["run"]).parent.relative_to(work).as_posix(): run for run in read(work / "report.json")["runs"]}


def cpu_seconds(folder: Path) -> float:
    """The CPU time of all steps of a folder, except translations of the development and test sets."""
    files = [file for file in folder.glob(".*.cpu") if not file.name.startswith(NOT_TRAINING)]
    return sum(float(word) for file in files for word in file.read_text().split())


def cost_of(folders: Sequence[str], work: Path, runs: dict[str, dict[str, Any]]) -> Cost:
    """The sum of the costs of these folders. A folder without a run, such as that of the texts, has only a CPU time."""
    trained = [runs[folder] for folder in folders if folder in runs]
    seconds = sum(cpu_seconds(work / folder) for folder in folders)
    return Cost(sum(run["target_tokens"] for run in trained), sum(run["eflop"] for run in trained), seconds)


def perplexity_of(run: Path) -> float:
    """The development perplexity of a run at its last validation."""
    records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [float(one["valid_ppl"]) for one in records if "valid_ppl" in one][-1]


def mean(values: Sequence[float], digits: int) -> str:
    """The mean, and with several values their sample standard deviation in parentheses."""
    deviation = f" ({statistics.stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def difference(folders: Sequence[Path], label: str) -> str:
    """The mean difference in BLEU from the models that a row is compared with, and the p-value of each seed."""
    tests = [read(path) for folder in folders if (path := folder / f"against-{label}.json").is_file()]
    if not tests:
        return "-"
    gain = statistics.mean(test[1]["value"] - test[0]["value"] for test in tests)
    chances = ", ".join(f"{test[1]['p_value']:.3f}" for test in tests)
    return f"{gain:+.2f} (p = {chances})"


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; the first row is the header."""
    return [f"| {' | '.join(cells)} |" for cells in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def table_of(work: Path, systems: dict[str, list[list[str]]], labels: Sequence[str]) -> list[str]:
    """The lines of the table and the signature of its scores.

    systems: of each row, for each seed the folder of the model and the folders that add costs
    labels: of the tests
    """
    runs = runs_of(work)
    header = ["model", "seeds", "target tokens, M", "counted PFLOPs", "CPU minutes", "development perplexity"]
    header += ["BLEU, development set", "BLEU, test set", *(f"against {label.replace('-', ' ')}" for label in labels)]
    rows, signatures = [header], set()
    for name, seeds in systems.items():
        folders = [work / one[0] for one in seeds]
        scores = {part: [read(folder / f"{part}.json")[0] for folder in folders] for part in ("valid", "test")}
        signatures |= {score["signature"] for score in scores["test"]}
        costs = [cost_of(one, work, runs) for one in seeds]
        perplexities = [perplexity_of(folder / "run") for folder in folders]
        rows.append(
            [
                name,
                str(len(seeds)),
                f"{statistics.mean(cost.tokens for cost in costs) / 1e6:.2f}",
                f"{statistics.mean(cost.eflop for cost in costs) * 1e3:.3f}",
                f"{statistics.mean(cost.seconds for cost in costs) / 60:.0f}",
                mean(perplexities, 2),
                *(mean([score["value"] for score in scores[part]], 2) for part in ("valid", "test")),
                *(difference(folders, label) for label in labels),
            ]
        )
    return [*markdown(rows), "", *(f"`{signature}`" for signature in sorted(signatures))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--against", nargs="*", default=[], help="labels of significance tests")
    parser.add_argument("rows", nargs="+", metavar="NAME=FOLDER[+FOLDER...][,...]")
    given = parser.parse_args()
    named = [row.partition("=") for row in given.rows]
    systems = {name: [one.split("+") for one in folders.split(",")] for name, _, folders in named}
    print("\n".join(table_of(given.work, systems, given.against)))


if __name__ == "__main__":
    main()
