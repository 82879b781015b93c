"""The options of the built-in models. Without torch, so that `--help` answers at once."""

import re
from typing import Any, Final, Literal, NamedTuple

from nmt import opt, options_class
from nmt.options import flag_of

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
READ_OUT_CONTEXT: Final = (
    "add a projection of the attention's context to the features of the output layer; not in the paper, for small data"
)
READ_OUT_WORD: Final = "add a projection of the previous word too; not in the paper, for small data"
TIE: Final = "what shares one embedding table: source, target and output; target and output; nothing"

Tie = Literal["all", "target", "none"]


def _size(default: int | None, help: str, minimum: int = 1) -> Any:
    return opt(default, help, minimum=minimum, maximum=MAX_LAYER_SIZE, is_size=True)


def _probability(default: float, where: str) -> Any:
    return opt(default, f"probability, {where}", minimum=0, below=1)


def _check_experts(o: Any, num_layers: int = 0) -> None:
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
    encoder_layers: int = _size(6, "layers of the encoder, N in the paper")
    decoder_layers: int = _size(6, "layers of the decoder, N in the paper")
    d_model: int = _size(512, "width of every layer's output")
    d_ff: int = _size(2048, "inner width of the feed-forward networks")
    heads: int = _size(8, "attention heads, h in the paper")
    d_k: int | None = _size(None, "width of a head's queries and keys; none is d_model / heads")
    d_v: int | None = _size(None, "width of a head's values; none is d_model / heads")
    kv_heads: int | None = _size(
        None,
        "heads of keys and values in the decoder, each of which several heads of queries share; none is heads, 1 is "
        "multi-query attention (Ainslie et al., 2023)",
    )
    dropout: float = _probability(0.1, "on each sub-layer's output and on the sums of embeddings and positions")
    attention_dropout: float = _probability(0.0, "on attention weights; 0 in the paper")
    activation_dropout: float = _probability(0.0, "inside the feed-forward networks; 0 in the paper")
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
    max_positions: int = _size(1024, "learned positions; a longer sentence repeats the last")
    relative_distance: int = _size(16, "relative positions: larger distances count as this, k in their paper")
    relative_heads: Literal["shared", "separate"] = opt(
        "shared", "relative positions: the heads of a layer share vectors, or have separate ones"
    )
    relative_values: bool = opt(True, "relative positions of values and keys; else of keys only")
    attention_window: int | None = _size(
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
    experts: int = _size(8, EXPERTS, minimum=2)
    active_experts: int = _size(2, ACTIVE_EXPERTS)
    expert_groups: int = _size(1, EXPERT_GROUPS)
    expert_every: int = _size(2, EXPERT_EVERY)
    gates: Literal["noisy-top-k", "balanced"] = opt("noisy-top-k", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)

    def __post_init__(self) -> None:
        _check_experts(self, min(self.encoder_layers, self.decoder_layers))
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


@options_class
class RnnSearchOptions:
    embedding_size: int = _size(620, "width of the word embeddings, m in the paper")
    hidden_size: int = _size(
        1000,
        "width of a GRU's state in each direction and in the decoder, n in the paper",
    )
    attention_size: int = _size(1000, "width of the attention's hidden layer, n' in the paper")
    maxout_size: int = _size(500, "width of the read-out after maxout, l in the paper")
    output_rank: int | None = _size(
        None,
        "factorise the output matrix to this width; none is the paper, 620 the authors' code",
    )
    dropout: float = _probability(
        0.0, "on embeddings, annotations and the read-out; 0 in the paper, 0.2 to 0.5 for small data"
    )


@options_class
class GnmtOptions:
    encoder_layers: int = _size(8, "layers of the encoder, the lowest in both directions")
    decoder_layers: int = _size(8, "layers of the decoder")
    hidden_size: int = _size(1024, "width of the embeddings and of every LSTM")
    attention_size: int = _size(1024, "width of the attention's hidden layer")
    cell: Literal["gnmt", "standard"] = opt(
        "gnmt", "gnmt: without biases, and without tanh of the cell's output (equation 11); standard: with both"
    )
    clip_start: float = opt(
        8.0,
        "numbers in cells and between layers are clipped to this size in the first update, delta in the paper",
        above=0,
    )
    clip_end: float | None = opt(
        1.0, "the same after clip_updates, in validation and in translation; none never clips", above=0
    )
    clip_updates: int = opt(100_000, "updates of linear change from clip_start to clip_end", minimum=0)
    logit_clip: float | None = opt(
        25.0, "logits are clipped to this size, gamma in the paper; none never clips", above=0
    )
    init_range: float = opt(0.04, "all weights start uniform between minus and plus this", above=0, maximum=MAX_INIT)
    scale_embeddings: bool = opt(
        False,
        "multiply embeddings by the square root of their width, as the Transformer does; small models learn faster",
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    read_out_word: bool = opt(False, READ_OUT_WORD)
    tie: Tie = opt("none", TIE)
    dropout: float = _probability(
        0.2, "on the input of each LSTM, the memory and the features; 0.3 in the paper's En-De"
    )


@options_class
class DeepAttOptions:
    encoder_layers: int = _size(9, "layers of each of the encoder's two columns, n_e in the paper")
    decoder_layers: int = _size(7, "layers of the decoder, n_d in the paper")
    embedding_size: int = _size(256, "width of the word embeddings")
    hidden_size: int = _size(512, "width of every LSTM")
    interface: Literal["attention", "summary"] = opt(
        "attention",
        "what the decoder reads: attention, the paper's Deep-Att; summary, one vector a sentence, its Deep-ED",
    )
    memory_size: int = _size(1280, "width of the memory that attention reads, W_p's in the paper")
    attention_size: int = _size(512, "width of the attention's hidden layer; the paper does not give it")
    peepholes: bool = opt(
        True, "gates see the cell through diagonal matrices, as Paddle's LSTM; the paper's text leaves it open"
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    read_out_word: bool = opt(False, READ_OUT_WORD)
    tie: Tie = opt("none", f"{TIE}; embedding_size must be hidden_size")
    dropout: float = _probability(0.1, "on h of each layer but not on f; 0.1 in the paper")
    init_std: float = opt(
        0.07, "standard deviation of the first weights; recurrent ones start at 0", above=0, maximum=MAX_INIT
    )
    recurrent_lr_factor: float = opt(
        12.5, "factor of the learning rate of recurrent weights; 12.5 is the paper's 5e-4 over 4e-5", above=0
    )

    def __post_init__(self) -> None:
        if self.read_out_context and self.interface != "attention":
            raise ValueError(
                "--read-out-context: reads the context of attention (leave it out, or --interface attention)"
            )
        if self.tie != "none" and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"--tie {self.tie}: --embedding-size {self.embedding_size} must be --hidden-size {self.hidden_size}"
            )


@options_class
class LanguageModelOptions:
    layers: int = _size(6, "layers")
    d_model: int = _size(512, "width of every layer's output")
    d_ff: int = _size(2048, "inner width of the feed-forward networks")
    heads: int = _size(8, "attention heads")
    dropout: float = _probability(0.1, "on each sub-layer's output and on the sums of embeddings and positions")
    norm_position: Literal["post", "pre"] = opt("post", "post: norm(x + f(x)); pre: x + f(norm(x)) and a final norm")
    ffn: Literal["dense", "moe"] = opt("dense", "the feed-forward networks: dense, or mixtures of experts (moe)")
    experts: int = _size(8, EXPERTS, minimum=2)
    active_experts: int = _size(2, ACTIVE_EXPERTS)
    expert_groups: int = _size(1, EXPERT_GROUPS)
    expert_every: int = _size(2, EXPERT_EVERY)
    gates: Literal["noisy-top-k", "balanced"] = opt("noisy-top-k", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)

    def __post_init__(self) -> None:
        _check_experts(self, self.layers)
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError(f"--d-model {self.d_model}: must be even, and a multiple of --heads {self.heads}")


@options_class
class MemoryNetworkOptions:
    hops: int = _size(6, "hops of attention over the memory, K in the paper")
    memory_size: int = _size(100, "tokens of the memory, the last before the predicted one")
    embedding_size: int = _size(150, "width of the embeddings and of the state between hops")
    linear_size: int | None = opt(
        None, "numbers of the state that pass no ReLU after a hop; none is half of them", minimum=0
    )
    init_std: float = opt(0.05, "standard deviation of the first weights", above=0, maximum=MAX_INIT)

    def __post_init__(self) -> None:
        if self.linear_size is not None and self.linear_size > self.embedding_size:
            raise ValueError(
                f"--linear-size {self.linear_size}: must be at most --embedding-size {self.embedding_size}"
            )


class ConvolutionShape(NamedTuple):
    """The width and the kernel, in positions, of a layer of ConvS2S."""

    width: int
    kernel: int


def convolution_shapes(plan: str) -> list[ConvolutionShape]:
    """The layers of a plan such as `9x512k3,4x1024k3`: nine of width 512 and kernel 3, then four of width 1024.

    Raises ValueError for any other text.
    """
    layers: list[ConvolutionShape] = []
    for text in plan.split(","):
        match = re.fullmatch(r"(?:([1-9]\d{0,5})x)?([1-9]\d{0,5})k([1-9]\d{0,5})", text.strip())
        if match is None:
            raise ValueError(
                f"'{text}': no layers (write 9x512k3 for nine of width 512 and kernel 3, each below 1,000,000)"
            )
        layers += [ConvolutionShape(int(match[2]), int(match[3]))] * int(match[1] or 1)
    return layers


@options_class
class ConvS2SOptions:
    encoder_layers: str = opt(
        "9x512k3,4x1024k3,2x2048k1",
        "count, width and kernel of the encoder's layers; as released for En-De",
        is_size=True,
    )
    decoder_layers: str = opt(
        "9x512k3,4x1024k3,2x2048k1",
        "count, width and kernel of the decoder's layers; as released for En-De",
        is_size=True,
    )
    embedding_size: int = _size(768, "width of embeddings and positions; 512 in the paper, 768 as released")
    output_size: int = _size(512, "width of the decoder's output, before the logits")
    max_positions: int = _size(1024, "learned positions; a longer sentence repeats the last")
    dropout: float = _probability(
        0.2, "on embeddings, each layer's input and the decoder's output; 0.2 for En-De, 0.1 for En-Fr"
    )

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers"):
            try:
                convolution_shapes(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{flag_of(name)} {error}") from None


@options_class
class ByteNetOptions:
    hidden_size: int = _size(
        800,
        "inner width of a block, d in the paper; its input and output are twice as wide",
    )
    encoder_layers: int = _size(30, "residual blocks of the encoder")
    decoder_layers: int = _size(30, "residual blocks of the decoder")
    kernel: int = _size(3, "taps of a convolution")
    max_dilation: int = _size(16, "dilations are 1, 2, 4, ... up to this, and begin anew")
    combine: Literal["add", "concat"] = opt(
        "add", "how the encoder's output joins a target embedding: add, or concat and a linear layer"
    )
    unfold_factor: float = opt(1.2, "a of the unfolded length a * |s| + b; 1.2 in the paper", minimum=1, maximum=1000)
    unfold_offset: int = _size(0, "b of the unfolded length a * |s| + b; 0 in the paper", minimum=0)
    bucket: int = _size(50, "|s| is rounded up to a multiple of this; 50 in the paper")
    dropout: float = _probability(0.0, "on each block's output before the residual sum")

    def __post_init__(self) -> None:
        if self.max_dilation & (self.max_dilation - 1):
            raise ValueError(f"--max-dilation {self.max_dilation}: must be a power of 2")


@options_class
class NeuralGpuOptions:
    hidden_size: int = _size(512, "numbers of a position in a row of the memory, m in the paper")
    height: int = _size(4, "rows of the memory; the source stands in the first")
    layers: int = _size(2, "CGRUs of an encoder step, and of a decoder step")
    memory_offset: int = _size(
        8, "the memory has this many positions more than the source has tokens, and n steps for n positions", minimum=0
    )
    outputs: Literal["extended", "markovian", "baseline"] = opt(
        "extended",
        "extended: each token changes the memory; markovian: from the encoder's memory and the token before; "
        "baseline: from the encoder's memory alone",
    )
    dropout: float = _probability(0.1, "on the memory before each step; times 3 / sqrt(n) for n > 9 positions")


@options_class
class MoeOptions:
    d_model: int = _size(512, "width of every layer's input and output")
    hidden_size: int = _size(2048, "cells of each LSTM, whose output is projected to d_model")
    attention_size: int = _size(512, "width of the attention's hidden layer; the paper does not give it")
    expert_size: int = _size(2048, "inner width of an expert")
    experts: int = _size(32, EXPERTS, minimum=2)
    active_experts: int = _size(4, ACTIVE_EXPERTS)
    expert_groups: int = _size(1, EXPERT_GROUPS)
    gates: Literal["noisy-top-k", "balanced"] = opt("balanced", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)
    bidirectional: bool = opt(
        True,
        "the first two LSTMs of the encoder read in opposite directions, side by side; else the second follows "
        "the first (the paper counts three LSTMs, and does not say)",
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    tie: Tie = opt("none", TIE)
    dropout: float = _probability(0.4, "on the outputs of embeddings, LSTMs and mixtures of experts")

    def __post_init__(self) -> None:
        _check_experts(self)
