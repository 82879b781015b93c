"""Forced decoding: log-probabilities and attention weights of given translations.

`force_decode` steps through the tokens and works with every Scorer. `target_log_probs` is faster with a Model, because it
computes all positions at once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt import signals
from nmt.batch import flatten, make_batch, pad_rows
from nmt.data.batching import micro_batches
from nmt.device import device_of
from nmt.models.base import Model, Scorer, scorer_for_search
from nmt.symbols import BOS, PAD

LOGIT_CHUNK_ROWS: Final = 1024  # maximum number of positions with logits in memory at the same time

Ids = NDArray[Any]


@dataclass(frozen=True)
class ForcedDecoding:
    """Log-probabilities and attention of one translation.

    log_probs: log-probability of each token and of EOS, in nats
    calibrated: the same log-probabilities at the model's temperature (nmt score --calibrate)
    weights: attention, (tokens + EOS, source tokens + EOS); None for a Scorer without attention
    """

    log_probs: list[float]
    calibrated: list[float]
    weights: NDArray[np.float32] | None

    @property
    def confidence(self) -> float:
        """The geometric mean of the calibrated probabilities, between 0 and 1."""
        return math.exp(math.fsum(self.calibrated) / len(self.calibrated))


@torch.inference_mode()
def force_decode(
    scorer: Scorer, sources: Sequence[Ids], targets: Sequence[Sequence[int]], temperature: float = 1.0
) -> list[ForcedDecoding]:
    """Step through each target, given its source.

    sources, targets: ids without EOS
    temperature: divisor of the logits for `calibrated`
    """
    device = device_of(scorer)
    source, target = pad_rows(sources).to(device), pad_rows(targets).to(device)  # (N, S), (N, T)
    scorer = scorer_for_search(scorer)
    state = scorer.start(source)
    state.watched = True
    tokens, columns, calibrated, attention = torch.full((len(source),), BOS, device=device), [], [], []
    for step in range(target.shape[1]):
        log_probs, state = scorer.step(tokens, state)
        tokens = target[:, step]
        columns.append(log_probs.gather(1, tokens[:, None]).squeeze(1))
        if temperature != 1:
            calibrated.append((log_probs / temperature).log_softmax(-1).gather(1, tokens[:, None]).squeeze(1))
        if state.attention is not None:
            attention.append(state.attention)
    rows = torch.stack(columns, 1).cpu()
    calibrated_rows = torch.stack(calibrated, 1).cpu() if calibrated else rows
    weights = torch.stack(attention, 1).float().cpu().numpy() if attention else None  # N T S
    return [
        ForcedDecoding(
            rows[number, : len(target_row) + 1].tolist(),
            calibrated_rows[number, : len(target_row) + 1].tolist(),
            None if weights is None else weights[number, : len(target_row) + 1, : len(source_row) + 1],
        )
        for number, (source_row, target_row) in enumerate(zip(sources, targets, strict=True))
    ]


@torch.inference_mode()
def target_log_probs(
    scorer: Scorer,
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    max_tokens: int,
    advance: Callable[[int], None] = lambda count: None,
) -> list[list[float]]:
    """Compute the log-probabilities, in nats, of the tokens and EOS of each target, given its source.

    sources, targets: ids without EOS
    max_tokens: tokens per batch, including padding; a longer pair forms its own batch
    advance: called after each batch with the number of its pairs
    """
    results: list[list[float]] = [[]] * len(sources)
    for batch in batches_of_pairs(sources, targets, max_tokens):
        signals.check()
        rows = _batch_log_probs(scorer, [sources[i] for i in batch], [targets[i] for i in batch])
        for i, log_probs in zip(batch, rows, strict=True):
            results[i] = log_probs
        advance(len(batch))
    return results


def batches_of_pairs(sources: Sequence[Ids], targets: Sequence[Ids], max_tokens: int) -> list[list[int]]:
    """Group pairs of similar lengths into batches. Returns the indices of the pairs in each batch."""
    of_source, of_target = (np.array([len(row) for row in rows], dtype=np.int64) for rows in (sources, targets))
    batches = micro_batches([np.lexsort((of_source, of_target))], of_source, of_target, max_tokens)
    return [batch.tolist() for batch in batches]


def _batch_log_probs(scorer: Scorer, sources: list[Ids], targets: list[Ids]) -> list[list[float]]:
    if not isinstance(scorer, Model):
        return [decoding.log_probs for decoding in force_decode(scorer, sources, [row.tolist() for row in targets])]
    log_probs = [
        rows.gather(1, ids[:, None]).squeeze(1) for rows, ids in log_probs_by_position(scorer, sources, targets)
    ]
    return [row.tolist() for row in torch.cat(log_probs).cpu().split([len(row) + 1 for row in targets])]


def log_probs_by_position(model: Model, sources: list[Ids], targets: list[Ids]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield log-probabilities (N, V) and target tokens (N,), including EOS, for LOGIT_CHUNK_ROWS positions at a time."""
    batch = make_batch(flatten(sources), flatten(targets)).to(device_of(model))
    real = batch.target_output != PAD  # B T
    features, tokens = model(batch).features[real], batch.target_output[real]  # N D, N
    for rows, ids in zip(features.split(LOGIT_CHUNK_ROWS), tokens.split(LOGIT_CHUNK_ROWS), strict=True):
        yield model.log_probs(rows), ids
