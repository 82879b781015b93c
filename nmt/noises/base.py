"""Noises: random changes to a training pair, made before the model reads it and different in each epoch.

A noise is a pure function of (seed, epoch, pair), so it does not depend on the order of pairs, the number of ranks, or resuming.
A noise is active if one of its options differs from its default. Its options are options of `nmt train`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from nmt.batch import Batch
from nmt.rows import Rows
from nmt.text.pipeline import Pipeline


@dataclass(frozen=True)
class NoiseContext:
    """What a noise can use in addition to its options.

    pipeline: text pipeline of source and target, with their vocabularies
    seed: random seed of the training run
    column_kinds: kind of each data column, by name
    longest: tokens of the longest sentence in the data; noise must not create longer ones, which could exceed memory or positions
    """

    pipeline: Pipeline
    seed: int
    column_kinds: Mapping[str, str]
    longest: int


class Noise:
    """Noise in training data. A registered noise is built as `cls(options, context)`; see NoiseContext.

    order: the noise with the lowest order is applied first
    keeps_text: whether the text of the source stays the same; if not, validation and criteria also get the original source
    """

    order: ClassVar[int] = 0
    keeps_text: ClassVar[bool] = True

    def sentences(self, source: Rows, target: Rows, draws: NDArray[Any], epoch: int) -> tuple[Rows, Rows]:
        """Change the tokens of both sides of an update's pairs, without EOS, for one epoch.

        draws: (N,) a number for each pair (nmt.data.batching.PartPlan); in mixed corpora, each repetition has its own number
        """
        return source, target

    def read(self, batch: Batch, draws: NDArray[Any], epoch: int) -> Batch:
        """Change a batch as the model reads it, but not the tokens to predict. draws: (B,) see `sentences`"""
        return batch

    @property
    def changes_sentences(self) -> bool:
        """Whether the noise overrides `sentences`. If so, lengths of pairs may differ from those used to plan the updates."""
        return type(self).sentences is not Noise.sentences
