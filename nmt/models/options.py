"""The options of the built-in models. Without torch, so that `--help` answers at once."""

from typing import Literal

from nmt import opt, options_class


@options_class
class TransformerOptions:
    encoder_layers: int = opt(6, "layers of the encoder, N in the paper", minimum=1)
    decoder_layers: int = opt(6, "layers of the decoder, N in the paper", minimum=1)
    d_model: int = opt(512, "width of every layer's output", minimum=1)
    d_ff: int = opt(2048, "inner width of the feed-forward networks", minimum=1)
    heads: int = opt(8, "attention heads, h in the paper", minimum=1)
    d_k: int | None = opt(None, "width of a head's queries and keys; none is d_model / heads", minimum=1)
    d_v: int | None = opt(None, "width of a head's values; none is d_model / heads", minimum=1)
    dropout: float = opt(
        0.1, "probability, on each sub-layer's output and on the sums of embeddings and positions", minimum=0, below=1
    )
    attention_dropout: float = opt(0.0, "probability, on attention weights; 0 in the paper", minimum=0, below=1)
    activation_dropout: float = opt(
        0.0, "probability, inside the feed-forward networks; 0 in the paper", minimum=0, below=1
    )
    norm_position: Literal["post", "pre"] = opt(
        "post", "post: norm(x + f(x)), the paper; pre: x + f(norm(x)) and a final norm"
    )
    positions: Literal["sinusoidal", "t2t-sinusoidal", "learned"] = opt(
        "sinusoidal", "the paper's sinusoids, the reference code's and fairseq's variant, or learned vectors"
    )
    max_positions: int = opt(1024, "learned positions; a longer sentence repeats the last", minimum=1)
    attention_bias: bool = opt(False, "biases in the attention projections, as fairseq has; the paper has none")
    output_bias: bool = opt(False, "a bias on the logits; the paper has none")
    tie: Literal["all", "target", "none"] = opt(
        "all", "what shares one embedding table: source, target and output; target and output; nothing"
    )

    def __post_init__(self) -> None:
        if self.d_model % 2:
            raise ValueError(f"--d-model {self.d_model}: must be even, because sines and cosines come in pairs")
        if self.d_model % self.heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"--d-model {self.d_model}: must be a multiple of --heads {self.heads}, or give --d-k and --d-v"
            )


@options_class
class RnnSearchOptions:
    embedding_size: int = opt(620, "width of the word embeddings, m in the paper", minimum=1)
    hidden_size: int = opt(
        1000, "width of a GRU's state in each direction and in the decoder, n in the paper", minimum=1
    )
    attention_size: int = opt(1000, "width of the attention's hidden layer, n' in the paper", minimum=1)
    maxout_size: int = opt(500, "width of the read-out after maxout, l in the paper", minimum=1)
    output_rank: int | None = opt(
        None, "factorise the output matrix to this width; none is the paper, 620 the authors' code", minimum=1
    )
    dropout: float = opt(
        0.0,
        "probability, on embeddings, annotations and the read-out; 0 in the paper, 0.2 to 0.5 for small data",
        minimum=0,
        below=1,
    )


@options_class
class GnmtOptions:
    encoder_layers: int = opt(8, "layers of the encoder, the lowest in both directions", minimum=1)
    decoder_layers: int = opt(8, "layers of the decoder", minimum=1)
    hidden_size: int = opt(1024, "width of the embeddings and of every LSTM", minimum=1)
    attention_size: int = opt(1024, "width of the attention's hidden layer", minimum=1)
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
    init_range: float = opt(0.04, "all weights start uniform between minus and plus this", above=0)
    dropout: float = opt(
        0.2,
        "probability, on the input of each LSTM, the memory and the features; 0.3 in the paper's En-De",
        minimum=0,
        below=1,
    )


@options_class
class DeepAttOptions:
    encoder_layers: int = opt(9, "layers of each of the encoder's two columns, n_e in the paper", minimum=1)
    decoder_layers: int = opt(7, "layers of the decoder, n_d in the paper", minimum=1)
    embedding_size: int = opt(256, "width of the word embeddings", minimum=1)
    hidden_size: int = opt(512, "width of every LSTM", minimum=1)
    interface: Literal["attention", "summary"] = opt(
        "attention",
        "what the decoder reads: attention, the paper's Deep-Att; summary, one vector a sentence, its Deep-ED",
    )
    memory_size: int = opt(1280, "width of the memory that attention reads, W_p's in the paper", minimum=1)
    attention_size: int = opt(512, "width of the attention's hidden layer; the paper does not give it", minimum=1)
    peepholes: bool = opt(
        True, "gates see the cell through diagonal matrices, as Paddle's LSTM; the paper's text leaves it open"
    )
    dropout: float = opt(0.1, "probability, on h of each layer but not on f; 0.1 in the paper", minimum=0, below=1)
    init_std: float = opt(0.07, "standard deviation of the first weights; recurrent ones start at 0", above=0)
    recurrent_lr_factor: float = opt(
        12.5, "factor of the learning rate of recurrent weights; 12.5 is the paper's 5e-4 over 4e-5", above=0
    )


@options_class
class LanguageModelOptions:
    layers: int = opt(6, "layers", minimum=1)
    d_model: int = opt(512, "width of every layer's output", minimum=1)
    d_ff: int = opt(2048, "inner width of the feed-forward networks", minimum=1)
    heads: int = opt(8, "attention heads", minimum=1)
    dropout: float = opt(
        0.1, "probability, on each sub-layer's output and on the sums of embeddings and positions", minimum=0, below=1
    )
    norm_position: Literal["post", "pre"] = opt("post", "post: norm(x + f(x)); pre: x + f(norm(x)) and a final norm")

    def __post_init__(self) -> None:
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError(f"--d-model {self.d_model}: must be even, and a multiple of --heads {self.heads}")
