"""Starts: what changes a newly built model before the optimizer sees it, such as weights, or parameters that are not trained.

A start is in use when one of its options has another value than its default. Its options are options of `nmt train`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.artefact import Artefact
from nmt.checkpoint import NoRandomWeights, build_model, weights_of
from nmt.models.base import Model
from nmt.models.saved import ModelFacts
from nmt.text.pipeline import Pipeline
from nmt.train.kept_weights import KeptWeights
from nmt.train.weight_average import WeightAverage


@dataclass
class TrainedModel:
    """The model of --init-from, whose weights starts make fit the run's model.

    facts, pipeline: what it is, and its text pipeline
    weights: by name
    targets: the weights of the run's model that they are put into, by name
    """

    artefact: Artefact
    facts: ModelFacts
    pipeline: Pipeline
    weights: Mapping[str, Tensor]
    targets: Mapping[str, Tensor]


class Start:
    """A change of a newly built model. A registered start is built as `cls(options)`, with the options of `nmt train`.

    Its options class may tell in `fitting_data` how to prepare data whose text pipeline it makes the weights fit.
    order: starts follow each other from the lowest order to the highest
    gives_weights: whether the model has trained weights afterwards
    kept: what checkpoints keep in place of all weights; None for those
    free_options: options of the model in which that of --init-from may differ from it
    parameter_options: its own options that decide which parameters are trained; the state of an optimizer depends on them
    note: the end of the log line about the weights of --init-from
    """

    order: ClassVar[int] = 0
    gives_weights: ClassVar[bool] = False
    kept: KeptWeights | None = None
    free_options: ClassVar[Sequence[str]] = ()
    parameter_options: ClassVar[Sequence[str]] = ()
    note: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    def change(self, model: Model) -> None:
        """Change a model that has just been built, before a criterion and an optimizer are; also that of a resumed run."""

    def average(self, model: Model) -> WeightAverage | None:
        """The average of its weights that is validated and saved in place of them; None if it keeps none."""
        return None

    def fit(self, run: Any, trained: TrainedModel) -> None:
        """Make the weights of --init-from fit a new run (nmt.train.run.Run), before they are put into its model."""

    def begin(self, run: Any) -> None:
        """Begin a new run (nmt.train.run.Run) of which all is built."""

    @classmethod
    def fits_pipeline(cls, new: Pipeline, old: Pipeline) -> bool:
        """Whether its `fit` makes the weights for a text pipeline fit another one. Every start is asked, in use or not."""
        return False


def weight_shapes(facts: ModelFacts, place: Path) -> dict[str, torch.Size]:
    """The shapes of a model's weights by name. place: of the model, for errors"""
    with NoRandomWeights():
        return {name: tensor.shape for name, tensor in weights_of(build_model(facts, place)).items()}
