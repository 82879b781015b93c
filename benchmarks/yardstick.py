"""Measure plain PyTorch with the same model, data and batches as `nmt train`, which must be faster.

    python benchmarks/yardstick.py --data DATA --size base|tiny [--updates 10] [--precision fp32|bf16] [--threads 2]

torch.nn.Transformer with a shared embedding, cross_entropy over all logits at once, Adam; an update runs
the micro-batches of nmt one after the other. Prints the median target tokens per second, without padding, and the peak
memory, as JSON.
"""

import argparse
import json
import math
import resource
import statistics
import time
from pathlib import Path

import torch
from shapes import SHAPES
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, linear

from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.data.shards import PreparedData
from nmt.plans.corpus import CorpusPlan
from nmt.positions.sinusoidal import sinusoids
from nmt.symbols import PAD

WARM = 2  # warmup updates before the timed ones


class Plain(nn.Module):
    def __init__(self, size: str, vocabulary: int) -> None:
        super().__init__()
        shape = SHAPES[size]
        self.width, heads = shape["d_model"], shape["heads"]
        self.embedding = nn.Embedding(vocabulary, self.width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5)
        layers = shape["encoder_layers"], shape["decoder_layers"]
        self.body = nn.Transformer(self.width, heads, *layers, shape["d_ff"], dropout=0.1, batch_first=True)
        self.register_buffer("positions", sinusoids(512, self.width, "sinusoidal"))

    def embed(self, ids: Tensor) -> Tensor:
        return dropout(self.embedding(ids) * math.sqrt(self.width) + self.positions[: ids.shape[1]], 0.1, self.training)

    def forward(self, source: Tensor, given: Tensor, wanted: Tensor) -> Tensor:
        padding = source == PAD
        ahead = nn.Transformer.generate_square_subsequent_mask(given.shape[1], dtype=torch.bool)
        how = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": ahead}
        states = self.body(self.embed(source), self.embed(given), tgt_is_causal=True, **how)
        logits = linear(states, self.embedding.weight)
        return cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", choices=SHAPES, required=True)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    data = PreparedData(given.data)
    model = Plain(given.size, data.pipeline.source.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.98), fused=True)
    speeds = []
    updates = Loader(CorpusPlan(None, data.train, given.batch_tokens, 1), given.batch_tokens).updates(Position())
    for number, update in zip(range(WARM + given.updates), updates, strict=False):
        began = time.perf_counter()
        for batch in update.batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=given.precision == "bf16"):
                loss = model(batch.source, batch.target_input, batch.target_output)
            (loss / update.tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number >= WARM:
            speeds.append(update.tokens / (time.perf_counter() - began))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"speed": statistics.median(speeds), "peak": peak}))


if __name__ == "__main__":
    main()
