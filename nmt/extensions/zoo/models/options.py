"""The options of the zoo's models. This module does not import torch, so that `--help` is fast."""

import re
from typing import Final, Literal, NamedTuple

from nmt import opt, options_class
from nmt.extensions.variants.feed_forwards.options import (
    ACTIVE_EXPERTS,
    EXPERT_EVERY,
    EXPERT_GROUPS,
    EXPERTS,
    GATES,
    IMPORTANCE_WEIGHT,
    LOAD_WEIGHT,
    check_experts,
)
from nmt.models.options import MAX_INIT, TIE, Tie
from nmt.options import flag_of, probability_opt, size_opt

READ_OUT_CONTEXT: Final = "feed the attention context into the output features; for small data, not in the paper"
READ_OUT_WORD: Final = "feed the previous word into the output features; for small data, not in the paper"


@options_class
class RnnSearchOptions:
    embedding_size: int = size_opt(620, "width of the word embeddings, m in the paper")
    hidden_size: int = size_opt(
        1000,
        "width of each GRU state in the encoder and the decoder, n in the paper",
    )
    attention_size: int = size_opt(1000, "width of the attention's hidden layer, n' in the paper")
    maxout_size: int = size_opt(500, "width of the read-out after maxout, l in the paper")
    output_rank: int | None = size_opt(
        None,
        "rank of a factorised output matrix; full by default, 620 in the authors' code",
    )
    dropout: float = probability_opt(
        0.0,
        "dropout on embeddings, annotations and the read-out; 0.2 to 0.5 suits small data sets",
        group="Regularization",
    )


@options_class
class GnmtOptions:
    encoder_layers: int = size_opt(8, "encoder layers; the lowest one reads in both directions")
    decoder_layers: int = size_opt(8, "decoder layers")
    hidden_size: int = size_opt(1024, "width of the embeddings and of every LSTM")
    attention_size: int = size_opt(1024, "width of the attention's hidden layer")
    cell: Literal["gnmt", "standard"] = opt(
        "gnmt", "gnmt: without biases or tanh on the cell's output (equation 11); standard: with both"
    )
    clip_start: float = opt(
        8.0,
        "initial clipping threshold for cell states and layer outputs (delta in the paper)",
        above=0,
    )
    clip_end: float | None = opt(
        1.0,
        "clipping threshold after --clip-updates updates, and in validation and translation; 'none' disables clipping",
        above=0,
    )
    clip_updates: int = opt(
        100_000, "number of updates over which clipping changes linearly from --clip-start to --clip-end", minimum=0
    )
    logit_clip: float | None = opt(
        25.0, "clip logits to this magnitude, gamma in the paper; 'none' disables clipping", above=0
    )
    init_range: float = opt(
        0.04, "initialise weights uniformly between minus and plus this value", above=0, maximum=MAX_INIT
    )
    scale_embeddings: bool = opt(
        False,
        "multiply embeddings by the square root of their width; this helps small models",
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    read_out_word: bool = opt(False, READ_OUT_WORD)
    tie: Tie = opt("none", TIE)
    dropout: float = probability_opt(
        0.2,
        "dropout on LSTM inputs, the memory and the output features; 0.3 in the paper's En-De",
        group="Regularization",
    )


@options_class
class DeepAttOptions:
    encoder_layers: int = size_opt(9, "layers in each of the encoder's two columns, n_e in the paper")
    decoder_layers: int = size_opt(7, "decoder layers, n_d in the paper")
    embedding_size: int = size_opt(256, "width of the word embeddings")
    hidden_size: int = size_opt(512, "width of every LSTM")
    interface: Literal["attention", "summary"] = opt(
        "attention",
        "what the decoder reads: attention (Deep-Att) or summary (one vector per sentence, as in Deep-ED)",
    )
    memory_size: int = size_opt(1280, "width of the memory that the attention reads; output width of the paper's W_p")
    attention_size: int = size_opt(512, "width of the attention's hidden layer; not stated in the paper")
    peepholes: bool = opt(True, "feed the cell state to the gates through diagonal matrices, as in Paddle's LSTM")
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    read_out_word: bool = opt(False, READ_OUT_WORD)
    tie: Tie = opt("none", f"{TIE}; needs equal --embedding-size and --hidden-size")
    dropout: float = probability_opt(
        0.1, "dropout on each layer's h, but not on f; 0.1 in the paper", group="Regularization"
    )
    init_std: float = opt(
        0.07, "standard deviation of the initial weights; recurrent weights start at 0", above=0, maximum=MAX_INIT
    )
    recurrent_lr_factor: float = opt(
        12.5, "learning rate of recurrent weights, as a multiple of --lr; 12.5 in the paper", above=0
    )

    def __post_init__(self) -> None:
        if self.read_out_context and self.interface != "attention":
            raise ValueError("--read-out-context needs --interface attention (add it, or drop --read-out-context)")
        if self.tie != "none" and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"--tie {self.tie} needs equal sizes, but --embedding-size is {self.embedding_size} "
                f"and --hidden-size is {self.hidden_size}"
            )


