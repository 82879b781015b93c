"""Losses with hand-written gradients, in Triton on a GPU and with in-place torch operations elsewhere."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nmt import register
from nmt.kernels.base import Kernel
from nmt.options import NoOptions
from nmt.symbols import PAD


def triton_fits(features: Tensor) -> bool:
    """Whether Triton can read these features. Builds of torch for NVIDIA GPUs on Linux contain Triton."""
    return features.is_cuda and type(features) is Tensor and find_spec("triton") is not None


@register("kernel", "cross-entropy", NoOptions)
class FastCrossEntropy(Kernel):
    """Cross entropy with label smoothing that makes fewer passes over the logits and at most two copies of them."""

    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """See Kernel."""
        return not inputs.is_cuda or triton_fits(inputs)

    def compute(self, owner: Any, *given: Tensor) -> Sequence[Tensor]:
        """See Kernel. given: logits (n, V), targets and factors (n,)"""
        logits, targets, factors = given
        weights = (*owner.weights(logits.shape[1]), owner.options.z_loss)
        if not logits.is_cuda:
            sums: Sequence[Tensor] = _CrossEntropyInPlace.apply(logits, targets, factors, *weights)  # type: ignore[no-untyped-call]
            return sums
        from nmt.extensions.fast.nn import triton_losses

        return triton_losses.cross_entropy(logits, targets, factors, *weights)


class _CrossEntropyInPlace(torch.autograd.Function):
    """The sums of `CrossEntropy.of_logits`. The log-probabilities are turned into the gradient in place."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, factors: Tensor, gold_weight: float, spread: float, z: float
    ) -> tuple[Tensor, Tensor]:
        log_probs, gold = torch.log_softmax(logits.float(), dim=-1), targets[:, None]
        normalizer = logits[:, 0].float() - log_probs[:, 0]  # log of the sum of exp, shape (n,)
        nll = -log_probs.gather(1, gold).squeeze(1)
        loss = gold_weight * nll - spread * log_probs.sum(-1) + z * normalizer**2
        total, reported = (loss * factors).sum(), (nll * (targets != PAD)).sum()
        # Gradient: (p (1 + 2 z log Z) - a [gold] - b) times the factor. a, b: see CrossEntropy.weights; Z: sum of exp
        if ctx.needs_input_grad[0]:
            gradient = log_probs.exp_().mul_(((1 + 2 * z * normalizer) * factors)[:, None])
            gradient.sub_((spread * factors)[:, None])
            gradient.scatter_add_(1, gold, (-gold_weight * factors)[:, None])
            ctx.gradient = gradient.to(logits.dtype)
        ctx.mark_non_differentiable(reported)
        return total, reported

    @staticmethod
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.gradient, None, None, None, None, None  # scale is 1; see Kernel


@register("kernel", "r-drop", NoOptions)
class FastRDrop(Kernel):
    """R-Drop on a GPU: reads the logits of both passes twice and writes their gradients once."""

    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """See Kernel."""
        return triton_fits(inputs)

    def compute(self, owner: Any, *given: Tensor) -> Sequence[Tensor]:
        """See Kernel. given: logits (n, V) of both passes, targets and factors (n,)"""
        from nmt.extensions.fast.nn import triton_losses

        first, second, targets, factors = given
        weights = (*owner.weights(first.shape[1]), owner.options.z_loss, owner.divergence_weight / 4)
        return triton_losses.r_drop(first, second, targets, factors, *weights)
