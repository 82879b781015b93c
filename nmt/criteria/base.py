"""Criteria: what training minimises, as sums with their own counts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from torch import Tensor, nn

from nmt import registry
from nmt.batch import Batch
from nmt.dist import is_sharded
from nmt.errors import UserError
from nmt.models.base import Model, Scorer
from nmt.models.base import Term as Term
from nmt.options import Part
from nmt.text.pipeline import Pipeline

UPDATE_BITS: Final = 40  # of the number that varies a search: the rest is the seed


class Loss(NamedTuple):
    """The parts of a criterion's value on a batch, by name.

    trained: an update minimises the sum of their means, each over its count in the whole update
    reported: logged only; "nll", the negative log-likelihood in nats over target tokens, gives the perplexity
    """

    trained: Mapping[str, Term]
    reported: Mapping[str, Term] = {}

    @classmethod
    def of_target_tokens(cls, batch: Batch, total: Tensor, **reported: Tensor) -> "Loss":
        """A loss that is a mean over the target tokens of a batch. total: its sum; reported: further sums, by name"""
        count = batch.num_target_tokens
        return cls({"loss": Term(total, count)}, {name: Term(of.detach(), count) for name, of in reported.items()})


@dataclass
class CriterionContext:
    """What a criterion may use besides its options.

    pipeline: the text pipeline of source and target, with their vocabularies
    scorer: the model, for a search
    seed: of the training's random draws
    update: number of the update that is being made, from 1; the trainer sets it
    """

    pipeline: Pipeline
    scorer: Scorer
    seed: int = 1
    update: int = 0

    def build(self, part: Part) -> Any:
        """Build a part that the criterion's options hold.

        An inner criterion gets this context, an inner search the text pipeline. Raises UserError for a metric that
        cannot be used here.
        """
        built = registry.build(part, self) if part.kind == "criterion" else registry.build(part)
        if part.kind == "decoder":
            built.use_pipeline(self.pipeline)
        elif part.kind == "metric":
            built.use_language(self.pipeline.target_lang)
            built.check()
        return built

    def search(self, decoder: Any, source: Tensor) -> list[list[Any]]:
        """Search with the model as it is now, in evaluation mode, and with other random draws for each seed and update.

        decoder: an inner search, from `build`; source: (B, S) ids
        returns: the hypotheses of each row (nmt.decoders.base.Hypothesis), best first
        Raises UserError for a model whose weights are divided among the ranks.
        """
        decoder.variation = (self.seed << UPDATE_BITS) + self.update
        model = self.scorer if isinstance(self.scorer, nn.Module) else nn.Identity()
        if any(map(is_sharded, model.parameters())):
            raise UserError(
                "--engine fsdp: the search of a criterion needs all weights on each rank (give --engine ddp)"
            )
        training = model.training
        model.eval()
        try:
            hypotheses: list[list[Any]] = decoder.search(self.scorer, source)
            return hypotheses
        finally:
            model.train(training)


class Criterion(ABC):
    """A training criterion. A registered criterion is built as `cls(options, context)`, see CriterionContext.

    part_name: the name it is registered by
    needs_trained_model: whether a run must begin with trained weights
    num_passes: forward passes of each pair in an update, by which its counted cost is multiplied
    can_be_captured: whether its work depends on the sizes of a batch alone, so that a CUDA graph can repeat it
    files: a digest of what it reads besides its options, by name; it must stay when a run goes on
    """

    part_name: ClassVar[str] = "unregistered"
    needs_trained_model: ClassVar[bool] = False
    num_passes: ClassVar[int] = 1
    can_be_captured: ClassVar[bool] = False
    files: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def __call__(self, model: Model, batch: Batch) -> Loss:
        """The parts of the loss as sums over a batch.

        The parts of a batch are the sums of those of its rows. Auxiliary losses of the model are not among them: the
        update adds those itself.
        """

    def training_flops(self, model: Model, source: Tensor, target: Tensor) -> int:
        """FLOPs of the update that is being made. source, target: lengths of its pairs, as `Model.training_flops` takes them"""
        return self.num_passes * model.training_flops(source, target)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The counts () of the trained parts of a batch, from the batch alone: an update divides before its first gradient."""
        return {"loss": batch.num_target_tokens}

    def doubts(self, settings: Mapping[str, Any], is_new: bool) -> Iterator[str]:
        """Settings of a run that work worse with this criterion than they could, as warnings.

        is_new: whether the run starts with random weights
        """
        yield from ()
