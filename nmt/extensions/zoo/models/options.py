"""The options of the models of the zoo. Without torch, so that `--help` answers at once."""

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

READ_OUT_CONTEXT: Final = (
    "add a projection of the attention's context to the features of the output layer; not in the paper, for small data"
)
READ_OUT_WORD: Final = "add a projection of the previous word too; not in the paper, for small data"


@options_class
class RnnSearchOptions:
    embedding_size: int = size_opt(620, "width of the word embeddings, m in the paper")
    hidden_size: int = size_opt(
        1000,
        "width of a GRU's state in each direction and in the decoder, n in the paper",
    )
    attention_size: int = size_opt(1000, "width of the attention's hidden layer, n' in the paper")
    maxout_size: int = size_opt(500, "width of the read-out after maxout, l in the paper")
    output_rank: int | None = size_opt(
        None,
        "factorise the output matrix to this width; none is the paper, 620 the authors' code",
    )
    dropout: float = probability_opt(
        0.0,
        "dropout on embeddings, annotations and the read-out; 0 in the paper, 0.2 to 0.5 for small data",
    )


@options_class
class GnmtOptions:
    encoder_layers: int = size_opt(8, "layers of the encoder, the lowest in both directions")
    decoder_layers: int = size_opt(8, "layers of the decoder")
    hidden_size: int = size_opt(1024, "width of the embeddings and of every LSTM")
    attention_size: int = size_opt(1024, "width of the attention's hidden layer")
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
    dropout: float = probability_opt(
        0.2, "dropout on the input of each LSTM, the memory and the features; 0.3 in the paper's En-De"
    )


@options_class
class DeepAttOptions:
    encoder_layers: int = size_opt(9, "layers of each of the encoder's two columns, n_e in the paper")
    decoder_layers: int = size_opt(7, "layers of the decoder, n_d in the paper")
    embedding_size: int = size_opt(256, "width of the word embeddings")
    hidden_size: int = size_opt(512, "width of every LSTM")
    interface: Literal["attention", "summary"] = opt(
        "attention",
        "what the decoder reads: attention, the paper's Deep-Att; summary, one vector a sentence, its Deep-ED",
    )
    memory_size: int = size_opt(1280, "width of the memory that attention reads, W_p's in the paper")
    attention_size: int = size_opt(512, "width of the attention's hidden layer; the paper does not give it")
    peepholes: bool = opt(
        True, "gates see the cell through diagonal matrices, as Paddle's LSTM; the paper's text leaves it open"
    )
    read_out_context: bool = opt(False, READ_OUT_CONTEXT)
    read_out_word: bool = opt(False, READ_OUT_WORD)
    tie: Tie = opt("none", f"{TIE}; embedding_size must be hidden_size")
    dropout: float = probability_opt(0.1, "dropout on h of each layer but not on f; 0.1 in the paper")
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
    layers: int = size_opt(6, "layers")
    d_model: int = size_opt(512, "width of every layer's output")
    d_ff: int = size_opt(2048, "inner width of the feed-forward networks")
    heads: int = size_opt(8, "attention heads")
    dropout: float = probability_opt(
        0.1, "dropout on each sub-layer's output and on the sums of embeddings and positions"
    )
    norm_position: Literal["post", "pre"] = opt("post", "post: norm(x + f(x)); pre: x + f(norm(x)) and a final norm")
    ffn: Literal["dense", "moe"] = opt("dense", "the feed-forward networks: dense, or mixtures of experts (moe)")
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
    memory_size: int = size_opt(100, "tokens of the memory, the last before the predicted one")
    embedding_size: int = size_opt(150, "width of the embeddings and of the state between hops")
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
    embedding_size: int = size_opt(768, "width of embeddings and positions; 512 in the paper, 768 as released")
    output_size: int = size_opt(512, "width of the decoder's output, before the logits")
    max_positions: int = size_opt(1024, "learned positions; a longer sentence repeats the last")
    dropout: float = probability_opt(
        0.2,
        "dropout on embeddings, each layer's input and the decoder's output; 0.2 for En-De, 0.1 for En-Fr",
    )

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers"):
            try:
                convolution_shapes(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{flag_of(name)} {error}") from None


@options_class
class ByteNetOptions:
    hidden_size: int = size_opt(
        800,
        "inner width of a block, d in the paper; its input and output are twice as wide",
    )
    encoder_layers: int = size_opt(30, "residual blocks of the encoder")
    decoder_layers: int = size_opt(30, "residual blocks of the decoder")
    kernel: int = size_opt(3, "taps of a convolution")
    max_dilation: int = size_opt(16, "dilations are 1, 2, 4, ... up to this, then from 1 again")
    combine: Literal["add", "concat"] = opt(
        "add", "how the encoder's output joins a target embedding: add, or concat and a linear layer"
    )
    unfold_factor: float = opt(1.2, "a of the unfolded length a * |s| + b; 1.2 in the paper", minimum=1, maximum=1000)
    unfold_offset: int = size_opt(0, "b of the unfolded length a * |s| + b; 0 in the paper", minimum=0)
    bucket: int = size_opt(50, "|s| is rounded up to a multiple of this; 50 in the paper")
    dropout: float = probability_opt(0.0, "dropout on each block's output before the residual sum")

    def __post_init__(self) -> None:
        if self.max_dilation & (self.max_dilation - 1):
            raise ValueError(f"--max-dilation {self.max_dilation}: must be a power of 2")


@options_class
class NeuralGpuOptions:
    hidden_size: int = size_opt(512, "numbers of a position in a row of the memory, m in the paper")
    height: int = size_opt(4, "rows of the memory; the source stands in the first")
    layers: int = size_opt(2, "CGRUs of an encoder step, and of a decoder step")
    memory_offset: int = size_opt(
        8, "the memory has this many positions more than the source has tokens, and n steps for n positions", minimum=0
    )
    outputs: Literal["extended", "markovian", "baseline"] = opt(
        "extended",
        "extended: each token changes the memory; markovian: from the encoder's memory and the token before; "
        "baseline: from the encoder's memory alone",
    )
    dropout: float = probability_opt(
        0.1, "dropout on the memory before each step; times 3 / sqrt(n) for n > 9 positions"
    )


@options_class
class MoeOptions:
    d_model: int = size_opt(512, "width of every layer's input and output")
    hidden_size: int = size_opt(2048, "cells of each LSTM, whose output is projected to d_model")
    attention_size: int = size_opt(512, "width of the attention's hidden layer; the paper does not give it")
    expert_size: int = size_opt(2048, "inner width of an expert")
    experts: int = size_opt(32, EXPERTS, minimum=2)
    active_experts: int = size_opt(4, ACTIVE_EXPERTS)
    expert_groups: int = size_opt(1, EXPERT_GROUPS)
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
    dropout: float = probability_opt(0.4, "dropout on the outputs of embeddings, LSTMs and mixtures of experts")

    def __post_init__(self) -> None:
        check_experts(self)
