"""Losses as Triton kernels, which read the logits of a position twice and write their gradient once.

They compute the same sums as the criteria, which make dozens of passes over the logits.
Dimensions: n positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.symbols import PAD

LOGITS_AT_ONCE: Final = 4096  # number of logits per position that a Triton program processes at once
WARPS: Final = 8


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy(  # type: ignore[no-untyped-def]
    logits, gradients, targets, scales, losses, nlls, size, padding, gold_weight, spread, z, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    first, into, columns = logits + row * size, gradients + row * size, tl.arange(0, BLOCK)
    scale, gold = tl.load(scales + row), tl.load(targets + row)
    if gold == padding:
        for start in range(0, size, BLOCK):
            tl.store(into + start + columns, tl.zeros([BLOCK], tl.float32), mask=start + columns < size)
        tl.store(losses + row, 0.0)
        tl.store(nlls + row, 0.0)
    else:
        gold_logit = tl.load(first + gold).to(tl.float32)
        greatest, total, plain = (
            -float("inf"),
            0.0,
            0.0,
        )  # plain: sum of the logits; total: sum of exp(logit - greatest)
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            values = tl.load(first + start + columns, mask=inside, other=0.0).to(tl.float32)
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
            gradient = tl.exp(values - normalizer) * (1.0 + 2.0 * z * normalizer) - spread
            gradient = tl.where(start + columns == gold, gradient - gold_weight, gradient)
            tl.store(into + start + columns, gradient * scale, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _r_drop(  # type: ignore[no-untyped-def]
    logits_1, logits_2, gradients_1, gradients_2, targets, scales, losses, nlls, divergences,
    size, padding, gold_weight, spread, z, factor, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first_1, first_2, columns = logits_1 + row * size, logits_2 + row * size, tl.arange(0, BLOCK)
    into_1, into_2 = gradients_1 + row * size, gradients_2 + row * size
    scale, gold = tl.load(scales + row), tl.load(targets + row)
    if gold == padding:
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            tl.store(into_1 + start + columns, tl.zeros([BLOCK], tl.float32), mask=inside)
            tl.store(into_2 + start + columns, tl.zeros([BLOCK], tl.float32), mask=inside)
        tl.store(losses + row, 0.0)
        tl.store(nlls + row, 0.0)
        tl.store(divergences + row, 0.0)
    else:
        gold_1 = tl.load(first_1 + gold).to(tl.float32)
        gold_2 = tl.load(first_2 + gold).to(tl.float32)
        greatest_1, total_1, moved_1, plain_1 = -float("inf"), 0.0, 0.0, 0.0
        greatest_2, total_2, moved_2, plain_2 = (
            -float("inf"),
            0.0,
            0.0,
            0.0,
        )  # moved: sum of exp times the difference of logits
        for start in range(0, size, BLOCK):
            inside = start + columns < size
            x = tl.load(first_1 + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(first_2 + start + columns, mask=inside, other=0.0).to(tl.float32)
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
            log_p, log_q = x - normalizer_1, y - normalizer_2
            p, q, is_gold = tl.exp(log_p), tl.exp(log_q), start + columns == gold
            constant = (tl.where(is_gold, gold_weight, 0.0) + spread) / 2
            of_x = p * (0.5 + z * normalizer_1) - constant + factor * (p * (log_p - log_q - kl_pq) + p - q)
            of_y = q * (0.5 + z * normalizer_2) - constant + factor * (q * (log_q - log_p - kl_qp) + q - p)
            tl.store(into_1 + start + columns, of_x * scale, mask=inside)
            tl.store(into_2 + start + columns, of_y * scale, mask=inside)


def cross_entropy(
    logits: Tensor, targets: Tensor, factors: Tensor, gold: float, spread: float, z: float
) -> tuple[Tensor, ...]:
    """Return the loss and the negative log-likelihood, both as scalar sums in nats.

    logits: (n, V); targets: (n,) int64; factors: (n,) float32, factor of each position's loss
    gold, spread: see CrossEntropy.weights; z: weight of the squared log of the sum of exp
    """
    settings = logits.shape[1], PAD, gold, spread, z
    return _ByKernel.apply(_cross_entropy, 2, (targets, factors), settings, logits)  # type: ignore[no-untyped-call, no-any-return]


def r_drop(
    first: Tensor, second: Tensor, targets: Tensor, factors: Tensor, gold: float, spread: float, z: float, factor: float
) -> tuple[Tensor, ...]:
    """Return the loss, the negative log-likelihood and the divergence as scalar sums in nats; see `cross_entropy`.

    first, second: (n, V) logits of each pass; factor: weight of the divergence in the loss
    """
    settings = first.shape[1], PAD, gold, spread, z, factor
    return _ByKernel.apply(_r_drop, 3, (targets, factors), settings, first, second)  # type: ignore[no-untyped-call, no-any-return]


class _ByKernel(torch.autograd.Function):
    """Sums that a kernel computes, together with the gradient of the first sum."""

    @staticmethod
    def forward(
        ctx: Any,
        kernel: Any,
        num_sums: int,
        rows: tuple[Tensor, Tensor],
        settings: Sequence[float],
        *logits: Tensor,
    ) -> tuple[Tensor, ...]:
        given = [of_pass.contiguous() for of_pass in logits]
        ctx.gradients = [torch.empty_like(of_pass) for of_pass in given]
        of_rows = [torch.empty_like(rows[1]) for _ in range(num_sums)]
        arguments = *given, *ctx.gradients, *rows, *of_rows, *settings
        kernel[(len(given[0]),)](*arguments, BLOCK=LOGITS_AT_ONCE, num_warps=WARPS)
        total, *reported = (each.sum() for each in of_rows)
        ctx.mark_non_differentiable(*reported)
        return total, *reported

    @staticmethod
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *ctx.gradients  # scale is 1; see Kernel
