"""A model: a GRU reads the source, a second GRU writes the target, and attention connects them.

    nmt train --plugin my_model.py --model my-model --data DATA --output RUN
    nmt translate --plugin my_model.py --model RUN --input TEXT

Dimensions: B sentences, S source positions, T target positions, N hypotheses of all sentences, D width.
"""

import torch
from torch import Tensor, nn

from nmt import opt, options_class, register
from nmt.batch import Batch
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.symbols import PAD


@options_class
class MyModelOptions:  # CHANGE: each option becomes a flag (--width) and is saved with the model
    width: int = opt(256, "width of embeddings and hidden states", minimum=1)
    dropout: float = opt(0.1, "dropout probability of embeddings", minimum=0, below=1)


@register("model", "my-model", MyModelOptions)
class MyModel(Model):
    """A GRU encoder and a GRU decoder with dot-product attention."""

    def __init__(self, options: MyModelOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        self.options, self.width = options, options.width
        self.source = nn.Embedding(vocabularies.source, self.width)
        self.target = nn.Embedding(vocabularies.target, self.width)
        self.encoder = nn.GRU(self.width, self.width, batch_first=True)
        self.decoder = nn.GRU(self.width, self.width, batch_first=True)
        self.join = nn.Linear(2 * self.width, self.width)
        self.output = nn.Linear(
            self.width, vocabularies.target
        )  # maps features to logits; a model needs `output` and `width`

    def read(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # CHANGE: the encoder
        """source: (B, S). Returns its states (B, S, D), a mask of its tokens (B, S), and the first hidden state (B, D)."""
        states, is_token = self.encoder(self._dropout(self.source(source)))[0], source != PAD
        return states, is_token, (states * is_token[..., None]).sum(1) / is_token.sum(1, keepdim=True)

    def write(self, tokens: Tensor, states: Tensor, is_token: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: (N, T). Returns features (N, T, D) and the next hidden state (N, D)."""  # CHANGE: the decoder
        outputs, hidden = self.decoder(self._dropout(self.target(tokens)), hidden[None].contiguous())
        scores = (outputs @ states.mT).masked_fill(~is_token[:, None], -torch.inf)  # N T S
        features = self.join(torch.cat([outputs, scores.softmax(-1) @ states], -1)).tanh()
        return features, hidden[0]

    def forward(self, batch: Batch) -> Output:
        """Training: the features of all target positions at once, (B, T, D)."""
        features, _ = self.write(batch.target_input, *self.read(batch.source))
        return Output(features, {})

    def start(self, source: Tensor) -> State:
        """Search: the state before the first token. Per-sentence tensors are not copied for each hypothesis."""
        states, is_token, hidden = self.read(source)
        return State({"states": states, "is_token": is_token}, {"hidden": hidden})

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Search: read one token of each hypothesis (N,), and predict the next: log-probabilities (N, V) in nats."""
        per_sentence = len(tokens) // len(state.sentences["states"])
        rows = [state.sentences[name].repeat_interleave(per_sentence, 0) for name in ("states", "is_token")]
        features, hidden = self.write(tokens[:, None], rows[0], rows[1], state.hypotheses["hidden"])
        return self.log_probs(features[:, 0]), state.after(state.sentences, {"hidden": hidden}, None)
