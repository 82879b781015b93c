"""Compare complete updates of this checkout with those of another: CPU time, peak memory and losses.

    python benchmarks/updates.py OTHER [--preset gnmt-small ...] [--criterion r-drop] [--rounds 20] [--tokens 1000]

Each checkout is a process that holds the same model with the same random weights, without dropout, and trains it by Adam on
the same random sentences of 5 to 45 tokens. In each round both make the same update on one thread; they alternate in
going first. Time is CPU time, so that other work on the machine matters less; the ratio is the median of this checkout's
time divided by the other's. Memory is each process's peak resident size minus that before its first update.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def serve(preset: str, criterion_name: str, vocabulary: int, tokens: int, precision: str) -> None:
    """Make an update for each line of stdin, and print its CPU seconds, its loss and the memory so far in MB."""
    import torch

    from nmt import registry
    from nmt.batch import pad_rows
    from nmt.criteria.base import Batch, CriterionContext
    from nmt.device import keep_pages
    from nmt.models.base import Vocabularies
    from nmt.optimizers.base import parameter_groups
    from nmt.symbols import BOS, EOS, SYMBOLS

    torch.set_num_threads(1)
    keep_pages()
    torch.manual_seed(1)
    values = {**registry.find_preset(preset).values, "dropout": 0.0, "attention_dropout": 0.0}
    values["criterion"] = criterion_name or values["criterion"]
    model = registry.build(
        registry.choose("model", str(values["model"]), values), Vocabularies(vocabulary, vocabulary, True)
    )
    context: Any = CriterionContext(None, model)  # type: ignore[arg-type]  # no criterion here reads text
    criterion = registry.build(registry.choose("criterion", str(values["criterion"]), values), context)
    optimizer = registry.build(registry.choose("optimizer", "adam"), parameter_groups(model))
    for group in optimizer.param_groups:
        group["lr"] = 1e-4

    def sentences(longest: int) -> Batch:
        words = torch.randint(len(SYMBOLS), vocabulary, (2, tokens // longest, longest - 1)).tolist()
        source, target = ([row[: longest - 1 - i % 5] for i, row in enumerate(side)] for side in words)
        return Batch(pad_rows([(*row, EOS) for row in source]), pad_rows([(BOS, *row, EOS) for row in target]))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in sys.stdin:
        batch = sentences(int(torch.randint(10, 46, ())))
        start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = criterion(model.train(), batch)
        total = torch.stack([term.total / term.count for term in loss.trained.values()]).sum()
        total.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.process_time() - start
        megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(json.dumps([seconds, float(total.detach()), megabytes]), flush=True)


def process(checkout: Path, arguments: list[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--serve", *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(of: "subprocess.Popen[str]") -> list[float]:
    assert of.stdin is not None and of.stdout is not None
    of.stdin.write("\n")
    of.stdin.flush()
    numbers: list[float] = json.loads(of.stdout.readline())
    return numbers


def compare(other: Path, arguments: list[str], rounds: int) -> tuple[str, ...]:
    """The cells of a row: the ratio with its quartiles, the other's milliseconds, memory of both, difference of losses."""
    ours, theirs = process(ROOT, arguments), process(other, arguments)
    both: dict[bool, list[list[float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        for is_ours in (True, False) if number % 2 else (False, True):
            both[is_ours].append(answer(ours if is_ours else theirs))
    for each in (ours, theirs):
        each.communicate()
    ratios = [one[0] / other[0] for one, other in zip(both[True][1:], both[False][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    milliseconds = 1000 * statistics.median(numbers[0] for numbers in both[False][1:])
    differences = [abs(one[1] / other[1] - 1) for one, other in zip(both[True], both[False], strict=True)]
    memory = (f"{both[side][-1][2]:,.0f}" for side in (False, True))
    return f"{middle:.3f}", f"{low:.2f} to {high:.2f}", f"{milliseconds:,.0f}", *memory, f"{differences[-1]:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="folder of the other checkout")
    parser.add_argument("--preset", nargs="+", default=["gnmt-small"], help="presets, one row each")
    parser.add_argument("--criterion", default="", help="replaces the criterion of the preset")
    parser.add_argument("--vocabulary", type=int, default=10_000, help="size of the joint vocabulary")
    parser.add_argument("--tokens", type=int, default=1000, help="target tokens per update")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.preset[0], given.criterion, given.vocabulary, given.tokens, given.precision)
        return
    if given.other is None:
        parser.error("name the folder of another checkout")
    print(
        "| preset | CPU time, the other's is 1 | quartiles | the other's ms | the other's MB | MB | difference of losses |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for preset in given.preset:
        same = [f"--{name}={vars(given)[name]}" for name in ("criterion", "vocabulary", "tokens", "precision")]
        cells = compare(given.other, [f"--preset={preset}", *same], given.rounds)
        print(f"| `{preset}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
