"""The Transformer ("Attention Is All You Need", Vaswani et al., 2017), exact to the paper by default.

Where the paper is silent the reference code decides: initialisation, epsilon of the norms, no biases in attention.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt import UserError, opt, register
from nmt.batch import Batch
from nmt.device import allow_graphs
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.nn.attention import AttentionShape, recording
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.layers import EPSILON, DecoderLayer, EncoderLayer, LayerShape, LayerStep
from nmt.nn.linear import Linear
from nmt.nn.positions import LearnedPositions, SinusoidalPositions
from nmt.nn.quantized import Int8Linear
from nmt.symbols import PAD


@dataclass(frozen=True, kw_only=True)
class TransformerOptions:
    encoder_layers: int = opt(6, "layers of the encoder, N in the paper")
    decoder_layers: int = opt(6, "layers of the decoder, N in the paper")
    d_model: int = opt(512, "width of every layer's output")
    d_ff: int = opt(2048, "inner width of the feed-forward networks")
    heads: int = opt(8, "attention heads, h in the paper")
    d_k: int | None = opt(None, "width of a head's queries and keys; none is d_model / heads")
    d_v: int | None = opt(None, "width of a head's values; none is d_model / heads")
    dropout: float = opt(0.1, "probability, on each sub-layer's output and on the sums of embeddings and positions")
    attention_dropout: float = opt(0.0, "probability, on attention weights; 0 in the paper")
    activation_dropout: float = opt(0.0, "probability, inside the feed-forward networks; 0 in the paper")
    norm_position: Literal["post", "pre"] = opt(
        "post", "post: norm(x + f(x)), the paper; pre: x + f(norm(x)) and a final norm"
    )
    positions: Literal["sinusoidal", "t2t-sinusoidal", "learned"] = opt(
        "sinusoidal", "the paper's sinusoids, the reference code's and fairseq's variant, or learned vectors"
    )
    max_positions: int = opt(1024, "learned positions; a longer sentence repeats the last")
    attention_bias: bool = opt(False, "biases in the attention projections, as fairseq has; the paper has none")
    output_bias: bool = opt(False, "a bias on the logits; the paper has none")
    tie: Literal["all", "target", "none"] = opt(
        "all", "what shares one embedding table: source, target and output; target and output; nothing"
    )

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        for name in ("d_k", "d_v"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1, or none")
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; sines and cosines come in pairs, so it must be even")
        if self.d_model % self.heads and (self.d_k is None or self.d_v is None):
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.heads} heads; set d_k and d_v")


@register("model", "transformer", TransformerOptions)
class Transformer(Model):
    """The Transformer of "Attention Is All You Need": attention alone, in an encoder and a decoder."""

    def __init__(self, options: TransformerOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        self._compiled: list[LayerStep] = []  # which record no attention
        if options.tie == "all" and not vocabularies.joint:
            raise UserError("tie is 'all' but source and target have their own vocabularies; give --tie target or none")
        o, self.options, self.width = options, options, options.d_model
        attention = AttentionShape(
            o.d_model,
            o.heads,
            o.d_k or o.d_model // o.heads,
            o.d_v or o.d_model // o.heads,
            o.attention_bias,
            o.attention_dropout,
        )
        shape = LayerShape(attention, o.d_ff, o.dropout, o.activation_dropout, o.norm_position == "pre")
        self.source_embedding = _embedding(vocabularies.source, o.d_model)
        self.target_embedding = self.source_embedding if o.tie == "all" else _embedding(vocabularies.target, o.d_model)
        self.source_positions = self._positions()
        self.target_positions = self._positions()
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(o.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(o.decoder_layers))
        pre_norm = o.norm_position == "pre"
        self.encoder_norm = nn.LayerNorm(o.d_model, eps=EPSILON) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(o.d_model, eps=EPSILON) if pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=o.output_bias)
        if o.output_bias:
            nn.init.zeros_(self.output.bias)
        if o.tie == "none":
            nn.init.normal_(self.output.weight, std=o.d_model**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    def _positions(self) -> nn.Module:
        if self.options.positions == "learned":
            return LearnedPositions(self.width, self.options.max_positions)
        return SinusoidalPositions(self.width, self.options.positions)

    def forward(self, batch: Batch) -> Output:
        """See Model; the target side is read all at once (section 3.1)."""
        mask = (batch.source != PAD)[:, None, None, :]  # B 1 1 S
        memory = self._encode(batch.source, mask)
        places = self.target_positions(0, batch.target_input.shape[1])
        states = self._embed(self.target_embedding(batch.target_input), places)
        for layer in self.decoder:
            states = layer(states, memory, mask)
        return Output(self.decoder_norm(states), {})

    def _embed(self, words: Tensor, places: Tensor) -> Tensor:
        """sqrt(d_model) * embedding + position, then dropout (sections 3.4, 3.5 and 5.4).

        words: (B, T, D); places: (T, D); or words (N, D), places (1, D). Returns what words is.
        """
        return dropout(words * math.sqrt(self.width) + places, self.options.dropout, self.training)

    def _encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """source: (B, S); mask: (B, 1, 1, S) -> memory (B, S, D)"""
        states = self._embed(self.source_embedding(source), self.source_positions(0, source.shape[1]))
        for layer in self.encoder:
            states = layer(states, mask)
        memory: Tensor = self.encoder_norm(states)
        return memory

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Each linear layer meets each position once; masked scores are computed, and count, like others."""
        layers = [cast(DecoderLayer, layer) for layer in self.decoder]
        of_memory = sum(linear_flops(layer.cross_attention.keys_values) for layer in layers)
        at_source = linear_flops(self.encoder) + of_memory
        at_target = linear_flops(self.decoder) - of_memory + linear_flops(self.output)
        shape = layers[0].self_attention.shape
        seen = len(self.encoder) * source**2 + len(layers) * target * (target + source)  # queries times keys
        return source * at_source + target * at_target + seen * 2 * shape.heads * (shape.keys + shape.values)

    @property
    def alignment_layer(self) -> int:
        """See Model: the last layer of the decoder, as `benchmarks/alignment.py` found (docs/translate.md)."""
        return len(self.decoder) - 1

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model."""
        with recording() as weights:
            self(batch)
        encoder, decoder = weights[: len(self.encoder)], weights[len(self.encoder) :]
        kinds = {"encoder": encoder, "decoder": decoder[::2], "cross": decoder[1::2]}
        return {kind: torch.stack(layers) for kind, layers in kinds.items()}

    def start(self, source: Tensor) -> State:
        """See Scorer. Per sentence: each layer's keys and values of the memory, and those of every word that is said."""
        mask = (source != PAD)[:, None, None, :]  # B 1 1 S
        memory = self._encode(source, mask)
        sentences = {"unseen": _hidden(mask).expand(-1, self.options.heads, -1, -1)}
        for i, layer in enumerate(self.decoder):
            attention = cast(DecoderLayer, layer).cross_attention
            keys, values = attention.remember(memory)
            # laid out once as products read them, or each step would do it again
            transposed, values = keys.transpose(2, 3).contiguous(), values.contiguous()
            sentences[f"{i}.memory_keys"], sentences[f"{i}.memory_values"] = transposed, values
            sentences[f"{i}.keys"], sentences[f"{i}.values"] = transposed[:, :, :, :0], values[:, :, :0]
        seen = mask.new_empty(len(source), 0)
        return State(
            sentences, {"seen": seen}, output=self.prepared_output(), prepared=self._compiled or self._prepared_layers()
        )

    def _prepared_layers(self) -> list[LayerStep]:
        return [cast(DecoderLayer, layer).prepared() for layer in self.decoder]

    def compile_steps(self) -> None:
        """See Model. One graph serves all lengths and batches; a batch of one makes another."""
        if any(isinstance(module, Int8Linear) for module in self.modules()):
            raise UserError("--compile is not for weights of 8 bits, whose products torch cannot fuse (leave it out)")
        allow_graphs()
        self._compiled = [torch.compile(step, dynamic=True) for step in self._prepared_layers()]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. Per hypothesis: which of its sentence's words it has said."""
        memory = state.sentences
        B = len(memory["unseen"])
        words = tokens.view(B, -1)  # B W
        own = torch.eye(words.shape[1], dtype=torch.bool, device=tokens.device).repeat(B, 1)  # N W
        seen = torch.cat([state.hypotheses["seen"], own], 1)  # N E
        heads = self.options.heads
        hidden = _hidden(seen).view(B, 1, words.shape[1], -1).expand(-1, heads, -1, -1).flatten(0, 1)  # BH W E
        unseen = memory["unseen"].flatten(0, 1)  # BH 1 S
        states = self._embed(self.target_embedding(tokens), self.target_positions(state.length, 1))  # N D
        caches: dict[str, Tensor] = {}
        if state.prepared is None or (state.watched and state.prepared is self._compiled):
            state.prepared = self._prepared_layers()
        watching: AbstractContextManager[list[Tensor]] = recording() if state.watched else nullcontext([])
        with watching as weights:
            for i, step in enumerate(state.prepared):
                past = memory[f"{i}.keys"], memory[f"{i}.values"]
                remembered = memory[f"{i}.memory_keys"], memory[f"{i}.memory_values"]
                states, past = step(states, past, seen.shape[1] - words.shape[1], hidden, remembered, unseen)
                caches[f"{i}.keys"], caches[f"{i}.values"] = past
        log_probs = self.log_probs(self.decoder_norm(states), state.output)
        attention = weights[2 * self.alignment_layer + 1].mean(1).flatten(0, 1) if weights else None  # N S
        return log_probs, state.after(memory | caches, {"seen": seen}, attention)


def _hidden(seen: Tensor) -> Tensor:
    """What is added to scores: 0 where seen is True, minus infinity elsewhere."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)


def _embedding(size: int, width: int) -> nn.Embedding:
    """A table of N(0, 1 / width) whose padding row begins as zero; nothing ever looks at what padding became."""
    table = nn.Embedding(size, width, padding_idx=PAD)
    nn.init.normal_(table.weight, std=width**-0.5)
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table
