"""RNNsearch ("Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau, Cho and Bengio, 2014).

Equations and initialisation follow the paper's appendices A and B. There is one difference from the authors' code: the first
step reads BOS, a token with a normal embedding, instead of zeros.

Dimensions: B sentences, S source and T target positions, widths H of a state, L of the maxout, A of the attention, D of the
features, W hypotheses per sentence, N = B * W.
"""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import RnnSearchOptions
from nmt.extensions.zoo.nn.recurrent import AttentiveGruCell, BidirectionalGru
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.nn.cost import linear_flops
from nmt.nn.linear import Linear, Projection
from nmt.symbols import PAD


@register("model", "rnnsearch", RnnSearchOptions)
class RnnSearch(Model):
    """RNNsearch (Bahdanau, Cho and Bengio, 2014): bidirectional gated recurrent units, and the first attention."""

    can_be_captured = True

    def __init__(self, options: RnnSearchOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options = options, options
        self.width = o.hidden_size  # width for learning-rate schedules; the features are narrower
        read_out = 2 * o.maxout_size
        self.source_embedding = nn.Embedding(vocabularies.source, o.embedding_size, padding_idx=PAD)
        self.target_embedding = nn.Embedding(vocabularies.target, o.embedding_size, padding_idx=PAD)
        self.encoder = BidirectionalGru(o.embedding_size, o.hidden_size)
        self.first_state = Linear(o.hidden_size, o.hidden_size)  # W_s
        self.cell = AttentiveGruCell(o.hidden_size, 2 * o.hidden_size, o.attention_size)
        self.words = Linear(o.embedding_size, 3 * o.hidden_size + read_out)  # W_z, W_r, W and V_o, with all biases
        self.read_out_state = Linear(o.hidden_size, read_out, bias=False)  # U_o
        self.read_out_context = Linear(2 * o.hidden_size, read_out, bias=False)  # C_o
        features = o.output_rank or o.maxout_size
        self.bottleneck = Linear(o.maxout_size, features, bias=False) if o.output_rank else nn.Identity()
        self.output = Linear(features, vocabularies.target)  # W_o
        self._initialise()

    def _initialise(self) -> None:
        """Initialise as in appendix B.1: N(0, 0.01^2) and zero biases. Recurrent and attention layers initialise themselves."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Embedding) or (isinstance(module, nn.Linear) and name != "cell.keys"):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, batch: Batch) -> Output:
        """See Model. Only the recurrence runs token by token; all other products cover all positions at once."""
        tokens, memory = self._read(batch.target_input), self._encode(batch.source)
        states, weights = self._unroll(tokens[0], *memory)
        return Output(self._features(tokens[1], states, weights, memory[1]), {}, attention=weights)

    def _unroll(self, tokens: Tensor, state: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Run the GRU over tokens (B, T, 3 H). Returns the states before the tokens (B, T, H), and the attention (B, T, S)."""
        states, weights = [], []
        for token in tokens.unbind(1):
            states.append(state)
            state, step_weights = self.cell(token, state, memory["keys"], memory["values"], memory["mask"])
            weights.append(step_weights)
        return torch.stack(states, 1), torch.cat(weights, 1)

    def _encode(self, source: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Encode source (B, S). Returns the decoder's first state (B, H), and the projected annotations of each sentence."""
        mask = source != PAD
        annotations = self.encoder(self._dropout(self.source_embedding(source)), mask)  # (B, S, 2 H)
        state = torch.tanh(self.first_state(annotations[:, 0, self.options.hidden_size :]))  # (B, H)
        annotations = self._dropout(annotations)
        keys, values = self.cell.project_memory(annotations)
        contexts = self.read_out_context(annotations)  # (B, S, 2 L)
        return state.to(annotations.dtype), {"keys": keys, "values": values, "read_out": contexts, "mask": mask}

    def _read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Project tokens (...) for the recurrence, (..., 3 H), and for the read-out, (..., 2 L)."""
        both: Tensor = self.words(self._dropout(self.target_embedding(tokens)))
        recurrent, read_out = torch.split(both, [3 * self.options.hidden_size, 2 * self.options.maxout_size], dim=-1)
        return recurrent, read_out

    def _features(self, tokens: Tensor, states: Tensor, weights: Tensor, memory: dict[str, Tensor]) -> Tensor:
        """The maxout of U_o s + V_o E y + C_o c (appendix A.2.2) at target positions, or for W hypotheses: (B, T, D)."""
        contexts = memory["read_out"]  # (B, S, 2 L)
        read_out = self.read_out_state(states) + tokens + weights.to(contexts.dtype) @ contexts  # (B, T, 2 L)
        features: Tensor = self.bottleneck(self._dropout(torch.maximum(*read_out.chunk(2, dim=-1))))
        return features

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Each pair of positions costs a product with v_a and two sums of values."""
        cell, encoder = self.cell, self.encoder
        per_source = linear_flops(encoder, cell.keys, cell.values, self.read_out_context)
        per_source += 2 * (encoder.gates.numel() + encoder.candidate.numel())
        per_target = linear_flops(self.words, self.read_out_state, self.bottleneck, self.output)
        per_target += 2 * (cell.recurrent.numel() + cell.candidate.numel())
        per_pair = 2 * (cell.energy.numel() + cell.values.out_features + self.read_out_context.out_features)
        return linear_flops(self.first_state) + source * per_source + target * per_target + source * target * per_pair

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: the annotations, multiplied by each matrix that reads them."""
        state, memory = self._encode(source)
        return State(sentences=memory, hypotheses={"state": state})

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Scorer. The state per hypothesis: the GRU's state. output: replaces the model's own output layer"""
        previous, memory = state.hypotheses["state"], state.sentences
        recurrent, read_out = self._read(tokens)
        following, weights = self.cell(recurrent, previous, memory["keys"], memory["values"], memory["mask"])
        rows = weights.shape[:2]  # (B, W)
        features = self._features(read_out.view(*rows, -1), previous.view(*rows, -1), weights, memory)
        log_probs = self.log_probs(features.flatten(0, 1), output)  # (N, V)
        return log_probs, state.after(memory, {"state": following}, weights.flatten(0, 1))
