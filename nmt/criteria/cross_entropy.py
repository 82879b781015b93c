"""Cross entropy with label smoothing (Szegedy et al., 2016, section 7; "Attention Is All You Need", section 5.4)."""

from typing import ClassVar

import torch
from torch import Tensor

from nmt import register
from nmt.batch import Batch
from nmt.columns.base import column_kind
from nmt.criteria.base import Criterion, CriterionContext, Loss
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.options import CrossEntropyOptions
from nmt.errors import UserError, quoted
from nmt.kernels.base import has_kernel
from nmt.models.base import Model
from nmt.symbols import PAD


@register("criterion", "cross-entropy", CrossEntropyOptions)
class CrossEntropy(Criterion):
    """The negative log-likelihood of the reference with label smoothing, summed over its tokens, in nats."""

    can_be_captured: ClassVar[bool] = True

    def __init__(self, options: CrossEntropyOptions, context: CriterionContext) -> None:
        self.options = options

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion."""
        return self.of_features(model, model(batch).features, batch)

    def of_features(self, model: Model, features: Tensor, batch: Batch) -> Loss:
        """Compute the parts of the loss from the model's features (B, T, D)."""
        targets, factors = batch.target_output.flatten(), self.token_weights(model, batch)
        total, nll = sums_of_logits(self.of_logits, model.output, [features.flatten(0, 1)], targets, factors)
        return Loss.of_target_tokens(batch, total, nll=nll)

    def token_weights(self, model: Model, batch: Batch) -> Tensor:
        """The factor on the loss at each target position, (N,): 0 for padding, and 1 elsewhere unless `loss_weights` is set.

        Outside training, losses are unweighted, so that all validations measure the same. Raises MissingColumnError if the data
        lacks the column.
        """
        real = (batch.target_output != PAD).float()  # B T
        if self.options.loss_weights is None or not model.training:
            return real.flatten()
        values = batch[self.options.loss_weights]
        kind = batch.columns[self.options.loss_weights].kind
        if 0 in column_kind(kind).sides:  # the column also has values for source tokens
            raise UserError(
                f"--loss-weights {quoted(self.options.loss_weights)}: a column of kind {kind} cannot contain weights"
            )
        return (real * (values[:, None] if values.dim() == 1 else values)).flatten()

    def weights(self, size: int) -> tuple[float, float]:
        """The weights (a, b) in a token's loss, -(a log p(token) + b sum_k log p(k)), with a + b V = 1. size: V"""
        eps = self.options.label_smoothing
        if self.options.smoothing_over == "all":
            return 1 - eps, eps / size
        spread = eps / (size - 1)
        return 1 - eps - spread, spread

    @has_kernel("cross-entropy")
    def of_logits(self, logits: Tensor, targets: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute the sums of the loss and of the negative log-likelihood, in nats.

        logits: (n, V); targets: (n,)
        factors: (n,), see `token_weights`; by default 0 for padding and 1 elsewhere
        """
        return self.of_log_probs(logits, torch.log_softmax(logits.float(), dim=-1), targets, factors)

    def of_log_probs(
        self, logits: Tensor, log_probs: Tensor, targets: Tensor, factors: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """See `of_logits`. log_probs: (n, V) in nats, float32"""
        (gold_weight, spread), real = self.weights(logits.shape[-1]), targets != PAD
        nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
        loss = gold_weight * nll - spread * log_probs.sum(-1)
        if self.options.z_loss:
            loss = loss + self.options.z_loss * logits.float().logsumexp(-1) ** 2
        return (loss * (real if factors is None else factors)).sum(), (nll * real).sum()
