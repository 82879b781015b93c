"""An end-to-end memory network as a language model of the target side (Sukhbaatar et al., 2015).

The memory at a position holds up to `memory_size` previous tokens of the sentence, including BOS.

Dimensions: B sentences, T tokens, Q queries, M tokens in a memory, D width.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import MemoryNetworkOptions
from nmt.models.base import INT64_BYTES, Model, Output, State, Vocabularies
from nmt.nn.cost import linear_flops
from nmt.nn.linear import Linear, Projection

FIRST_STATE: Final = 0.1  # value of all components of u^0


@register("model", "memory-network", MemoryNetworkOptions)
class MemoryNetwork(Model):
    """Hops of attention over the previous tokens: the state after each hop queries the next one. It ignores the source.

    keys, values: the embeddings A and B
    key_times, value_times: T_A and T_B, (M, D), for the newest token first
    transition: H, shared by all hops
    """

    reads_source = False
    has_attention = False
    training_options = Model.training_options | {"init_std"}

    def __init__(self, options: MemoryNetworkOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.embedding_size
        self.linear_size = o.embedding_size // 2 if o.linear_size is None else o.linear_size
        self.keys = nn.Embedding(vocabularies.target, o.embedding_size)
        self.values = nn.Embedding(vocabularies.target, o.embedding_size)
        self.key_times = nn.Parameter(torch.empty(o.memory_size, o.embedding_size))
        self.value_times = nn.Parameter(torch.empty(o.memory_size, o.embedding_size))
        self.transition = Linear(o.embedding_size, o.embedding_size, bias=False)
        self.output = Linear(o.embedding_size, vocabularies.target, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=o.init_std)

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes all positions at once."""
        return Output(self._last_states(batch.target_input, batch.target_input.shape[1]), {})

    def _last_states(self, tokens: Tensor, queries: int) -> Tensor:
        """Compute u^K at the last positions: (B, Q, D). tokens: (B, T); queries: Q

        Scores outside a memory are computed and then masked.
        """
        B, T = tokens.shape
        M = min(T, self.options.memory_size)
        keys, values = self.keys(tokens).mT, self.values(tokens)  # B D T and B T D
        key_times, value_times = self.key_times[:M].t(), self.value_times[:M]
        positions = torch.arange(T, device=tokens.device)
        ages = positions[T - queries :, None] - positions  # Q T, distance of each token from its query
        outside = (ages < 0) | (ages >= M)
        places = ages.clamp(0, M - 1).expand(B, queries, T)
        states: Tensor = keys.new_full((B, queries, self.width), FIRST_STATE)
        for _ in range(self.options.hops):
            scores = states @ keys + (states @ key_times).gather(2, places)
            weights = scores.masked_fill(outside, -math.inf).softmax(-1)  # B Q T
            by_age = weights.new_zeros(B, queries, M).scatter_add(2, places, weights)
            sums = self.transition(states) + weights @ values + by_age @ value_times
            states = torch.cat([sums[..., : self.linear_size], sums[..., self.linear_size :].relu()], -1)
        return states

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Includes masked scores."""
        scores = 4 * self.width * (target + target.clamp(max=self.options.memory_size))  # for tokens, ages and sums
        return target * (self.options.hops * (linear_flops(self.transition) + scores) + linear_flops(self.output))

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """See Model. The state consists of the ids in a memory."""
        return INT64_BYTES * min(target_length, self.options.memory_size)

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: an empty tensor to count sentences. Per hypothesis: the memory's tokens."""
        return State({"nothing": source[:, :0]}, {"tokens": source[:, :0]})

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Model."""
        memory = torch.cat([state.hypotheses["tokens"], tokens[:, None]], 1)[:, -self.options.memory_size :]
        features = self._last_states(memory, 1).squeeze(1)
        return self.log_probs(features, output), state.after(state.sentences, {"tokens": memory}, None)
