"""Training with an extended vocabulary: new entries start with the mean of the rows of their text's old tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.errors import ArtefactError, quoted
from nmt.extensions.vocabularies.extension import is_extension, parts_of_new_entries
from nmt.extensions.vocabularies.starts.options import VocabularyExtensionOptions
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.starts.base import Start, TrainedModel, weight_shapes
from nmt.text.pipeline import Pipeline
from nmt.train.run import Run

GAIN: Final = "parametrizations.weight.original0"  # ending of the names of a weight that is a gain times a direction
DIRECTION: Final = "parametrizations.weight.original1"


@register("start", "vocabulary-extension", VocabularyExtensionOptions)
class VocabularyExtension(Start):
    """The vocabulary of the data has more entries than that of --init-from, which come after its own."""

    @classmethod
    def fits_pipeline(cls, new: Pipeline, old: Pipeline) -> bool:
        """See Start."""
        return is_extension(new, old)

    def fit(self, run: Run, trained: TrainedModel) -> None:
        """See Start."""
        new = run.data.pipeline
        if new.sizes == trained.pipeline.sizes:  # it reads another number of sentences as context
            return
        if not run.kept.is_whole:
            data = quoted(run.options.data)
            raise UserError(
                f"--lora-rank: the vocabulary of {data} has new entries, which adapters cannot learn (leave it out)"
            )
        place = trained.artefact.folder
        trained.weights = extended_weights(trained.weights, run.facts, new, trained.pipeline, place)


def extended_weights(
    weights: Mapping[str, Tensor], facts: ModelFacts, new: Pipeline, old: Pipeline, place: Path
) -> Mapping[str, Tensor]:
    """The weights of a model for an extended vocabulary. A new entry's row is the mean of those of its text's old tokens.

    The rows are those of embeddings, of the output layer and of its bias. A weight that is a gain times a direction gets the
    gain and the direction of the mean.
    facts: of the model with the new vocabularies
    Raises ArtefactError for a model with other weights that depend on the vocabulary.
    """
    parts = [
        parts_of_new_entries(extended.vocabulary, side.vocabulary)
        for extended, side in ((new.source, old.source), (new.target, old.target))
    ]
    own = weight_shapes(facts, place)
    source_alone = Vocabularies(new.source.size, new.target.size if new.joint else old.target.size, new.joint)
    of_source = weight_shapes(replace(facts, vocabularies=source_alone), place)
    if not weights.keys() <= own.keys():
        return weights  # which do not fit the model
    result = dict(weights)
    for name, tensor in weights.items():
        if own[name] == tensor.shape:
            continue
        side = 0 if of_source[name] != tensor.shape else 1
        if own[name] != (len(tensor) + len(parts[side]), *tensor.shape[1:]) or len(tensor) != old.sizes[side]:
            how = "depends on the vocabulary in a way that cannot be extended"
            raise ArtefactError(f"{quoted(place)}: '{quoted(name)}' {how} (nmt prepare --vocabulary without --extend)")
        result[name] = torch.cat([tensor, _new_rows(name, weights, parts[side])])
    return result


def _new_rows(name: str, weights: Mapping[str, Tensor], parts: Sequence[Sequence[int]]) -> Tensor:
    """(N, ...) the rows of N new entries. parts: ids of the old rows of each"""
    rows, layer = weights[name], name.removesuffix(GAIN).removesuffix(DIRECTION)
    if layer != name:
        direction = weights[layer + DIRECTION]
        rows = weights[layer + GAIN] * direction / direction.norm(dim=1, keepdim=True)
    means = torch.stack([rows[list(tokens)].mean(0) for tokens in parts])
    return means.norm(dim=1, keepdim=True) if name.endswith(GAIN) else means
