"""The Extended Neural GPU ("Can Active Memory Replace Attention?", Kaiser and Bengio, 2016).

Each step changes the whole memory of n positions and h rows of m numbers with convolutions. The source takes n steps, and each
target token takes one more.

Dimensions: B sentences, S source and T target positions, sizes m, n and h of the memory, t tokens read, W hypotheses per
sentence, N = B * W rows.
"""

from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import NeuralGpuOptions
from nmt.models.base import FLOAT32_BYTES, INT64_BYTES, Model, Output, Scorer, SearchScorer, State, Vocabularies
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.symbols import PAD

KERNEL: Final = 3  # number of positions and of rows that a convolution reads
INITIAL_GAIN: Final = 1.8 * 0.8  # gain of the orthogonal weights, as in the authors' code
EMBEDDING_RANGE: Final = 1.7  # maximum magnitude of initial embeddings, as in the authors' code
DROPOUT_POSITIONS: Final = 9  # number of positions above which dropout is scaled down: 3 / sqrt(9) = 1


def saturating_sigmoid(states: Tensor) -> Tensor:
    """Compute 1.2 sigmoid(x) - 0.1, clamped to [0, 1], so that gates can be completely open or closed."""
    return (1.2 * states.sigmoid() - 0.1).clamp(0.0, 1.0)


