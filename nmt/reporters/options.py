"""The options of the core's reporters."""

from nmt import options_class


@options_class
class LogLinesOptions:
    """No options: log lines are always written."""

    def is_active(self) -> bool:
        """Log lines are always in use, without any option."""
        return True
