"""The interfaces of models: `Model`, a trainable network, and `Scorer`, the next-token distribution that a search uses.

Dimensions: B sentences, S source and T target positions, D width, V target vocabulary, W hypotheses per sentence,
N = B * W rows, the hypotheses of one sentence next to each other.
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
from nmt.models.saved import Vocabularies as Vocabularies  # what every model is built from
from nmt.nn.cost import count_flops, interpolated_cost
from nmt.nn.dropout import dropout
from nmt.nn.extra_losses import ExtraLosses
from nmt.nn.linear import Projection, prepared
from nmt.nn.search_state import State as State  # what a Scorer keeps
from nmt.symbols import PAD

FLOAT32_BYTES: Final = 4
INT64_BYTES: Final = 8
# Matrix products per forward product in an update: itself, the gradient of its input, the gradient of its weight.
PRODUCTS_PER_UPDATE: Final = 3


class Term(NamedTuple):
    """A sum over a batch, and the count that its mean divides by.

    total: () the sum; count: () what it sums over: target tokens, sentences, positions, links
    """

    total: Tensor
    count: Tensor  # type: ignore[assignment]


class Output(NamedTuple):
    """What a model computes from a batch.

    features: (B, T, D), from which `model.output` computes logits (B, T, V)
    extra_losses: auxiliary losses by name, to be added to the criterion's
    reported: statistics by name, logged only
    attention: (B, T, S) weights of the source positions, each row sums to 1; None where the model has none
    """

    features: Tensor
    extra_losses: Mapping[str, Term]
    reported: Mapping[str, Term] = {}
    attention: Tensor | None = None

    @classmethod
    def of_parts(cls, features: Tensor, parts: Sequence[ExtraLosses], count: Tensor) -> "Output":
        """The losses of all inner parts, summed, and the means of their statistics, weighted by a count: ()"""
        first = parts[0] if parts else ExtraLosses()
        losses = {name: sum(part.losses[name] for part in parts) for name in first.losses}
        means = {name: sum(part.statistics[name] for part in parts) / len(parts) for name in first.statistics}
        terms = [{name: Term(value * count, count) for name, value in each.items()} for each in (losses, means)]
        return cls(features, terms[0], terms[1])


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that an optimizer treats alike.

    lr_factor: factor of the schedule's learning rate
    weight_decay: in place of the optimizer's own; None keeps that
    """

    name: str
    parameters: list[nn.Parameter]
    lr_factor: float = 1.0
    weight_decay: float | None = None


class Scorer(Protocol):
    """The distribution of the next token, one step at a time. Models, ensembles and plug-ins' own objects are Scorers."""

    @abstractmethod
    def start(self, source: Tensor) -> State:
        """The state before the first step, with one hypothesis per sentence.

        source: (B, S) ids; each row ends with EOS, then PAD
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token of each hypothesis and predict the next.

        tokens: (N,) ids, BOS at the first step; N is a multiple of B, which a search changes by `state.reorder`
        returns: log-probabilities in nats of the next token, (N, V) float32, and the state after it
        """


@dataclass(frozen=True)
class PreparedScorer:
    """A Scorer for one search, of functions that have looked up their weights; see Scorer."""

    start: Callable[[Tensor], State]
    step: Callable[[Tensor, State], tuple[Tensor, State]]


def prepared_scorer(scorer: Scorer) -> Scorer:
    """The Scorer for one search, in inference mode and under the autocast that is active now.

    It is `scorer.prepared()`, which looks up the weights once, if there is such a method, else the Scorer itself.
    """
    prepared: Callable[[], Scorer] = getattr(scorer, "prepared", lambda: scorer)
    return prepared()


