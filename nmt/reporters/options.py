"""The options of the reporters of the core: none."""

from nmt import options_class


@options_class
class LogLinesOptions:
    """None: log lines are always written."""

    def is_active(self) -> bool:
        """Whether it is in use without an option: always."""
        return True
