"""What every model is: a map from a batch to features, and a Scorer that a search can ask word by word.

Dimensions: B sentences, S source and T target positions, D width, V target vocabulary, W hypotheses a sentence,
N = B * W rows, the hypotheses of one sentence standing together.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from nmt.batch import Batch
from nmt.errors import UserError
from nmt.nn.cost import LengthCost, count_flops
from nmt.nn.linear import Linear
from nmt.nn.quantized import Int8Linear
from nmt.symbols import BOS, EOS, UNK

# Of the products of an update: forward, for the gradient of their input, for the gradient of the weights.
PASSES: Final = 3


@dataclass(frozen=True)
class Vocabularies:
    """The sizes that a model is built for. joint: source and target share one vocabulary."""

    source: int
    target: int
    joint: bool


class Term(NamedTuple):
    """A sum over a batch, and the count that its mean divides by.

    total: () the sum; count: () what it sums over: target tokens, sentences, positions, links
    """

    total: Tensor
    count: Tensor  # type: ignore[assignment]  # instead of tuple.count


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


class Output(NamedTuple):
    """features: (B, T, D), from which `model.output` makes logits (B, T, V); extra_losses: auxiliary losses by name."""

    features: Tensor
    extra_losses: dict[str, Term]


@dataclass
class State:
    """What a Scorer remembers between steps.

    A step may write into its tensors, so a state is good for one step.

    sentences: tensors (B, ...) that belong to a source sentence and are never copied per hypothesis
    hypotheses: tensors (N, ...) that belong to a hypothesis, N = B * W
    length: target positions read so far
    watched: whether a search wants to know where each step looks
    attention: (N, S) what the last step saw of each source position, if it was watched; a row sums to 1
    output: the projection to the words that may be said, a few or all; None is the model's own
    prepared: what a model has looked up of itself for the steps of one search; None where it has to be again
    """

    sentences: dict[str, Tensor] = field(default_factory=dict)
    hypotheses: dict[str, Tensor] = field(default_factory=dict)
    length: int = 0
    watched: bool = False
    attention: Tensor | None = None
    output: Callable[[Tensor], Tensor] | None = None
    prepared: Sequence[Any] | None = None

    def after(self, sentences: dict[str, Tensor], hypotheses: dict[str, Tensor], attention: Tensor | None) -> "State":
        """The state one step later."""
        return State(sentences, hypotheses, self.length + 1, self.watched, attention, self.output, self.prepared)

    def reorder(self, rows: Tensor) -> None:
        """Make row i of the hypotheses what row `rows[i]` was. rows: (N',) each in 0..N-1; N' may differ from N."""
        self.hypotheses = {name: tensor.index_select(0, rows) for name, tensor in self.hypotheses.items()}

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences (B',) and hypotheses (N',), in this order."""
        self.sentences = {name: tensor.index_select(0, sentences) for name, tensor in self.sentences.items()}
        self.reorder(rows)


class Scorer(Protocol):
    """What a search asks. Models are Scorers; so is an ensemble, and so may a plug-in's object be."""

    def start(self, source: Tensor) -> State:
        """source: (B, S) ids, each row ends with EOS, then PAD. Returns a state with one hypothesis a sentence."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token of each hypothesis; tokens: (N,) ids, BOS first.

        Returns log-probabilities in nats of the next token, (N, V) float32, and the state after it. N is a multiple
        of B: the search decides how many hypotheses a sentence has, by `state.reorder`.
        """


class Model(nn.Module, ABC):
    """A trainable network and a Scorer.

    A registered model is built as `cls(options, vocabularies)`.
    output: the projection to the vocabulary, features (..., D) -> logits (..., V), a module without other state
    width: D, which schedules may need
    reads_source: whether what it says depends on the source; a language model's does not
    """

    output: nn.Module
    width: int
    reads_source: ClassVar[bool] = True

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Features of each target position, given the source and the target before it."""

    @abstractmethod
    def start(self, source: Tensor) -> State:
        """See Scorer."""

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer."""

    def extra_counts(self, batch: Batch) -> dict[str, Tensor]:
        """The count () of each of the `extra_losses` of a batch, from the batch alone."""
        return {}

    def parameter_groups(self) -> list[ParameterGroup]:
        """The trainable parameters, each in one group."""
        return [ParameterGroup("all", [parameter for parameter in self.parameters() if parameter.requires_grad])]

    def begin_update(self, number: int) -> None:
        """Called before each update. number: of the update, from 1"""

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """Where each position looks when the whole target is read: weights (L, B, H, queries, keys) by kind.

        Kinds are "encoder", "decoder" and "cross"; one that a model does not have is absent.
        """
        return {}

    @property
    def alignment_layer(self) -> int:
        """The layer of "cross" whose heads, on average, say best which source word a target word translates.

        At each step the mean of its heads is `State.attention`.
        """
        return 0

    def log_probs(self, features: Tensor, output: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """features (N, D) -> log-probabilities (N, V) in nats, float32. output: instead of the model's own"""
        logits: Tensor = (output or self.output)(features).float()
        # in place where it may be: a third quicker on a CPU whose caches they fill
        own = logits if logits.device.type == "cpu" and not logits.requires_grad else None
        return torch.log_softmax(logits, dim=-1, out=own)

    def prepared_output(self) -> Callable[[Tensor], Tensor]:
        """`output` without gradient for one search, its weights looked up where it can do that."""
        return self.output.prepared() if isinstance(self.output, Linear | Int8Linear) else self.output

    def compile_steps(self) -> None:
        """Let torch.compile fuse what a search asks of each layer, from now on, without gradient.

        Raises UserError for a model that cannot.
        """
        raise UserError(
            "--compile fuses the steps of a Transformer's layers, which this model does not have (leave it out)"
        )

    def num_parameters(self) -> int:
        """Trainable numbers, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def flops(self, source: Tensor, target: Tensor) -> Tensor:
        """Floating-point operations of features and logits of pairs of these lengths, forward only: (N,) int64.

        source, target: (N,) int64 positions that the model reads of each pair, EOS counted, padding not
        What counts is told in nmt.nn.cost. Here it is measured once and interpolated; a model that can say it in
        closed form does, so that it is exact and costs nothing.
        """
        return self._measured_cost(source, target)

    def training_flops(self, source: Tensor, target: Tensor) -> int:
        """FLOPs of an update on pairs of these lengths (as for `flops`), whatever it is cut into."""
        return PASSES * int(self.flops(source, target).sum())

    @property
    def cost_is_measured(self) -> bool:
        """Whether `flops` interpolates measurements and is no closed form."""
        return type(self).flops is Model.flops

    @cached_property
    def _measured_cost(self) -> LengthCost:
        device, training = next(self.parameters()).device, self.training
        with torch.random.fork_rng([device] if device.type == "cuda" else []):  # training's draws stay what they were
            self.eval()
            try:
                return LengthCost.measured(lambda source, target: self._count(source, target, device))
            finally:
                self.train(training)

    def _count(self, source: int, target: int, device: torch.device) -> int:
        """The FLOPs of one pair, counted while it is read."""
        rows = [UNK] * (source - 1) + [EOS], [BOS] + [UNK] * (target - 1) + [EOS]
        batch = Batch(*(torch.tensor([row], device=device) for row in rows))
        return count_flops(lambda: self.output(self(batch).features))
