"""A language model of the target side: a decoder-only Transformer (Liu et al., 2018), which never looks at the source.

It is trained like any model, on pairs whose source it passes over, and says how likely a translation is as a text.
"""

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt import opt, register
from nmt.batch import Batch
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.nn.attention import AttentionShape, SelfStep
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.layers import EPSILON, EncoderLayer, LayerShape
from nmt.nn.linear import Linear
from nmt.nn.positions import SinusoidalPositions


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions:
    layers: int = opt(6, "layers")
    d_model: int = opt(512, "width of every layer's output")
    d_ff: int = opt(2048, "inner width of the feed-forward networks")
    heads: int = opt(8, "attention heads")
    dropout: float = opt(0.1, "probability, on each sub-layer's output and on the sums of embeddings and positions")
    norm_position: Literal["post", "pre"] = opt("post", "post: norm(x + f(x)); pre: x + f(norm(x)) and a final norm")

    def __post_init__(self) -> None:
        for name in ("layers", "d_model", "d_ff", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError(f"d_model is {self.d_model}; it must be even, and divide into {self.heads} heads")


class CausalLayer(EncoderLayer):
    """An encoder's layer whose positions see none that stand after them."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """states: (B, T, D) -> (B, T, D); padding needs no mask: it stands after every word, and nothing looks ahead."""
        states = self.self_attention_residual(states, lambda x: self.self_attention(x, causal=True))
        whole: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return whole

    def prepared(self) -> SelfStep:
        """The layer one more position of each hypothesis at a time, without gradient; see SelfStep."""
        attend, feed = self.self_attention.prepared(), self.feed_forward.prepared()
        before_attending, attended = self.self_attention_residual.prepared()
        before_feeding, fed = self.feed_forward_residual.prepared()

        def step(
            states: Tensor, past: tuple[Tensor, Tensor], used: int, hidden: Tensor
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            change, past = attend(before_attending(states), past, used, hidden)
            states = attended(states, change)
            return fed(states, feed(before_feeding(states))), past

        return step


@register("model", "language-model", LanguageModelOptions)
class LanguageModel(Model):
    """A language model of the target side, to rank translations with: the source is not read."""

    reads_source = False

    def __init__(self, options: LanguageModelOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.d_model
        of_head = o.d_model // o.heads
        pre_norm = o.norm_position == "pre"
        shape = LayerShape(AttentionShape(o.d_model, o.heads, of_head, of_head), o.d_ff, o.dropout, 0.0, pre_norm)
        self.embedding = nn.Embedding(vocabularies.target, o.d_model)
        nn.init.normal_(self.embedding.weight, std=o.d_model**-0.5)
        self.positions = SinusoidalPositions(o.d_model, "sinusoidal")
        self.layers = nn.ModuleList(CausalLayer(shape) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.d_model, eps=EPSILON) if pre_norm else nn.Identity()
        self.output = Linear(o.d_model, vocabularies.target, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, batch: Batch) -> Output:
        """See Model; the text is read all at once."""
        states = self._embed(batch.target_input, 0)
        for layer in self.layers:
            states = layer(states)
        return Output(self.norm(states), {})

    def _embed(self, tokens: Tensor, position: int) -> Tensor:
        """tokens: (B, T), the first of them at a position -> (B, T, D)"""
        words = self.embedding(tokens) * math.sqrt(self.width) + self.positions(position, tokens.shape[1])
        return dropout(words, self.options.dropout, self.training)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Masked scores are computed, and count, like others."""
        shape = cast(CausalLayer, self.layers[0]).self_attention.shape
        seen = len(self.layers) * target**2  # queries times keys
        scores = seen * 2 * shape.heads * (shape.keys + shape.values)
        return target * (linear_flops(self.layers) + linear_flops(self.output)) + scores

    def start(self, source: Tensor) -> State:
        """See Scorer. Nothing is known of a sentence but that it is there."""
        shape = cast(CausalLayer, self.layers[0]).self_attention.shape
        values = torch.empty(len(source), shape.heads, 0, shape.values, device=source.device)
        past: dict[str, Tensor] = {}
        for i in range(len(self.layers)):
            past |= {f"{i}.keys": values.new_empty(len(source), shape.heads, shape.keys, 0), f"{i}.values": values}
        return State({"nothing": source[:, :0]}, past, output=self.prepared_output(), prepared=self._prepared_layers())

    def _prepared_layers(self) -> list[SelfStep]:
        return [cast(CausalLayer, layer).prepared() for layer in self.layers]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. Per hypothesis: each layer's keys and values of its words."""
        states = self._embed(tokens[:, None], state.length).squeeze(1)  # N D
        seen = states.new_zeros(1, 1, state.length + 1)
        caches: dict[str, Tensor] = {}
        for i, step in enumerate(state.prepared or self._prepared_layers()):
            past = state.hypotheses[f"{i}.keys"], state.hypotheses[f"{i}.values"]
            states, past = step(states, past, state.length, seen)
            caches[f"{i}.keys"], caches[f"{i}.values"] = past
        log_probs = self.log_probs(self.norm(states), state.output)
        return log_probs, state.after(state.sentences, caches, None)
