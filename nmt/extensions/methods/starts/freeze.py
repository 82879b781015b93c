"""Trains part of a model: freezes parameters whose names match patterns."""

from collections.abc import Sequence
from typing import ClassVar

from nmt import UserError, register
from nmt.extensions.methods.starts.options import FreezeOptions
from nmt.extensions.methods.starts.patterns import matching
from nmt.models.base import Model
from nmt.starts.base import Start


@register("start", "freeze", FreezeOptions)
class Freeze(Start):
    """Parameters whose names match a pattern are not trained."""

    parameter_options: ClassVar[Sequence[str]] = ("freeze",)

    def change(self, model: Model) -> None:
        """See Start."""
        freeze(model, self.options.freeze)


def freeze(model: Model, patterns: Sequence[str]) -> None:
    """Freeze the parameters that match a pattern. An embedding shared by several layers has one name per layer.

    Raises UserError for a pattern that matches nothing, or if no parameter is left to train.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in matching(patterns, parameters, "--freeze"):
        parameters[name].requires_grad_(False)
    if patterns and not model.num_parameters():
        raise UserError(f"--freeze {' '.join(patterns)} leaves nothing to train (use fewer patterns)")
