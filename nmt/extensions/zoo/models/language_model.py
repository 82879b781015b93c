"""A language model of the target side: a decoder-only Transformer (Liu et al., 2018) that ignores the source.

It is trained on sentence pairs like any model, and scores a translation as a text.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import LanguageModelOptions
from nmt.models.base import FLOAT32_BYTES, Model, Output, PreparedScorer, Scorer, State, Vocabularies
from nmt.models.experts import expert_shape, predicting_positions
from nmt.nn.attention import AttentionShape
from nmt.nn.cost import linear_flops
from nmt.nn.layers import EPSILON, RESIDUAL_OUTPUTS, CausalLayer, LayerShape
from nmt.nn.linear import Linear, Projection
from nmt.nn.moe import LOSS_NAMES, Balance
from nmt.nn.positions import SinusoidalPositions


@register("model", "language-model", LanguageModelOptions)
class LanguageModel(Model):
    """A language model of the target side, to rank translations with: the source is not read."""

    can_be_captured = True
    training_options = Model.training_options | {"importance_weight", "load_weight"}
    reads_source = False
    has_attention = False

    def __init__(self, options: LanguageModelOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.d_model
        head_width, pre_norm = o.d_model // o.heads, o.norm_position == "pre"
        self.attention = AttentionShape(o.d_model, o.heads, head_width, head_width)
        experts = expert_shape(o, o.d_model, o.d_ff, 0.0) if o.ffn == "moe" else None
        self.auxiliary_losses = LOSS_NAMES[o.gates] if experts else ()
        self.can_be_captured = not experts
        self.residual_outputs = RESIDUAL_OUTPUTS if pre_norm else ()
        shape = LayerShape(self.attention, o.d_ff, o.dropout, 0.0, pre_norm)
        self.embedding = nn.Embedding(vocabularies.target, o.d_model)
        nn.init.normal_(self.embedding.weight, std=o.d_model**-0.5)
        self.positions = SinusoidalPositions(o.d_model, "sinusoidal")
        self.layers = nn.ModuleList(map(CausalLayer, shape.layers(o.layers, experts, o.expert_every)))
        self.norm = nn.LayerNorm(o.d_model, eps=EPSILON) if pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, batch: Batch) -> Output:
        """See Model; all positions at once."""
        states = self.embed(batch.target_input, 0)  # B T D
        tokens = predicting_positions(batch.target_input) if self.auxiliary_losses else None
        balances: list[Balance] = []
        for layer in self.layers:
            states, balance = layer(states, tokens=tokens)
            balances.append(balance)
        return Output.of_layers(self.norm(states), balances, batch.num_target_tokens)

    def embed(self, tokens: Tensor, position: int) -> Tensor:
        """sqrt(d_model) * embedding + position, then dropout: (B, T, D). tokens: (B, T), the first at `position`"""
        return self._dropout(self.embedding(tokens) * math.sqrt(self.width) + self.positions(position, tokens.shape[1]))

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Masked attention scores are computed, and count."""
        scores = len(self.layers) * target**2  # queries times keys
        per_score = 2 * self.attention.heads * (self.attention.keys + self.attention.values)
        return target * linear_flops(self.layers, self.output) + scores * per_score

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model: float32 keys and values of each layer."""
        per_position = self.attention.heads * (self.attention.keys + self.attention.values)
        return FLOAT32_BYTES * len(self.layers) * target_length * per_position

    def start(self, source: Tensor) -> State:
        """See Scorer. Per sentence: an empty tensor, which only counts them."""
        shape = self.attention
        keys = torch.empty(len(source), shape.heads, shape.keys, 0, device=source.device)
        values = torch.empty(len(source), shape.heads, 0, shape.values, device=source.device)
        past: dict[str, Tensor] = {}
        for i in range(len(self.layers)):
            past |= {f"{i}.keys": keys, f"{i}.values": values}
        return State({"nothing": source[:, :0]}, past)

    def prepared(self, output: Projection | None = None) -> Scorer:
        layers = [cast(CausalLayer, layer).prepared() for layer in self.layers]
        output = output or self.prepared_output()

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            """See Scorer. Per hypothesis: each layer's keys and values of its tokens."""
            past = state.hypotheses
            states = self.embed(tokens[:, None], state.length).squeeze(1)  # N D
            bias = states.new_zeros(1, 1, state.length + 1)  # all positions are visible
            caches: dict[str, Tensor] = {}
            for i, layer in enumerate(layers):
                states, cache = layer(states, (past[f"{i}.keys"], past[f"{i}.values"]), state.length, bias, None)
                caches[f"{i}.keys"], caches[f"{i}.values"] = cache
            return self.log_probs(self.norm(states), output), state.after(state.sentences, caches, None)

        return PreparedScorer(self.start, step)
