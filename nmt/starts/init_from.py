"""Starts a run with the weights of a trained model."""

import os
from pathlib import Path
from typing import Any, ClassVar

from nmt import register, registry
from nmt.artefact import Artefact
from nmt.checkpoint import put_weights, read_weights
from nmt.errors import ArtefactError, quoted
from nmt.models.saved import ModelFacts
from nmt.runs import find_model, weights_file
from nmt.starts.base import Start, TrainedModel
from nmt.starts.options import InitFromOptions
from nmt.text.pipeline import Pipeline
from nmt.train.checkpointing import changed_settings, listed
from nmt.train.run import Run


@register("start", "init-from", InitFromOptions)
class InitFrom(Start):
    """The weights of a trained model."""

    gives_weights: ClassVar[bool] = True

    def begin(self, run: Run) -> None:
        """Start a run with the --init-from weights, after other starts have adapted them.

        Raises ArtefactError for a damaged folder, or if the architecture or vocabulary differs.
        """
        chosen = find_model(Path(self.options.init_from))
        folder = Path(
            os.fsdecode(run.world.gather(os.fsencode(chosen))[0])
        )  # the leader chooses, because the --init-from run may still be training
        artefact = Artefact(folder, "model", "checkpoint")
        _check_architecture(run, artefact)
        pipeline = Pipeline.load(artefact)
        starts = [*_fitting_starts(run, artefact, pipeline), *run.starts]
        run.kept.begin(artefact)
        weights, targets = read_weights(artefact), run.base_weights()
        trained = TrainedModel(artefact, ModelFacts.read(artefact), pipeline, weights, targets)
        for start in starts:
            start.fit(run, trained)
        put_weights(trained.targets, trained.weights, weights_file(artefact))
        if run.average is not None:
            run.average.restart()
        run.report.line(f"starts with the weights of {folder}{''.join(start.note for start in starts)}")


def _check_architecture(run: Run, artefact: Artefact) -> None:
    """Raise ArtefactError if the model's architecture differs from the run's."""
    models, free = (ModelFacts.read(artefact), run.facts), run.model.training_options
    free = free.union(*(start.free_options for start in run.starts))
    kinds = [{"model": facts.model, "weights": facts.weights} for facts in models]
    options = [{key: facts.options[key] for key in facts.options.keys() - free} for facts in models]
    if rows := changed_settings(*kinds) or changed_settings(*options):
        same = "use the same settings, or drop --init-from"
        raise ArtefactError(
            f"the model in {quoted(artefact.folder)} does not match this run's model ({listed(rows)}; {same})"
        )


def _fitting_starts(run: Run, artefact: Artefact, pipeline: Pipeline) -> list[Start]:
    """A list with the start that adapts weights from a text pipeline to the run's; empty if both pipelines are the same.

    Raises ArtefactError if no start can do so.
    """
    new, data = run.data.pipeline, quoted(run.options.data)
    if pipeline.hash == new.hash:
        return []
    fitting: list[Any] = [e.cls for e in registry.every("start") if e.cls.fits_pipeline(new, pipeline)]  # type: ignore
    if not fitting:
        folder = quoted(artefact.folder)
        ways = [
            f"prepare the data with nmt prepare --vocabulary {folder}",
            *registry.declared("start", "fitting_data"),
        ]
        raise ArtefactError(f"vocabulary or text pipeline of {folder} differs from that of {data} ({'; '.join(ways)})")
    return [fitting[0](run.options)]
