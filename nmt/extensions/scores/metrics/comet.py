"""COMET (Rei et al., 2020), a neural metric, computed with its authors' library (the extra `comet`)."""

import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

from nmt import UserError, register
from nmt.errors import quoted
from nmt.extensions.scores.metrics.options import CometOptions
from nmt.extensions.scores.one_reference import only_reference
from nmt.installation import required
from nmt.metrics.base import Lines, Metric, References, Score

BATCH_LINES: Final = 64


@register("metric", "comet", CometOptions)
class Comet(Metric):
    """COMET times 100: a neural estimate of quality from source, translation and reference."""

    needs_sources: ClassVar[bool] = True

    def __init__(self, options: CometOptions) -> None:
        self.options = options
        self._model: Any = None
        self._lock = Lock()  # threads that search batches in parallel share the model

    def check(self) -> None:
        """Raise UserError unless COMET's library is installed and the checkpoint exists."""
        self._loader()

    def __call__(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> Score:
        value = math.fsum(self.sentence_scores(hypotheses, references, sources)) / len(hypotheses)
        signature = f"nrefs:1|model:{quoted(self.options.comet_model)}|version:{_library_version()}"
        return Score(value, signature, f"COMET = {value:.2f}")

    def sentence_scores(self, hypotheses: Lines, references: References, sources: Lines | None = None) -> list[float]:
        """See Metric. Raises UserError if there are several references or no sources."""
        if sources is None:
            raise UserError("metric comet needs the source lines (add --source)")
        lines = zip(sources, hypotheses, only_reference("comet", references), strict=True)
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in lines]
        import torch

        with self._lock:
            if self._model is None:
                self._model = self._loader()(self.options.comet_model)
            prediction = self._model.predict(
                samples, batch_size=BATCH_LINES, gpus=int(torch.cuda.is_available()), progress_bar=False
            )
        return [100 * float(score) for score in prediction.scores]

    def _loader(self) -> Any:
        """The library's function for loading a checkpoint. Run `check` first."""
        load_from_checkpoint = required(
            "comet", "the metric comet (in a separate environment)", "comet"
        ).load_from_checkpoint
        if self.options.comet_model is None:
            raise UserError("metric comet needs a model (add --comet-model CHECKPOINT)")
        if not Path(self.options.comet_model).is_file():
            raise UserError(
                f"{quoted(self.options.comet_model)}: no such file (--comet-model must name the checkpoint of a COMET model)"
            )
        return load_from_checkpoint


def _library_version() -> str:
    try:
        return version("unbabel-comet")
    except PackageNotFoundError:
        return "unknown"
