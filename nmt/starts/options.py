"""The options of the starts of the core. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class


@options_class
class InitFromOptions:
    init_from: str | None = opt(
        None,
        "model, run or checkpoint whose options and weights a new run begins with (see --init-state)",
        must_stay=True,
    )
    init_state: Literal["none", "optimizer", "schedule", "all"] = opt(
        "none",
        "what to load from the run of --init-from in addition to its weights: optimizer (its state), schedule (that, and the "
        "number of the update) or all (also the position in the same data); the rest starts from scratch",
        must_stay=True,
        needs=("init_from",),
    )
