"""The options of the core's reporters."""

from nmt import options_class


@options_class
class LogLinesOptions:
    """No options: log lines are always written."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: always."""
        return True