@options_class
class LanguageModelOptions:
    layers: int = size_opt(6, "number of layers")
    d_model: int = size_opt(512, "width of every layer's output")
    d_ff: int = size_opt(2048, "inner width of the feed-forward networks")
    heads: int = size_opt(8, "attention heads")
    dropout: float = probability_opt(
        0.1,
        "dropout on each sub-layer's output and on the sums of embeddings and positions",
        group="Regularization",
    )
    norm_position: Literal["post", "pre"] = opt("post", "post: norm(x + f(x)); pre: x + f(norm(x)) and a final norm")
    ffn: Literal["dense", "moe"] = opt("dense", "feed-forward networks: dense, or mixtures of experts (moe)")
    experts: int = size_opt(8, EXPERTS, minimum=2)
    active_experts: int = size_opt(2, ACTIVE_EXPERTS)
    expert_groups: int = size_opt(1, EXPERT_GROUPS)
    expert_every: int = size_opt(2, EXPERT_EVERY)
    gates: Literal["noisy-top-k", "balanced"] = opt("noisy-top-k", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)

    def __post_init__(self) -> None:
        check_experts(self, self.layers)
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError(f"--d-model {self.d_model}: must be even, and a multiple of --heads {self.heads}")


@options_class
class MemoryNetworkOptions:
    hops: int = size_opt(6, "hops of attention over the memory, K in the paper")
    memory_size: int = size_opt(100, "number of previous tokens that the memory holds")
    embedding_size: int = size_opt(150, "width of the embeddings and of the state between hops")
    linear_size: int | None = opt(
        None, "number of state components that skip the ReLU after each hop; by default, half", minimum=0
    )
    init_std: float = opt(0.05, "standard deviation of the initial weights", above=0, maximum=MAX_INIT)

    def __post_init__(self) -> None:
        if self.linear_size is not None and self.linear_size > self.embedding_size:
            raise ValueError(
                f"--linear-size {self.linear_size}: must be at most --embedding-size {self.embedding_size}"
            )


class ConvolutionShape(NamedTuple):
    """The width of a ConvS2S layer, and its kernel size in positions."""

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
                f"'{text}': not a description of layers (write 9x512k3 for nine layers of width 512 and kernel 3, "
                "with numbers below 1,000,000)"
            )
        layers += [ConvolutionShape(int(match[2]), int(match[3]))] * int(match[1] or 1)
    return layers


