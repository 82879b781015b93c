"""Relative positions (Shaw et al., 2018), added in self-attention (mixers/attention_variants.py), not to the embeddings."""

from nmt import register
from nmt.extensions.variants.positions.options import RelativePositionOptions
from nmt.positions.base import PositionEncoding


@register("positions", "relative", RelativePositionOptions)
class PositionsOfDistances(PositionEncoding):
    """Relative positions: vectors for distances in self-attention (Shaw et al., 2018). Embeddings stay unchanged."""

    def __init__(self, options: RelativePositionOptions, width: int) -> None:
        super().__init__()
