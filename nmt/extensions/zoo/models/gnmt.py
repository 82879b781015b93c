"""GNMT ("Google's Neural Machine Translation System", Wu et al., 2016, sections 3 and 6): deep LSTMs with residuals.

Between layers, time is the first dimension. Only the first decoder layer waits for attention; all others process whole
sentences.

Dimensions: B sentences, S source and T target positions, widths D of each layer, A of the attention, N rows of a search.
"""

import math
from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import GnmtOptions
from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.attentive import AttentiveLstm
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm, pack_states, unpack_state
from nmt.models.base import Model, Output, State, Vocabularies, embeddings
from nmt.nn.cost import linear_flops
from nmt.nn.linear import ClippedLinear, Linear, Projection
from nmt.symbols import PAD

NUM_LAYERS_WITHOUT_RESIDUAL: Final = 2  # in each stack; residual connections start at its third layer (section 3.1)


@register("model", "gnmt", GnmtOptions)
class Gnmt(Model):
    """GNMT (Wu et al., 2016): stacks of residual LSTM layers, with attention queried by the first decoder layer."""

    can_be_captured = True
    training_options = Model.training_options | {"clip_start", "clip_updates", "init_range"}

    def __init__(self, options: GnmtOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.hidden_size
        D, self.form, bias = o.hidden_size, LstmForm(output_tanh=o.cell == "standard"), o.cell == "standard"
        lstm = partial(Lstm, hidden=D, form=self.form, bias=bias)
        table = partial(nn.Embedding, embedding_dim=D, padding_idx=PAD)
        self.source_embedding, self.target_embedding = embeddings(o.tie, vocabularies, table)
        self.bidirectional = nn.ModuleList([lstm(D), lstm(D)])  # one from left to right, one from right to left
        self.encoder = nn.ModuleList(lstm(2 * D if i == 0 else D) for i in range(o.encoder_layers - 1))
        memory = D if o.encoder_layers > 1 else 2 * D
        attention = AdditiveAttention(D, memory, o.attention_size)
        self.first = AttentiveLstm(D, memory, D, self.form, attention, bias)
        self.decoder = nn.ModuleList(lstm(D + memory) for _ in range(o.decoder_layers - 1))
        self.read_out_context = Linear(memory, D, bias=False) if o.read_out_context else None
        self.read_out_word = Linear(D, D, bias=False) if o.read_out_word else None
        self.output = ClippedLinear(Linear(D, vocabularies.target), o.logit_clip or math.inf)
        if o.tie != "none":
            self.output.linear.weight = self.target_embedding.weight
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -o.init_range, o.init_range)
        self.embedding_scale = math.sqrt(D) if o.scale_embeddings else 1.0
        self.begin_update(1)
        self.can_be_captured = o.clip_end is None

    def begin_update(self, number: int) -> None:
        """Change the clipping magnitude linearly during training (section 6). number: number of the update, from 1"""
        o = self.options
        done = min(1.0, (number - 1) / o.clip_updates) if o.clip_updates else 1.0
        self.training_clip = math.inf if o.clip_end is None else o.clip_start + done * (o.clip_end - o.clip_start)

    @property
    def clip(self) -> float:
        """The clipping magnitude of cells and layer outputs, delta in the paper; clip_end outside training."""
        return self.training_clip if self.training else self.options.clip_end or math.inf

    def forward(self, batch: Batch) -> Output:
        """See Model. Only the first decoder layer runs token by token with attention."""
        memory = self._encode(batch.source)
        words = self._embed(batch.target_input.t())  # T B D
        gates = self.first.inputs(words)  # T B 4D
        states, weights = self.first(gates, memory["keys"], memory["values"], memory["mask"], self.clip)  # T B D, B T S
        contexts = (weights.to(states.dtype) @ memory["memory"]).transpose(0, 1)  # T B M
        for i, layer in enumerate(self.decoder, 1):
            inputs = torch.cat([self._dropout(states), contexts], -1)  # dropout has already been applied to the memory
            states = self._add(layer(inputs, clip=self.clip), states, i)
        return Output(self._features(states, contexts, words).transpose(0, 1), {}, attention=weights)

    def _encode(self, source: Tensor) -> dict[str, Tensor]:
        """Encode (B, S) to the top layer's outputs, and their products for attention and gates."""
        padding = (source == PAD).t()  # S B
        states = self._dropout(self.source_embedding(source.t()) * self.embedding_scale)  # S B D
        forwards, backwards = self.bidirectional
        both = [forwards(states, clip=self.clip), backwards(states, padding, self.clip, reverse=True)]
        states = torch.cat(both, -1)  # S B 2D
        for i, layer in enumerate(self.encoder, 1):
            states = self._add(layer(self._dropout(states), clip=self.clip), states, i)
        memory = self._dropout(states).transpose(0, 1).contiguous()  # B S M
        keys, values = self.first.project_memory(memory)
        return {"memory": memory, "keys": keys, "values": values, "mask": source != PAD}

    def _embed(self, tokens: Tensor) -> Tensor:
        """Embed target tokens: (...) -> (..., D)."""
        return self._dropout(self.target_embedding(tokens) * self.embedding_scale)

    def _features(self, states: Tensor, contexts: Tensor, words: Tensor) -> Tensor:
        """The features for the output layer.

        states: (..., D) from the top layer
        contexts, words: (..., M) and (..., D), after dropout
        """
        features = self._dropout(states)
        for layer, more in ((self.read_out_context, contexts), (self.read_out_word, words)):
            features = features if layer is None else features + layer(more)
        return features

    def _add(self, outputs: Tensor, states: Tensor, layer: int) -> Tensor:
        """Apply a layer's residual connection and clipping (equations 6 and 11). layer: index from 0"""
        if layer < NUM_LAYERS_WITHOUT_RESIDUAL:
            return outputs
        total = outputs + states
        return total if self.clip == math.inf else total.clamp(-self.clip, self.clip)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Each pair of positions costs a product with v and two sums over the memory."""
        first, attention = self.first, self.first.attention
        per_source = linear_flops(self.bidirectional, self.encoder, attention.keys, first.context)
        per_target = linear_flops(first.inputs, first.cell, attention.query, self.decoder, self.output)
        per_target += linear_flops(self.read_out_context, self.read_out_word)
        per_pair = 2 * (attention.keys.out_features + first.context.out_features + first.context.in_features)
        return source * per_source + target * per_target + source * target * per_pair

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: the memory and its products. Per hypothesis: the state of each decoder layer."""
        memory = self._encode(source)
        first = self.first.cell.initial(len(source), memory["memory"])  # all layers have the same width
        return State(memory, pack_states({str(i): first for i in range(self.options.decoder_layers)}))

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Model."""
        memory, past, clip = state.sentences, state.hypotheses, self.clip
        words = self._embed(tokens)  # N D
        gates = self.first.inputs(words)  # N 4D
        before = unpack_state(past, 0)
        after, weights = self.first.step(gates, before, memory["keys"], memory["values"], memory["mask"], clip)
        contexts = (weights.to(after.output.dtype) @ memory["memory"]).flatten(0, 1)  # N M
        states, all_after = after.output, {"0": after}
        for i, layer in enumerate(self.decoder, 1):
            inputs = torch.cat([self._dropout(states), contexts], -1)
            after = cast(Lstm, layer).step(inputs, unpack_state(past, i), clip)
            states, all_after[str(i)] = self._add(after.output, states, i), after
        log_probs = self.log_probs(self._features(states, contexts, words), output)  # N V
        return log_probs, state.after(memory, pack_states(all_after), weights.flatten(0, 1))
