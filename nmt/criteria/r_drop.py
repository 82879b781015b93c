"""R-Drop: cross entropy of two passes with different dropout masks, and the divergence of their predictions (Liang et al., 2021).

Dimensions: N target positions of a batch, V vocabulary, D width.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss
from nmt.criteria.cross_entropy import (
    CrossEntropy,
    LossOfLogits,
    OutputGradients,
    chunk_rows,
    chunks_of,
    linear_logits,
    linear_output,
    loss_kernels,
)
from nmt.criteria.options import RDropOptions
from nmt.models.base import Model
from nmt.nn.matmul import product
from nmt.symbols import PAD


@register("criterion", "r-drop", RDropOptions)
class RDrop(CrossEntropy):
    """Cross entropy of two passes with different dropout masks, and their divergence (R-Drop)."""

    can_be_captured: ClassVar[bool] = True
    num_passes: ClassVar[int] = 2

    def __init__(self, options: RDropOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.divergence_weight = options.divergence_weight

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Both passes are one batch. Outside training there is one pass and no divergence.

        The loss is half of Liang et al.'s, the mean cross entropy of the passes: (CE_1 + CE_2) / 2 + w / 4 * divergence,
        where divergence is KL(1 || 2) + KL(2 || 1) in nats, and w is `divergence_weight`, their alpha.
        """
        if not model.training:
            return super().__call__(model, batch)
        features, targets = self.passes(model, batch).flatten(0, 1), batch.target_output.flatten()
        given = targets, self.token_weights(model, batch)
        if (linear := linear_output(model.output)) is not None:
            total, nll, divergence = _LinearRDrop.apply(features, *linear, *given, self)  # type: ignore[no-untyped-call]
        else:
            total, nll, divergence = self.sums_in_chunks(model.output, features, *given)
        return Loss.of_target_tokens(batch, total, nll=nll, divergence=divergence)

    def passes(self, model: Model, batch: Batch) -> Tensor:
        """The features of the first pass and of the second, (2 B, T, D)."""
        features: Tensor = model(batch.repeated(2)).features
        return features

    def sums_in_chunks(
        self, output: nn.Module, features: Tensor, targets: Tensor, factors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, negative log-likelihood and divergence for any output module: sums in nats; the reference for tests.

        features: (2 N, D), those of the second pass last; targets: (N,); factors: (N,) see `token_weights`
        """
        sums = torch.zeros(3, device=features.device)
        rows = chunk_rows(features, output(features[:1]).shape[-1])

        def sums_of(first: Tensor, second: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
            logits = output(first), output(second)
            losses = [torch.stack(self.of_logits(of_pass, targets, factors)) for of_pass in logits]
            first, second = (of_pass.float().log_softmax(-1) for of_pass in logits)
            of_rows = ((first.exp() - second.exp()) * (first - second)).sum(-1)  # both directions of KL at once
            total, nll = (losses[0] + losses[1]) / 2
            total = total + self.divergence_weight / 4 * (of_rows * factors).sum()
            return torch.stack([total, nll, (of_rows * (targets != PAD)).sum()])

        first, second = features.chunk(2)
        parts = first, second, targets, factors
        for chunks in zip(*(part.split(rows) for part in parts), strict=True):
            sums = sums + checkpoint(sums_of, *chunks, use_reentrant=False)
        return sums[0], sums[1], sums[2]


class _LinearRDrop(LossOfLogits):
    """The same sums and their gradient in one pass over each chunk of logits.

    limit: to which logits are clipped; beyond it they have no gradient
    factors: see CrossEntropy.token_weights
    With p, q the distributions, d = log p - log q and f = w / 4, the gradient of the first logits is
    (p (1 + 2 z log Z) - a [gold] - b) / 2 + f (p (d - KL(p || q)) + p - q). a, b: see CrossEntropy.weights; z, Z: see
    _LinearCrossEntropy
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        limit: float,
        targets: Tensor,
        factors: Tensor,
        criterion: RDrop,
    ) -> tuple[Tensor, Tensor, Tensor]:
        kernels, (gold_weight, spread) = loss_kernels(features), criterion.weights(len(weight))
        factor, z, N = criterion.divergence_weight / 4, criterion.options.z_loss, len(targets)
        both = OutputGradients(ctx.needs_input_grad, features, weight, bias, factors.repeat(2))
        sums = torch.zeros(3, device=features.device)
        for rows in chunks_of(N, chunk_rows(features, 2 * len(weight))):
            gold, scales = targets[rows, None], factors[rows, None]
            places = rows, slice(N + rows.start, N + rows.stop)  # of the two passes
            if kernels is not None:
                first, second = (product(features[place], weight, bias) for place in places)
                constants = kernels.LossWeights(PAD, gold_weight, spread, z, limit)
                of_rows = kernels.r_drop((first, second), targets[rows], factors[rows], constants, factor)
                sums += torch.stack(of_rows).sum(1)
                both.add(places[0], first)
                both.add(places[1], second)
                continue
            logits = [linear_logits(features[place], weight, bias, limit) for place in places]
            losses, surprises = zip(*(criterion.of_rows(of_pass, gold) for of_pass in logits), strict=True)  # n 1 each
            difference = logits[0].log_probs - logits[1].log_probs
            p, q = (of_pass.log_probs.exp_() for of_pass in logits)
            kl_pq, kl_qp = (p * difference).sum(-1, keepdim=True), -(q * difference).sum(-1, keepdim=True)
            loss, surprise = sum(losses) / 2 + factor * (kl_pq + kl_qp), sum(surprises) / 2
            real = (gold != PAD).float()
            sums += torch.stack([(loss * scales).sum(), (surprise * real).sum(), ((kl_pq + kl_qp) * real).sum()])
            of_first, of_second = (factor + 0.5 + z * of_pass.normalizer for of_pass in logits)
            gradients = (
                difference.sub(kl_pq).mul_(factor).add_(of_first).mul_(p).sub_(q, alpha=factor),
                difference.neg_().sub_(kl_qp).mul_(factor).add_(of_second).mul_(q).sub_(p, alpha=factor),
            )
            for place, gradient, of_pass in zip(places, gradients, logits, strict=True):
                gradient.scatter_add_(1, gold, torch.full_like(scales, -gold_weight / 2))
                if of_pass.clipped is not None:
                    gradient.masked_fill_(of_pass.clipped, spread / 2)  # which is subtracted at the end: no gradient
                both.add(place, gradient)
        ctx.gradients = both.finished(spread / 2)
        total, nll, divergence = (each.clone() for each in sums)  # FSDP takes no views
        ctx.mark_non_differentiable(nll, divergence)
        return total, nll, divergence
