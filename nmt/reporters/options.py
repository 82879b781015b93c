"""The options of the reporters of the core: none."""

from nmt import options_class


@options_class
class LogLinesOptions:
    """Log lines are always written."""
