"""The interface of position encodings, which a Transformer adds to embeddings (Vaswani et al., 2017, section 3.5).

A registered encoding is built as `cls(options, width)`, once for the source and once for the target. `options` is the
Transformer's options object, also an instance of the encoding's options class. `width` is the embeddings' width.
"""

from torch import Tensor, nn


class PositionEncoding(nn.Module):
    """A vector for each position. This base class adds nothing, for layers that represent positions in other ways."""

    def forward(self, start: int, length: int) -> Tensor | float:
        """The vectors of the positions start, start + 1, ...: (length, D), or 0"""
        return 0.0
