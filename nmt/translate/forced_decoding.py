"""Forced decoding: log-probabilities and attention weights of given translations.

`force_decode` steps through the tokens and serves every Scorer; a Model computes all positions at once, which is faster.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.batch import flatten, make_batch, pad_rows
from nmt.data.batching import micro_batches
from nmt.data.encode import LengthFilter
from nmt.device import device_of
from nmt.models.base import Model, Scorer, prepared_scorer
from nmt.signals import StopCheck
from nmt.symbols import BOS, EOS, PAD
from nmt.text.context import DocumentLines
from nmt.text.pipeline import Pipeline
from nmt.text.vocabulary import EncodedTexts
from nmt.translate.results import NOT_FINITE, Failure, ForcedDecoding, PairScore

LOGIT_CHUNK_ROWS: Final = 1024  # logits of more positions never exist at once

Ids = NDArray[Any]


@torch.inference_mode()
def force_decode(
    scorer: Scorer, sources: Sequence[Ids], targets: Sequence[Sequence[int]], temperature: float = 1.0
) -> list[ForcedDecoding]:
    """Step through each target given its source.

    sources, targets: ids without EOS
    temperature: divides the logits of `calibrated`
    """
    device = device_of(scorer)
    source, target = pad_rows(sources).to(device), pad_rows(targets).to(device)  # N S, N T
    scorer = prepared_scorer(scorer)
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
    check: StopCheck = lambda: None,
    advance: Callable[[int], None] = lambda count: None,
) -> list[list[float]]:
    """Nats of the tokens and the EOS of each target given its source.

    sources, targets: ids without EOS
    max_tokens: tokens of a batch, padding counted; a longer pair is a batch of its own
    advance: called after each batch with the number of its pairs
    """
    results: list[list[float]] = [[]] * len(sources)
    for batch in batches_of_pairs(sources, targets, max_tokens):
        check()
        rows = _batch_log_probs(scorer, [sources[i] for i in batch], [targets[i] for i in batch])
        for i, log_probs in zip(batch, rows, strict=True):
            results[i] = log_probs
        advance(len(batch))
    return results


def batches_of_pairs(sources: Sequence[Ids], targets: Sequence[Ids], max_tokens: int) -> list[list[int]]:
    """The numbers of pairs in batches of similar lengths."""
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
    """Log-probabilities (N, V) of LOGIT_CHUNK_ROWS positions at a time, and the tokens of the targets (N,), EOS among them."""
    batch = make_batch(flatten(sources), flatten(targets)).to(device_of(model))
    real = batch.target_output != PAD  # B T
    features, tokens = model(batch).features[real], batch.target_output[real]  # N D, N
    for rows, ids in zip(features.split(LOGIT_CHUNK_ROWS), tokens.split(LOGIT_CHUNK_ROWS), strict=True):
        yield model.log_probs(rows), ids


def encode_pairs(
    pipeline: Pipeline, sources: Sequence[str], targets: Sequence[str], limits: LengthFilter, document: DocumentLines
) -> tuple[EncodedTexts, EncodedTexts]:
    """The ids of pairs of lines, the sources with their contexts; none of a line with too many characters."""
    contexts = list(map(document.context_of, sources))
    source, _ = pipeline.source.encode_in_context(limits.without_long(sources), contexts, limits.max_length)
    return source, pipeline.target.encode_batch(limits.without_long(targets))


def score(
    scorer: Scorer,
    pipeline: Pipeline,
    sources: Sequence[str],
    targets: Sequence[str],
    max_tokens: int,
    max_length: int,
    check: StopCheck = lambda: None,
    advance: Callable[[int], None] = lambda count: None,
    document: DocumentLines | None = None,
) -> list[PairScore | Failure]:
    """The score of each pair of lines, in their order.

    A line without tokens is the sentence of EOS alone, on either side.
    max_tokens, check, advance: see `target_log_probs`; a pair that fails counts too
    max_length: tokens of a line; a pair with a longer one fails, and one that `LengthFilter` finds too long
    document: the sources before these, to which they are added, for a model that reads a context; None, there are none
    """
    limits, document = LengthFilter(max_length=max_length), document or DocumentLines(pipeline.context)
    source, target = encode_pairs(pipeline, sources, targets, limits, document)
    source_ids, target_ids = source.rows(), target.rows()
    lengths = np.maximum(source.lengths, target.lengths)
    is_long = np.array([*map(max, map(len, sources), map(len, targets))], dtype=np.int64) > limits.max_characters
    results: list[PairScore | Failure] = [Failure(f"{length:,} tokens on a side (--max-length)") for length in lengths]
    for i in np.flatnonzero(is_long).tolist():
        results[i] = Failure(f"more than {limits.max_characters:,} characters on a side")
    short = np.flatnonzero((lengths <= max_length) & ~is_long).tolist()
    short_ids = [source_ids[i] for i in short], [target_ids[i] for i in short]
    advance(len(sources) - len(short))
    rows = target_log_probs(scorer, *short_ids, max_tokens, check, advance)
    side = pipeline.target
    for i, row in zip(short, rows, strict=True):
        pieces = [side.piece(token) for token in [*side.in_reading_order(target_ids[i].tolist()), EOS]]
        log_probs = [*side.in_reading_order(row[:-1]), row[-1]]
        results[i] = PairScore(math.fsum(row), pieces, log_probs) if all(map(math.isfinite, row)) else NOT_FINITE
    return results
