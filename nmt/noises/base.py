"""Noises: what training does to a pair before the model reads it, other in each epoch.

A noise is a pure function of (seed, epoch, pair), so that order, a resume and ranks change nothing. It is in use when one of
its options has another value than its default. Its options are options of `nmt train`.
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
    """What a noise may use besides its options.

    pipeline: the text pipeline of source and target, with their vocabularies
    seed: of the training's random draws
    column_kinds: the kind of each column of the data, by name
    longest: tokens of the longest sentence of the data; a noise makes none longer, so that memory and positions suffice
    """

    pipeline: Pipeline
    seed: int
    column_kinds: Mapping[str, str]
    longest: int


class Noise:
    """A noise of training data. A registered noise is built as `cls(options, context)`, see NoiseContext.

    order: noises change a pair one after the other, from the lowest order to the highest
    keeps_text: whether the source has the same text afterwards; if not, validations and criteria also get the source before
    """

    order: ClassVar[int] = 0
    keeps_text: ClassVar[bool] = True

    def sentences(self, source: Rows, target: Rows, draws: NDArray[Any], epoch: int) -> tuple[Rows, Rows]:
        """The tokens of both sides of the pairs of an update, without EOS, as they are read and predicted in an epoch.

        draws: (N,) the numbers of the pairs (nmt.data.batching.Plan); mixed corpora give a pair a number for each time
        """
        return source, target

    def read(self, batch: Batch, draws: NDArray[Any], epoch: int) -> Batch:
        """A batch as the model reads it in an epoch; the tokens to predict stay. draws: (B,) see `sentences`"""
        return batch

    @property
    def changes_sentences(self) -> bool:
        """Whether it defines `sentences`: pairs then have other lengths than those that updates were planned by."""
        return type(self).sentences is not Noise.sentences
