"""Triton kernels of the losses: each reads the logits of a position twice, and writes their gradient over them.

The same sums as nmt.criteria computes with torch, in place of dozens of passes over the logits.
Dimensions: n positions, V vocabulary.
"""

from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LOGITS_AT_ONCE: Final = 4096  # logits of a position that a program holds at once
WARPS: Final = 8


class LossWeights(NamedTuple):
    """Constants of a loss.

    padding: the target that stands for none, whose sums and gradients are 0
    gold, spread: see CrossEntropy.weights; z: of the squared log of the sum of exp
    limit: to which logits are clipped
    """

    padding: int
    gold: float
    spread: float
    z: float
    limit: float


@triton.jit
def _clipped(values, limit):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum(values, -limit), limit)


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy(  # type: ignore[no-untyped-def]
    logits, targets, scales, losses, nlls, size, padding, gold_weight, spread, z, limit, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    first, columns = logits + row * size, tl.arange(0, BLOCK)
    scale, gold = tl.load(scales + row), tl.load(targets + row)
    if gold == padding:
        for start in range(0, size, BLOCK):
            tl.store(first + start + columns, tl.zeros([BLOCK], tl.float32), mask=start + columns < size)
        tl.store(losses + row, 0.0)
        tl.store(nlls + row, 0.0)
    else:
        # Before the loop, whose reductions are barriers: the gradient is written over it.
        gold_logit = _clipped(tl.load(first + gold).to(tl.float32), limit)
        greatest, total, plain = -float("inf"), 0.0, 0.0  # of all logits; total: of exp(logit - greatest)
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            values = _clipped(tl.load(first + start + columns, mask=inside, other=0.0).to(tl.float32), limit)
            plain += tl.sum(tl.where(inside, values, 0.0))
            values = tl.where(inside, values, -float("inf"))
            before = greatest
            greatest = tl.maximum(greatest, tl.max(values))
            total = total * tl.exp(before - greatest) + tl.sum(tl.exp(values - greatest))
        normalizer = greatest + tl.log(total)
        nll = normalizer - gold_logit
        loss = gold_weight * nll - spread * (plain - size * normalizer) + z * normalizer * normalizer
        tl.store(losses + row, loss * scale)
        tl.store(nlls + row, nll)
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            values = tl.load(first + start + columns, mask=inside, other=0.0).to(tl.float32)
            gradient = tl.exp(_clipped(values, limit) - normalizer) * (1.0 + 2.0 * z * normalizer)
            gradient = tl.where(start + columns == gold, gradient - gold_weight, gradient)
            gradient = tl.where(tl.abs(values) > limit, spread, gradient)
            tl.store(first + start + columns, gradient, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _r_drop(  # type: ignore[no-untyped-def]
    logits_1, logits_2, targets, scales, losses, nlls, divergences,
    size, padding, gold_weight, spread, z, limit, factor, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first_1, first_2, columns = logits_1 + row * size, logits_2 + row * size, tl.arange(0, BLOCK)
    scale, gold = tl.load(scales + row), tl.load(targets + row)
    if gold == padding:
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            tl.store(first_1 + start + columns, tl.zeros([BLOCK], tl.float32), mask=inside)
            tl.store(first_2 + start + columns, tl.zeros([BLOCK], tl.float32), mask=inside)
        tl.store(losses + row, 0.0)
        tl.store(nlls + row, 0.0)
        tl.store(divergences + row, 0.0)
    else:
        gold_1 = _clipped(tl.load(first_1 + gold).to(tl.float32), limit)  # see _cross_entropy
        gold_2 = _clipped(tl.load(first_2 + gold).to(tl.float32), limit)
        greatest_1, total_1, moved_1, plain_1 = -float("inf"), 0.0, 0.0, 0.0
        greatest_2, total_2, moved_2, plain_2 = -float("inf"), 0.0, 0.0, 0.0  # moved: sum of exp times the difference
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            x = _clipped(tl.load(first_1 + start + columns, mask=inside, other=0.0).to(tl.float32), limit)
            y = _clipped(tl.load(first_2 + start + columns, mask=inside, other=0.0).to(tl.float32), limit)
            plain_1 += tl.sum(tl.where(inside, x, 0.0))
            plain_2 += tl.sum(tl.where(inside, y, 0.0))
            difference = x - y
            before_1, before_2 = greatest_1, greatest_2
            greatest_1 = tl.maximum(greatest_1, tl.max(tl.where(inside, x, -float("inf"))))
            greatest_2 = tl.maximum(greatest_2, tl.max(tl.where(inside, y, -float("inf"))))
            p = tl.where(inside, tl.exp(x - greatest_1), 0.0)
            q = tl.where(inside, tl.exp(y - greatest_2), 0.0)
            total_1 = total_1 * tl.exp(before_1 - greatest_1) + tl.sum(p)
            total_2 = total_2 * tl.exp(before_2 - greatest_2) + tl.sum(q)
            moved_1 = moved_1 * tl.exp(before_1 - greatest_1) + tl.sum(p * difference)
            moved_2 = moved_2 * tl.exp(before_2 - greatest_2) + tl.sum(q * difference)
        normalizer_1, normalizer_2 = greatest_1 + tl.log(total_1), greatest_2 + tl.log(total_2)
        shift = normalizer_1 - normalizer_2
        kl_pq, kl_qp = moved_1 / total_1 - shift, shift - moved_2 / total_2
        nll_1, nll_2 = normalizer_1 - gold_1, normalizer_2 - gold_2
        spread_loss = spread * (size * (normalizer_1 + normalizer_2) - plain_1 - plain_2)
        z_loss = z * (normalizer_1 * normalizer_1 + normalizer_2 * normalizer_2)
        loss = (gold_weight * (nll_1 + nll_2) + spread_loss + z_loss) / 2 + factor * (kl_pq + kl_qp)
        tl.store(losses + row, loss * scale)
        tl.store(nlls + row, (nll_1 + nll_2) / 2)
        tl.store(divergences + row, kl_pq + kl_qp)
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            x = tl.load(first_1 + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(first_2 + start + columns, mask=inside, other=0.0).to(tl.float32)
            log_p, log_q = _clipped(x, limit) - normalizer_1, _clipped(y, limit) - normalizer_2
            p, q, is_gold = tl.exp(log_p), tl.exp(log_q), start + columns == gold
            constant = tl.where(is_gold, gold_weight / 2, 0.0)
            of_x = p * (0.5 + z * normalizer_1) - constant + factor * (p * (log_p - log_q - kl_pq) + p - q)
            of_y = q * (0.5 + z * normalizer_2) - constant + factor * (q * (log_q - log_p - kl_qp) + q - p)
            tl.store(first_1 + start + columns, tl.where(tl.abs(x) > limit, spread / 2, of_x), mask=inside)
            tl.store(first_2 + start + columns, tl.where(tl.abs(y) > limit, spread / 2, of_y), mask=inside)


def cross_entropy(logits: Tensor, targets: Tensor, scales: Tensor, weights: LossWeights) -> tuple[Tensor, Tensor]:
    """(n,) the loss of each position, scaled, and its negative log-likelihood; the logits become their gradient, not scaled.

    The gradient is without the share of the spread, which is the same for all words: OutputGradients subtracts it.

    logits: (n, V) contiguous; targets: (n,) int64; scales: (n,) float32, of the losses
    """
    losses, nlls = (torch.empty_like(scales) for _ in range(2))
    arguments: tuple[Any, ...] = (logits, targets, scales, losses, nlls, logits.shape[1], *weights)
    _cross_entropy[(len(logits),)](*arguments, BLOCK=LOGITS_AT_ONCE, num_warps=WARPS)
    return losses, nlls


def r_drop(
    logits: tuple[Tensor, Tensor], targets: Tensor, scales: Tensor, weights: LossWeights, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(n,) the loss of each position, scaled, its negative log-likelihood and divergence; the logits become their gradients.

    See `cross_entropy`.

    logits: (n, V) of each pass; factor: of the divergence
    """
    losses, nlls, divergences = (torch.empty_like(scales) for _ in range(3))
    sums = losses, nlls, divergences
    arguments: tuple[Any, ...] = (*logits, targets, scales, *sums, logits[0].shape[1], *weights, factor)
    _r_drop[(len(targets),)](*arguments, BLOCK=LOGITS_AT_ONCE, num_warps=WARPS)
    return losses, nlls, divergences
