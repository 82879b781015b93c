"""A language model of the target side: a decoder-only Transformer (Liu et al., 2018) that ignores the source.

It is trained on sentence pairs like any other model, but scores a translation without its source.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch, predicting_positions
from nmt.extensions.variants.feed_forwards.moe import ExpertFeedForward
from nmt.extensions.zoo.models.options import LanguageModelOptions
from nmt.feed_forwards.base import FeedForward, FeedForwardShape
from nmt.feed_forwards.dense import DenseFeedForward
from nmt.mixers.self_attention import Entries, SelfAttention
from nmt.models.base import FLOAT32_BYTES, Model, Output, Scorer, SearchScorer, State, Vocabularies
from nmt.models.layers import EPSILON, LayerShape, TransformerLayer, residual_outputs
from nmt.nn.attention import AttentionShape
from nmt.nn.cost import linear_flops
from nmt.nn.extra_losses import at_tokens, collecting
from nmt.nn.linear import Linear, Projection
from nmt.positions.sinusoidal import SinusoidalPositions


@register("model", "language-model", LanguageModelOptions)
class LanguageModel(Model):
    """A language model of the target side, for re-ranking translations. It does not read the source."""

    training_options = Model.training_options | {"importance_weight", "load_weight"}
    can_be_captured = True
    reads_source = False
    has_attention = False

    def __init__(self, options: LanguageModelOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.d_model
        head_width, pre_norm = o.d_model // o.heads, o.norm_position == "pre"
        self.attention = AttentionShape(o.d_model, o.heads, head_width, head_width)
        network: type[FeedForward] = ExpertFeedForward if o.ffn == "moe" else DenseFeedForward
        shape, inner = LayerShape(o.d_model, o.dropout, pre_norm), FeedForwardShape(o.d_model, o.d_ff, 0.0)
        self.embedding = nn.Embedding(vocabularies.target, o.d_model)
        nn.init.normal_(self.embedding.weight, std=o.d_model**-0.5)
        self.positions = SinusoidalPositions(o, o.d_model)
        layers = [
            TransformerLayer(
                shape, SelfAttention(o, self.attention), None, network.for_layer(o, inner, i + 1), causal=True
            )
            for i in range(o.layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.can_be_captured = network.can_be_captured
        self.auxiliary_losses = layers[o.expert_every - 1].feed_forward.auxiliary_losses if o.ffn == "moe" else ()
        self.residual_outputs = residual_outputs(layers) if pre_norm else ()
        self.norm = nn.LayerNorm(o.d_model, eps=EPSILON) if pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes all positions at once."""
        states = self.embed(batch.target_input, 0)  # B T D
        tokens = predicting_positions(batch.target_input) if self.auxiliary_losses else None
        with collecting() as losses, at_tokens(tokens):
            for layer in self.layers:
                states = layer(states)
        return Output.of_parts(self.norm(states), losses, batch.num_target_tokens)

    def embed(self, tokens: Tensor, position: int) -> Tensor:
        """sqrt(d_model) * embedding + position, then dropout: (B, T, D). tokens: (B, T), the first at `position`"""
        return self._dropout(self.embedding(tokens) * math.sqrt(self.width) + self.positions(position, tokens.shape[1]))

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Includes masked attention scores, because they are computed too."""
        scores = len(self.layers) * target**2  # number of queries times number of keys
        per_score = 2 * self.attention.heads * (self.attention.keys + self.attention.values)
        return target * linear_flops(self.layers, self.output) + scores * per_score

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model. The state consists of the float32 keys and values of each layer."""
        per_position = self.attention.heads * (self.attention.keys + self.attention.values)
        return FLOAT32_BYTES * len(self.layers) * target_length * per_position

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: an empty tensor, which only counts sentences."""
        shape = self.attention
        keys = torch.empty(len(source), shape.heads, shape.keys, 0, device=source.device)
        values = torch.empty(len(source), shape.heads, 0, shape.values, device=source.device)
        past: dict[str, Tensor] = {}
        for i in range(len(self.layers)):
            past |= {f"{i}.keys": keys, f"{i}.values": values}
        return State({"nothing": source[:, :0]}, past)

    def for_search(self, output: Projection | None = None) -> Scorer:
        layers = [cast(TransformerLayer, layer).search_step() for layer in self.layers]
        output = output or self.output_step()

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            """See Scorer. The state per hypothesis: each layer's keys and values for its tokens."""
            past = state.hypotheses
            states = self.embed(tokens[:, None], state.length).squeeze(1)  # N D
            bias = states.new_zeros(1, 1, state.length + 1)  # all positions are visible
            caches: dict[str, Tensor] = {}
            for i, layer in enumerate(layers):
                layer_cache = {name: past[f"{i}.{name}"] for name in ("keys", "values")}
                states, layer_cache = layer(states, layer_cache, Entries(state.length, bias), None)
                caches |= {f"{i}.{name}": tensor for name, tensor in layer_cache.items()}
            return self.log_probs(self.norm(states), output), state.after(state.sentences, caches, None)

        return SearchScorer(self.start, step)
