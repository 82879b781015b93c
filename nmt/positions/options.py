"""The options of positions. Without torch, so that `--help` answers at once."""

from nmt import options_class
from nmt.options import size_opt


@options_class
class LearnedPositionOptions:
    max_positions: int = size_opt(1024, "learned positions; a longer sentence repeats the last")
