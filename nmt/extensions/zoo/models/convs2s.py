"""ConvS2S ("Convolutional Sequence to Sequence Learning", Gehring et al., 2017).

Where the paper and the authors' released models differ, an option selects which to follow (docs/explanation/systems/convs2s.md).

Dimensions: B sentences, S source and T target positions, widths C of a layer, E of embeddings, D of the features,
W hypotheses per sentence, N = B * T or B * W rows.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import glu
from torch.nn.utils.parametrizations import weight_norm

from nmt import register
from nmt.batch import Batch
from nmt.extensions.zoo.models.options import ConvolutionShape, ConvS2SOptions, convolution_shapes
from nmt.extensions.zoo.nn.convolution import Convolution, Taps
from nmt.models.base import Model, Output, Scorer, SearchScorer, State, Vocabularies, embedding
from nmt.nn.attention import not_cast
from nmt.nn.cost import linear_flops
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.positions.learned import LearnedPositions
from nmt.positions.options import LearnedPositionOptions
from nmt.symbols import PAD

HALF_VARIANCE: Final = math.sqrt(0.5)  # factor that keeps the variance of a sum of two terms (section 3.4)
EMBEDDING_STD: Final = 0.1  # standard deviation of embeddings (section 3.5)


class SourceMemory(NamedTuple):
    """What the decoder reads of an encoded source.

    keys: (B, E, S) the encoder's outputs z
    values: (B, S, E) their sums with the embeddings, z + e
    bias: (B, 1, S) 0, or minus infinity at padding
    scale: (B, 1, 1) square root of the source's length
    """

    keys: Tensor
    values: Tensor
    bias: Tensor
    scale: Tensor


def _linear(inputs: int, outputs: int, kept: float = 1.0) -> Linear:
    """A linear layer with weight normalisation, initialised from N(0, p / inputs) (section 3.5).

    kept: p, the probability that dropout keeps an input
    """
    layer = Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=math.sqrt(kept / inputs))
    nn.init.zeros_(layer.bias)
    return cast(Linear, weight_norm(layer))


class ConvolutionLayer(nn.Module):
    """Dropout, a convolution to twice the width, a gated linear unit and a residual connection (section 3.2)."""

    def __init__(self, inputs: int, shape: ConvolutionShape, probability: float, causal: bool) -> None:
        super().__init__()
        self.dropout = probability
        self.projection = nn.Identity() if inputs == shape.width else _linear(inputs, shape.width)
        self.convolution = Convolution(inputs, 2 * shape.width, shape.kernel, causal=causal)
        self.convolution.linear = _linear(shape.kernel * inputs, 2 * shape.width, 4 * (1 - probability))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Compute (B, S, C') -> (B, S, C). mask: (B, S, 1), False at padding"""
        gated = self.convolve(states.masked_fill(~mask, 0.0))
        result: Tensor = (gated + self.projection(states)) * HALF_VARIANCE
        return result

    def convolve(self, states: Tensor) -> Tensor:
        """The gated convolution: (B, T, C') -> (B, T, C)."""
        return glu(self.convolution(dropout(states, self.dropout, self.training)))


