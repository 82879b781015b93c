"""ByteNet ("Neural Machine Translation in Linear Time", Kalchbrenner et al., 2016), a model for characters.

The decoder is stacked on the encoder: target position i reads the encoder's output at position i. Therefore, the encoder's
output is unfolded to a length that the target rarely exceeds (section 3.2).
Dimensions: B sentences, S source, U unfolded and T target positions, D inner width of a block, 2 D width of its input and
output, W hypotheses per sentence, N = B * W rows.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import ByteNetOptions
from nmt.extensions.zoo.nn.convolution import Convolution, Taps
from nmt.models.base import Model, Output, Scorer, SearchScorer, State, Vocabularies
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.symbols import PAD


class ResidualBlock(nn.Module):
    """x + W3 relu(norm(conv(relu(norm(W1 relu(norm(x))))))), section 3.6, with optional dropout before the sum."""

    def __init__(self, width: int, kernel: int, dilation: int, probability: float, causal: bool) -> None:
        super().__init__()
        self.dropout = probability
        self.reduce_norm, self.reduce = nn.LayerNorm(2 * width), Linear(2 * width, width)
        self.convolution_norm = nn.LayerNorm(width)
        self.convolution = Convolution(width, width, kernel, dilation, causal)
        self.expand_norm, self.expand = nn.LayerNorm(width), Linear(width, 2 * width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute (B, T, 2 D) -> (B, T, 2 D). mask: (B, T, 1), False after the sentence; not needed by causal blocks"""
        inner = self.reduce(self.reduce_norm(states).relu())  # B T D
        inner = self.convolution_norm(inner).relu()
        inner = self.convolution(inner if mask is None else inner.masked_fill(~mask, 0.0))
        change = self.expand(self.expand_norm(inner).relu())  # B T 2D
        return states + dropout(change, self.dropout, self.training)

    def search_step(self) -> Callable[[Tensor, Tensor, Taps], tuple[Tensor, Tensor]]:
        """A causal block as a function for one search, without gradient: states (N, 2 D), history, taps -> states, history."""
        reduce, convolve, expand = self.reduce.search_step(), self.convolution.search_step(), self.expand.search_step()

        def step(states: Tensor, history: Tensor, taps: Taps) -> tuple[Tensor, Tensor]:
            inner = self.convolution_norm(reduce(self.reduce_norm(states).relu_())).relu_()
            inner, history = convolve(inner, history, taps)
            return states + expand(self.expand_norm(inner).relu_()), history

        return step


