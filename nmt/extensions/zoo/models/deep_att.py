"""Deep-Att ("Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation", Zhou et al., 2016).

A layer has a linear part f and a recurrent part h. The next layer also reads half of f, which bypasses the recurrence. So
gradients reach the lowest layer through matrices only. Between layers, time is the first dimension.

Dimensions: B sentences, S source and T target positions, widths H of a cell, M of the memory, A of the attention, N rows.
"""

from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import DeepAttOptions
from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.attentive import AttentiveLstm
from nmt.extensions.zoo.nn.lstm import Lstm, LstmCell, LstmForm, LstmState, close_input_gates, pack_states, unpack_state
from nmt.models.base import (
    Model,
    Output,
    ParameterGroup,
    State,
    Vocabularies,
    embeddings,
)
from nmt.nn.cost import linear_flops
from nmt.nn.linear import Linear, Projection
from nmt.symbols import PAD

NUM_COLUMNS: Final = 2  # number of columns in the encoder


class FastForwardLayer(Lstm):
    """An LSTM layer that also outputs its gates f before activation: f = W x, h = LSTM(f)."""

    def forward(self, vectors: Tensor, padding: Tensor, reverse: bool = False) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Compute (T, B, X) -> f (T, B, 4 H) and h (T, B, H). padding: (T, B); reverse: run from right to left"""
        f = self.inputs(vectors)
        gates = f
        if reverse:
            gates = f.clone()
            close_input_gates(gates, padding)
        return f, self.cell(gates, reverse=reverse)


def fast_forward(f: Tensor, h: Tensor) -> Tensor:
    """The input of the next layer: [Half(f); h], (..., 2 H + H)."""
    return torch.cat([f[..., : f.shape[-1] // 2], h], -1)


@register("model", "deep-att", DeepAttOptions)
class DeepAtt(Model):
    """Deep-Att (Zhou et al., 2016): deep LSTMs with fast-forward connections and a two-column encoder; optionally Deep-ED."""

    can_be_captured = True
    training_options = Model.training_options | {"init_std", "recurrent_lr_factor"}

    def __init__(self, options: DeepAttOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.hidden_size
        E, H, form = o.embedding_size, o.hidden_size, LstmForm(peepholes=o.peepholes)
        layer = partial(FastForwardLayer, hidden=H, form=form, bias=False)
        table = partial(nn.Embedding, embedding_dim=E, padding_idx=PAD)
        self.source_embedding, self.target_embedding = embeddings(o.tie, vocabularies, table)
        column_inputs = [E, *[3 * H] * (o.encoder_layers - 1)]
        self.encoder = nn.ModuleList(
            layer(inputs) for inputs in column_inputs * NUM_COLUMNS
        )  # all layers of the first column, then those of the second
        memory = NUM_COLUMNS * (H + 4 * H)
        self.first: AttentiveLstm | FastForwardLayer
        if o.interface == "attention":
            self.projection: Linear | None = Linear(memory, o.memory_size, bias=False)  # W_p
            attention = AdditiveAttention(H, o.memory_size, o.attention_size)
            self.first = AttentiveLstm(E, o.memory_size, H, form, attention, bias=False)
        else:
            self.projection, self.first = None, layer(E)
            self.context = Linear(memory, 4 * H, bias=False)
        self.decoder = nn.ModuleList(layer(3 * H) for _ in range(o.decoder_layers - 1))
        self.read_out_context = Linear(o.memory_size, H, bias=False) if o.read_out_context else None
        self.read_out_word = Linear(E, H, bias=False) if o.read_out_word else None
        self.output = Linear(H, vocabularies.target)
        if o.tie != "none":
            self.output.weight = self.target_embedding.weight
        self._initialise()

    def _initialise(self) -> None:
        """Initialise from N(0, init_std^2), except for recurrent parameters and biases, which start at zero."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=self.options.init_std)
        for zero in [*self._recurrent_parameters(), cast(nn.Parameter, self.output.bias)]:
            nn.init.zeros_(zero)

    def _recurrent_parameters(self) -> list[nn.Parameter]:
        cells = [module for module in self.modules() if isinstance(module, LstmCell)]
        return [parameter for cell in cells for parameter in cell.parameters()]

    def parameter_groups(self) -> list[ParameterGroup]:
        """See Model. Recurrent parameters have a higher learning rate, and embeddings no weight decay."""
        recurrent = self._recurrent_parameters()
        tables = [*self.source_embedding.parameters(), *self.target_embedding.parameters()]
        tables = list(dict.fromkeys(tables))  # source and target may share a table
        named = {id(parameter) for parameter in [*recurrent, *tables]}
        return [
            ParameterGroup("recurrent", recurrent, self.options.recurrent_lr_factor),
            ParameterGroup("embeddings", tables, weight_decay=0.0),
            ParameterGroup("others", [parameter for parameter in self.parameters() if id(parameter) not in named]),
        ]

    def forward(self, batch: Batch) -> Output:
        """See Model. Only the first decoder layer runs token by token with attention."""
        memory = self._encode(batch.source)
        words = self.target_embedding(batch.target_input)  # B T E
        gates, weights = self.first.inputs(words.transpose(0, 1)), None  # T B 4H
        if isinstance(self.first, AttentiveLstm):
            h, weights = self.first(gates, memory["keys"], memory["values"], memory["mask"])
            f = gates + (weights.to(gates.dtype) @ memory["values"]).transpose(0, 1)
        else:
            f = gates + memory["context"]
            h = self.first.cell(f)
        padding = batch.target_input.t() == PAD
        for layer in self.decoder:
            f, h = layer(fast_forward(f, self._dropout(h)), padding)
        return Output(self._features(h.transpose(0, 1), weights, words, memory), {}, attention=weights)

    def _features(self, h: Tensor, weights: Tensor | None, words: Tensor, memory: dict[str, Tensor]) -> Tensor:
        """The features for the output layer.

        h: (B, T, H) from the top layer
        weights: (B, T, S)
        words: (B, T, E)
        memory: result of `_encode`
        """
        features = self._dropout(h)
        if self.read_out_context is not None and weights is not None:
            features = features + self._dropout(weights.to(h.dtype) @ memory["read_out"])
        if self.read_out_word is not None:
            features = features + self._dropout(self.read_out_word(words))
        return features

    def _encode(self, source: Tensor) -> dict[str, Tensor]:
        """Encode (B, S) to keys, values and mask of each sentence; for Deep-ED, to the context (B, 4 H)."""
        padding = (source == PAD).t()  # S B
        outputs, f_outputs, layers = [], [], self.options.encoder_layers
        for column in range(NUM_COLUMNS):
            vectors = self.source_embedding(source.t())  # S B E
            for i, layer in enumerate(self.encoder[column * layers : (column + 1) * layers]):
                f, h = layer(vectors, padding, reverse=(column + i) % 2 == 1)  # interleaved directions
                h = self._dropout(h)
                vectors = fast_forward(f, h)
            outputs.append(h)
            f_outputs.append(f)
        if not isinstance(self.first, AttentiveLstm) or self.projection is None:
            return {"context": self.context(self._summary(outputs, f_outputs, padding))}
        memory = self.projection(torch.cat([*outputs, *f_outputs], -1).transpose(0, 1))  # B S M
        keys, values = self.first.project_memory(memory)
        encoded = {"keys": keys, "values": values, "mask": ~padding.t()}
        if self.read_out_context is not None:
            encoded["read_out"] = self.read_out_context(memory)
        return encoded

    def _summary(self, outputs: list[Tensor], f_outputs: list[Tensor], padding: Tensor) -> Tensor:
        """Deep-ED's sentence vector: the first column's last h, the second's maximum h, and the maximum f: (B, 10 H)."""
        first, second = outputs
        reads_backwards = self.options.encoder_layers % 2 == 0
        last = torch.zeros_like(padding[0], dtype=torch.int64) if reads_backwards else (~padding).sum(0) - 1  # B
        last_outputs = first.gather(0, last[None, :, None].expand(1, -1, first.shape[2]))[0]  # B H
        lowest = torch.finfo(first.dtype).min
        greatest = [vectors.masked_fill(padding[:, :, None], lowest).amax(0) for vectors in (second, *f_outputs)]
        return torch.cat([last_outputs, *greatest], -1)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. With attention, each pair of positions costs a product with v and two sums of values."""
        first, per_source = self.first, linear_flops(self.encoder)
        per_target = linear_flops(first.inputs, first.cell, self.decoder, self.output, self.read_out_word)
        if not isinstance(first, AttentiveLstm) or self.projection is None:
            return source * per_source + target * per_target + linear_flops(self.context)
        per_source += linear_flops(self.projection, first.attention.keys, first.context, self.read_out_context)
        per_target += linear_flops(first.attention.query)
        per_pair = 2 * (first.attention.keys.out_features + 2 * first.context.out_features)
        if self.read_out_context is not None:
            per_pair += 2 * self.read_out_context.out_features
        return source * per_source + target * per_target + source * target * per_pair

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: what the first layer reads. Per hypothesis: the state of each decoder layer."""
        memory = self._encode(source)
        first = self.first.cell.initial(len(source), next(iter(memory.values())))  # all layers have the same width
        return State(memory, pack_states({str(i): first for i in range(self.options.decoder_layers)}))

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Model."""
        memory, past, weights = state.sentences, state.hypotheses, None
        rows = len(next(iter(memory.values()))), -1  # B W
        words = self.target_embedding(tokens)  # N E
        f, all_after = self.first.inputs(words), dict[str, LstmState]()  # N 4H
        cells = [self.first.cell, *(cast(FastForwardLayer, layer).cell for layer in self.decoder)]
        if isinstance(self.first, AttentiveLstm):
            weights = self.first.attention(past["0.output"], memory["keys"], memory["mask"])  # B W S
            f = f + (weights.to(f.dtype) @ memory["values"]).flatten(0, 1)
        else:
            f = (f.unflatten(0, rows) + memory["context"][:, None]).flatten(0, 1)
        for i, cell in enumerate(cells):
            after = all_after[str(i)] = cell.step(f, unpack_state(past, i))
            if i < len(self.decoder):
                f = cast(FastForwardLayer, self.decoder[i]).inputs(fast_forward(f, self._dropout(after.output)))
        h, words = after.output.unflatten(0, rows), words.unflatten(0, rows)
        log_probs = self.log_probs(self._features(h, weights, words, memory).flatten(0, 1), output)
        attention = None if weights is None else weights.flatten(0, 1)
        return log_probs, state.after(memory, pack_states(all_after), attention)
