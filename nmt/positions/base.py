"""The interface of positions: what a Transformer adds to the embeddings of tokens (Vaswani et al., 2017, section 3.5).

Registered positions are built as `cls(options, width)`, for the source and for the target. options: of the Transformer, which
are an object of the class that the positions were registered with too. width: D
"""

from torch import Tensor, nn


class PositionEncoding(nn.Module):
    """A vector for each position, or nothing where layers know positions by other means, as here."""

    def forward(self, start: int, length: int) -> Tensor | float:
        """(length, D) vectors of the positions start, start + 1, ...; or 0"""
        return 0.0
