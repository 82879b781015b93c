"""The options of the Transformer. Without torch, so that `--help` answers at once."""

from typing import Final, Literal

from nmt import opt
from nmt.options import choice, probability_opt, size_opt
from nmt.registry import open_options_class

MAX_INIT: Final = 1000.0  # of first weights, far above any that a network learns from
TIE: Final = "what shares one embedding table: source, target and output; target and output; nothing"

Tie = Literal["all", "target", "none"]


@open_options_class("mixer", "ffn", "positions")
class TransformerOptions:
    encoder_layers: int = size_opt(6, "layers of the encoder, N in the paper")
    decoder_layers: int = size_opt(6, "layers of the decoder, N in the paper")
    d_model: int = size_opt(512, "width of every layer's output")
    d_ff: int = size_opt(2048, "inner width of the feed-forward networks")
    heads: int = size_opt(8, "attention heads, h in the paper")
    d_k: int | None = size_opt(None, "width of a head's queries and keys; none is d_model / heads")
    d_v: int | None = size_opt(None, "width of a head's values; none is d_model / heads")
    dropout: float = probability_opt(
        0.1, "dropout on each sub-layer's output and on the sums of embeddings and positions"
    )
    attention_dropout: float = probability_opt(0.0, "dropout on attention weights; 0 in the paper")
    activation_dropout: float = probability_opt(0.0, "dropout inside the feed-forward networks; 0 in the paper")
    norm_position: Literal["post", "pre"] = opt(
        "post", "post: norm(x + f(x)), the paper; pre: x + f(norm(x)) and a final norm"
    )
    norm_epsilon: float = opt(
        1e-6, "added to the variance in layer normalisation; 1e-6 in the reference code, 1e-5 in fairseq", above=0
    )
    activation: Literal["relu", "swish", "gelu"] = opt(
        "relu", "of the feed-forward networks; relu in the paper, swish in many models of Marian"
    )
    norm: Literal["layer", "rms"] = opt(
        "layer", "layer normalisation, the paper; or by the root mean square alone (rms; Zhang and Sennrich, 2019)"
    )
    positions: str = choice(
        "positions",
        "sinusoidal",
        "how the order of tokens is known: the paper's sinusoids, or others that `nmt list positions` describes",
    )
    decoder_autoregression: str = choice(
        "mixer",
        "self-attention",
        "how decoder layers read the tokens before: self-attention, the paper, or others of `nmt list mixer`",
    )
    attention_bias: bool = opt(False, "biases in the attention projections, as fairseq has; the paper has none")
    output_bias: bool = opt(False, "a bias on the logits; the paper has none")
    source_eos: bool = opt(
        True, "attention sees the end symbol of the source; models of OpenNMT have none, and it is masked"
    )
    tie: Tie = opt("all", TIE)
    tie_layers: Literal["none", "encoder", "decoder", "all"] = opt(
        "none", "whose layers share one set of weights, passed once for each layer (Dabre and Fujita, 2019)"
    )
    ffn: str = choice(
        "ffn",
        "dense",
        "the feed-forward networks: dense, the paper, or others of `nmt list ffn`",
    )

    def __post_init__(self) -> None:
        if self.d_model % 2:
            raise ValueError(f"--d-model {self.d_model}: must be even, because sines and cosines come in pairs")
        if self.d_model % self.heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"--d-model {self.d_model}: must be a multiple of --heads {self.heads}, or give --d-k and --d-v"
            )