class Cgru(nn.Module):
    """The paper's CGRU, a convolutional gated recurrent unit, or its CGRU^d, which also reads the target tokens."""

    def __init__(self, width: int, reads_tokens: bool) -> None:
        super().__init__()
        inputs = 2 * width if reads_tokens else width
        self.gates = nn.Conv2d(inputs, 2 * width, KERNEL, padding=KERNEL // 2)  # U', W', B' and U'', W'', B''
        self.candidate = nn.Conv2d(inputs, width, KERNEL, padding=KERNEL // 2)  # U, W, B

    def forward(self, memory: Tensor, mask: Tensor, *tokens: Tensor) -> Tensor:
        """Compute the new memory (B, m, n, h).

        memory, tokens: (B, m, n, h)
        mask: (B, 1, n, 1), 1 up to the sentence's n, and 0 after it
        """
        update, reset = saturating_sigmoid(self.gates(torch.cat([memory, *tokens], 1))).chunk(2, 1)
        candidate = self.candidate(torch.cat([reset * memory, *tokens], 1)).tanh()
        result: Tensor = (update * memory + (1 - update) * candidate) * mask
        return result


@register("model", "neural-gpu", NeuralGpuOptions)
class NeuralGpu(Model):
    """The Extended Neural GPU (Kaiser and Bengio, 2016): each step changes the whole memory with convolutions."""

    repeats_layers = True
    has_attention = False

    def __init__(self, options: NeuralGpuOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.hidden_size
        self.source_embedding = nn.Embedding(vocabularies.source, self.width, padding_idx=PAD)
        self.input, self.norm = Linear(self.width, self.width), nn.LayerNorm(self.width)
        self.first = Cgru(self.width, reads_tokens=False)
        self.encoder = nn.ModuleList(Cgru(self.width, reads_tokens=False) for _ in range(o.layers))
        if o.outputs != "baseline":
            self.target_embedding = nn.Embedding(vocabularies.target, self.width, padding_idx=PAD)
        if o.outputs == "extended":
            self.decoder = nn.ModuleList(Cgru(self.width, reads_tokens=True) for _ in range(o.layers))
        features = 2 * self.width if o.outputs == "markovian" else self.width
        self.output = Linear(features, vocabularies.target, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise as in the authors' code: orthogonal matrices and kernels, uniform embeddings, and gate biases of 1."""
        for name, parameter in self.named_parameters():
            if name.endswith("embedding.weight"):
                nn.init.uniform_(parameter, -EMBEDDING_RANGE, EMBEDDING_RANGE)
                nn.init.zeros_(parameter[PAD])
            elif name.endswith("bias"):
                nn.init.constant_(parameter, float(name.endswith("gates.bias")))
            elif parameter.dim() > 1:
                nn.init.orthogonal_(parameter, INITIAL_GAIN)

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes target positions one by one."""
        memory, lengths = self._encode(batch.source)
        features = []
        for t in range(1, batch.target_input.shape[1] + 1):
            memory, position_features = self._decoder_step(memory, batch.target_input[:, :t], lengths)
            features.append(position_features)
        return Output(torch.stack(features, 1), {})

    def _encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (B, S). Returns the memory (B, m, n, h) after n steps, zero after n positions, and each sentence's n (B,)."""
        lengths = (source != PAD).sum(1) + self.options.memory_offset
        longest = source.shape[1] + self.options.memory_offset
        embedded = self.source_embedding(pad(source, (0, self.options.memory_offset), value=PAD))  # B n m
        rows = pad(embedded[:, :, None], (0, 0, 0, self.options.height - 1))  # B n h m
        mask = _mask(lengths, longest)
        memory = self.first(self.norm(self.input(rows)).permute(0, 3, 1, 2) * mask, mask)  # B m n h
        for step in range(longest):
            following = self._memory_dropout(memory)
            for layer in self.encoder:
                following = layer(following, mask)
            memory = following.where((step < lengths)[:, None, None, None], memory)
        return memory, lengths

    def _decoder_step(self, memory: Tensor, prefix: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The memory after the tokens of a target, and the features (N, D) that predict the next token.

        memory: (N, m, n, h), after all tokens but the last; a position of zeros is added if the target is longer
        prefix: (N, t) tokens, starting with BOS
        lengths: (N,)
        """
        t = prefix.shape[1]
        memory = pad(memory, (0, 0, 0, max(0, t - memory.shape[2])))
        positions, height = memory.shape[2:]
        if self.options.outputs == "extended":
            embedded = pad(self.target_embedding(prefix[:, 1:]), (0, 0, 0, positions - t + 1))  # N n m
            tokens = embedded.mT[..., None].expand(-1, -1, -1, height)  # N m n h
            memory, mask = self._memory_dropout(memory), _mask(lengths.clamp(min=t), positions)
            for layer in self.decoder:
                memory = layer(memory, mask, tokens)
        features = memory[:, :, t - 1, 0]
        if self.options.outputs == "markovian":
            features = torch.cat([features, self.target_embedding(prefix[:, -1])], -1)
        return memory, features

    def _memory_dropout(self, memory: Tensor) -> Tensor:
        """Apply dropout to a memory (N, m, n, h). The dropout probability decreases as n grows."""
        positions = max(DROPOUT_POSITIONS, memory.shape[2])
        return dropout(memory, self.options.dropout * sqrt(DROPOUT_POSITIONS / positions), self.training)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Includes the zeros that convolutions read beyond the edges."""
        o, n = self.options, source + self.options.memory_offset
        cgru = 3 * 2 * KERNEL**2 * self.width**2  # operations per position of a row
        total = n * o.height * (linear_flops(self.input) + cgru * (1 + n * o.layers)) + target * linear_flops(
            self.output
        )
        if o.outputs != "extended":
            return total
        beyond = (target - n).clamp(min=0)  # steps that add a position
        return total + (n * target + beyond * (beyond + 1) // 2) * o.height * o.layers * 2 * cgru

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model. The state consists of the float32 memory, n, and the tokens."""
        positions = max(source_length + self.options.memory_offset, target_length)
        height = self.options.height if self.options.outputs == "extended" else 1
        return FLOAT32_BYTES * positions * height * self.width + INT64_BYTES * (1 + target_length)

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: n. Per hypothesis: the tokens, and the memory or, if that is enough, its row 0."""
        memory, lengths = self._encode(source)
        memory = memory if self.options.outputs == "extended" else memory[..., :1]
        return State({"lengths": lengths}, {"memory": memory, "tokens": source[:, :0]})

    def for_search(self, output: Projection | None = None) -> Scorer:
        output = output or self.output_step()

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            lengths = state.sentences["lengths"]
            lengths = lengths.repeat_interleave(len(tokens) // len(lengths))
            prefix = torch.cat([state.hypotheses["tokens"], tokens[:, None]], 1)
            memory, features = self._decoder_step(state.hypotheses["memory"], prefix, lengths)
            log_probs = self.log_probs(features, output)
            return log_probs, state.after(state.sentences, {"memory": memory, "tokens": prefix}, None)

        return SearchScorer(self.start, step)


def _mask(lengths: Tensor, positions: int) -> Tensor:
    """A mask (B, 1, positions, 1) with 1 up to the length of each sentence, and 0 after it. lengths: (B,)"""
    return (torch.arange(positions, device=lengths.device) < lengths[:, None]).float()[:, None, :, None]
