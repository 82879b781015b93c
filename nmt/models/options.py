"""The options of the Transformer. Without torch, so that `--help` answers at once."""

from typing import Any, Final, Literal

from nmt import opt, options_class

MAX_INIT: Final = 1000.0  # of first weights, far above any that a network learns from
MAX_LAYER_SIZE: Final = 1 << 20  # of a width, of layers, of experts; the largest published are a tenth of it

# The help of the options that several models have.
EXPERTS: Final = "experts of a mixture, n in its paper"
ACTIVE_EXPERTS: Final = "experts of a token, k in their paper; in a hierarchy groups, and experts in each"
EXPERT_GROUPS: Final = "groups of experts in a hierarchy of gates; 1 for gates without one"
EXPERT_EVERY: Final = "which layers have experts: every n-th, from layer n on (Lepikhin et al., 2021)"
GATES: Final = (
    "noisy-top-k: each token's best experts, with noise in training; balanced: each expert's best tokens of a "
    "micro-batch in training, learned thresholds in translating (Shazeer et al., 2017, section 2.1 and appendix F)"
)
IMPORTANCE_WEIGHT: Final = "weight of the loss that keeps the sums of the experts' gates even"
LOAD_WEIGHT: Final = "weight of the loss that keeps the experts' tokens even; for noisy-top-k"
TIE: Final = "what shares one embedding table: source, target and output; target and output; nothing"

Tie = Literal["all", "target", "none"]


def size_opt(default: int | None, help: str, minimum: int = 1) -> Any:
    return opt(default, help, minimum=minimum, maximum=MAX_LAYER_SIZE, is_size=True)


def probability_opt(default: float, where: str) -> Any:
    return opt(default, f"probability, {where}", minimum=0, below=1)


def check_experts(o: Any, num_layers: int = 0) -> None:
    """num_layers: of which every n-th has experts; 0 for mixtures that stand between the layers"""
    if o.experts % o.expert_groups:
        raise ValueError(f"--experts {o.experts}: must be a multiple of --expert-groups {o.expert_groups}")
    largest = o.experts if o.expert_groups == 1 else min(o.expert_groups, o.experts // o.expert_groups)
    if o.active_experts > largest:
        raise ValueError(f"--active-experts {o.active_experts}: must be at most {largest}, of which the gates choose")
    if num_layers and o.ffn == "moe" and o.expert_every > num_layers:
        raise ValueError(f"--expert-every {o.expert_every}: must be at most {num_layers}, or no layer has experts")


@options_class
class TransformerOptions:
    encoder_layers: int = size_opt(6, "layers of the encoder, N in the paper")
    decoder_layers: int = size_opt(6, "layers of the decoder, N in the paper")
    d_model: int = size_opt(512, "width of every layer's output")
    d_ff: int = size_opt(2048, "inner width of the feed-forward networks")
    heads: int = size_opt(8, "attention heads, h in the paper")
    d_k: int | None = size_opt(None, "width of a head's queries and keys; none is d_model / heads")
    d_v: int | None = size_opt(None, "width of a head's values; none is d_model / heads")
    kv_heads: int | None = size_opt(
        None,
        "heads of keys and values in the decoder, each of which several heads of queries share; none is heads, 1 is "
        "multi-query attention (Ainslie et al., 2023)",
    )
    dropout: float = probability_opt(0.1, "on each sub-layer's output and on the sums of embeddings and positions")
    attention_dropout: float = probability_opt(0.0, "on attention weights; 0 in the paper")
    activation_dropout: float = probability_opt(0.0, "inside the feed-forward networks; 0 in the paper")
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
    positions: Literal["sinusoidal", "t2t-sinusoidal", "learned", "relative", "rotary"] = opt(
        "sinusoidal",
        "the paper's sinusoids, the reference code's and fairseq's variant, learned vectors; or in self-attention vectors "
        "of distances (relative; Shaw et al., 2018) or rotations of queries and keys (rotary; Su et al., 2021)",
    )
    decoder_autoregression: Literal["self-attention", "ssru", "average-attention"] = opt(
        "self-attention",
        "how decoder layers read the tokens before: self-attention, the paper; or, with steps that cost the same at any "
        "length, a recurrence (ssru; Kim et al., 2019) or the mean of their vectors (Zhang et al., 2018)",
    )
    max_positions: int = size_opt(1024, "learned positions; a longer sentence repeats the last")
    relative_distance: int = size_opt(16, "relative positions: larger distances count as this, k in their paper")
    relative_heads: Literal["shared", "separate"] = opt(
        "shared", "relative positions: the heads of a layer share vectors, or have separate ones"
    )
    relative_values: bool = opt(True, "relative positions of values and keys; else of keys only")
    attention_window: int | None = size_opt(
        None,
        "self-attention sees this many positions, r in section 4 of the paper: around its own in the encoder, up to its "
        "own in the decoder; none sees all",
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
    ffn: Literal["dense", "glu", "moe"] = opt(
        "dense",
        "the feed-forward networks: dense; with gated linear units (glu; Shazeer, 2020), SwiGLU by --activation swish and "
        "GEGLU by gelu; or mixtures of experts (moe)",
    )
    experts: int = size_opt(8, EXPERTS, minimum=2)
    active_experts: int = size_opt(2, ACTIVE_EXPERTS)
    expert_groups: int = size_opt(1, EXPERT_GROUPS)
    expert_every: int = size_opt(2, EXPERT_EVERY)
    gates: Literal["noisy-top-k", "balanced"] = opt("noisy-top-k", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)

    def __post_init__(self) -> None:
        check_experts(self, min(self.encoder_layers, self.decoder_layers))
        if self.ffn == "moe" and self.activation != "relu":
            raise ValueError(f"--activation {self.activation}: experts have relu (leave --activation or --ffn out)")
        if self.ffn == "moe" and self.tie_layers != "none":
            raise ValueError(f"--tie-layers {self.tie_layers}: not with --ffn moe (leave one of them out)")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"--kv-heads {self.kv_heads}: must divide --heads {self.heads}")
        if self.positions == "rotary" and (width := self.d_k or self.d_model // self.heads) % 2:
            raise ValueError(f"--positions rotary: heads must have an even width, not {width} (give --d-k or --heads)")
        if self.d_model % 2:
            raise ValueError(f"--d-model {self.d_model}: must be even, because sines and cosines come in pairs")
        if self.d_model % self.heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"--d-model {self.d_model}: must be a multiple of --heads {self.heads}, or give --d-k and --d-v"
            )