@register("model", "bytenet", ByteNetOptions)
class ByteNet(Model):
    """ByteNet (Kalchbrenner et al., 2016): dilated convolutions over characters, with the decoder stacked on the encoder."""

    can_be_captured = True
    reads_characters = True
    has_attention = False
    residual_outputs = ("*.expand.*",)

    def __init__(self, options: ByteNetOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.hidden_size
        self.source_embedding = nn.Embedding(vocabularies.source, 2 * o.hidden_size, padding_idx=PAD)
        self.target_embedding = nn.Embedding(vocabularies.target, 2 * o.hidden_size, padding_idx=PAD)
        self.encoder = self._blocks(o.encoder_layers, causal=False)
        self.combine: nn.Module = nn.Identity()
        if o.combine == "concat":
            self.combine = Linear(4 * o.hidden_size, 2 * o.hidden_size)
        self.decoder = self._blocks(o.decoder_layers, causal=True)
        self.head = Linear(2 * o.hidden_size, o.hidden_size)
        self.output = Linear(o.hidden_size, vocabularies.target)
        self._initialise()

    def _initialise(self) -> None:
        """Use He et al.'s initialisation after ReLUs (the paper names none). A whole stack of blocks adds a variance of 1."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=math.sqrt((1 if module is self.combine else 2) / module.in_features))
                nn.init.zeros_(module.bias)
        for stack in (self.encoder, self.decoder):
            for block in stack:
                expand = cast(ResidualBlock, block).expand
                nn.init.normal_(expand.weight, std=math.sqrt(2 / (expand.in_features * len(stack))))
        nn.init.normal_(cast(Linear, self.output).weight, std=math.sqrt(1 / self.options.hidden_size))

    def _blocks(self, count: int, causal: bool) -> nn.ModuleList:
        o = self.options
        dilations = [2**i for i in range(o.max_dilation.bit_length())]  # 1, 2, 4, ..., max_dilation
        return nn.ModuleList(
            ResidualBlock(o.hidden_size, o.kernel, dilations[i % len(dilations)], o.dropout, causal)
            for i in range(count)
        )

    def unfolded(self, source: Tensor) -> Tensor:
        """The length of the encoder's output: a * |s| + b, with |s| rounded up to a multiple (section 3.2).

        source: int64 source lengths, including EOS, in any shape
        returns: the same shape
        """
        o = self.options
        rounded = -(-source // o.bucket) * o.bucket
        # 1.2 * 50 is 60.000000000000001 in float64, so a thousandth of a position is ignored.
        return torch.ceil(rounded.double() * o.unfold_factor + o.unfold_offset - 1e-3).long().clamp(min=1)

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes all target positions at once."""
        memory = self._encode(batch.source)  # B U 2D
        tokens = batch.target_input
        missing = tokens.shape[1] - memory.shape[1]
        states = self._combined(self.target_embedding(tokens), pad(memory, (0, 0, 0, missing)))  # B T 2D
        for block in self.decoder:
            states = block(states)
        return Output(self.head(states).relu(), {})

    def _combined(self, embedded: Tensor, memory: Tensor) -> Tensor:
        """Combine target embeddings with the encoder's outputs at the same positions; both are (..., 2 D)."""
        if self.options.combine == "concat":
            combined: Tensor = self.combine(torch.cat([embedded, memory], -1))
            return combined
        return embedded + memory

    def _encode(self, source: Tensor) -> Tensor:
        """Encode (B, S) -> (B, U, 2 D), with zeros after the unfolded length of each sentence."""
        lengths = self.unfolded((source != PAD).sum(1))  # B
        longest = int(self.unfolded(torch.tensor(source.shape[1])))  # an upper bound that needs no synchronisation
        states = self.source_embedding(pad(source, (0, longest - source.shape[1]), value=PAD))  # B U 2D
        mask = (torch.arange(longest, device=source.device) < lengths[:, None])[..., None]  # B U 1
        for block in self.encoder:
            states = block(states, mask)
        result: Tensor = states.masked_fill(~mask, 0.0)
        return result

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. The encoder computes all unfolded positions."""
        per_target = linear_flops(self.combine, self.decoder, self.head, self.output)
        return self.unfolded(source) * linear_flops(self.encoder) + target * per_target

    def _decoder_blocks(self) -> list[ResidualBlock]:
        return [cast(ResidualBlock, block) for block in self.decoder]

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: the encoder's outputs, and each convolution's history."""
        histories = {
            f"{i}.history": block.convolution.history(source) for i, block in enumerate(self._decoder_blocks())
        }
        return State({"memory": self._encode(source), **histories})

    def for_search(self, output: Projection | None = None) -> Scorer:
        output, blocks = output or self.output_step(), [block.search_step() for block in self._decoder_blocks()]

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            memory, B = state.sentences["memory"], len(state.sentences["memory"])
            taps = Taps(state.append_entries(tokens, B), state.num_entries, B)
            embedded = self.target_embedding(tokens)  # N 2D
            position = memory[:, state.length] if state.length < memory.shape[1] else torch.zeros_like(memory[:, 0])
            states, histories = self._combined(embedded, position.repeat_interleave(taps.width, 0)), {}
            for i, block in enumerate(blocks):
                states, histories[f"{i}.history"] = block(states, state.sentences[f"{i}.history"], taps)
            log_probs = self.log_probs(self.head(states).relu(), output)
            return log_probs, state.after(state.sentences | histories, {}, None)

        return SearchScorer(self.start, step)
