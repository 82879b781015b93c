"""Columns of numbers that can be negative, such as scores, or weights that train the model away from a translation."""

from typing import ClassVar

from nmt import register
from nmt.columns.pair import PairColumn
from nmt.extensions.methods.columns.target import TargetColumn
from nmt.options import NoOptions


@register("column", "signed-pair", NoOptions)
class SignedPairColumn(PairColumn):
    """One number per pair, positive or negative: (B,) float32 in a batch."""

    are_weights: ClassVar[bool] = False


@register("column", "signed-target", NoOptions)
class SignedTargetColumn(TargetColumn):
    """One number per target word, positive or negative: (B, T) float32 in a batch, like a `target` column."""

    are_weights: ClassVar[bool] = False
