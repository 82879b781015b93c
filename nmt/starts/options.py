"""The options of starts. This module does not import torch, so that `--help` is fast."""

from nmt import opt, options_class


@options_class
class InitFromOptions:
    init_from: str | None = opt(
        None,
        "model, run or checkpoint to start from",
        group="Fine-tuning",
        common=True,
        must_stay=True,
        metavar="MODEL",
    )
