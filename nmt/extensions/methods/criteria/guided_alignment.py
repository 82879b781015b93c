"""Guided alignment: the attention also learns from given word alignments (Chen et al., 2016, section 3.1).

Dimensions: B sentences, S source and T target positions, L links.
"""

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.batch import Batch, MissingColumnError
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.errors import quoted
from nmt.extensions.methods.columns.links import NO_LINK
from nmt.extensions.methods.criteria.options import GuidedAlignmentOptions
from nmt.models.base import Model, Output


@register("criterion", "guided-alignment", GuidedAlignmentOptions)
class GuidedAlignment(CrossEntropy):
    """Cross entropy of the translation, plus cross entropy of the attention against given word alignments."""

    def __init__(self, options: GuidedAlignmentOptions, context: CriterionContext) -> None:
        super().__init__(options, context)
        self.weight, self.column = options.alignment_weight, options.alignment_column

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See Criterion. For evaluation sets without the alignment column, only the loss of the translation is computed."""
        if self.column not in batch and not model.training:
            return super().__call__(model, batch)
        alignment = self._alignment(batch)  # B T S
        output = watched_pass(model, batch)
        trained, reported = self.of_features(model, output.features, batch)
        assert output.attention is not None
        weights = output.attention.float()
        of_tokens = -(alignment * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1).flatten()  # N
        total = (of_tokens * self.token_weights(model, batch)).sum()
        return Loss({**trained, "alignment": Term(self.weight * total, _num_aligned(alignment))}, reported)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """See Criterion. The count of the alignment term is the number of target tokens that have a link."""
        return {**super().counts(batch), "alignment": _num_aligned(self._alignment(batch))}

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
