"""Print tables of the programs: what each learnt in its CPU hours, and how well it translates.

    compare.py --work WORK --sets heldout newstest2012 --programs nmt eole joeynmt equal

It reads WORK/report.json (nmt report --json), WORK/SET.json (nmt evaluate --json) and the folder of each program.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tables import markdown, runs_of

EOLES_LINE = re.compile(r"Step +(\d+)/.*bsz: +\d+/ *(\d+)/")
EOLES_SIZE = re.compile(r"Trainable parameters = \{'torch.float32': (\d+)\}")
EOLES_PERIOD = 50  # updates between two lines, as in peers.py
Row = list[str]


def trained_by_nmt(work: Path, name: str) -> dict[str, Any]:
    """Updates, target tokens and counted EFLOP of a run of nmt."""
    run = runs_of(work)[name]
    return {"updates": run["update"], "tokens": run["target_tokens"], "eflop": run["eflop"], "size": run["parameters"]}


def trained_by_eole(work: Path) -> dict[str, Any]:
    """As its log says: the mean number of target tokens of each 50 updates."""
    lines = (work / "eole/train.log").read_text().splitlines()
    means = {int(found[1]): int(found[2]) for line in lines if (found := EOLES_LINE.search(line))}
    sizes = [int(found[1]) for line in lines if (found := EOLES_SIZE.search(line))]
    return {
        "updates": max(means, default=0),
        "tokens": EOLES_PERIOD * sum(means.values()),
        "size": sizes[-1] if sizes else None,
    }


def trained_by_joeynmt(work: Path, checkpoint: str) -> dict[str, Any]:
    """As its last checkpoint says."""
    import torch

    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    # A tied weight is listed once for each use.
    weights = {tensor.data_ptr(): tensor.numel() for name, tensor in state["model_state"].items() if ".pe." not in name}
    return {
        "updates": state["stats_state"]["steps"],
        "tokens": state["stats_state"]["total_tokens"],
        "size": sum(weights.values()),
    }


def training_row(work: Path, name: str) -> Row:
    """What a program learnt, and how fast."""
    done = json.loads((work / name / "trained.json").read_text())
    seconds = done["cpu_seconds"]
    if name == "eole":
        facts = trained_by_eole(work)
    elif name == "joeynmt":
        facts = trained_by_joeynmt(work, done["checkpoints"][-1]["checkpoint"])
    else:
        facts = trained_by_nmt(work, name)
    size = f"{facts['size'] / 1e6:.1f}" if facts["size"] else "-"
    counted = f"{1e3 * facts['eflop']:.3f}" if "eflop" in facts else "-"
    tokens = facts["tokens"]
    speed = f"{tokens / seconds:,.0f}" if seconds else "-"
    return [name, size, f"{seconds / 3600:.2f}", f"{facts['updates']:,}", f"{tokens / 1e6:.2f}", speed, counted]


def score_rows(work: Path, name: str, sets: list[str]) -> Row:
    """BLEU and chrF on each set, with the p-value of the difference from the first program."""
    row = [name]
    for test in sets:
        scores = json.loads((work / f"{test}.json").read_text())
        for score in scores:
            if Path(score["system"]).parent.name == name:
                p = score.get("p_value")
                row.append(f"{score['value']:.2f}" + (f" ({p:.3f})" if p is not None else ""))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--programs", nargs="+", required=True)
    given = parser.parse_args()
    titles = ["program", "parameters, M", "CPU hours", "updates", "target tokens, M", "target tokens per CPU second"]
    rows = [training_row(given.work, name) for name in given.programs]
    print("\n".join([*markdown([[*titles, "counted PFLOPs"], *rows]), ""]))
    titles = ["program", *(f"{test}: {metric}" for test in given.sets for metric in ("BLEU", "chrF2"))]
    rows = [score_rows(given.work, name, given.sets) for name in given.programs]
    print("\n".join([*markdown([titles, *rows]), ""]))
    scores = json.loads((given.work / f"{given.sets[0]}.json").read_text())
    print("\n".join(dict.fromkeys(f"{score['metric']}: {score['signature']}" for score in scores)))
    if len(given.programs) > 1:
        print(f"in parentheses: p of the paired bootstrap against {given.programs[0]}")


if __name__ == "__main__":
    main()
