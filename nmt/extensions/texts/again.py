"""Makes the search that supports the phrases of a glossary, and the one that retries failed translations."""

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

if TYPE_CHECKING:  # torch is imported only when used
    from nmt.models.base import Model

# Values for the retry search where the first search sets none: size of n-grams not to repeat, GNMT's beta and alpha.
AGAIN_NO_REPEAT: Final = 4
AGAIN_COVERAGE: Final = 0.2
AGAIN_ALPHA: Final = 1.0


def with_phrases(part: Part) -> Part:
    """Return the search itself if it supports phrases. If not, return one that does, with the options that both have.

    Raises UserError if no search supports phrases.
    """
    if getattr(part.options, "takes_phrases", False):
        return part
    if not (found := phrase_decoders()):
        raise UserError("--glossary needs a decoder that supports phrases, but there is none (drop --glossary)")
    return registry.choose("decoder", found[0], vars(part.options))  # ignores the options that this decoder lacks


@needing_torch("the search that retries failed translations")
def search_again(part: Part, models: Sequence[str | Path]) -> Part:
    """The search that retries failed translations: a beam search without repetitions that prefers longer translations.

    models: models of the search; the default coverage penalty is used only if one of them has attention

    Imports torch.
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
