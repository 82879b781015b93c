"""Rotary positions (Su et al., 2021), applied in self-attention (mixers/attention_variants.py), alone or with sinusoids."""

from nmt import register
from nmt.options import NoOptions
from nmt.positions.base import PositionEncoding
from nmt.positions.sinusoidal import SinusoidalPositions


@register("positions", "rotary", NoOptions)
class PositionsOfRotations(PositionEncoding):
    """Rotary positions: rotations of queries and keys in self-attention (Su et al., 2021). Embeddings stay unchanged."""

    def __init__(self, options: object, width: int) -> None:
        super().__init__()


@register("positions", "sinusoidal-rotary", NoOptions)
class SinusoidsAndRotations(SinusoidalPositions):
    """Sinusoids in the embeddings and rotations in self-attention. Attention depends on positions and on distances."""
