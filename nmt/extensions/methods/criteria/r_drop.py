"""R-Drop: cross entropy of two passes with different dropout masks, and the divergence of their predictions (Liang et al., 2021).

Dimensions: N target positions of a batch, V vocabulary, D width.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss
from nmt.criteria.cross_entropy import CrossEntropy, OutputGradients, loss_kernels, sum_of_chunks
from nmt.extensions.methods.criteria.options import RDropOptions
from nmt.models.base import Model
from nmt.symbols import PAD


@register("criterion", "r-drop", RDropOptions)
class RDrop(CrossEntropy):
    """Cross entropy of two passes with different dropout masks, and their divergence (R-Drop)."""

    can_be_captured: ClassVar[bool] = True
    num_passes: ClassVar[int] = 2
    share: float = 0.5
    num_logits: ClassVar[int] = 2
    needs_dropout: ClassVar[bool] = True  # else its two passes are the same

    def __init__(self, options: RDropOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.cross_entropy = CrossEntropy(options, context)
        self.divergence_weight = options.divergence_weight

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Both passes are one batch. Outside training there is one pass and no divergence.

        The loss is half of Liang et al.'s, the mean cross entropy of the passes: (CE_1 + CE_2) / 2 + w / 4 * divergence,
        where divergence is KL(1 || 2) + KL(2 || 1) in nats, and w is `divergence_weight`, their alpha.
        """
        if not model.training:
            return self.cross_entropy(model, batch)
        features, targets = self.passes(model, batch).flatten(0, 1), batch.target_output.flatten()
        total, nll, divergence = self.sums(model.output, features, targets, self.token_weights(model, batch))
        return Loss.of_target_tokens(batch, total, nll=nll, divergence=divergence)

    def passes(self, model: Model, batch: Batch) -> Tensor:
        """The features of the first pass and of the second, (2 B, T, D)."""
        features: Tensor = model(batch.repeated(2)).features
        return features

    def doubts(self, settings: Mapping[str, Any], is_new: bool) -> Iterator[str]:
        """See Criterion."""
        dropout = [value for name, value in settings.items() if name.endswith("dropout") and "word" not in name]
        if self.needs_dropout and not any(dropout):
            yield "--criterion r-drop: without dropout its two passes are the same, and their divergence is 0 (--dropout)"
        if settings.get("norm_position") == "post" and is_new:
            remedy = "--norm-position pre, or --init-from a trained model"
            harm = "a small model may not learn to attend to the source"
            yield f"--criterion {self.part_name}: with norms after the sub-layers {harm} ({remedy})"

    def sums_in_chunks(self, output: nn.Module, features: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
        """Loss, negative log-likelihood and divergence, see CrossEntropy; the reference for tests."""

        def sums_of(first: Tensor, second: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
            logits = output(first), output(second)
            losses = [torch.stack(self.of_logits(of_pass, targets, factors)) for of_pass in logits]
            first, second = (of_pass.float().log_softmax(-1) for of_pass in logits)
            of_rows = ((first.exp() - second.exp()) * (first - second)).sum(-1)  # both directions of KL at once
            total, nll = (losses[0] + losses[1]) / 2
            total = total + self.divergence_weight / 4 * (of_rows * factors).sum()
            return torch.stack([total, nll, (of_rows * (targets != PAD)).sum()])

        return sum_of_chunks(sums_of, output, *features.chunk(2), targets, factors)

    def chunk_sums(self, output: OutputGradients, rows: slice, targets: Tensor) -> Tensor:
        """See CrossEntropy.

        With p, q the distributions, d = log p - log q and f = w / 4, the gradient of the first logits is
        (p (1 + 2 z log Z) - a [gold] - b) / 2 + f (p (d - KL(p || q)) + p - q).
        """
        gold_weight, spread = self.weights(output.size)
        factor, z, N = self.divergence_weight / 4, self.options.z_loss, len(targets)
        places = rows, slice(N + rows.start, N + rows.stop)  # of the two passes
        if (kernels := loss_kernels(output.inputs)) is not None:
            both = output.logits(places[0]), output.logits(places[1])
            constants = kernels.LossWeights(PAD, gold_weight, spread, z, output.limit)
            of_rows = kernels.r_drop(both, targets[rows], output.factors[rows], constants, factor)
            for place, gradient in zip(places, both, strict=True):
                output.add(place, gradient)
            return torch.stack(of_rows).sum(1)
        gold, scales = targets[rows, None], output.factors[rows, None]
        logits = [output.clipped_logits(place) for place in places]
        losses, surprises = zip(*(self.of_rows(of_pass, gold) for of_pass in logits), strict=True)  # n 1 each
        difference = logits[0].log_probs - logits[1].log_probs
        p, q = (of_pass.log_probs.exp_() for of_pass in logits)
        kl_pq, kl_qp = (p * difference).sum(-1, keepdim=True), -(q * difference).sum(-1, keepdim=True)
        loss, surprise = sum(losses) / 2 + factor * (kl_pq + kl_qp), sum(surprises) / 2
        real = (gold != PAD).float()
        of_first, of_second = (factor + 0.5 + z * of_pass.normalizer for of_pass in logits)
        gradients = (
            difference.sub(kl_pq).mul_(factor).add_(of_first).mul_(p).sub_(q, alpha=factor),
            difference.neg_().sub_(kl_qp).mul_(factor).add_(of_second).mul_(q).sub_(p, alpha=factor),
        )
        for place, gradient, of_pass in zip(places, gradients, logits, strict=True):
            gradient.scatter_add_(1, gold, torch.full_like(scales, -gold_weight / 2))
            output.add(place, gradient, of_pass.clipped)
        return torch.stack([(loss * scales).sum(), (surprise * real).sum(), ((kl_pq + kl_qp) * real).sum()])
