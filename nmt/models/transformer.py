"""The Transformer ("Attention Is All You Need", Vaswani et al., 2017), by default exactly as in the paper.

Where the paper is silent, the reference code decides: initialisation, epsilon of the norms, no biases in attention.
"""

import math
from dataclasses import replace
from functools import cache, partial
from typing import cast

import torch
from torch import Tensor, nn

from nmt import UserError, register
from nmt.batch import Batch
from nmt.device import allow_graphs
from nmt.models.base import (
    FLOAT32_BYTES,
    Model,
    Output,
    PreparedScorer,
    Scorer,
    State,
    Vocabularies,
    embedding,
    embeddings,
)
from nmt.models.experts import expert_shape, predicting_positions, token_positions
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape, SelfAttention, grouped_bias, recording
from nmt.nn.captured import STATE_COPIES, CapturedSteps
from nmt.nn.cost import linear_flops
from nmt.nn.layers import RESIDUAL_OUTPUTS, DecoderLayer, EncoderLayer, LayerShape, LayerStep
from nmt.nn.linear import Linear, Projection
from nmt.nn.moe import LOSS_NAMES, Balance, mixtures_in
from nmt.nn.positions import LearnedPositions, NoPositions, RelativeShape, SinusoidalPositions, rotations
from nmt.nn.quantized import Int8Linear
from nmt.symbols import EOS, PAD


