"""Guided alignment: attention and encoder also learn from given word alignments (Chen et al., 2016, section 3.1).

Dimensions: B sentences, S source and T target positions, L links, D width.
"""

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.batch import Batch, MissingColumnError
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.chunks import sums_of_logits
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.errors import quoted
from nmt.extensions.methods.columns.links import NO_LINK
from nmt.extensions.methods.criteria.options import GuidedAlignmentOptions
from nmt.models.base import Model, Output


@register("criterion", "guided-alignment", GuidedAlignmentOptions)
class GuidedAlignment(CrossEntropy):
    """Cross entropy of the translation, plus cross entropy of the attention against given word alignments.

    With `--encoder-weight`, the encoder alone also predicts target tokens from the source tokens to which they are linked.
    """

    def __init__(self, options: GuidedAlignmentOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.weight, self.column = options.alignment_weight, options.alignment_column
        self.encoder_weight = options.encoder_weight

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. For evaluation sets without the alignment column, only the loss of the translation is computed."""
        if self.column not in batch and not model.training:
            return super().__call__(model, batch)
        alignment = self._alignment(batch)  # B T S
        output = watched_pass(model, batch)
        trained, reported = self.of_features(model, output.features, batch)
        assert output.attention is not None
        weights, count = output.attention.float(), _num_aligned(alignment)
        shares = alignment * self.token_weights(model, batch).view_as(batch.target_output)[..., None]  # B T S
        total = -(shares * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum()
        terms = {"alignment": Term(self.weight * total, count)}
        if self.encoder_weight:
            total = self._encoder_loss(model, output.memory, batch.target_output, shares)
            terms["encoder"] = Term(self.encoder_weight * total, count)
        return Loss({**trained, **terms}, reported)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """See Criterion. The count of the further terms is the number of target tokens that have a link."""
        names = ("alignment", "encoder") if self.encoder_weight else ("alignment",)
        return {**super().counts(batch), **dict.fromkeys(names, _num_aligned(self._alignment(batch)))}

    def _encoder_loss(self, model: Model, memory: Tensor | None, targets: Tensor, shares: Tensor) -> Tensor:
        """The loss () of target tokens, each predicted by the encoder's output at its links.

        memory: (B, S, D); targets: (B, T); shares: (B, T, S) the weight of each link
        """
        if memory is None:
            raise UserError(
                "--encoder-weight: the model provides no encoder output (use --model transformer, or drop --encoder-weight)"
            )
        rows, places, sources = shares.nonzero(as_tuple=True)
        if not len(rows):
            return memory.sum() * 0
        features, factors = memory[rows, sources], shares[rows, places, sources]
        return sums_of_logits(self.of_logits, model.output, [features], targets[rows, places], factors)[0]

    def _alignment(self, batch: Batch) -> Tensor:
        """The distribution (B, T, S) that the attention learns: equal shares for all links of a token, 0 without links."""
        name = quoted(self.column)
        if self.column not in batch:
            fix = f"add it with nmt prepare --column {name}:links=FILE, or use --align to learn the column alignment"
            raise MissingColumnError(self.column, f"the data has no column '{name}' ({fix})")
        links = batch[self.column]  # B L 2
        if batch.columns[self.column].kind != "links":
            raise UserError(
                f"--alignment-column {name}: the column contains numbers, not links (use nmt prepare --column {name}:links=FILE)"
            )
        rows, places = (links[..., 0] != NO_LINK).nonzero(as_tuple=True)
        source, target = links[rows, places].unbind(1)
        alignment = torch.zeros(len(batch), batch.target_output.shape[1], batch.source.shape[1], device=links.device)
        alignment[rows, target, source] = 1.0
        return alignment / alignment.sum(-1, keepdim=True).clamp_min(1.0)


def _num_aligned(alignment: Tensor) -> Tensor:
    """The number of target tokens that have a link, as a scalar tensor. alignment: (B, T, S)"""
    return (alignment.sum(-1) > 0).sum()


def watched_pass(model: Model, batch: Batch) -> Output:
    """Run `forward` and record the attention of `alignment_layer` with gradients. Raises UserError if there is no attention."""
    model.watched = True
    try:
        output: Output = model(batch)
    finally:
        model.watched = False
    if output.attention is None:
        raise UserError("the model has no attention weights to train (use another model, or drop --compile)")
    return output