class AttentiveConvolutionLayer(ConvolutionLayer):
    """A causal layer with a gated convolution that attends to the source before the residual connection (section 3.3)."""

    def __init__(self, inputs: int, shape: ConvolutionShape, embedding_size: int, probability: float) -> None:
        super().__init__(inputs, shape, probability, causal=True)
        self.query = _linear(shape.width, embedding_size)
        self.context = _linear(embedding_size, shape.width)

    def forward(self, states: Tensor, embedded: Tensor, memory: SourceMemory) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Compute (B, T, C') -> (B, T, C), and the attention weights (B, T, S). embedded: (B, T, E) target embeddings"""
        gated = self.convolve(states).flatten(0, 1)  # N C
        attended, weights = self._attend(gated, embedded.flatten(0, 1), memory, self.query, self.context)
        attended = attended.unflatten(0, states.shape[:2])
        return (attended + self.projection(states)) * HALF_VARIANCE, weights

    @staticmethod
    def _attend(
        states: Tensor, embedded: Tensor, memory: SourceMemory, query: Projection, context: Projection
    ) -> tuple[Tensor, Tensor]:
        """Equations 1 and 2: states (N, C) and target embeddings (N, E) -> (N, C), and weights (B, N / B, S).

        The sum of values is multiplied by sqrt(S) to keep its variance (section 3.4).
        """
        queries = ((query(states) + embedded) * HALF_VARIANCE).unflatten(0, (len(memory.keys), -1))  # B T E
        with not_cast(queries, memory.keys, memory.values):
            weights = torch.baddbmm(memory.bias, queries, memory.keys).softmax(-1)  # B T S
            contexts = (weights.to(memory.values.dtype) @ memory.values) * memory.scale  # B T E
        return (context(contexts.flatten(0, 1)) + states) * HALF_VARIANCE, weights

    def search_step(self) -> Callable[[Tensor, Tensor, SourceMemory, Tensor, Taps], tuple[Tensor, Tensor, Tensor]]:
        """The layer as a function for one search.

        It maps states (N, C'), embedded (N, E), memory, history and taps to states, weights and history.
        """
        convolve, query, context = self.convolution.search_step(), self.query.search_step(), self.context.search_step()
        project = self.projection if isinstance(self.projection, nn.Identity) else self.projection.search_step()

        def step(
            states: Tensor, embedded: Tensor, memory: SourceMemory, history: Tensor, taps: Taps
        ) -> tuple[Tensor, Tensor, Tensor]:
            convolved, history = convolve(states, history, taps)
            attended, weights = self._attend(glu(convolved), embedded, memory, query, context)
            return (attended + project(states)) * HALF_VARIANCE, weights, history

        return step


@register("model", "convs2s", ConvS2SOptions)
class ConvS2S(Model):
    """ConvS2S (Gehring et al., 2017): gated convolutions, and attention in each decoder layer."""

    can_be_captured = True

    def __init__(self, options: ConvS2SOptions, vocabularies: Vocabularies) -> None:
        super().__init__()
        o, self.options, self.width = options, options, options.output_size
        encoder, decoder = convolution_shapes(o.encoder_layers), convolution_shapes(o.decoder_layers)
        kept = 1 - o.dropout
        self.alignment_layer = len(decoder) - 1
        self.source_embedding = embedding(vocabularies.source, o.embedding_size, EMBEDDING_STD)
        self.target_embedding = embedding(vocabularies.target, o.embedding_size, EMBEDDING_STD)
        self.source_positions, self.target_positions = self._positions(), self._positions()
        self.encoder_input = _linear(o.embedding_size, encoder[0].width, kept)
        self.encoder = nn.ModuleList(
            ConvolutionLayer(inputs, shape, o.dropout, causal=False)
            for inputs, shape in zip(_input_widths(encoder), encoder, strict=True)
        )
        self.encoder_output = _linear(encoder[-1].width, o.embedding_size)
        self.decoder_input = _linear(o.embedding_size, decoder[0].width, kept)
        self.decoder = nn.ModuleList(
            AttentiveConvolutionLayer(inputs, shape, o.embedding_size, o.dropout)
            for inputs, shape in zip(_input_widths(decoder), decoder, strict=True)
        )
        self.decoder_output = _linear(decoder[-1].width, o.output_size)
        self.output = _linear(o.output_size, vocabularies.target, kept)

    def _positions(self) -> LearnedPositions:
        positions = LearnedPositions(
            LearnedPositionOptions(max_positions=self.options.max_positions), self.options.embedding_size
        )
        nn.init.normal_(positions.weight, std=EMBEDDING_STD)
        return positions

    def forward(self, batch: Batch) -> Output:
        """See Model. Computes all target positions at once."""
        features, weights = self._decode(batch)
        return Output(features, {}, attention=weights[self.alignment_layer])

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model: one head in each decoder layer."""
        _, weights = self._decode(batch)
        return {"cross": torch.stack(weights)[:, :, None]}

    def _decode(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """The features (B, T, D), and the attention weights (B, T, S) of each layer."""
        memory = self._encode(batch.source)
        positions = self.target_positions(0, batch.target_input.shape[1])  # T E
        embedded = self._dropout(self.target_embedding(batch.target_input) + positions)  # B T E
        states, weights = self.decoder_input(embedded), []
        for layer in self.decoder:
            states, layer_weights = layer(states, embedded, memory)
            weights.append(layer_weights)
        return self._dropout(self.decoder_output(states)), weights

    def _encode(self, source: Tensor) -> SourceMemory:
        """Encode (B, S). The gradient of z, but not of e, is divided by twice the number of attentions (section 3.4)."""
        mask = source != PAD
        embedded = self._dropout(self.source_embedding(source) + self.source_positions(0, source.shape[1]))  # B S E
        states = self.encoder_input(embedded)
        for layer in self.encoder:
            states = layer(states, mask.unsqueeze(-1))
        outputs: Tensor = self.encoder_output(states)
        if outputs.requires_grad:
            outputs.register_hook(lambda gradient: gradient * (1 / (2 * len(self.decoder))))
        bias = embedded.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)[:, None]  # B 1 S
        scale = mask.sum(1).to(embedded.dtype).sqrt()[:, None, None]  # B 1 1
        return SourceMemory(outputs.transpose(1, 2).contiguous(), (outputs + embedded) * HALF_VARIANCE, bias, scale)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """See Model. Includes taps before and after a sentence, because they are computed too."""
        per_source = linear_flops(self.encoder_input, self.encoder, self.encoder_output)
        per_target = linear_flops(self.decoder_input, self.decoder, self.decoder_output, self.output)
        per_pair = len(self.decoder) * 2 * 2 * self.options.embedding_size  # operations for scores and sums
        return source * per_source + target * per_target + source * target * per_pair

    def _layers(self) -> list[AttentiveConvolutionLayer]:
        return [cast(AttentiveConvolutionLayer, layer) for layer in self.decoder]

    def start(self, source: Tensor) -> State:
        """See Scorer. The state per sentence: what the layers attend to, and each convolution's history."""
        sentences = self._encode(source)._asdict()
        for i, layer in enumerate(self._layers()):
            sentences[f"{i}.history"] = layer.convolution.history(source)
        return State(sentences)

    def for_search(self, output: Projection | None = None) -> Scorer:
        output, layers = output or self.output_step(), [layer.search_step() for layer in self._layers()]
        project_input, project_output = self.decoder_input.search_step(), self.decoder_output.search_step()

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            memory = SourceMemory(*(state.sentences[name] for name in SourceMemory._fields))
            taps = Taps(state.append_entries(tokens, len(memory.keys)), state.num_entries, len(memory.keys))
            embedded = self.target_embedding(tokens) + self.target_positions(state.length, 1)  # N E
            states, histories = project_input(embedded), {}
            for i, layer in enumerate(layers):
                history = state.sentences[f"{i}.history"]
                states, weights, histories[f"{i}.history"] = layer(states, embedded, memory, history, taps)
            attention = weights.flatten(0, 1) if state.watched else None  # N S, of the last layer
            return self.log_probs(project_output(states), output), state.after(
                state.sentences | histories, {}, attention
            )

        return SearchScorer(self.start, step)


def _input_widths(shapes: list[ConvolutionShape]) -> list[int]:
    """The input width of each layer: its own width for the first, and the previous layer's for the others."""
    return [shapes[0].width, *(shape.width for shape in shapes[:-1])]
