"""The Transformer ("Attention Is All You Need", Vaswani et al., 2017), by default exactly as in the paper.

Details that the paper does not mention follow the reference code: initialisation, epsilon of the norms, no biases in attention.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt import register, registry
from nmt.batch import Batch, predicting_positions, token_positions
from nmt.feed_forwards.base import FeedForward, FeedForwardShape
from nmt.mixers.base import Mixer
from nmt.models.base import FLOAT32_BYTES, Model, Output, Scorer, State, Vocabularies, embedding, embeddings
from nmt.models.layers import LayerShape, LayerStep, TransformerLayer, residual_outputs
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape, CrossAttention, recording
from nmt.nn.cost import linear_flops
from nmt.nn.extra_losses import at_tokens, collecting
from nmt.nn.linear import Linear, Projection
from nmt.positions.base import PositionEncoding
from nmt.symbols import EOS, PAD


@register("model", "transformer", TransformerOptions)
class Transformer(Model):
    """The Transformer of "Attention Is All You Need": an encoder and a decoder made only of attention and feed-forward layers.

    new_search: builds the Scorer of a search; a speedup may replace TransformerSearch
    state_copies: number of copies of the search state that a search keeps in memory
    """

    can_be_captured = True
    state_copies: int = 1

    def __init__(self, options: TransformerOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        self.new_search: Callable[[Transformer, Projection], Scorer] = TransformerSearch
        self.alignment_layer = options.decoder_layers - 1  # the layer that aligns best in benchmarks/alignment.py
        o, self.options, self.width = options, options, options.d_model
        self.depths: tuple[int, int] = (o.encoder_layers, o.decoder_layers)
        shape = LayerShape(o.d_model, o.dropout, o.norm_position == "pre", o.norm_epsilon, o.norm)
        table = partial(embedding, width=o.d_model, std=o.d_model**-0.5)
        self.source_embedding, self.target_embedding = embeddings(o.tie, vocabularies, table)
        positions: type[PositionEncoding] = _selected("positions", o.positions, o)
        self.source_positions, self.target_positions = positions(o, o.d_model), positions(o, o.d_model)
        self._add_layers(shape)
        self.encoder_norm = shape.new_norm() if shape.pre_norm else nn.Identity()
        self.decoder_norm = shape.new_norm() if shape.pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=o.output_bias)
        if o.output_bias:
            nn.init.zeros_(self.output.bias)
        if o.tie == "none":
            nn.init.normal_(self.output.weight, std=o.d_model**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    def _add_layers(self, shape: LayerShape) -> None:
        """Add the encoder and the decoder, and set the model's attributes that depend on their components."""
        o = self.options
        d_k, d_v = o.d_k or o.d_model // o.heads, o.d_v or o.d_model // o.heads
        in_encoder = AttentionShape(o.d_model, o.heads, d_k, d_v, o.attention_bias, o.attention_dropout)
        attention: type[Mixer] = _selected("mixer", "self-attention", o)
        mixer: type[Mixer] = _selected("mixer", o.decoder_autoregression, o)
        in_decoder = attention.decoder_shape(o, in_encoder)
        network: type[FeedForward] = _selected("ffn", o.ffn, o)
        inner = FeedForwardShape(o.d_model, o.d_ff, o.activation_dropout, o.activation)

        def encoder_layer(number: int) -> TransformerLayer:
            return TransformerLayer(shape, attention(o, in_encoder), None, network.for_layer(o, inner, number), False)

        def decoder_layer(number: int) -> TransformerLayer:
            parts = mixer(o, in_decoder), CrossAttention(in_decoder), network.for_layer(o, inner, number)
            return TransformerLayer(shape, *parts, True)

        self.encoder = _stack(encoder_layer, o.encoder_layers, o.tie_layers in ("encoder", "all"))
        self.decoder = _stack(decoder_layer, o.decoder_layers, o.tie_layers in ("decoder", "all"))
        layers = cast(list[TransformerLayer], [*self.encoder, *self.decoder])
        self.repeats_layers = o.tie_layers != "none"
        if shape.pre_norm and not self.repeats_layers:
            self.residual_outputs = residual_outputs(layers)
        names = (name for layer in layers for name in layer.feed_forward.auxiliary_losses)
        self.auxiliary_losses = tuple(dict.fromkeys(names))
        self.can_be_captured = all(layer.feed_forward.can_be_captured for layer in layers)
        self.training_options = Model.training_options | network.training_options

    @property
    def encoder_layers(self) -> list[TransformerLayer]:
        """The encoder layers in the order of a forward pass."""
        return cast(list[TransformerLayer], [*self.encoder][: self.depths[0]])

    @property
    def decoder_layers(self) -> list[TransformerLayer]:
        """The decoder layers in the order of a forward pass."""
        return cast(list[TransformerLayer], [*self.decoder][: self.depths[1]])

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes all target positions at once (section 3.1)."""
        mask, target, attention = self._visible(batch.source), batch.target_input, None  # (B, 1, 1, S), (B, T)
        with collecting() as losses:
            memory = self.encode(batch.source, mask)  # (B, S, D)
            states = self.embed(self.target_embedding(target), self.target_positions(0, target.shape[1]))  # (B, T, D)
            with at_tokens(predicting_positions(target) if self.auxiliary_losses else None):
                for i, layer in enumerate(self.decoder_layers):
                    with recording(self.watched and i == self.alignment_layer) as weights:
                        states = layer(states, mask, memory)
                    attention = weights[-1].mean(1) if weights else attention  # to the memory, mean of heads: (B, T, S)
        output = Output.of_parts(self.decoder_norm(states), losses, batch.num_target_tokens)
        return output._replace(attention=attention, memory=memory)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode the source: (B, S) -> memory (B, S, D). mask: (B, 1, 1, S), by default all tokens that attention sees"""
        mask = self._visible(source) if mask is None else mask
        states = self.embed(self.source_embedding(source), self.source_positions(0, source.shape[1]))  # (B, S, D)
        with at_tokens(token_positions(source) if self.auxiliary_losses else None):
            for layer in self.encoder_layers:
                states = layer(states, mask)
        return self.encoder_norm(states)  # type: ignore[no-any-return]

    def embed(self, vectors: Tensor, positions: Tensor | float) -> Tensor:
        """Compute sqrt(d_model) * embedding + position, then dropout (sections 3.4, 3.5 and 5.4).

        vectors: embeddings (B, T, D) with positions (T, D), or (N, D) with positions (1, D); positions may also be 0
        returns: the shape of `vectors`
        """
        return self._dropout(vectors * math.sqrt(self.width) + positions)

    def _visible(self, source: Tensor) -> Tensor:
        """A mask (B, 1, 1, S), True where attention sees a source position, at least one per row. source: (B, S)"""
        mask = source != PAD
        if not self.options.source_eos:
            mask = mask & (source != EOS)
            mask[:, 0] = True
        return mask[:, None, None, :]

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Each linear layer reads each position once. Masked attention scores count, as they are computed."""
        encoder, decoder = self.encoder_layers, self.decoder_layers
        of_memory = linear_flops(*(layer.cross_attention.keys_values for layer in decoder))
        flops = source * (linear_flops(*encoder) + of_memory)
        flops = flops + target * (linear_flops(*decoder, self.output) - of_memory)
        shape = decoder[0].cross_attention.shape
        flops = flops + len(decoder) * target * source * 2 * shape.heads * (shape.keys + shape.values)
        flops = flops + len(encoder) * encoder[0].self_attention.flops(source)
        return flops + len(decoder) * decoder[0].self_attention.flops(target)

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        with recording() as weights:
            self(batch)
        encoder, decoder = weights[: self.options.encoder_layers], weights[self.options.encoder_layers :]
        each = len(decoder) // self.options.decoder_layers  # number of attentions per layer; the last reads the memory
        kinds = {"encoder": encoder, "decoder": decoder[::each] if each > 1 else [], "cross": decoder[each - 1 :: each]}
        return {kind: torch.stack(layers) for kind, layers in kinds.items() if layers}

    def start(self, source: Tensor) -> State:
        """See Scorer. The state holds each layer's keys and values of the memory, and the past of each mixer."""
        mask = self._visible(source)  # (B, 1, 1, S)
        memory = self.encode(source, mask)
        padding_bias = mask.new_zeros(mask.shape, dtype=torch.float32).masked_fill_(~mask, -math.inf)  # (B, 1, 1, S)
        groups = self.decoder_layers[0].cross_attention.shape.groups
        sentences = {"padding_bias": padding_bias.expand(-1, groups, -1, -1)}
        hypotheses: dict[str, Tensor] = {}
        for i, layer in enumerate(self.decoder_layers):
            keys, values = layer.cross_attention.project_memory(memory)
            # Make both contiguous in the layout that the products need. Otherwise each step would copy them.
            keys, values = keys.transpose(2, 3).contiguous(), values.contiguous()  # (B, G, K, S), (B, G, S, V)
            past = layer.self_attention.begin(memory, values.dtype)
            of_layer = {"memory_keys": keys, "memory_values": values, **past.sentences}
            sentences |= {f"{i}.{name}": tensor for name, tensor in of_layer.items()}
            hypotheses |= {f"{i}.{name}": tensor for name, tensor in past.hypotheses.items()}
        return State(sentences, hypotheses)

    def for_search(self, output: Projection | None = None) -> Scorer:
        return self.new_search(self, output or self.output_step())

    def search_steps(self) -> list[LayerStep]:
        """The search step of each decoder layer, with its weights already looked up."""
        return [layer.search_step() for layer in self.decoder_layers]

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model. Counts float32 keys and values of the memory, the padding bias, and the past."""
        layer, layers = self.decoder_layers[0], self.options.decoder_layers
        shape = layer.cross_attention.shape
        of_memory = shape.groups * source_length * (layers * (shape.keys + shape.values) + 1)
        numbers = of_memory + layers * layer.self_attention.state_numbers(target_length)
        return FLOAT32_BYTES * numbers * self.state_copies


class TransformerSearch(Scorer):
    """A Transformer as the Scorer of one search. Its weights are looked up once.

    output: see Model.for_search
    layers: the search steps of the decoder layers; None to look them up
    """

    def __init__(self, model: Transformer, output: Projection, layers: Sequence[LayerStep] | None = None) -> None:
        self.model, self.output = model, output
        self._layers = model.search_steps() if layers is None else layers

    def start(self, source: Tensor) -> State:
        """See Scorer."""
        return self.model.start(source)

    def embed(self, tokens: Tensor, state: State) -> Tensor:
        """Embed the tokens (N,) that a step reads: (N, D), the input of the first layer. state: the state before the step"""
        model = self.model
        return model.embed(model.target_embedding(tokens), model.target_positions(state.length, 1))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. Each layer reads the next position, and its past grows by one step."""
        model, memory = self.model, state.sentences
        mixer, B = model.decoder_layers[0].self_attention, len(memory["padding_bias"])
        states = self.embed(tokens, state)  # (N, D)
        context = mixer.before_step(tokens, state, B)
        padding_bias = memory["padding_bias"].flatten(0, 1)  # BG 1 S
        after, attention, before = dict[str, Tensor](), None, memory | state.hypotheses
        names = [name[2:] for name in before if name.startswith("0.")]  # names of the tensors that each layer keeps
        for i, layer in enumerate(self._layers):
            past = {name: before[f"{i}.{name}"] for name in names}
            of_memory = (past.pop("memory_keys"), past.pop("memory_values")), padding_bias
            with recording(state.watched and i == model.alignment_layer) as weights:
                states, past = layer(states, past, context, of_memory)
            attention = weights[-1].mean(1).flatten(0, 1) if weights else attention  # (N, S)
            after |= {f"{i}.{name}": tensor for name, tensor in past.items()}
        hypotheses = {name: after.pop(name) for name in state.hypotheses}
        return self.log_probs(states), state.after(memory | after, hypotheses, attention)

    def log_probs(self, states: Tensor) -> Tensor:
        """Compute the log-probabilities (N, V) from the states (N, D) of the last layer."""
        return self.model.log_probs(self.model.decoder_norm(states), self.output)


def _selected(kind: str, name: str, options: TransformerOptions) -> Any:
    """The class of a component; see `registry.selected`."""
    return registry.selected(kind, name, options).cls


def _stack(new_layer: Callable[[int], TransformerLayer], depth: int, tied: bool) -> nn.ModuleList:
    """The layers of an encoder or a decoder. If tied, all are one layer. new_layer: makes the layer with this number, from 1"""
    return nn.ModuleList([new_layer(1)] * depth if tied else [new_layer(i + 1) for i in range(depth)])
