"""The interfaces of models: `Model`, a trainable network, and `Scorer`, the next-token distribution for a search.

Dimensions: B sentences, S source and T target positions, D width, V target vocabulary, W hypotheses per sentence,
N = B * W rows; the hypotheses of a sentence are adjacent.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from nmt.batch import Batch, dummy_batch
from nmt.errors import UserError
from nmt.models.options import Tie
from nmt.models.saved import Vocabularies as Vocabularies
from nmt.nn.cost import count_flops, interpolated_cost
from nmt.nn.dropout import dropout
from nmt.nn.extra_losses import ExtraLosses
from nmt.nn.linear import Projection, step_of
from nmt.nn.search_state import State as State
from nmt.symbols import PAD

FLOAT32_BYTES: Final = 4
INT64_BYTES: Final = 8
# Each matrix product of the forward pass costs this many in an update: itself, and the gradients of its input and weight.
PRODUCTS_PER_UPDATE: Final = 3


class Term(NamedTuple):
    """A sum over a batch, and the count by which it is divided to get the mean.

    total: () the sum
    count: () the number of summed items: target tokens, sentences, positions or links
    """

    total: Tensor
    count: Tensor  # type: ignore[assignment]


class Output(NamedTuple):
    """The output of a model for a batch.

    features: (B, T, D), from which `model.output` computes logits (B, T, V)
    extra_losses: auxiliary losses by name, which are added to the criterion's loss
    reported: statistics by name, which are only logged
    attention: (B, T, S) weights of the source positions; each row sums to 1; None if the model has no attention
    memory: (B, S, D) the encoder's output at each source position, from which `model.output` can compute logits too; None if
        the model does not provide it
    """

    features: Tensor
    extra_losses: Mapping[str, Term]
    reported: Mapping[str, Term] = {}
    attention: Tensor | None = None
    memory: Tensor | None = None

    @classmethod
    def of_parts(cls, features: Tensor, parts: Sequence[ExtraLosses], count: Tensor) -> "Output":
        """Combine the results of inner parts: sum the losses and average the statistics. count: () the weight of each result"""
        first = parts[0] if parts else ExtraLosses()
        losses = {name: sum(part.losses[name] for part in parts) for name in first.losses}
        means = {name: sum(part.statistics[name] for part in parts) / len(parts) for name in first.statistics}
        terms = [{name: Term(value * count, count) for name, value in each.items()} for each in (losses, means)]
        return cls(features, terms[0], terms[1])


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share their optimizer settings.

    lr_factor: multiplies the schedule's learning rate
    weight_decay: replaces the optimizer's weight decay; None keeps it
    """

    name: str
    parameters: list[nn.Parameter]
    lr_factor: float = 1.0
    weight_decay: float | None = None


class Scorer(Protocol):
    """Predicts the distribution of the next token, step by step. Models, ensembles and objects from plug-ins are Scorers."""

    @abstractmethod
    def start(self, source: Tensor) -> State:
        """Return the state before the first step, with one hypothesis per sentence.

        source: (B, S) ids; each row ends with EOS, followed by PAD
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token of each hypothesis and predict the next.

        tokens: (N,) ids, BOS at the first step; N is a multiple of B; a search changes N with `state.reorder`
        returns: log-probabilities of the next token in nats, (N, V) float32, and the state after this step
        """


@dataclass(frozen=True)
class SearchScorer:
    """A Scorer for one search, made of functions that have already looked up their weights; see Scorer."""

    start: Callable[[Tensor], State]
    step: Callable[[Tensor, State], tuple[Tensor, State]]


def scorer_for_search(scorer: Scorer) -> Scorer:
    """Return the Scorer for one search, in inference mode and under the current autocast.

    This is the result of `for_search()`, which looks up the weights once, or the Scorer itself if it does not have that method.
    """
    for_search: Callable[[], Scorer] = getattr(scorer, "for_search", lambda: scorer)
    return for_search()


