"""Measure the gain of each optimisation on this CPU: updates with and without it alternate in one process.

    python benchmarks/steps.py --data DATA [--preset transformer-base ...] [--rounds 8] [--threads 2]

Each round makes the same update twice, with the optimisation and with the plain version in its place, in alternating
order, each after an untimed micro-batch; the gain is the median of the ratios. Products are computed as nmt train
would choose here. The last row disables all optimisations together, except bf16 and batching by length.
"""

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

import torch
from shapes import SHAPES
from torch import Tensor
from torch.nn import functional

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.data.loader import Loader, UpdateBatches, to_batch
from nmt.data.plan import Position
from nmt.data.shards import PreparedData
from nmt.device import keep_pages
from nmt.dist import World
from nmt.extensions.fast.nn import products
from nmt.extensions.fast.training_speedups.matmul import product_sizes
from nmt.models.base import Model, Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.nn import matmul
from nmt.options import make
from nmt.plans.corpus import CorpusPlan
from nmt.symbols import PAD
from nmt.train.parallel import Objective
from nmt.train.update import Updater

# glibc's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_MAX, as glibc sets them after freeing large blocks
GLIBCS: Final = {-3: 32 << 20, -1: 64 << 20, -2: 128 << 10, -4: 1 << 16}
ENDLESS: Final = 1 << 60
Undo = Callable[[], AbstractContextManager[object]]


@contextmanager
def pages_given_back() -> Iterator[None]:
    """glibc's malloc with its default settings."""
    libc = ctypes.CDLL(None)
    for number, value in GLIBCS.items():
        libc.mallopt(number, value)
    libc.malloc_trim(0)
    try:
        yield
    finally:
        keep_pages()


def dropout_of_torch(states: Tensor, probability: float, training: bool) -> Tensor:
    return functional.dropout(states, probability, training)


def loss_of_all_logits(self: CrossEntropy, model: Model, batch: Batch) -> Loss:
    total, nll = self.of_logits(model.output(model(batch).features).flatten(0, 1), batch.target_output.flatten())
    count = batch.num_target_tokens
    return Loss({"loss": Term(total, count)}, {"nll": Term(nll.detach(), count)})


@contextmanager
def dropout_by_torch() -> Iterator[None]:
    with ExitStack() as stack:
        for module in ("nmt.models.layers", "nmt.feed_forwards.dense", "nmt.nn.attention", "nmt.models.base"):
            stack.enter_context(patch(f"{module}.dropout", dropout_of_torch))
        yield


@contextmanager
def everything(undone: Iterable[Undo]) -> Iterator[None]:
    with ExitStack() as stack:
        for undo in undone:
            stack.enter_context(undo())
        yield


class Bench:
    """The model and the updates on which all optimisations are measured."""

    def __init__(self, given: argparse.Namespace) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(given.threads)
        keep_pages()
        self.data = PreparedData(given.data)
        pipeline = self.data.pipeline
        options = make(TransformerOptions, {**registry.find_preset(given.preset).values, **sizes(given)})
        self.model = Transformer(options, Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint))
        self.model.train()
        criterion = CrossEntropy(CrossEntropyOptions(), CriterionContext(pipeline, self.model))
        objective = Objective(self.model, criterion)
        self.plain_adam, self.fused_adam = (
            torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fused, foreach=False)
            for fused in (False, True)
        )
        self.updater, self.in_bf16 = (
            Updater(objective, self.fused_adam, World(), precision, 0.0) for precision in ("fp32", "bf16")
        )
        self.plain = Updater(objective, self.plain_adam, World(), "fp32", 0.0)
        self.updates, self.same_updates = (
            Loader(CorpusPlan(None, self.data.train, given.batch_tokens, 1), given.max_tokens).updates(Position())
            for _ in range(2)
        )

    def seconds(self, data: UpdateBatches, updater: Updater) -> float:
        updater(replace(data, batches=data.batches[:1]), 1, ENDLESS, None)
        began = time.perf_counter()
        updater(data, 1, ENDLESS, None)
        return time.perf_counter() - began

    def as_they_come(self, data: UpdateBatches) -> UpdateBatches:
        """Equally many target tokens and micro-batches, with pairs in random order."""
        corpus, random = self.data.train, torch.randint(len(self.data.train), (4 * len(data.target_lengths),))
        lengths = torch.from_numpy(corpus.target_lengths[random.numpy()].astype("int64")) + 1
        chosen = random[: int((lengths.cumsum(0) <= data.tokens).sum())]
        batches = [to_batch(corpus, part.numpy()) for part in chosen.chunk(len(data.batches))]
        tokens = sum(int((batch.target_output != PAD).sum()) for batch in batches)
        return UpdateBatches(batches, 0, tokens, data.source_lengths, data.target_lengths, data.after, False)


