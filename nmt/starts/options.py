"""The options of starts. Without torch, so that `--help` answers at once."""

from nmt import opt, options_class


@options_class
class InitFromOptions:
    init_from: str | None = opt(
        None,
        "model, run or checkpoint whose options and weights a new run starts with",
        must_stay=True,
        metavar="MODEL",
    )