class Model(nn.Module, Scorer):
    """A trainable network and a Scorer.

    A registered model is built as `cls(options, vocabularies)`.
    output: the projection to the vocabulary, features (..., D) -> logits (..., V), a module without other state
    width: D, which some schedules need
    auxiliary_losses: names of auxiliary losses that count target tokens
    reads_source: whether the prediction depends on the source; a language model's does not
    has_attention: whether a watched step gives the attention to the source positions
    training_options: names of options that only training reads, which may change where a run begins with trained weights
    reads_characters: whether tokens have to be characters, which training checks
    repeats_layers: whether a pass calls a layer several times, or as often as the lengths of its batch say; FSDP then
        shards all layers together
    alignment_layer: the layer of "cross" whose mean over heads, `State.attention`, aligns source and target best
    watched: whether the next pass has to give `Output.attention`
    temperature: divides logits for calibrated probabilities (nmt score --calibrate); None if it is not calibrated
    can_be_captured: whether the work of a pass depends on the sizes of its batch alone, so that a CUDA graph can repeat it
    depths: how many layers of encoder and decoder a pass goes through, of which any first ones are a network too; None if they
        are not
    residual_outputs: patterns of the names of weights that end the branch of a residual connection. A layer in which these
        are zero changes nothing, so that one can be added to a trained model; none if that is not so
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
        if all(getattr(type(self), name) is getattr(Model, name) for name in ("step", "prepared", "predict")):
            raise TypeError(f"{type(self).__name__} defines none of `step`, `prepared` and `predict`")

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Features of each target position, given the source and the earlier target tokens."""

    def prepared(self, output: Projection | None = None) -> Scorer:
        """The model as the Scorer of one search, with its weights looked up once.

        output: projection in place of the model's own, (N, D) -> (N, V'), without gradient; a model that defines `step`
            ignores it and predicts the whole vocabulary
        """
        if type(self).step is not Model.step:
            return self
        return PreparedScorer(self.start, partial(self.predict, output=output or self.prepared_output()))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer; looks up all weights again. A search calls `prepared` first."""
        return self.prepared().step(tokens, state)

    def predict(self, tokens: Tensor, state: State, output: Projection) -> tuple[Tensor, State]:
        """See Scorer.step. output: the projection; a model defines this, `prepared` or `step`"""
        raise NotImplementedError

    def extra_counts(self, batch: Batch) -> dict[str, Tensor]:
        """The counts of `Output.extra_losses` by name, (), from the batch alone; by default target tokens."""
        return {name: batch.num_target_tokens for name in self.auxiliary_losses}

    def parameter_groups(self) -> list[ParameterGroup]:
        """The parameters in groups that an optimizer treats alike; by default a single group. Frozen ones are left out later."""
        return [ParameterGroup("all", list(self.parameters()))]

    def begin_update(self, number: int) -> None:
        """Called before each update. number: from 1"""

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """Attention weights (L, B, H, queries, keys) by kind, for given sources and targets.

        Kinds are "encoder", "decoder" and "cross"; a kind that the model does not have is absent. By default `cross` is
        `Output.attention`, if the model gives it, as one layer of one head.
        """
        attention = self(batch).attention
        return {} if attention is None else {"cross": attention[None, :, None]}

    def log_probs(self, features: Tensor, output: Projection | None = None) -> Tensor:
        """features (..., D) -> log-probabilities (..., V) in nats, float32. output: in place of `self.output`"""
        logits: Tensor = (output or self.output)(features).float()
        # In place where no gradient forbids it: a third faster on a CPU whose caches the logits fill.
        result = logits if logits.device.type == "cpu" and not logits.requires_grad else None
        return torch.log_softmax(logits, dim=-1, out=result)

    def prepared_output(self) -> Projection:
        """`output` without gradient for one search, its weights looked up if it is a linear layer."""
        return prepared(self.output)

    def _dropout(self, vectors: Tensor) -> Tensor:
        """Dropout with the probability of the model's option `dropout`, in training."""
        return dropout(vectors, cast(Any, self).options.dropout, self.training)

    def state_bytes(self, source_length: int, target_length: int) -> int:
        """Bytes of search state of one hypothesis, its sentence's part included, after `target_length` steps.

        By default the first step is measured and its growth multiplied by `target_length`.
        """
        with self._measuring() as device, torch.inference_mode():
            batch = dummy_batch(1, source_length, 1).to(device)
            state = self.start(batch.source)
            initial = _num_bytes(state)
            _, state = self.step(batch.target_input[:, 0], state)
        return initial + target_length * (_num_bytes(state) - initial)

    def num_parameters(self) -> int:
        """Trainable numbers, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """Floating-point operations of features and logits of sentence pairs, forward only: (N,) int64; see nmt.nn.cost.

        source, target: (N,) int64 positions of each side that the model reads, EOS counted, padding not
        By default six pairs are measured and others interpolated. Models with a closed form override this.
        """
        if (
            self._cost is None
        ):  # an AttributeError in a cached property would look like a missing attribute of the module
            self._cost = self._measured_cost()
        return self._cost(source, target)

    def training_flops(self, source: Tensor, target: Tensor) -> int:
        """FLOPs of an update on pairs of these lengths (see `flops`), however it is cut into micro-batches."""
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
                f"features have the shape {tuple(output.features.shape)}; must be (B, T, D), here (1, {length}, D)"
            )
        return output.features

    @contextmanager
    def _measuring(self) -> Iterator[torch.device]:
        """Evaluation mode without effect on training's random draws; yields the model's device."""
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
    """The embeddings of source and target, which `--tie all` makes one (Press and Wolf, 2017).

    table: an embedding of this many entries
    Raises UserError for `--tie all` without a joint vocabulary. The model ties its output layer.
    """
    if tie == "all" and not vocabularies.joint:
        raise UserError("--tie all: source and target have separate vocabularies (give --tie target or none)")
    source = table(vocabularies.source)
    return source, source if tie == "all" else table(vocabularies.target)


def embedding(size: int, width: int, std: float) -> nn.Embedding:
    """A table of embeddings from N(0, std^2); the row of padding is zero at first and never used."""
    table = nn.Embedding(size, width, padding_idx=PAD)
    nn.init.normal_(table.weight, std=std)
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table


def models_in(module: nn.Module) -> list[Model]:
    """The models within a module, such as those of an ensemble; a model is its own."""
    return [part for part in module.modules() if isinstance(part, Model)]


def _num_bytes(state: State) -> int:
    return sum(tensor.nbytes for tensor in [*state.sentences.values(), *state.hypotheses.values()])