def sizes(given: argparse.Namespace) -> dict[str, int]:
    """The sizes for --tiny: the small shape of the benchmarks of other toolkits."""
    return SHAPES["tiny"] if given.tiny else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="transformer-base")
    parser.add_argument("--tiny", action="store_true", help="3 + 3 layers of 256/1024, 4 heads")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    bench = Bench(given)
    undone: dict[str, Undo] = {
        "pages kept by malloc": pages_given_back,
        "dropout by 16-bit draws": dropout_by_torch,
        "short sentences attended to plainly": lambda: patch("nmt.nn.attention.MAX_PLAIN_SCORES", 0),
        "loss and its gradient in one pass over parts of the logits": lambda: patch.object(
            CrossEntropy, "__call__", loss_of_all_logits
        ),
    }
    path, ratio = products.measured(*product_sizes(bench.model))
    matmul.use(products.FastProducts(path))
    print(f"products by {path}: oneDNN is {ratio:.2f} times as fast as torch here\n")
    print("| optimisation | speed with it relative to without |\n|---|---|")

    def told(name: str, ratio: Callable[[UpdateBatches, bool], float]) -> None:
        ratios = [ratio(next(bench.updates), bool(number % 2)) for number in range(given.rounds)]
        print(f"| {name} | {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)

    def without(undo: Undo, plain: Updater, fast: Updater = bench.updater) -> Callable[[UpdateBatches, bool], float]:
        def ratio(data: UpdateBatches, plain_first: bool) -> float:
            found = {}
            for plainly in (plain_first, not plain_first):
                with undo() if plainly else nullcontext():
                    found[plainly] = bench.seconds(data, plain if plainly else fast)
            return found[True] / found[False]

        return ratio

    def by_length(data: UpdateBatches, mixed_first: bool) -> float:
        found, mixed = {}, bench.as_they_come(data)
        for one in (mixed, data) if mixed_first else (data, mixed):
            found[one is mixed] = bench.seconds(one, bench.updater) / one.tokens
        return found[True] / found[False]

    def by_joining(data: UpdateBatches, apart_first: bool) -> float:
        with patch.dict("nmt.data.batching.PADDING_TO_JOIN", cpu=-1):
            apart = next(bench.same_updates)
        found = {}
        for one in (apart, data) if apart_first else (data, apart):
            found[one is apart] = bench.seconds(one, bench.updater)
        return found[True] / found[False]

    told("small groups of like lengths joined", by_joining)  # the first: both loaders are at their start
    for name, undo in undone.items():
        told(name, without(undo, bench.updater))
    told("fused optimizer", without(nullcontext, bench.plain))
    told("batches of like lengths", by_length)
    in_bf16 = bench.in_bf16
    told("products in bf16", without(nullcontext, bench.updater, in_bf16))
    told(
        "products in bf16: rows in multiples of 64",
        without(lambda: patch("nmt.extensions.fast.nn.products.ROW_MULTIPLE", 1), in_bf16, in_bf16),
    )
    told("all but the last three", without(lambda: everything(undone.values()), bench.plain))


if __name__ == "__main__":
    main()
