"""The interface of training criteria. A criterion returns the parts of its loss as sums, each with its own count."""

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

UPDATE_BITS: Final = 40  # number of low bits in a search's `variation` that hold the update; the others hold the seed


class Loss(NamedTuple):
    """The parts of a criterion's loss on a batch, by name.

    trained: an update divides each part by its count in the whole update, and minimises the sum
    reported: only logged; "nll", the negative log-likelihood of target tokens in nats, determines the perplexity
    """

    trained: Mapping[str, Term]
    reported: Mapping[str, Term] = {}

    @classmethod
    def of_target_tokens(cls, batch: Batch, total: Tensor, **reported: Tensor) -> "Loss":
        """Make a loss that is a mean over the target tokens of a batch. total: sum of the loss; reported: further sums by name"""
        count = batch.num_target_tokens
        return cls({"loss": Term(total, count)}, {name: Term(of.detach(), count) for name, of in reported.items()})


@dataclass
class CriterionContext:
    """Objects that a criterion may use in addition to its options.

    pipeline: the text pipeline of source and target, with their vocabularies
    scorer: the model, for a search
    seed: seed of the random draws in training
    update: number of the current update, counted from 1; set by the trainer
    """

    pipeline: Pipeline
    scorer: Scorer
    seed: int = 1
    update: int = 0

    def build(self, part: Part) -> Any:
        """Build an inner component from the criterion's options.

        An inner criterion receives this context, and an inner decoder the text pipeline. Raises UserError if a metric cannot be
        used here.
        """
        built = registry.build(part, self) if part.kind == "criterion" else registry.build(part)
        if part.kind == "decoder":
            built.use_pipeline(self.pipeline)
        elif part.kind == "metric":
            built.use_language(self.pipeline.target_lang)
            built.check()
        return built

    def search(self, decoder: Any, source: Tensor) -> list[list[Any]]:
        """Search with the current model, in evaluation mode. The random draws differ for each seed and update.

        decoder: an inner decoder, from `build`; source: (B, S) ids
        returns: the hypotheses of each row (nmt.decoders.base.Hypothesis), best first
        Raises UserError if the model's weights are sharded over the ranks.
        """
        decoder.variation = (self.seed << UPDATE_BITS) + self.update
        model = self.scorer if isinstance(self.scorer, nn.Module) else nn.Identity()
        if any(map(is_sharded, model.parameters())):
            raise UserError(
                "--engine fsdp: this criterion runs a search, which needs all weights on each rank (use --engine ddp)"
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

    part_name: its registered name
    needs_trained_model: whether a run must start with trained weights
    num_passes: forward passes per pair in an update, by which the counted cost is multiplied
    can_be_captured: whether its work depends only on the sizes of a batch, so that a CUDA graph can repeat it
    files: digests of files that it reads in addition to its options, by name; a resumed run must have the same ones
    """

    part_name: ClassVar[str] = "unregistered"
    needs_trained_model: ClassVar[bool] = False
    num_passes: ClassVar[int] = 1
    can_be_captured: ClassVar[bool] = False
    files: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def __call__(self, model: Model, batch: Batch) -> Loss:
        """Compute the parts of the loss as sums over the rows of a batch.

        These parts do not include the model's auxiliary losses, which the update adds.
        """

    def training_flops(self, model: Model, source: Tensor, target: Tensor) -> int:
        """The FLOPs of the current update. source, target: lengths of its pairs, see `Model.training_flops`"""
        return self.num_passes * model.training_flops(source, target)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The counts () of a batch's trained parts, computed from the batch alone, because updates need them before the loss."""
        return {"loss": batch.num_target_tokens}

    def doubts(self, settings: Mapping[str, Any], is_new: bool) -> Iterator[str]:
        """Yield warnings about settings of a run that do not suit this criterion.

        is_new: whether the run starts with random weights
        """
        yield from ()