@register("model", "transformer", TransformerOptions)
class Transformer(Model):
    """The Transformer of "Attention Is All You Need": attention alone, in an encoder and a decoder."""

    can_be_captured = True
    training_options = Model.training_options | {"importance_weight", "load_weight"}

    def __init__(self, options: TransformerOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        self.compiled_layers: list[LayerStep] = []
        self.captured_steps: CapturedSteps | None = None
        self.alignment_layer = options.decoder_layers - 1  # benchmarks/alignment.py measured it (docs/measurements.md)
        o, self.options, self.width = options, options, options.d_model
        self.depths: tuple[int, int] = (o.encoder_layers, o.decoder_layers)
        self.is_relative = o.positions == "relative"
        d_k, d_v = o.d_k or o.d_model // o.heads, o.d_v or o.d_model // o.heads
        pre_norm = o.norm_position == "pre"
        separate = o.relative_heads == "separate"
        relative = RelativeShape(o.relative_distance, separate, o.relative_values) if self.is_relative else None
        attention = AttentionShape(
            o.d_model,
            o.heads,
            d_k,
            d_v,
            o.attention_bias,
            o.attention_dropout,
            relative,
            o.attention_window,
            rotary=o.positions == "rotary",
        )
        shape = LayerShape(
            attention,
            o.d_ff,
            o.dropout,
            o.activation_dropout,
            pre_norm,
            activation=o.activation,
            epsilon=o.norm_epsilon,
            norm=o.norm,
            gated=o.ffn == "glu",
        )
        table = partial(embedding, width=o.d_model, std=o.d_model**-0.5)
        self.source_embedding, self.target_embedding = embeddings(o.tie, vocabularies, table)
        self.source_positions = self._positions()
        self.target_positions = self._positions()
        experts = expert_shape(o, o.d_model, o.d_ff, o.activation_dropout) if o.ffn == "moe" else None
        self.repeats_layers = o.tie_layers != "none"
        encoder_layers = 1 if o.tie_layers in ("encoder", "all") else o.encoder_layers
        decoder_layers = 1 if o.tie_layers in ("decoder", "all") else o.decoder_layers
        self.encoder = nn.ModuleList(map(EncoderLayer, shape.layers(encoder_layers, experts, o.expert_every)))
        self.keeps_cells = o.decoder_autoregression != "self-attention"
        if pre_norm and not self.keeps_cells and not self.repeats_layers:
            self.residual_outputs = RESIDUAL_OUTPUTS
        of_decoder = replace(
            shape, attention=replace(attention, kv_heads=o.kv_heads), autoregression=o.decoder_autoregression
        )
        self.decoder = nn.ModuleList(map(DecoderLayer, of_decoder.layers(decoder_layers, experts, o.expert_every)))
        self.auxiliary_losses = LOSS_NAMES[o.gates] if experts else ()
        self.can_be_captured = not experts
        self.encoder_norm = shape.new_norm() if pre_norm else nn.Identity()
        self.decoder_norm = shape.new_norm() if pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=o.output_bias)
        if o.output_bias:
            nn.init.zeros_(self.output.bias)
        if o.tie == "none":
            nn.init.normal_(self.output.weight, std=o.d_model**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers in the order of a pass; a tied one as often as it is passed."""
        layers = cast(list[EncoderLayer], [*self.encoder])
        return (layers * (self.options.encoder_layers // len(layers)))[: self.depths[0]]

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers in the order of a pass; a tied one as often as it is passed."""
        layers = cast(list[DecoderLayer], [*self.decoder])
        return (layers * (self.options.decoder_layers // len(layers)))[: self.depths[1]]

    def _positions(self) -> nn.Module:
        if self.options.positions in ("relative", "rotary"):
            return NoPositions()
        if self.options.positions == "learned":
            return LearnedPositions(self.width, self.options.max_positions)
        return SinusoidalPositions(self.width, self.options.positions)

    def forward(self, batch: Batch) -> Output:
        """See Model; all target positions at once (section 3.1)."""
        mask = self._visible(batch.source)  # B 1 1 S
        memory, balances = self._encode(batch.source, mask)  # B S D
        positions = self.target_positions(0, batch.target_input.shape[1])  # T D
        states = self.embed(self.target_embedding(batch.target_input), positions)  # B T D
        tokens = predicting_positions(batch.target_input) if self.auxiliary_losses else None
        attention = None
        for i, layer in enumerate(self.decoder_layers):
            with recording(self.watched and i == self.alignment_layer) as weights:
                states, balance = layer(states, memory, mask, tokens)
            attention = weights[-1].mean(1) if weights else attention  # of the memory, mean over heads: B T S
            balances.append(balance)
        output = Output.of_layers(self.decoder_norm(states), balances, batch.num_target_tokens)
        return output._replace(attention=attention)

    def embed(self, vectors: Tensor, positions: Tensor | float) -> Tensor:
        """sqrt(d_model) * embedding + position, then dropout (sections 3.4, 3.5 and 5.4).

        vectors: (B, T, D) embeddings with positions (T, D), or (N, D) with (1, D), or 0; returns the shape of `vectors`
        """
        return self._dropout(vectors * math.sqrt(self.width) + positions)

    def _visible(self, source: Tensor) -> Tensor:
        """(B, 1, 1, S) True where attention sees a position of the source. source: (B, S); no row is without one"""
        mask = source != PAD
        if not self.options.source_eos:
            mask = mask & (source != EOS)
            mask[:, 0] = True
        return mask[:, None, None, :]

    def _encode(self, source: Tensor, mask: Tensor) -> tuple[Tensor, list[Balance]]:
        """source: (B, S); mask: (B, 1, 1, S) -> memory (B, S, D), and the balance of each layer's experts"""
        states = self.embed(self.source_embedding(source), self.source_positions(0, source.shape[1]))  # B S D
        tokens, balances = token_positions(source) if self.auxiliary_losses else None, []
        for layer in self.encoder_layers:
            states, balance = layer(states, mask, tokens)
            balances.append(balance)
        return self.encoder_norm(states), balances

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Each linear layer reads each position once; masked attention scores are computed, and count."""
        layers, depth = self.decoder_layers, len(self.encoder_layers)
        of_memory = linear_flops(*(layer.cross_attention.keys_values for layer in layers))
        per_source = linear_flops(*self.encoder_layers) + of_memory
        per_target = linear_flops(*layers, self.output) - of_memory
        shape = layers[0].cross_attention.shape
        of_self = 0 if self.keeps_cells else target
        scores = depth * source**2 + len(layers) * target * (of_self + source)  # queries times keys
        flops = source * per_source + target * per_target + scores * 2 * shape.heads * (shape.keys + shape.values)
        if (relative := cast(SelfAttention, self.encoder_layers[0].self_attention).relative) is not None:
            flops = flops + depth * relative.flops(source, shape.heads)
            flops = flops + (0 if self.keeps_cells else len(layers) * relative.flops(target, shape.heads))
        return flops

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        with recording() as weights:
            self(batch)
        encoder, decoder = weights[: self.options.encoder_layers], weights[self.options.encoder_layers :]
        if self.keeps_cells:
            kinds = {"encoder": encoder, "cross": decoder}
        else:
            kinds = {"encoder": encoder, "decoder": decoder[::2], "cross": decoder[1::2]}
        return {kind: torch.stack(layers) for kind, layers in kinds.items()}

    def start(self, source: Tensor) -> State:
        """See Scorer. Per sentence: each layer's keys and values of the memory, and of every entry of the search."""
        mask = self._visible(source)  # B 1 1 S
        memory, _ = self._encode(source, mask)
        padding_bias = mask.new_zeros(mask.shape, dtype=torch.float32).masked_fill_(~mask, -math.inf)  # B 1 1 S
        groups = self.decoder_layers[0].cross_attention.shape.groups
        sentences = {"padding_bias": padding_bias.expand(-1, groups, -1, -1)}
        hypotheses = {}
        for i, layer in enumerate(self.decoder_layers):
            keys, values = layer.cross_attention.project_memory(memory)
            # Contiguous in the layout of the products, or each step would copy them again.
            keys, values = keys.transpose(2, 3).contiguous(), values.contiguous()  # B G K S, B G S V
            sentences[f"{i}.memory_keys"], sentences[f"{i}.memory_values"] = keys, values
            if self.keeps_cells:
                hypotheses[f"{i}.cell"] = memory.new_zeros(len(memory), self.width)
            else:
                sentences[f"{i}.keys"], sentences[f"{i}.values"] = keys[:, :, :, :0], values[:, :, :0]
        return State(sentences, hypotheses)

    def prepared(self, output: Projection | None = None) -> Scorer:
        output, layers = output or self.prepared_output(), self.compiled_layers or self.prepared_layers()
        recording_layers = cache(
            self.prepared_layers if self.compiled_layers else lambda: layers
        )  # these record attention
        window = self.options.attention_window or 0  # the last 0 are all
        shape = self.decoder_layers[0].cross_attention.shape
        parts = ("cell",) if self.keeps_cells else ("keys", "values")  # what a layer keeps of the past
        names = [tuple(f"{i}.{part}" for part in parts) for i in range(len(layers))]
        memory_names = [(f"{i}.memory_keys", f"{i}.memory_values") for i in range(len(layers))]

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            memory, bias, positions = state.sentences, None, None
            padding_bias = memory["padding_bias"].flatten(0, 1)  # BG 1 S
            states = self.embed(self.target_embedding(tokens), self.target_positions(state.length, 1))  # N D
            past, used = (state.hypotheses, state.length) if self.keeps_cells else (memory, state.num_entries)
            if not self.keeps_cells:
                B = len(memory["padding_bias"])
                ancestors = state.append_entries(tokens, B)[:, -window:]  # N t, of the window
                if captured is not None and not state.watched:
                    states, sentences = captured(states, memory, ancestors, used)
                    return self.log_probs(self.decoder_norm(states), output), state.after(sentences, {}, None)
                if self.is_relative:
                    positions = _ages(ancestors, state.num_entries)  # E
                elif shape.rotary:
                    positions = rotations(state.length, 1, shape.keys, tokens.device)  # 1 2 K/2
                bias = torch.full((len(tokens), state.num_entries), -math.inf, device=tokens.device)  # N E
                bias = bias.scatter_(1, ancestors, 0.0).view(B, 1, -1, state.num_entries)  # B 1 W E
                bias = grouped_bias(bias, (B, shape.heads), shape.groups)  # BG H/G*W E
            kept: dict[str, Tensor] = {}
            with recording(state.watched) as weights:
                steps = recording_layers() if state.watched else layers
                for layer, own, (keys, values) in zip(steps, names, memory_names, strict=True):
                    of_layer = tuple([past[name] for name in own])
                    of_memory = (memory[keys], memory[values]), padding_bias
                    states, of_layer = layer(states, of_layer, used, bias, positions, *of_memory)
                    kept.update(zip(own, of_layer, strict=True))
            log_probs = self.log_probs(self.decoder_norm(states), output)  # N V
            of_cross = weights if self.keeps_cells else weights[1::2]  # attention to the memory, of each layer
            attention = of_cross[self.alignment_layer].mean(1).flatten(0, 1) if weights else None  # N S
            after = (memory, kept) if self.keeps_cells else (memory | kept, {})
            return log_probs, state.after(*after, attention)

        captured = None if self.captured_steps is None else self.captured_steps.acquire(step)
        return PreparedScorer(self.start, step)

    def prepared_layers(self) -> list[LayerStep]:
        """The search step of each decoder layer, its weights looked up."""
        steps = [cast(DecoderLayer, layer).prepared() for layer in self.decoder]
        return steps * (self.options.decoder_layers // len(steps))

    def compile_steps(self) -> None:
        """See Model. One graph serves all lengths and batch sizes, but a batch of one, which has its own."""
        if any(isinstance(module, Int8Linear) for module in self.modules()):
            raise UserError("--compile: torch cannot compile products of 8-bit weights (leave it out)")
        if mixtures_in(self):
            raise UserError("--compile: the sizes of products with experts depend on the text (leave it out)")
        allow_graphs()
        self.compiled_layers = [torch.compile(step, dynamic=True) for step in self.prepared_layers()]

    def capture_steps(self) -> None:
        """See Model."""
        is_grouped = self.options.kv_heads not in (None, self.options.heads)
        if self.options.positions in ("relative", "rotary") or self.keeps_cells or is_grouped or mixtures_in(self):
            raise UserError(
                "--capture: not for relative and rotary positions, experts, --kv-heads, and decoders without "
                "self-attention (leave it out)"
            )
        self.captured_steps = CapturedSteps(self.prepared_layers())

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model: float32 keys and values of each decoder layer, and the bias of padding; in buffers too, if captured."""
        shape, layers = self.decoder_layers[0].cross_attention.shape, self.options.decoder_layers
        positions = layers * (source_length + (0 if self.keeps_cells else target_length))
        cells = layers * self.width if self.keeps_cells else 0
        numbers = shape.groups * (positions * (shape.keys + shape.values) + source_length) + cells
        return FLOAT32_BYTES * numbers * (1 if self.captured_steps is None else STATE_COPIES)


def _ages(ancestors: Tensor, num_entries: int) -> Tensor:
    """How many positions before the newest each entry of a search stands, which all sentences share: (E,) int64.

    ancestors: (N, t), see State; entries that are nobody's ancestors get 0
    """
    ages = torch.arange(ancestors.shape[1] - 1, -1, -1, device=ancestors.device).expand_as(ancestors)  # N t
    return ancestors.new_zeros(num_entries).scatter_(0, ancestors.flatten(), ages.flatten())
