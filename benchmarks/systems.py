"""Compare presets with Transformers of equal FLOPs: time per FLOP in training and in greedy search.

    python benchmarks/systems.py gnmt-small deep-att-small rnnsearch-small [--threads 1] [--rounds 5]

Models are random; sentences have random tokens and equal length. Rounds of all models alternate, and the fastest round of
each counts. Time is CPU time, so that other processes affect it little.

--positions 16 64 256 adds a table with the time of a search step at those positions, and the time of reading all target
tokens up to there again, as a search without incremental states would do at each step.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.models.base import Model, Vocabularies, scorer_for_search
from nmt.symbols import BOS, EOS


def build(preset: str, vocabulary: int, **changed: Any) -> Model:
    """The model of a preset with random weights."""
    values = {**registry.find_preset(preset).values, **changed}
    entry = registry.find("model", values["model"])
    own = {field.name for field in fields(entry.options)}
    options = entry.options(**{name: value for name, value in values.items() if name in own})
    model: Model = entry.cls(options, Vocabularies(vocabulary, vocabulary, True))
    return model


def flops(model: Model, length: int) -> int:
    """Forward FLOPs per sentence pair."""
    return int(model.flops(torch.tensor([length]), torch.tensor([length])))


def equal_transformer(model: Model, length: int, vocabulary: int) -> Model:
    """A Transformer with 3+3 layers and the width that gives the closest number of FLOPs."""

    def transformer(width: int) -> Model:
        sizes = {"encoder_layers": 3, "decoder_layers": 3, "d_model": width, "d_ff": 4 * width, "heads": 4}
        return build("transformer-base", vocabulary, **sizes)

    return min(map(transformer, range(64, 513, 32)), key=lambda other: abs(flops(other, length) - flops(model, length)))


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
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    models: dict[str, Model] = {}
    for preset in given.presets:
        models[preset] = build(preset, given.vocabulary)
        models[f"transformer equal to {preset}"] = equal_transformer(models[preset], given.length, given.vocabulary)
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


if __name__ == "__main__":
    main()
