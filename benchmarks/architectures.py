"""Measure Transformer options and optimizers on this CPU with one thread, each alternating with the plain model.

    python benchmarks/architectures.py [--rounds 7]

Prints tables of parameters, and of CPU time relative to the plain model (median over the rounds) for an update and for
searches of 25 tokens: 8 sentences with one hypothesis, 8 with four, and one sentence with one. A search consists only of
the steps of the model with its vocabulary. Sentences have 25 random tokens, weights are random.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from nmt import registry
from nmt.batch import Batch
from nmt.extensions.fast.nn.products import transpose_weights
from nmt.models.base import Model, Vocabularies, scorer_for_search
from nmt.optimizers.base import parameter_groups
from nmt.symbols import BOS, EOS, SYMBOLS

V, LENGTH, PAIRS = 8000, 25, 8
PLAIN: Final = {"encoder_layers": 6, "decoder_layers": 6, "d_model": 256, "d_ff": 1024, "heads": 8}
ARCHITECTURES: Final[dict[str, dict[str, Any]]] = {
    "--encoder-layers 10 --decoder-layers 2": {"encoder_layers": 10, "decoder_layers": 2},
    "--decoder-autoregression ssru": {"decoder_autoregression": "ssru"},
    "--decoder-autoregression average-attention": {"decoder_autoregression": "average-attention"},
    "--tie-layers all": {"tie_layers": "all"},
    "--kv-heads 2": {"kv_heads": 2},
    "--kv-heads 1": {"kv_heads": 1},
    "--ffn glu --activation swish --d-ff 683": {"ffn": "glu", "activation": "swish", "d_ff": 683},
    "--norm rms": {"norm": "rms"},
    "--positions rotary": {"positions": "rotary"},
    "--preset transformer-student-tiny": {
        "decoder_layers": 2,
        "d_ff": 1536,
        "decoder_autoregression": "ssru",
    },
}
OPTIMIZERS: Final = ("adamw", "muon", "schedule-free", "adafactor")


def build(options: dict[str, Any]) -> Model:
    torch.manual_seed(1)
    model: Model = registry.build(registry.choose("model", "transformer", PLAIN | options), Vocabularies(V, V, True))
    return model


def pairs(number: int) -> Batch:
    tokens = torch.randint(len(SYMBOLS), V, (2, number, LENGTH), generator=torch.Generator().manual_seed(1))
    end = torch.full((number, 1), EOS)
    return Batch(torch.cat([tokens[0], end], 1), torch.cat([torch.full((number, 1), BOS), tokens[1], end], 1))


def update(model: Model, optimizer: str = "adam") -> Callable[[], None]:
    """An update of a model with cross entropy."""
    batch, steps = pairs(PAIRS), registry.build(registry.choose("optimizer", optimizer), parameter_groups(model))
    for group in steps.param_groups:
        group["lr"] = 1e-4

    def run() -> None:
        logits = model.output(model(batch).features).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, batch.target_output.flatten()).backward()
        steps.step()
        steps.zero_grad(set_to_none=True)

    return run


def search(model: Model, sentences: int, hypotheses: int) -> Callable[[], None]:
    """The steps of a search that reorders its hypotheses at each step."""
    model.eval().requires_grad_(False)
    transpose_weights(model)
    source = pairs(sentences).source
    places = torch.arange(sentences * hypotheses).view(sentences, -1).flip(1).flatten()
    tokens = torch.full((sentences * hypotheses,), len(SYMBOLS))

    @torch.inference_mode()
    def run() -> None:
        scorer = scorer_for_search(model)
        _, state = scorer.step(torch.full((sentences,), BOS), scorer.start(source))
        state.reorder(torch.arange(sentences).repeat_interleave(hypotheses))
        for _ in range(LENGTH - 1):
            _, state = scorer.step(tokens, state)
            state.reorder(places)

    return run


def ratio(one: Callable[[], None], other: Callable[[], None], rounds: int) -> tuple[float, float]:
    """The median ratio of their CPU seconds, measured alternately, and the median seconds of the other."""
    one(), other()
    seconds: dict[Callable[[], None], list[float]] = {one: [], other: []}
    for number in range(rounds):
        for run in (one, other) if number % 2 else (other, one):
            begun = time.process_time()
            run()
            seconds[run].append(time.process_time() - begun)
    ratios = (a / b for a, b in zip(seconds[one], seconds[other], strict=True))
    return statistics.median(ratios), statistics.median(seconds[other])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    kinds: tuple[Callable[[Model], Callable[[], None]], ...] = (
        update,
        lambda model: search(model, PAIRS, 1),
        lambda model: search(model, PAIRS, 4),
        lambda model: search(model, 1, 1),
    )
    print(
        "| options | parameters | update | 8 sentences | 8 sentences, beam 4 | one sentence |\n|---|---|---|---|---|---|"
    )
    plain_seconds: list[list[float]] = [[] for _ in kinds]
    for name, options in ARCHITECTURES.items():
        cells = [f"`{name}`", f"{build(options).num_parameters():,}"]
        for kind, all_seconds in zip(kinds, plain_seconds, strict=True):
            factor, seconds = ratio(kind(build(options)), kind(build({})), rounds)
            cells.append(f"{factor:.2f}")
            all_seconds.append(seconds)
        print(f"| {' | '.join(cells)} |", flush=True)
    cells = [f"{1000 * statistics.median(seconds):,.0f} ms" for seconds in plain_seconds]
    print(f"| plain | {build({}).num_parameters():,} | {' | '.join(cells)} |\n\n| optimizer | update |\n|---|---|")
    for name in OPTIMIZERS:
        factor, _ = ratio(update(build({}), name), update(build({})), rounds)
        print(f"| `{name}` | {factor:.2f} |", flush=True)


if __name__ == "__main__":
    main()
