"""The options of filters. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class AvoidOptions:
    avoid: str | None = opt(
        None, "file of words and phrases, one per line, that translations must not contain as whole words"
    )
