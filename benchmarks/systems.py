"""Compare the time of presets for each FLOP with that of Transformers of equal FLOPs, in training and in greedy search.

    python benchmarks/systems.py gnmt-small deep-att-small rnnsearch-small [--threads 1] [--rounds 5]

Models are random, and sentences have random tokens of one length. Rounds of all models alternate, and the fastest of each
counts. Time is that of the process, so that other processes disturb it little.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.models.base import Model, Vocabularies, prepared_scorer
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
    """Forward FLOPs of a sentence pair."""
    return int(model.flops(torch.tensor([length]), torch.tensor([length])))


def equal_transformer(model: Model, length: int, vocabulary: int) -> Model:
    """A Transformer with 3+3 layers whose width gives the next number of FLOPs."""

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
def search_once(model: Model, batch: Batch) -> None:
    model.eval()
    scorer = prepared_scorer(model)
    state, tokens = scorer.start(batch.source), batch.target[:, 0]
    for _ in range(batch.source.shape[1]):
        log_probs, state = scorer.step(tokens, state)
        tokens = log_probs.argmax(1)


def fastest(calls: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The least seconds of each call, in alternating rounds."""
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
    parser.add_argument("--length", type=int, default=15, help="tokens of a sentence, EOS counted")
    parser.add_argument("--sentences", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    source, target = torch.randint(EOS + 2, given.vocabulary, (2, given.sentences, given.length + 1))
    target[:, 0] = BOS
    batch = Batch(source[:, 1:], target)
    names = []
    models = []
    for preset in given.presets:
        model = build(preset, given.vocabulary)
        names += [preset, f"transformer equal to {preset}"]
        models += [model, equal_transformer(model, given.length, given.vocabulary)]
    training = fastest([lambda model=model: train_once(model, batch) for model in models], given.rounds)
    search = fastest([lambda model=model: search_once(model, batch) for model in models], given.rounds)
    print(
        "| model | parameters (M) | forward MFLOPs a pair | training: tokens/s | times | search: sentences/s | times |"
    )
    print("|---|---|---|---|---|---|---|")
    tokens = given.sentences * given.length
    for i, (name, model) in enumerate(zip(names, models, strict=True)):
        per_flop = [seconds[i] / flops(model, given.length) for seconds in (training, search)]
        equal = [seconds[i | 1] / flops(models[i | 1], given.length) for seconds in (training, search)]
        times = [one / other for one, other in zip(per_flop, equal, strict=True)]
        millions = f"{model.num_parameters() / 1e6:.1f} | {flops(model, given.length) / 1e6:.0f}"
        rates = f"{tokens / training[i]:,.0f} | {times[0]:.2f} | {given.sentences / search[i]:,.0f} | {times[1]:.2f}"
        print(f"| {name} | {millions} | {rates} |")


if __name__ == "__main__":
    main()
