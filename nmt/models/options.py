"""The options of the Transformer. This module does not import torch, so that `--help` is fast."""

from typing import Final, Literal

from nmt import opt
from nmt.options import choice, probability_opt, size_opt
from nmt.registry import open_options_class

MAX_INIT: Final = 1000.0  # maximum size of an initial weight; no network could learn from weights this large
TIE: Final = "embeddings to share: source, target and output (all), or only target and output (target)"

Tie = Literal["all", "target", "none"]


@open_options_class("mixer", "ffn", "positions")
class TransformerOptions:
    encoder_layers: int = size_opt(6, "number of encoder layers, N in the paper")
    decoder_layers: int = size_opt(6, "number of decoder layers, N in the paper")
    d_model: int = size_opt(512, "width of embeddings and layer outputs")
    d_ff: int = size_opt(2048, "inner width of the feed-forward networks")
    heads: int = size_opt(8, "number of attention heads, h in the paper")
    d_k: int | None = size_opt(None, "width of each head's queries and keys; d_model / heads if unset")
    d_v: int | None = size_opt(None, "width of each head's values; d_model / heads if unset")
    dropout: float = probability_opt(
        0.1, "dropout on the output of sub-layers and on the input embeddings", group="Regularization"
    )
    attention_dropout: float = probability_opt(0.0, "dropout on the attention weights", group="Regularization")
    activation_dropout: float = probability_opt(0.0, "dropout inside the feed-forward networks", group="Regularization")
    norm_position: Literal["post", "pre"] = opt(
        "post", "normalise after each sub-layer (post, as in the paper) or before it (pre)"
    )
    norm_epsilon: float = opt(1e-6, "constant added to the variance in layer normalisation; 1e-5 in fairseq", above=0)
    activation: Literal["relu", "swish", "gelu"] = opt(
        "relu", "activation of the feed-forward networks; the paper uses relu"
    )
    norm: Literal["layer", "rms"] = opt(
        "layer", "type of normalisation: layer, as in the paper, or rms (Zhang and Sennrich, 2019)"
    )
    positions: str = choice("positions", "sinusoidal", "position encoding (nmt list positions)")
    decoder_autoregression: str = choice(
        "mixer",
        "self-attention",
        "how decoder layers read previous tokens (see nmt list mixer)",
    )
    attention_bias: bool = opt(False, "add biases to the attention projections, as fairseq does")
    output_bias: bool = opt(False, "add a bias to the logits; the paper has none")
    source_eos: bool = opt(True, "let attention see the source's end symbol, which OpenNMT models do not have")
    tie: Tie = opt("all", TIE)
    tie_layers: Literal["none", "encoder", "decoder", "all"] = opt(
        "none", "stacks whose layers share one set of weights (Dabre and Fujita, 2019)"
    )
    ffn: str = choice("ffn", "dense", "type of feed-forward network (nmt list ffn)")

    def __post_init__(self) -> None:
        if self.d_model % 2:
            raise ValueError(f"--d-model {self.d_model}: must be even, because sines and cosines come in pairs")
        if self.d_model % self.heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"--d-model {self.d_model}: must be a multiple of --heads {self.heads} (or set --d-k and --d-v)"
            )
