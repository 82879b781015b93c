"""The options of the criteria of the core. Without torch, so that `--help` answers at once."""

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
    z_loss: float = opt(
        0.0,
        "weight of the squared log of the sum of exp of the logits, which keeps logits small; 1e-4 in PaLM (Chowdhery et "
        "al., 2022, section 5)",
        minimum=0,
    )
    loss_weights: str | None = opt(
        None,
        "column whose numbers multiply the loss of each pair or of each target token in training (nmt prepare --column); the "
        "sum is divided by the tokens, as by Marian's --data-weighting",
    )
