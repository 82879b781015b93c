"""The options of the core criteria. This module does not import torch, so that `--help` is fast."""

from typing import Literal

from nmt import opt, options_class


@options_class
class CrossEntropyOptions:
    label_smoothing: float = opt(
        0.1,
        "probability mass moved from the reference token to the other tokens",
        group="Regularization",
        minimum=0,
        below=1,
    )
    smoothing_over: Literal["others", "all"] = opt(
        "others",
        "tokens that share the smoothed mass: all but the reference (fairseq), or all (PyTorch, Marian)",
    )
    z_loss: float = opt(
        0.0,
        "weight of a loss that keeps the logits small (Chowdhery et al., 2022); 1e-4 in PaLM",
        minimum=0,
    )
    loss_weights: str | None = opt(
        None,
        "data column with loss weights, one per pair or per target token (nmt prepare --column)",
        group="Objective",
    )
