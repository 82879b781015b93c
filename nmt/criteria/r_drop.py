"""R-Drop: cross entropy of two passes that differ in dropout, and the divergence of their predictions (Liang et al., 2021).

Dimensions: N target positions of a batch, V vocabulary, D width.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, chunk_rows
from nmt.criteria.options import RDropOptions
from nmt.models.base import Model
from nmt.nn.linear import Linear
from nmt.nn.matmul import add_product, product, product_back
from nmt.symbols import PAD


@register("criterion", "r-drop", RDropOptions)
class RDrop(CrossEntropy):
    """Cross entropy of two passes with other dropout, and the divergence between them (R-Drop)."""

    passes: ClassVar[int] = 2

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
        features = model(Batch(batch.source.repeat(2, 1), batch.target.repeat(2, 1))).features.flatten(0, 1)
        targets, output = batch.target_output.flatten(), model.output
        if isinstance(output, nn.Linear) and type(output).forward in (Linear.forward, nn.Linear.forward):
            settings = output.weight, output.bias, targets, self
            total, nll, divergence = _LinearRDrop.apply(features, *settings)  # type: ignore[no-untyped-call]
        else:
            total, nll, divergence = self.of_two_in_chunks(output, features, targets)
        count = batch.num_target_tokens
        reported = {"nll": Term(nll.detach(), count), "divergence": Term(divergence.detach(), count)}
        return Loss({"loss": Term(total, count)}, reported)

    def of_two_in_chunks(self, output: nn.Module, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, negative log-likelihood and divergence for any output module: sums in nats; the reference for tests.

        features: (2 N, D), those of the second pass last; targets: (N,)
        """
        first, second = features.chunk(2)
        sums = torch.zeros(3, device=features.device)
        rows = chunk_rows(features, output(features[:1]).shape[-1])

        def of_chunk(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
            logits = output(first), output(second)
            losses = [torch.stack(self.of_logits(each, targets)) for each in logits]
            one, two = (each.float().log_softmax(-1) for each in logits)
            of_rows = ((one.exp() - two.exp()) * (one - two)).sum(-1)  # both directions of KL at once
            divergence = (of_rows * (targets != PAD)).sum()
            total, nll = (losses[0] + losses[1]) / 2
            return torch.stack([total + self.divergence_weight / 4 * divergence, nll, divergence])

        for chunks in zip(first.split(rows), second.split(rows), targets.split(rows), strict=True):
            sums = sums + checkpoint(of_chunk, *chunks, use_reentrant=False)
        return sums[0], sums[1], sums[2]


class _LinearRDrop(torch.autograd.Function):
    """The same sums and their gradient in one pass over each chunk of logits.

    With p, q the distributions, d = log p - log q and c = w / 4, the gradient of the first logits is
    (p - a [gold] - b) / 2 + c (p (d - KL(p || q)) + p - q). a, b: see CrossEntropy.weights
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, criterion: RDrop
    ) -> tuple[Tensor, Tensor, Tensor]:
        gold_weight, spread = criterion.weights(len(weight))
        c, N = criterion.divergence_weight / 4, len(targets)
        of_features, of_weight = torch.empty_like(features), torch.zeros_like(weight)
        of_bias = None if bias is None else torch.zeros_like(bias)
        real = (targets != PAD).float()[:, None]  # N 1
        total = nll = divergence = torch.zeros((), device=features.device)
        rows = chunk_rows(features, 2 * len(weight))
        for start in range(0, N, rows):
            gold, counts = (tensor[start : start + rows] for tensor in (targets[:, None], real))
            places = [slice(first + start, first + min(start + rows, N)) for first in (0, N)]
            log_probs = [torch.log_softmax(product(features[place], weight, bias).float(), -1) for place in places]
            for each in log_probs:
                surprise = -each.gather(1, gold)  # n 1
                loss = gold_weight * surprise - spread * each.sum(-1, keepdim=True)
                total, nll = total + (loss * counts).sum() / 2, nll + (surprise * counts).sum() / 2
            difference = log_probs[0] - log_probs[1]  # n V
            probs = [each.exp_() for each in log_probs]
            kl = [(probs[0] * difference).sum(-1, keepdim=True), -(probs[1] * difference).sum(-1, keepdim=True)]
            of_rows = ((kl[0] + kl[1]) * counts).sum()
            total, divergence = total + c * of_rows, divergence + of_rows
            # c p (d - KL + 1) + p / 2, then - c q, for each of the two
            factors = [difference.sub(kl[0]).mul_(c).add_(c + 0.5), difference.neg_().sub_(kl[1]).mul_(c).add_(c + 0.5)]
            gradients = [
                own.mul_(of_own).sub_(other, alpha=c)
                for own, of_own, other in zip(factors, probs, probs[::-1], strict=True)
            ]
            for place, gradient in zip(places, gradients, strict=True):
                gradient.scatter_add_(1, gold, torch.full_like(counts, -gold_weight / 2))
                of_features[place] = product_back(gradient, weight).mul_(counts)
                add_product(of_weight, gradient, features[place] * counts)
                if of_bias is not None:
                    of_bias += (gradient * counts).sum(0)
        of_features.sub_(spread / 2 * weight.sum(0) * real.repeat(2, 1))
        of_weight.sub_(spread / 2 * (features * real.repeat(2, 1)).sum(0))
        if of_bias is not None:
            of_bias.sub_(spread * real.sum())
        ctx.gradients = of_features, of_weight, of_bias
        ctx.mark_non_differentiable(nll, divergence)
        return total, nll, divergence

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _nll: Tensor, _divergence: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients]
        return (*scaled, None, None)
