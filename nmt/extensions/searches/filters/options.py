"""The options of the filters. This module does not import torch, so that `--help` is fast."""

from nmt import opt, options_class


@options_class
class AvoidOptions:
    avoid: str | None = opt(
        None,
        "file of words and phrases to avoid, one per line",
        group="Constraints and terms",
        common=True,
        metavar="FILE",
    )
