"""RNNsearch ("Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau, Cho and Bengio, 2014).

Equations and initialisation are those of the paper's appendices A and B. One departure: the first word is read after
BOS, a word with an embedding like any other, where the authors' code reads zeros.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt import opt, register
from nmt.batch import Batch
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear
from nmt.nn.recurrent import AttentiveGruCell, BidirectionalGru
from nmt.symbols import PAD


@dataclass(frozen=True, kw_only=True)
class RnnSearchOptions:
    embedding_size: int = opt(620, "width of the word embeddings, m in the paper")
    hidden_size: int = opt(1000, "width of a GRU's state in each direction and in the decoder, n in the paper")
    attention_size: int = opt(1000, "width of the attention's hidden layer, n' in the paper")
    maxout_size: int = opt(500, "width of the read-out after maxout, l in the paper")
    output_rank: int | None = opt(
        None, "factorise the output matrix to this width; none is the paper, 620 the authors' code"
    )
    dropout: float = opt(
        0.0, "probability, on embeddings, annotations and the read-out; 0 in the paper, 0.2 to 0.5 for small data"
    )

    def __post_init__(self) -> None:
        for name in ("embedding_size", "hidden_size", "attention_size", "maxout_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.output_rank is not None and self.output_rank < 1:
            raise ValueError(f"output_rank is {self.output_rank}; it must be at least 1, or none")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and below 1")


@register("model", "rnnsearch", RnnSearchOptions)
class RnnSearch(Model):
    """RNNsearch of Bahdanau, Cho and Bengio: gated recurrent units in both directions, and the first attention."""

    def __init__(self, options: RnnSearchOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options = options, options
        self.width = o.hidden_size  # for schedules; the features are narrower
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
        """Appendix B.1: N(0, 0.01^2) and biases of 0 for all but the recurrent and the attention's own weights."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Embedding) or (isinstance(module, nn.Linear) and name != "cell.keys"):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, batch: Batch) -> Output:
        """See Model; only the recurrence goes word by word, every other product is one for all positions."""
        words, memory = self._read(batch.target_input), self._encode(batch.source)
        states, weights = self._along(words[0], *memory)
        return Output(self._features(words[1], states, weights, memory[1]), {})

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model: one layer of one head."""
        words, _ = self._read(batch.target_input)
        _, weights = self._along(words, *self._encode(batch.source))
        return {"cross": weights[None, :, None]}

    def _along(self, words: Tensor, state: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Before each word: the state (B, T, H), and where it looks (B, T, S). words: (B, T, 3 H); state: (B, H)"""
        states, weights = [], []
        for word in words.unbind(1):
            states.append(state)
            state, attended = self.cell(word, state, memory["keys"], memory["values"], memory["mask"])
            weights.append(attended)
        return torch.stack(states, 1), torch.cat(weights, 1)

    def _encode(self, source: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """source: (B, S) -> the decoder's first state (B, H), and what it needs of each sentence."""
        mask = source != PAD
        annotations = self.encoder(self._dropout(self.source_embedding(source)), mask)  # B S 2H
        state = torch.tanh(self.first_state(annotations[:, 0, self.options.hidden_size :]))
        annotations = self._dropout(annotations)
        keys, values = self.cell.remember(annotations)
        contexts = self.read_out_context(annotations)
        return state.to(annotations.dtype), {"keys": keys, "values": values, "read_out": contexts, "mask": mask}

    def _read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: (...) ids -> the words' part of the recurrence (..., 3 H) and of the read-out (..., 2 L)."""
        both: Tensor = self.words(self._dropout(self.target_embedding(tokens)))
        recurrent, read_out = torch.split(both, [3 * self.options.hidden_size, 2 * self.options.maxout_size], dim=-1)
        return recurrent, read_out

    def _features(self, words: Tensor, states: Tensor, weights: Tensor, memory: dict[str, Tensor]) -> Tensor:
        """Appendix A.2.2: the maxout of U_o s + V_o E y + C_o c, with the state before the word is read.

        Rows of a sentence are T positions or W hypotheses alike. words: (B, T, 2 L); states: (B, T, H);
        weights: (B, T, S). Returns (B, T, D).
        """
        contexts = memory["read_out"]  # B S 2L
        read_out = self.read_out_state(states) + words + weights.to(contexts.dtype) @ contexts  # B T 2L
        features: Tensor = self.bottleneck(self._dropout(torch.maximum(*read_out.chunk(2, dim=-1))))
        return features

    def _dropout(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.options.dropout, self.training)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. A target position attends to each source position: with v_a, and to sum two kinds of values."""
        cell, encoder = self.cell, self.encoder
        of_source = [encoder, cell.keys, cell.values, self.read_out_context]
        of_target = [self.words, self.read_out_state, self.bottleneck, self.output]
        at_source = sum(map(linear_flops, of_source)) + 2 * (encoder.gates.numel() + encoder.candidate.numel())
        at_target = sum(map(linear_flops, of_target)) + 2 * (cell.recurrent.numel() + cell.candidate.numel())
        at_both = 2 * (cell.energy.numel() + cell.values.out_features + self.read_out_context.out_features)
        return linear_flops(self.first_state) + source * at_source + target * at_target + source * target * at_both

    def start(self, source: Tensor) -> State:
        """See Scorer. Per sentence: annotations, already multiplied by each matrix that they meet."""
        state, memory = self._encode(source)
        return State(sentences=memory, hypotheses={"state": state}, output=self.prepared_output())

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. Per hypothesis: the state of the GRU."""
        before, memory = state.hypotheses["state"], state.sentences
        words, read_out = self._read(tokens)
        after, weights = self.cell(words, before, memory["keys"], memory["values"], memory["mask"])
        rows = weights.shape[:2]  # B W
        features = self._features(read_out.view(*rows, -1), before.view(*rows, -1), weights, memory)
        log_probs = self.log_probs(features.flatten(0, 1), state.output)
        return log_probs, state.after(memory, {"state": after}, weights.flatten(0, 1))
