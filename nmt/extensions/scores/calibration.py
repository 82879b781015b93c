"""Calibration of a model's probabilities with one temperature (Guo et al., 2017, "On Calibration of Modern Neural Networks").

Each token is predicted from the preceding reference tokens (forced decoding). The confidence is the probability of the most
likely token. The prediction is correct if that token equals the reference token. Dividing log-probabilities by a temperature and
normalizing them again is equivalent to dividing the logits.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nmt import signals
from nmt.data.encode import LengthFilter
from nmt.errors import InputError, UserError
from nmt.log import log
from nmt.models.base import Model
from nmt.text.context import DocumentLines
from nmt.text.pipeline import Pipeline
from nmt.translate.forced_decoding import batches_of_pairs, log_probs_by_position
from nmt.translate.pair_scores import encode_pairs

NUM_BINS: Final = 10
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 10.0
MAX_STEPS: Final = 30  # maximum number of steps; Newton's method needs about five
RELATIVE_TOLERANCE: Final = 1e-4  # relative change of the temperature at which the search stops
MIN_LOG_PROB: Final = -1e4  # used for impossible tokens, because 0 * -inf is NaN

Positions = Iterable[tuple[Tensor, Tensor]]
"""Log-probabilities (N, V) at some positions, and the reference tokens (N,)."""


@dataclass(frozen=True)
class Reliability:
    """How confident a model is at a given temperature, and how often its predictions are correct.

    nll: mean negative log-probability of the reference tokens, in nats
    counts, confidences, rights: for each confidence bin (m / M, (m + 1) / M], the number of tokens, the sum of their confidences,
        and the number of correct predictions
    """

    temperature: float
    nll: float
    counts: Sequence[int]
    confidences: Sequence[float]
    rights: Sequence[int]

    @property
    def ece(self) -> float:
        """The expected calibration error (equation 3): the mean of |accuracy - confidence| over bins, weighted by tokens."""
        differences = (abs(right - confidence) for right, confidence in zip(self.rights, self.confidences, strict=True))
        return math.fsum(differences) / sum(self.counts)


def fit_temperature(positions: Callable[[], Positions]) -> tuple[Reliability, Reliability]:
    """Find the temperature that minimizes the nll, with Newton's method on the inverse temperature, in which the nll is convex.

    The slope shows on which side the minimum lies, so the interval shrinks. A step out of it goes to its midpoint instead.

    positions: function that yields all positions; it is called several times
    returns: the reliability at temperature 1 and at the best temperature between MIN_TEMPERATURE and MAX_TEMPERATURE
    Raises InputError if there are no positions.
    """
    inverse, first = 1.0, None
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(MAX_STEPS):
        found, slope, curvature = _measure(positions(), inverse)
        first = first or found
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        following = inverse - slope / curvature if curvature > 0 else inverse
        if not low <= following <= high:
            following = math.sqrt(low * high)
        is_found = abs(following - inverse) < RELATIVE_TOLERANCE * inverse
        inverse = following
        if is_found:
            break
    assert first is not None
    return first, _measure(positions(), inverse)[0]


def _measure(positions: Positions, inverse: float) -> tuple[Reliability, float, float]:
    """Return the reliability at an inverse temperature, and the first and second derivative of the summed nll."""
    nll = slope = curvature = 0.0
    bins = torch.zeros(3, NUM_BINS, dtype=torch.float64)  # counts, confidences, rights
    for log_probs, tokens in positions:
        logits, reference = log_probs.float().clamp_min(MIN_LOG_PROB), tokens[:, None]  # N V, N 1
        scaled = (inverse * logits).log_softmax(-1)
        probabilities = scaled.exp()
        mean = (probabilities * logits).sum(-1)  # N
        square = (probabilities * logits**2).sum(-1)
        nll -= float(scaled.gather(1, reference).sum(dtype=torch.float64))
        slope += float((mean - logits.gather(1, reference).squeeze(1)).sum(dtype=torch.float64))
        curvature += float((square - mean**2).sum(dtype=torch.float64))
        confidence, best = probabilities.max(-1)
        bin_of = (confidence * NUM_BINS).ceil().long().clamp(1, NUM_BINS) - 1
        rows = torch.stack([torch.ones_like(confidence), confidence, (best == tokens).float()]).double().cpu()
        bins.index_add_(1, bin_of.cpu(), rows)
    counts, confidences, rights = bins.tolist()
    if not sum(counts):
        raise InputError("no pairs of lines to calibrate with (use a validation set)")
    found = Reliability(1 / inverse, nll / sum(counts), list(map(int, counts)), confidences, list(map(int, rights)))
    return found, slope, curvature


@torch.inference_mode()
def calibrate(
    model: Model,
    pipeline: Pipeline,
    sources: Sequence[str],
    targets: Sequence[str],
    max_tokens: int,
    max_length: int,
) -> tuple[Reliability, Reliability]:
    """The reliability of a model on pairs of lines, at temperature 1 and at the best temperature (`fit_temperature`).

    max_tokens: tokens per batch, including padding
    max_length: maximum tokens per line; pairs with a longer line or a blank line are skipped
    Raises InputError if no pair remains, and UserError if the model gives non-finite probabilities.
    """
    limits, document = LengthFilter(max_length=max_length), DocumentLines(pipeline.context)
    source, target = encode_pairs(pipeline, sources, targets, limits, document)
    kept = [
        pair
        for pair in zip(source.rows(), target.rows(), strict=True)
        if min(map(len, pair)) > 0 and max(map(len, pair)) <= max_length
    ]
    source_ids, target_ids = [source for source, _ in kept], [target for _, target in kept]
    batches = batches_of_pairs(source_ids, target_ids, max_tokens)

    def positions() -> Iterator[tuple[Tensor, Tensor]]:
        with log.progress("calibrating", len(kept), "pairs") as bar:
            for batch in batches:
                signals.check()
                pairs = [source_ids[i] for i in batch], [target_ids[i] for i in batch]
                for log_probs, tokens in log_probs_by_position(model, *pairs):
                    if log_probs.isnan().any():
                        raise UserError("the model produces non-finite probabilities, so it cannot be calibrated")
                    yield log_probs, tokens
                bar.advance(len(batch))

    return fit_temperature(positions)
