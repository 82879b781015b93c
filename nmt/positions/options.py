"""The options of position encodings. This module does not import torch, so that `--help` is fast."""

from nmt import options_class
from nmt.options import size_opt


@options_class
class LearnedPositionOptions:
    max_positions: int = size_opt(1024, "number of learned positions; later positions in a sentence use the last one")
