"""The options of the built-in criteria. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class


@options_class
class CrossEntropyOptions:
    label_smoothing: float = opt(
        0.1, "probability taken from the reference and spread over the vocabulary", minimum=0, below=1
    )
    smoothing_over: Literal["others", "all"] = opt(
        "others",
        "tokens that share it: the V - 1 others (the paper's code, fairseq) or all V (Szegedy, PyTorch, Marian)",
    )