@options_class
class ConvS2SOptions:
    encoder_layers: str = opt(
        "9x512k3,4x1024k3,2x2048k1",
        "encoder layers as COUNTxWIDTHkKERNEL, separated by commas; by default, those of the released En-De model",
        is_size=True,
    )
    decoder_layers: str = opt(
        "9x512k3,4x1024k3,2x2048k1",
        "decoder layers as COUNTxWIDTHkKERNEL, separated by commas; by default, those of the released En-De model",
        is_size=True,
    )
    embedding_size: int = size_opt(768, "width of embeddings and positions; 512 in the paper, 768 as released")
    output_size: int = size_opt(512, "width of the decoder's output, before the logits")
    max_positions: int = size_opt(1024, "number of learned positions; longer sentences reuse the last one")
    dropout: float = probability_opt(
        0.2,
        "dropout on embeddings, layer inputs and the decoder's output; 0.1 in the paper's En-Fr",
        group="Regularization",
    )

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers"):
            try:
                convolution_shapes(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{flag_of(name)} {error}") from None


@options_class
class ByteNetOptions:
    hidden_size: int = size_opt(800, "inner width of a block, d in the paper; a block's input is twice as wide")
    encoder_layers: int = size_opt(30, "residual blocks in the encoder")
    decoder_layers: int = size_opt(30, "residual blocks in the decoder")
    kernel: int = size_opt(3, "kernel size of the convolutions")
    max_dilation: int = size_opt(16, "largest dilation; dilations double from 1 to this value, then start again")
    combine: Literal["add", "concat"] = opt(
        "add", "how to combine encoder output and target embedding: add, or concat with a linear layer"
    )
    unfold_factor: float = opt(
        1.2, "factor a in the encoder's output length: a * |s| + b for |s| source tokens", minimum=1, maximum=1000
    )
    unfold_offset: int = size_opt(
        0, "constant b in the encoder's output length: a * |s| + b for |s| source tokens", minimum=0
    )
    bucket: int = size_opt(50, "round the source length up to a multiple of this; 50 in the paper")
    dropout: float = probability_opt(
        0.0, "dropout on each block's output before the residual sum", group="Regularization"
    )

    def __post_init__(self) -> None:
        if self.max_dilation & (self.max_dilation - 1):
            raise ValueError(f"--max-dilation {self.max_dilation}: must be a power of 2")


@options_class
class NeuralGpuOptions:
    hidden_size: int = size_opt(512, "width of each memory position, m in the paper")
    height: int = size_opt(4, "number of rows in the memory; the first row holds the source")
    layers: int = size_opt(2, "CGRUs per encoder step and per decoder step")
    memory_offset: int = size_opt(8, "memory positions beyond the source length; each position adds a step", minimum=0)
    outputs: Literal["extended", "markovian", "baseline"] = opt(
        "extended",
        "extended: outputs change the memory; markovian: outputs see the previous token; baseline: neither",
    )
    dropout: float = probability_opt(
        0.1,
        "dropout on the memory before each step; scaled down if there are more than 9 positions",
        group="Regularization",
    )


@options_class
class MoeOptions:
    d_model: int = size_opt(512, "width of every layer's input and output")
    hidden_size: int = size_opt(2048, "cells in each LSTM; the output is projected to --d-model")
    attention_size: int = size_opt(512, "width of the attention's hidden layer; not stated in the paper")
    expert_size: int = size_opt(2048, "inner width of an expert")
    experts: int = size_opt(32, EXPERTS, minimum=2)
    active_experts: int = size_opt(4, ACTIVE_EXPERTS)
    expert_groups: int = size_opt(1, EXPERT_GROUPS)
    gates: Literal["noisy-top-k", "balanced"] = opt("balanced", GATES)
    importance_weight: float = opt(0.01, IMPORTANCE_WEIGHT, minimum=0)
    load_weight: float = opt(0.01, LOAD_WEIGHT, minimum=0)
    bidirectional: bool = opt(
        True,
        "let the encoder's first two LSTMs read in opposite directions; otherwise they are stacked",
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    tie: Tie = opt("none", TIE)
    dropout: float = probability_opt(
        0.4, "dropout on the outputs of embeddings, LSTMs and mixtures of experts", group="Regularization"
    )

    def __post_init__(self) -> None:
        check_experts(self)
