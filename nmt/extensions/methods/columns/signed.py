"""Columns with numbers that are no weights, so that they may be negative: scores, or weights that train a model away."""

from typing import ClassVar

from nmt import register
from nmt.columns.pair import PairColumn
from nmt.extensions.methods.columns.target import TargetColumn
from nmt.options import NoOptions


@register("column", "signed-pair", NoOptions)
class SignedPairColumn(PairColumn):
    """One number per pair, of any sign: (B,) float32 in a batch."""

    are_weights: ClassVar[bool] = False


@register("column", "signed-target", NoOptions)
class SignedTargetColumn(TargetColumn):
    """One number per target word, of any sign: (B, T) float32 in a batch, as a `target` column."""

    are_weights: ClassVar[bool] = False
