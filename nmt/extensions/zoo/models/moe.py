"""The mixture-of-experts translator of Shazeer et al. (2017, appendix E): GNMT with few LSTM layers and many experts.

Three LSTMs read the source and two write the target, all with projected outputs. One mixture of experts comes before the
encoder's last LSTM. The other comes after the decoder's first LSTM, which queries the attention and reads its context.

Dimensions: B sentences, S source and T target positions, width D of every layer, H of a cell, A of the attention,
N rows of a search.
"""

from functools import partial
from typing import cast

from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch, predicting_positions, token_positions
from nmt.extensions.variants.nn.moe import LOSS_NAMES, ExpertShape, MixtureOfExperts
from nmt.extensions.zoo.models.options import MoeOptions
from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.attentive import AttentiveLstm
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm, pack_states, unpack_state
from nmt.models.base import Model, Output, Scorer, SearchScorer, State, Vocabularies, embeddings
from nmt.nn.cost import linear_flops
from nmt.nn.extra_losses import at_tokens, collecting
from nmt.nn.linear import Linear, Projection
from nmt.symbols import PAD


@register("model", "moe", MoeOptions)
class Moe(Model):
    """The translator of Shazeer et al. (2017): LSTMs with a sparsely-gated mixture of experts on each side."""

    training_options = Model.training_options | {"importance_weight", "load_weight"}

    def __init__(self, options: MoeOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.d_model
        D, form = o.d_model, LstmForm(projection=o.d_model)
        self.auxiliary_losses = LOSS_NAMES[o.gates]
        table = partial(_embedding, width=D)
        self.source_embedding, self.target_embedding = embeddings(o.tie, vocabularies, table)
        self.first_lstm = Lstm(D, o.hidden_size, form)
        self.second_lstm = Lstm(D, o.hidden_size, form)
        self.third_lstm = Lstm(D, o.hidden_size, form)
        attention = AdditiveAttention(D, D, o.attention_size, "product")
        self.attentive_lstm = AttentiveLstm(D, D, o.hidden_size, form, attention)
        self.decoder_lstm = Lstm(D, o.hidden_size, form)
        shape = ExpertShape.of(o, D, o.expert_size, 0.0)
        # The mixtures are in a list, because FSDP shards the layers of lists one by one, and they are most of the model.
        self.experts = nn.ModuleList(MixtureOfExperts(shape) for _ in ("encoder", "decoder"))
        self.read_out_context = Linear(D, D, bias=False) if o.read_out_context else None
        self.output = Linear(D, vocabularies.target, bias=False)
        if o.tie != "none":
            self.output.weight = self.target_embedding.weight

    def forward(self, batch: Batch) -> Output:
        """See Model. Only the attentive layer's recurrence waits for the attention."""
        with collecting() as losses:
            memory = self._encode(batch.source)
            features, weights = self._decode(batch, memory)
        return Output.of_parts(features, losses, batch.num_target_tokens)._replace(attention=weights)

    def _decode(self, batch: Batch, memory: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The features (B, T, D) for the output layer, and the attention (B, T, S). memory: result of `_encode`"""
        states = self._dropout(self.target_embedding(batch.target_input.t()))  # T B D
        gates = self.attentive_lstm.inputs(states)
        outputs, weights = self.attentive_lstm(gates, memory["keys"], memory["values"], memory["mask"])  # T B D, B T S
        states = states + self._dropout(outputs)
        states = self._mix(1, states, predicting_positions(batch.target_input.t()))
        states = (states + self._dropout(self.decoder_lstm(states))).transpose(0, 1)  # B T D
        return self._features(states, weights, memory), weights

    def _features(self, states: Tensor, weights: Tensor, memory: dict[str, Tensor]) -> Tensor:
        """The features for the output layer.

        states: (B, T, D) from the top layer
        weights: (B, T, S)
        memory: result of `_encode`
        """
        if self.read_out_context is None:
            return states
        return states + self._dropout(weights.to(states.dtype) @ memory["read_out"])

    def _encode(self, source: Tensor) -> dict[str, Tensor]:
        """Encode (B, S) to the top layer's outputs, multiplied by each matrix that reads them."""
        padding = source.t() == PAD  # S B
        states = self._dropout(self.source_embedding(source.t()))  # S B D
        below = states + self._dropout(self.first_lstm(states))
        second = self.second_lstm
        outputs = second(states, padding, reverse=True) if self.options.bidirectional else second(below)
        states = self._mix(0, below + self._dropout(outputs), token_positions(source.t()))
        top = (states + self._dropout(self.third_lstm(states))).transpose(0, 1)  # B S D
        keys, values = self.attentive_lstm.project_memory(top)
        memory = {"keys": keys, "values": values, "mask": source != PAD}
        if self.read_out_context is not None:
            memory["read_out"] = self.read_out_context(top)
        return memory

    def _mix(self, side: int, states: Tensor, tokens: Tensor) -> Tensor:
        """Compute states + dropout(sigmoid(experts)) (appendix E). states: (T, B, D); tokens: (N,) flat positions"""
        with at_tokens(tokens):
            mixture = self.experts[side](states)
        return states + self._dropout(mixture.sigmoid())

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Only active experts count. Each pair of positions costs an energy and a context."""
        first, o = self.attentive_lstm, self.options
        memory_flops = linear_flops(first.attention.keys, first.context)
        encoder_flops = linear_flops(self.first_lstm, self.second_lstm, self.third_lstm, self.experts[0])
        per_source = memory_flops + encoder_flops + linear_flops(self.read_out_context)
        per_target = linear_flops(first, self.decoder_lstm, self.experts[1], self.output) - memory_flops
        per_pair = 2 * (o.attention_size + 4 * o.hidden_size)
        if self.read_out_context is not None:
            per_pair += 2 * o.d_model
        return source * per_source + target * per_target + source * target * per_pair

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: the result of `_encode`. Per hypothesis: the state of both LSTMs."""
        memory = self._encode(source)
        cells = {"first": self.attentive_lstm.cell, "second": self.decoder_lstm.cell}
        states = {name: cell.initial(len(source), memory["values"]) for name, cell in cells.items()}
        return State(memory, pack_states(states))

    def for_search(self, output: Projection | None = None) -> Scorer:
        mix = cast(MixtureOfExperts, self.experts[1]).search_step()
        return SearchScorer(self.start, partial(self._step, mix=mix, output=output or self.output_step()))

    def _step(self, tokens: Tensor, state: State, mix: Projection, output: Projection) -> tuple[Tensor, State]:
        """See Scorer. The state per hypothesis: output and cell of each LSTM. mix: the experts, (N, D) -> (N, D)"""
        memory, past, attentive = state.sentences, state.hypotheses, self.attentive_lstm
        first, second = unpack_state(past, "first"), unpack_state(past, "second")
        states = self._dropout(self.target_embedding(tokens))  # N D
        gates = attentive.inputs(states)
        first, weights = attentive.step(gates, first, memory["keys"], memory["values"], memory["mask"])
        states = states + self._dropout(first.output)
        states = states + self._dropout(mix(states).sigmoid())
        second = self.decoder_lstm.step(states, second)
        states = (states + self._dropout(second.output)).unflatten(0, weights.shape[:2])  # B W D
        features = self._features(states, weights, memory).flatten(0, 1)
        hypotheses = pack_states({"first": first, "second": second})
        return self.log_probs(features, output), state.after(memory, hypotheses, weights.flatten(0, 1))


def _embedding(size: int, width: int) -> nn.Embedding:
    table = nn.Embedding(size, width, padding_idx=PAD)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
