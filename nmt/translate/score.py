"""Log-probabilities of given translations: forced decoding, all positions at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.batch import flatten, make_batch
from nmt.data.batching import micro_batches
from nmt.models.base import Model
from nmt.symbols import EOS, PAD
from nmt.text.pipeline import Pipeline

ROWS_OF_LOGITS: Final = 1024  # that exist at once


@dataclass(frozen=True)
class PairScore:
    """log_prob: nats, of all target tokens and EOS; pieces: the tokens as they are read, EOS last; log_probs: nats of each."""

    log_prob: float
    pieces: list[str]
    log_probs: list[float]


def score(
    model: Model,
    pipeline: Pipeline,
    sources: Sequence[str],
    targets: Sequence[str],
    max_tokens: int,
    max_length: int,
    check: Callable[[], None],
) -> list[PairScore | str]:
    """The score of each pair of lines, in their order, or why it has none.

    A line without tokens is the sentence of EOS alone, on either side.
    max_tokens: cells of a batch, padding counted; a longer pair is a batch of its own
    max_length: tokens of a line; a pair with a longer one gets no score
    check: called before each batch; may raise to stop
    """
    source, target = pipeline.source.encode_batch(sources), pipeline.target.encode_batch(targets)
    source_ids, target_ids = source.rows(), target.rows()
    longest = np.maximum(source.lengths, target.lengths)
    results: list[PairScore | str] = [f"{length:,} tokens on a side (--max-length)" for length in longest]
    read = np.flatnonzero(longest <= max_length).tolist()
    found = log_probs_of(model, [source_ids[i] for i in read], [target_ids[i] for i in read], max_tokens, check)
    for i, log_probs in zip(read, found, strict=True):
        results[i] = _pair_score(pipeline, target_ids[i].tolist(), log_probs)
    return results


@torch.inference_mode()
def log_probs_of(
    model: Model,
    sources: Sequence[NDArray[Any]],
    targets: Sequence[NDArray[Any]],
    max_tokens: int,
    check: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Nats of the words and the EOS of each target, given its source; both are ids without EOS. The rest: see `score`."""
    source_lengths, target_lengths = (
        np.array([len(row) for row in rows], dtype=np.int64) for rows in (sources, targets)
    )
    results: list[list[float]] = [[]] * len(sources)
    order = np.lexsort((source_lengths, target_lengths))
    for indices in micro_batches([order], source_lengths, target_lengths, max_tokens):
        if len(indices) == 0:
            break
        check()
        words = forced_log_probs(model, [sources[i] for i in indices], [targets[i] for i in indices])
        for i, log_probs in zip(indices.tolist(), words.split((target_lengths[indices] + 1).tolist()), strict=True):
            results[i] = log_probs.tolist()
    return results


def forced_log_probs(model: Model, sources: list[NDArray[Any]], targets: list[NDArray[Any]]) -> Tensor:
    """(N,) nats on the CPU: of each target's words and EOS, one target after the other. Both are ids without EOS."""
    device = next(model.parameters()).device
    batch = make_batch(flatten(sources), flatten(targets)).to(device)
    real = batch.target_output != PAD  # B T
    features, words = model(batch).features[real], batch.target_output[real]  # N D, N
    chunks = zip(features.split(ROWS_OF_LOGITS), words.split(ROWS_OF_LOGITS), strict=True)
    return torch.cat([model.log_probs(rows).gather(1, wanted[:, None]).squeeze(1) for rows, wanted in chunks]).cpu()


def _pair_score(pipeline: Pipeline, target: list[int], log_probs: list[float]) -> PairScore | str:
    if not all(map(math.isfinite, log_probs)):
        return "the model gives no finite probability"
    side, total = pipeline.target, math.fsum(log_probs)
    pieces = [side.piece(token) for token in [*side.in_reading_order(target), EOS]]
    return PairScore(total, pieces, [*side.in_reading_order(log_probs[:-1]), log_probs[-1]])
