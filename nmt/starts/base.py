"""Starts change a newly built model before the optimizer sees it: they load weights or freeze parameters, for example.

A start is in use if one of its options differs from its default. Its options are options of `nmt train`.
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
    """The --init-from model. Starts change its weights so that they fit the run's model.

    artefact: its folder
    facts: its architecture
    pipeline: its text pipeline
    weights: its weights, by name
    targets: the run's weights that receive them, by name
    """

    artefact: Artefact
    facts: ModelFacts
    pipeline: Pipeline
    weights: Mapping[str, Tensor]
    targets: Mapping[str, Tensor]


class Start:
    """Changes a newly built model. A registered start is built as `cls(options)`, with the options of `nmt train`.

    Its options class may define `fitting_data`, an error's advice on how to prepare data that the start can adapt the weights to,
    and a function `defaults(given, values)` (see `nmt.cli.train.start_defaults`).
    order: starts with a lower order come first
    gives_weights: whether it loads trained weights into the model
    kept: what checkpoints store instead of all weights; None to store all
    free_options: model options that may differ from those of the --init-from model
    parameter_options: the start's options that decide which parameters are trained, on which the optimizer's state depends
    note: the end of the log line about the --init-from weights
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
        """Change a newly built model, before the criterion and the optimizer are built. Also called for a resumed run."""

    def average(self, model: Model) -> WeightAverage | None:
        """The weight average that is validated and saved instead of the weights; None if there is none."""
        return None

    def fit(self, run: Any, trained: TrainedModel) -> None:
        """Make the --init-from weights fit a new run (nmt.train.run.Run), before its model receives them."""

    def begin(self, run: Any) -> None:
        """Called at the start of a new run (nmt.train.run.Run), once it is completely built."""

    @classmethod
    def fits_pipeline(cls, new: Pipeline, old: Pipeline) -> bool:
        """Whether `fit` can adapt weights from the text pipeline `old` to `new`. Also called for starts that are not in use."""
        return False


def weight_shapes(facts: ModelFacts, place: Path) -> dict[str, torch.Size]:
    """The shapes of a model's weights by name. place: the model's folder, for errors"""
    with NoRandomWeights():
        return {name: tensor.shape for name, tensor in weights_of(build_model(facts, place)).items()}
