"""Compare presets with Transformers of equal FLOPs: time per FLOP in training and in greedy search.

    python benchmarks/systems.py gnmt-small deep-att-small rnnsearch-small [--threads 1] [--rounds 5]

Models are random; sentences have random tokens and equal length. Rounds of all models alternate, and the fastest round of
each counts. Time is CPU time, so that other processes affect it little.

--positions 16 64 256 adds a table with the time of a search step at those positions, and the time of reading all target
tokens up to there again, as a search without incremental states would do at each step.

--data DATA prints only another table: each preset is trained on prepared data for --minutes, at the same time as a Transformer
with nearly the same number of parameters, each on one thread. The table has the tokens per second, and the minutes until both
reach the same validation perplexity: the higher one of their last. Validations do not count.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.models.base import Model, Vocabularies, scorer_for_search
from nmt.options import make
from nmt.symbols import BOS, EOS

VALID_MINUTES: Final = 0.5
SETTINGS: Final = "--batch-tokens 500 --dropout 0.1 --label-smoothing 0.1"  # the learning rate is each preset's own


def build(preset: str, vocabulary: int, **changed: Any) -> Model:
    """The model of a preset with random weights."""
    values = {**registry.find_preset(preset).values, **changed}
    entry = registry.find("model", values["model"])
    model: Model = entry.cls(make(entry.options, values), Vocabularies(vocabulary, vocabulary, True))
    return model


def flops(model: Model, length: int) -> int:
    """Forward FLOPs per sentence pair."""
    return int(model.flops(torch.tensor([length]), torch.tensor([length])))


def equal_transformer(model: Model, size: Callable[[Model], int], vocabulary: int) -> dict[str, int]:
    """The options of a Transformer with 3+3 layers and the width that gives the closest size."""

    def difference(sizes: dict[str, int]) -> int:
        return abs(size(build("transformer-base", vocabulary, **sizes)) - size(model))

    layers = {"encoder_layers": 3, "decoder_layers": 3, "heads": 4}
    return min(({**layers, "d_model": width, "d_ff": 4 * width} for width in range(64, 513, 32)), key=difference)


def train_once(model: Model, batch: Batch) -> None:
    model.train()
    criterion = CrossEntropy(CrossEntropyOptions(), CriterionContext(None, model))
    criterion(model, batch).trained["loss"].total.backward()
    model.zero_grad()


@torch.inference_mode()
def search_once(model: Model, batch: Batch, steps: int) -> list[float]:
    """Run a greedy search; returns the seconds of each step."""
    model.eval()
    scorer = scorer_for_search(model)
    state, tokens, seconds = scorer.start(batch.source), batch.target[:, 0], []
    for _ in range(steps):
        start = time.process_time()
        log_probs, state = scorer.step(tokens, state)
        tokens = log_probs.argmax(1)
        seconds.append(time.process_time() - start)
    return seconds


@torch.inference_mode()
def read_once(model: Model, batch: Batch) -> None:
    """Read source and target, for the log-probabilities of the last position."""
    model.eval()
    model.log_probs(model(batch).features[:, -1])


def random_batch(sentences: int, length: int, vocabulary: int) -> Batch:
    source, target = torch.randint(EOS + 2, vocabulary, (2, sentences, length + 1))
    target[:, 0] = BOS
    return Batch(source[:, 1:], target)


def fastest(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The minimum seconds of each call, in alternating rounds."""
    seconds = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            seconds[i] = min(seconds[i], time.process_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=15, help="tokens per sentence, including EOS")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--positions", type=int, nargs="*", default=[], help="positions in the second table")
    parser.add_argument("--data", type=Path, help="prepared data; trains instead")
    parser.add_argument("--minutes", type=float, default=4.5, help="per pair of trainings")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.data:
        print_trainings(given.presets, given.data, given.minutes)
        return
    models: dict[str, Model] = {}
    for preset in given.presets:
        models[preset] = build(preset, given.vocabulary)
        sizes = equal_transformer(models[preset], lambda model: flops(model, given.length), given.vocabulary)
        models[f"transformer equal to {preset}"] = build("transformer-base", given.vocabulary, **sizes)
    print_speeds(models, random_batch(given.sentences, given.length, given.vocabulary), given.rounds)
    if given.positions:
        print_growth(models, given.positions, given.vocabulary, given.rounds)


def print_speeds(models: Mapping[str, Model], batch: Batch, rounds: int) -> None:
    """models: each preset's, followed by its Transformer"""
    sentences, length = batch.source.shape
    training = fastest([lambda model=model: train_once(model, batch) for model in models.values()], rounds)
    search = fastest([lambda model=model: search_once(model, batch, length) for model in models.values()], rounds)
    per_flop = [
        [seconds / flops(model, length) for seconds, model in zip(timed, models.values(), strict=True)]
        for timed in (training, search)
    ]
    print(
        "| model | parameters (M) | forward MFLOPs a pair | training, tokens/s | times | search, sentences/s | times |"
    )
    print("|---|---|---|---|---|---|---|")
    for i, (name, model) in enumerate(models.items()):
        times = [seconds[i] / seconds[i | 1] for seconds in per_flop]
        millions = f"{model.num_parameters() / 1e6:.1f} | {flops(model, length) / 1e6:.0f}"
        rates = (
            f"{sentences * length / training[i]:,.0f} | {times[0]:.2f} | {sentences / search[i]:,.0f} | {times[1]:.2f}"
        )
        print(f"| {name} | {millions} | {rates} |")


