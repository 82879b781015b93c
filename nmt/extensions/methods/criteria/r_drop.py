"""R-Drop (Liang et al., 2021): cross entropy of two passes with different dropout masks, plus the divergence between them.

Dimensions: N target positions in a batch, V vocabulary, D width.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from nmt import register
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.extensions.methods.criteria.options import RDropOptions
from nmt.kernels.base import has_kernel
from nmt.models.base import Model
from nmt.symbols import PAD


@register("criterion", "r-drop", RDropOptions)
class RDrop(CrossEntropy):
    """R-Drop: cross entropy of two passes with different dropout masks, plus the divergence between them."""

    can_be_captured: ClassVar[bool] = True
    num_passes: ClassVar[int] = 2
    needs_dropout: ClassVar[bool] = True  # without dropout, both passes are the same

    def __init__(self, options: RDropOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.cross_entropy = CrossEntropy(options, context)
        self.divergence_weight = options.divergence_weight

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. Both passes are computed as one batch. Outside training there is one pass and no divergence.

        The loss is half the loss of Liang et al.: (CE_1 + CE_2) / 2 + w / 4 * divergence. The divergence is
        KL(1 || 2) + KL(2 || 1) in nats, and w is `divergence_weight`, their alpha.
        """
        if not model.training:
            return self.cross_entropy(model, batch)
        passes, targets = self.passes(model, batch).flatten(0, 1).chunk(2), batch.target_output.flatten()
        given = self.of_both, model.output, passes, targets, self.token_weights(model, batch)
        total, nll, divergence = sums_of_logits(*given)
        return Loss.of_target_tokens(batch, total, nll=nll, divergence=divergence)

    def passes(self, model: Model, batch: Batch) -> Tensor:
        """The features of the first and the second pass, (2 B, T, D)."""
        features: Tensor = model(batch.repeated(2)).features
        return features

    def doubts(self, settings: Mapping[str, Any], is_new: bool) -> Iterator[str]:
        """See Criterion."""
        dropout = [value for name, value in settings.items() if name.endswith("dropout") and "word" not in name]
        if self.needs_dropout and not any(dropout):
            yield "--criterion r-drop has no effect without dropout, because both passes are the same (add --dropout)"
        if settings.get("norm_position") == "post" and is_new:
            fix = "use --norm-position pre, or --init-from a trained model"
            harm = "a small model may not learn to attend to the source"
            yield f"--criterion {self.part_name} with --norm-position post: {harm} ({fix})"

    @has_kernel("r-drop")
    def of_both(self, first: Tensor, second: Tensor, targets: Tensor, factors: Tensor) -> tuple[Tensor, ...]:
        """Return loss, negative log-likelihood and divergence as sums in nats; see CrossEntropy. first, second: logits (n, V)"""
        log_p, log_q = (logits.float().log_softmax(-1) for logits in (first, second))
        of_first = self.of_log_probs(first, log_p, targets, factors)
        of_second = self.of_log_probs(second, log_q, targets, factors)
        of_rows = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)  # both directions of the divergence at once
        total = (of_first[0] + of_second[0]) / 2 + self.divergence_weight / 4 * (of_rows * factors).sum()
        return total, (of_first[1] + of_second[1]) / 2, (of_rows * (targets != PAD)).sum()