class Model(nn.Module, Scorer):
    """A trainable network and a Scorer.

    A registered model is built as `cls(options, vocabularies)`.

    output: the projection to the vocabulary, features (..., D) -> logits (..., V); a module without other state
    width: D, which some schedules need
    auxiliary_losses: names of the auxiliary losses that are averaged over target tokens
    reads_source: whether the prediction depends on the source; False for a language model
    has_attention: whether a watched step provides the attention to the source positions
    training_options: names of options that only training reads; they may differ from those of an --init-from model
    reads_characters: whether tokens must be characters, which training checks
    repeats_layers: whether a pass calls a layer several times, or a number of times that depends on the lengths; FSDP then
        shards all layers together
    alignment_layer: the "cross" layer whose mean over heads aligns source and target best (`State.attention`)
    watched: whether the next pass must provide `Output.attention`
    temperature: divisor of logits for calibrated probabilities (nmt score --calibrate); None without calibration
    can_be_captured: whether the work of a pass depends only on the sizes of its batch, so that a CUDA graph can repeat it
    depths: the number of encoder and decoder layers in a pass; None if the first few layers alone do not form a network
    residual_outputs: name patterns of the weights at the end of residual branches, if any. A layer with zeros there leaves its
        input unchanged, so it can be added to a trained model
    """

    output: nn.Module
    width: int
    auxiliary_losses: Sequence[str] = ()
    reads_source: ClassVar[bool] = True
    has_attention: ClassVar[bool] = True
    training_options: frozenset[str] = frozenset({"dropout", "attention_dropout", "activation_dropout"})
    reads_characters: ClassVar[bool] = False
    repeats_layers: bool = False
    alignment_layer: int = 0
    watched: bool = False
    can_be_captured: bool = False
    depths: tuple[int, int] | None = None
    temperature: float | None = None
    residual_outputs: Sequence[str] = ()
    _cost: Callable[[Tensor, Tensor], Tensor] | None = None

    def __init__(self) -> None:
        super().__init__()
        if all(getattr(type(self), name) is getattr(Model, name) for name in ("step", "for_search", "predict")):
            raise TypeError(f"{type(self).__name__} must define `step`, `for_search` or `predict`")

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Compute the features at each target position, given the source and the earlier target tokens."""

    def for_search(self, output: Projection | None = None) -> Scorer:
        """Return the model as the Scorer of one search, which looks up its weights once.

        output: replaces the model's projection, (N, D) -> (N, V'), without gradients; a model that defines `step` ignores it
            and predicts the whole vocabulary
        """
        if type(self).step is not Model.step:
            return self
        return SearchScorer(self.start, partial(self.predict, output=output or self.output_step()))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. Looks up all weights at each call; a search calls `for_search` first."""
        return self.for_search().step(tokens, state)

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Scorer.step. A model must define this, `for_search` or `step`. output: the projection"""
        raise NotImplementedError

    def extra_counts(self, batch: Batch) -> dict[str, Tensor]:
        """The counts () of `Output.extra_losses` by name, computed only from the batch; by default target tokens."""
        return {name: batch.num_target_tokens for name in self.auxiliary_losses}

    def parameter_groups(self) -> list[ParameterGroup]:
        """The parameters, grouped by optimizer settings; by default one group. Frozen parameters are removed later."""
        return [ParameterGroup("all", list(self.parameters()))]

    def begin_update(self, number: int) -> None:
        """Called before each update. number: number of the update, from 1"""

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """Compute attention weights (L, B, H, queries, keys) by kind, for given sources and targets.

        Kinds are "encoder", "decoder" and "cross", if the model has them. By default `cross` is `Output.attention`, if
        the model provides it, as one layer with one head.
        """
        attention = self(batch).attention
        return {} if attention is None else {"cross": attention[None, :, None]}

    def log_probs(self, features: Tensor, output: Projection | None = None) -> Tensor:
        """Map features (..., D) to log-probabilities (..., V) in nats, float32. output: replaces `self.output`"""
        logits: Tensor = (output or self.output)(features).float()
        # In place on a CPU unless a gradient is needed. This is a third faster if the logits fill the CPU's caches.
        result = logits if logits.device.type == "cpu" and not logits.requires_grad else None
        return torch.log_softmax(logits, dim=-1, out=result)

    def output_step(self) -> Projection:
        """The function that computes `output` in one search, without gradients. A linear layer's weights are looked up once."""
        return step_of(self.output)

    def _dropout(self, vectors: Tensor) -> Tensor:
        """Apply dropout with the probability of the model's option `dropout`, only in training."""
        return dropout(vectors, cast(Any, self).options.dropout, self.training)

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """The size in bytes of a hypothesis' search state after `target_length` steps, including the state of its sentence.

        By default the growth in the first step is measured and multiplied by `target_length`.
        """
        with self._measuring() as device, torch.inference_mode():
            batch = dummy_batch(1, source_length, 1).to(device)
            state = self.start(batch.source)
            initial = _num_bytes(state)
            _, state = self.step(batch.target_input[:, 0], state)
        return initial + target_length * (_num_bytes(state) - initial)

    def num_parameters(self) -> int:
        """The number of trainable parameters. Shared parameters count once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """The FLOPs of computing features and logits of sentence pairs, forward only: (N,) int64; see nmt.nn.cost.

        By default, six pairs are measured and the others are interpolated. Models with a closed form override this.

        source, target: (N,) int64, the positions that the model reads on each side, with EOS but without padding
        """
        if (
            self._cost is None
        ):  # an AttributeError in a cached property would look like a missing attribute of the module
            self._cost = self._measured_cost()
        return self._cost(source, target)

    def training_flops(self, source: Tensor, target: Tensor) -> int:
        """The FLOPs of an update on pairs of these lengths (see `flops`), however it is split into micro-batches."""
        return PRODUCTS_PER_UPDATE * int(self.flops(source, target).sum())

    @property
    def cost_is_measured(self) -> bool:
        """Whether `flops` interpolates measurements instead of evaluating a closed form."""
        return type(self).flops is Model.flops

    def _measured_cost(self) -> Callable[[Tensor, Tensor], Tensor]:
        def cost(source: int, target: int) -> int:
            batch = dummy_batch(1, source, target).to(device)
            return count_flops(lambda: self.output(self._checked(self(batch), target)))

        with self._measuring() as device:
            return interpolated_cost(cost)

    def _checked(self, output: Output, length: int) -> Tensor:
        """The features of a single pair. Raises TypeError or ValueError if `forward` has returned anything else."""
        if not isinstance(output, Output):
            raise TypeError(f"forward returned {type(output).__name__}, but must return Output(features, extra_losses)")
        if output.features.shape[:-1] != (1, length):
            raise ValueError(
                f"features have the shape {tuple(output.features.shape)} instead of (B, T, D), here (1, {length}, D)"
            )
        return output.features

    @contextmanager
    def _measuring(self) -> Iterator[torch.device]:
        """A context in evaluation mode that does not affect the random draws of training. Yields the model's device."""
        device, training = next(self.parameters()).device, self.training
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self.eval()
            try:
                yield device
            finally:
                self.train(training)


def embeddings(
    tie: Tie, vocabularies: Vocabularies, table: Callable[[int], nn.Embedding]
) -> tuple[nn.Embedding, nn.Embedding]:
    """The embeddings of source and target, which are the same with `--tie all` (Press and Wolf, 2017).

    The model itself ties its output layer.

    table: makes an embedding with a given number of entries
    Raises UserError for `--tie all` without a joint vocabulary.
    """
    if tie == "all" and not vocabularies.joint:
        raise UserError("--tie all needs a joint vocabulary, but the data has none (use --tie target or --tie none)")
    source = table(vocabularies.source)
    return source, source if tie == "all" else table(vocabularies.target)


def embedding(size: int, width: int, std: float) -> nn.Embedding:
    """An embedding table initialised from N(0, std^2). The row for padding is zero and never used."""
    table = nn.Embedding(size, width, padding_idx=PAD)
    nn.init.normal_(table.weight, std=std)
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table


def models_in(module: nn.Module) -> list[Model]:
    """The models inside a module, such as those of an ensemble. A model contains itself."""
    return [part for part in module.modules() if isinstance(part, Model)]


def _num_bytes(state: State) -> int:
    return sum(tensor.nbytes for tensor in [*state.sentences.values(), *state.hypotheses.values()])
