"""Trains a deeper model that initially has the weights and the outputs of a model with fewer layers."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Final

from torch import Tensor

from nmt import UserError, register
from nmt.errors import quoted
from nmt.extensions.methods.starts.options import DeepenOptions
from nmt.starts.base import Start, TrainedModel, weight_shapes
from nmt.train.run import Run

DEPTHS: Final = ("encoder_layers", "decoder_layers", "layers")  # options that count layers


@register("start", "deepen", DeepenOptions)
class Deepen(Start):
    """Adds layers to the --init-from model that do not change its outputs at first."""

    free_options: ClassVar[Sequence[str]] = DEPTHS
    note: str = "; the added layers do not change the outputs at first"

    def fit(self, run: Run, trained: TrainedModel) -> None:
        """See Start."""
        trained.targets = deepened_weights(run, trained)


def deepened_weights(run: Run, trained: TrainedModel) -> dict[str, Tensor]:
    """The weights that a run takes from a model with fewer layers. In the added layers, output weights become 0.

    If the last weights of f are 0, x + f(x) is x, so at first the network's outputs are exactly those of the smaller model.
    Raises UserError if the model does not have fewer layers, or if added layers would change the outputs.
    """
    if not run.model.residual_outputs:
        raise UserError(
            f"--deepen: added layers would change the outputs of this run's model, {run.facts.model} (use a Transformer "
            "with --norm-position pre, self-attention and untied layers)"
        )
    numbers = [[facts.options[key] for key in DEPTHS if key in facts.options] for facts in (trained.facts, run.facts)]
    if numbers[0] == numbers[1] or any(before > now for before, now in zip(*numbers, strict=True)):
        how = "use more layers, or drop --deepen"
        raise UserError(
            f"--deepen: {quoted(trained.artefact.folder)} does not have fewer layers than this run's model ({how})"
        )
    own = run.base_weights()
    kept = weight_shapes(trained.facts, trained.artefact.folder).keys()
    for name in own.keys() - kept:
        if any(fnmatchcase(name, pattern) for pattern in run.model.residual_outputs):
            own[name].zero_()
    return {name: own[name] for name in kept}
