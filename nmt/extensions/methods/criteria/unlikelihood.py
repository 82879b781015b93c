"""Unlikelihood training (Welleck et al., 2020, "Neural Text Generation with Unlikelihood Training", section 5.1).

Dimensions: B sentences, T target positions, n positions in a chunk of all B * T, V vocabulary, D width.
"""

import torch
from torch import Tensor

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.extensions.methods.criteria.options import UnlikelihoodOptions
from nmt.models.base import Model
from nmt.symbols import SYMBOLS


@register("criterion", "unlikelihood", UnlikelihoodOptions)
class Unlikelihood(CrossEntropy):
    """Cross entropy plus the unlikelihood of tokens that repeat an earlier token. This prevents loops in translations."""

    def __init__(self, options: UnlikelihoodOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.weight = options.unlikelihood_weight

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Outside training, the loss is the cross entropy.

        In training, each position adds w * -sum of log(1 - p(c)) over the distinct earlier target tokens c, except the
        position's own token and control symbols (equations 4 and 5).
        """
        features = model(batch).features
        loss = self.of_features(model, features, batch)
        if not model.training:
            return loss
        factors = self.token_weights(model, batch)
        total = self.weight * self.unlikelihood(model, features, batch.target_output, factors)
        return Loss({**loss.trained, "unlikelihood": Term(total, batch.num_target_tokens)}, loss.reported)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """See Criterion."""
        return {**super().counts(batch), "unlikelihood": batch.num_target_tokens}

    def unlikelihood(self, model: Model, features: Tensor, targets: Tensor, factors: Tensor) -> Tensor:
        """Return the sum over all positions, in nats, before weighting.

        features: (B, T, D); targets: (B, T); factors: (B * T,), see `token_weights`
        """
        T = targets.shape[1]
        earlier = targets[:, None].expand(-1, T, -1).tril(-1)  # B T T: the tokens before each position, padded with PAD

        given = earlier.flatten(0, 1), targets.flatten(), factors
        (total,) = sums_of_logits(of_repetitions, model.output, [features.flatten(0, 1)], *given)
        return total


def of_repetitions(logits: Tensor, before: Tensor, gold: Tensor, factors: Tensor) -> tuple[Tensor]:
    """Return the sum over these positions. logits: (n, V); before: (n, T) tokens before each position; gold, factors: (n,)"""
    log_probs = logits.float().log_softmax(-1)
    candidates = torch.zeros_like(log_probs).scatter_(1, before, 1.0)
    candidates.scatter_(1, gold[:, None], 0.0)
    candidates[:, : len(SYMBOLS)] = 0
    others = torch.log1p(-log_probs.exp().clamp_max(1 - torch.finfo(log_probs.dtype).eps))
    return (-(candidates * others * factors[:, None]).sum(),)
