"""Log-probabilities of given translations: forced decoding, all positions at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.batch import Batch
from nmt.data.batching import micro_batches
from nmt.data.loader import padded
from nmt.models.base import Model
from nmt.symbols import BOS, EOS
from nmt.text.pipeline import Pipeline


@dataclass(frozen=True)
class PairScore:
    """log_prob: nats, of all target tokens and EOS; pieces: the target's tokens, EOS last; log_probs: nats of each."""

    log_prob: float
    pieces: list[str]
    log_probs: list[float]


@torch.inference_mode()
def score(
    model: Model, pipeline: Pipeline, sources: Sequence[str], targets: Sequence[str], max_tokens: int
) -> list[PairScore]:
    """The score of each pair of lines, in their order. max_tokens: cells of a batch, padding counted."""
    device = next(model.parameters()).device
    source_ids = [np.asarray(ids) for ids in pipeline.source.encode_batch(sources)]
    target_ids = [np.asarray(ids) for ids in pipeline.target.encode_batch(targets)]
    source_lengths = np.array([len(ids) for ids in source_ids])
    target_lengths = np.array([len(ids) for ids in target_ids])
    results: dict[int, PairScore] = {}
    order = np.lexsort((source_lengths, target_lengths))
    for indices in micro_batches([order], source_lengths, target_lengths, max_tokens):
        batch = Batch(
            padded([source_ids[i] for i in indices], []).to(device),
            padded([target_ids[i] for i in indices], [BOS]).to(device),
        )
        log_probs = torch.log_softmax(model.output(model(batch).features).float(), dim=-1)  # B T V
        words = log_probs.gather(2, batch.target_output[:, :, None]).squeeze(2).cpu()  # B T
        for i, row in zip(indices.tolist(), words, strict=True):
            values = row[: target_lengths[i] + 1].tolist()
            pieces = [pipeline.target.piece(token) for token in [*target_ids[i].tolist(), EOS]]
            results[i] = PairScore(float(np.sum(values)), pieces, values)
    return [results[i] for i in range(len(sources))]
