"""Training with an extended vocabulary: a new entry starts as the mean of the rows of the tokens that spelled it before."""

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

GAIN: Final = "parametrizations.weight.original0"  # suffix of the name of a weight that is stored as gain and direction
DIRECTION: Final = "parametrizations.weight.original1"


@register("start", "vocabulary-extension", VocabularyExtensionOptions)
class VocabularyExtension(Start):
    """Fits the --init-from model to data with an extended vocabulary, in which added entries come last."""

    @classmethod
    def fits_pipeline(cls, new: Pipeline, old: Pipeline) -> bool:
        """See Start."""
        return is_extension(new, old)

    def fit(self, run: Run, trained: TrainedModel) -> None:
        """See Start."""
        new = run.data.pipeline
        if new.sizes == trained.pipeline.sizes:  # only the numbers of context sentences differ
            return
        if not run.kept.is_whole:
            data = quoted(run.options.data)
            raise UserError(f"--lora-rank cannot learn the new vocabulary entries of {data} (drop --lora-rank)")
        place = trained.artefact.folder
        trained.weights = extended_weights(trained.weights, run.facts, new, trained.pipeline, place)


def extended_weights(
    weights: Mapping[str, Tensor], facts: ModelFacts, new: Pipeline, old: Pipeline, place: Path
) -> Mapping[str, Tensor]:
    """The weights of a model, extended for new entries. A new row is the mean of the rows of the entry's old tokens.

    This concerns the embeddings, the output layer and its bias. A weight that is stored as gain and direction gets the gain
    and the direction of the mean.

    facts: facts about the model with the new vocabularies
    Raises ArtefactError if other weights depend on the vocabulary.
    """
    parts = [
        parts_of_new_entries(extended.vocabulary, side.vocabulary)
        for extended, side in ((new.source, old.source), (new.target, old.target))
    ]
    own = weight_shapes(facts, place)
    source_alone = Vocabularies(new.source.size, new.target.size if new.joint else old.target.size, new.joint)
    source_shapes = weight_shapes(replace(facts, vocabularies=source_alone), place)
    if not weights.keys() <= own.keys():
        return weights  # the weights do not fit the model, and loading reports why
    result = dict(weights)
    for name, tensor in weights.items():
        if own[name] == tensor.shape:
            continue
        side = 0 if source_shapes[name] != tensor.shape else 1
        if own[name] != (len(tensor) + len(parts[side]), *tensor.shape[1:]) or len(tensor) != old.sizes[side]:
            how = "depends on the vocabulary in a way that cannot be extended"
            fix = "prepare the data with --vocabulary but without --extend"
            raise ArtefactError(f"{quoted(place)}: the weight '{quoted(name)}' {how} ({fix})")
        result[name] = torch.cat([tensor, _new_rows(name, weights, parts[side])])
    return result


def _new_rows(name: str, weights: Mapping[str, Tensor], parts: Sequence[Sequence[int]]) -> Tensor:
    """The rows of N new entries: (N, ...). parts: ids of the old rows for each entry"""
    rows, layer = weights[name], name.removesuffix(GAIN).removesuffix(DIRECTION)
    if layer != name:
        direction = weights[layer + DIRECTION]
        rows = weights[layer + GAIN] * direction / direction.norm(dim=1, keepdim=True)
    means = torch.stack([rows[list(tokens)].mean(0) for tokens in parts])
    return means.norm(dim=1, keepdim=True) if name.endswith(GAIN) else means
