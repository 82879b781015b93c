"""The searches of texts: for phrases of a glossary, and for what came out broken."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from nmt import registry
from nmt.artefact import Artefact
from nmt.decoders.options import BeamOptions, phrase_decoders
from nmt.errors import UserError, needing_torch
from nmt.options import Part
from nmt.runs import find_model

if TYPE_CHECKING:  # torch is imported when it is used
    from nmt.models.base import Model

# Of the search for what came out broken, where the first has no such options: tokens that do not come twice, GNMT's beta, alpha.
AGAIN_NO_REPEAT: Final = 4
AGAIN_COVERAGE: Final = 0.2
AGAIN_ALPHA: Final = 1.0


def with_phrases(part: Part) -> Part:
    """The search if it takes phrases, else one that does, with the options of the other as far as it has them.

    Raises UserError if there is none.
    """
    if getattr(part.options, "takes_phrases", False):
        return part
    if not (found := phrase_decoders()):
        raise UserError("--glossary: there is no decoder that takes phrases (leave it out)")
    return registry.choose("decoder", found[0], vars(part.options))  # which leaves out options that it lacks


@needing_torch("the search for translations that came out broken")
def search_again(part: Part, models: Sequence[str | Path]) -> Part:
    """The search for what came out broken: a beam without repetitions that looks for longer translations.

    models: that it searches with; a coverage penalty needs the attention of one. Imports torch
    """
    if not isinstance(part.options, BeamOptions):
        part = registry.choose("decoder", "beam")
    options = part.options
    more: dict[str, Any] = {
        "beam_size": 2 * options.beam_size,
        "no_repeat_ngram": options.no_repeat_ngram or AGAIN_NO_REPEAT,
        "coverage_penalty": options.coverage_penalty or (AGAIN_COVERAGE if _has_attention(models) else 0.0),
        "alpha": max(options.alpha, AGAIN_ALPHA),
    }
    return replace(part, options=replace(options, **more))


def _has_attention(models: Sequence[str | Path]) -> bool:
    """Whether one of the models has attention."""
    from nmt.models.saved import ModelFacts

    artefacts = [Artefact(find_model(Path(model)), "model", "checkpoint") for model in models]
    names = [ModelFacts.read(artefact).model for artefact in artefacts]
    return any(cast("type[Model]", registry.find("model", name).cls).has_attention for name in names)