def print_growth(models: Mapping[str, Model], positions: Sequence[int], vocabulary: int, rounds: int) -> None:
    """Print the minimum milliseconds of a step at each position, for 8 sentences, and of reading all positions up to there."""
    batch = random_batch(8, max(positions), vocabulary)
    print(f"\n| model | {' | '.join(f'step {n}, ms | reading {n}, ms' for n in positions)} |")
    print("|---|" + "---|---|" * len(positions))
    for name, model in models.items():
        searches = [search_once(model, batch, max(positions)) for _ in range(rounds)]
        steps = [min(seconds for search in searches for seconds in search[n - 8 : n]) for n in positions]
        cut = [Batch(batch.source, batch.target[:, : n + 1]) for n in positions]
        readings = fastest([lambda model=model, part=part: read_once(model, part) for part in cut], rounds)
        cells = " | ".join(
            f"{1e3 * step:.2f} | {1e3 * reading:.1f}" for step, reading in zip(steps, readings, strict=True)
        )
        print(f"| {name} | {cells} |")


class Training(NamedTuple):
    """A training. seconds: without validations; eflop: counted; perplexities: of the validations, VALID_MINUTES apart"""

    name: str
    parameters: int
    target_tokens: int
    seconds: float
    eflop: float
    perplexities: list[float]

    def minutes_to(self, perplexity: float) -> float:
        """The minutes until a validation perplexity is reached, interpolated on its logarithm; infinity if it is not."""
        for number, (before, after) in enumerate(pairwise(self.perplexities), 1):
            if before > perplexity >= after:
                return VALID_MINUTES * (number + math.log(before / perplexity) / math.log(before / after))
        return VALID_MINUTES if self.perplexities[0] <= perplexity else math.inf


def train_pair(preset: str, data: Path, minutes: float) -> list[Training]:
    """Train a preset and its Transformer at the same time."""
    vocabulary = json.loads((data / "report.json").read_text())["vocabulary"]["target"]
    model = build(preset, vocabulary)
    sizes = equal_transformer(model, Model.num_parameters, vocabulary)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]
    wanted = {preset: [f"--preset={preset}"], "its Transformer": ["--preset=transformer-small", *flags]}
    models = model, build("transformer-small", vocabulary, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "nmt",
            "train",
            f"--data={data}",
            f"--max-minutes={minutes}",
        ]
        command += [
            *SETTINGS.split(),
            f"--valid-every={VALID_MINUTES}m",
            "--no-valid-bleu",
            "--best-by=loss",
            "--threads=1",
        ]
        command += ["--save-every=1000000u", "--quiet"]
        running = [
            subprocess.Popen([*command, f"--output={folder}/{number}", *own])
            for number, own in enumerate(wanted.values())
        ]
        if any([one.wait() for one in running]):
            raise SystemExit("systems.py: error: a training failed")
        return [
            read_training(Path(folder, str(number)), name, model.num_parameters())
            for number, (name, model) in enumerate(zip(wanted, models, strict=True))
        ]


def read_training(run: Path, name: str, parameters: int) -> Training:
    """The training up to its last validation that the clock caused."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = {record["update"]: record["valid_ppl"] for record in records if "valid_ppl" in record}
    last = max(update for update in validations if update < records[-1]["update"] or len(validations) == 1)
    updates = [record for record in records if "target_tokens" in record and record["update"] <= last]
    perplexities = [perplexity for update, perplexity in validations.items() if update <= last]
    tokens = sum(record["target_tokens"] for record in updates)
    return Training(
        name, parameters, tokens, 60 * VALID_MINUTES * len(perplexities), updates[-1]["eflop"], perplexities
    )


def print_trainings(presets: Sequence[str], data: Path, minutes: float) -> None:
    print(
        "| model | parameters (M) | MFLOPs per target token | target tokens/s | GFLOP/s | perplexity | after, minutes | ",
        end="",
    )
    print("minutes to the same perplexity | times |\n" + "|---" * 9 + "|")
    for preset in presets:
        pair = train_pair(preset, data, minutes)
        same = max(one.perplexities[-1] for one in pair)
        for one in pair:
            cells = [
                one.name,
                f"{one.parameters / 1e6:.1f}",
                f"{1e12 * one.eflop / one.target_tokens:.1f}",
                f"{one.target_tokens / one.seconds:,.0f}",
                f"{1e9 * one.eflop / one.seconds:.1f}",
                f"{one.perplexities[-1]:.1f}",
                f"{one.seconds / 60:g}",
                f"{one.minutes_to(same):.2f} to {same:.1f}",
                f"{one.minutes_to(same) / pair[1].minutes_to(same):.2f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
