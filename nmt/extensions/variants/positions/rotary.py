"""Rotary positions (Su et al., 2021), applied in self-attention (mixers/attention_variants.py), not to the embeddings."""

from nmt import register
from nmt.options import NoOptions
from nmt.positions.base import PositionEncoding


@register("positions", "rotary", NoOptions)
class PositionsOfRotations(PositionEncoding):
    """Rotary positions: rotations of queries and keys in self-attention (Su et al., 2021). Embeddings stay unchanged."""

    def __init__(self, options: object, width: int) -> None:
        super().__init__()
