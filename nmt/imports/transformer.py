"""A Transformer of another toolkit as a model folder: its weights by our names, and its text pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.checkpoint import ModelFacts, put_weights, save_model, weights_of
from nmt.errors import one_line
from nmt.models.base import Vocabularies
from nmt.models.options import TransformerOptions
from nmt.signals import StopCheck
from nmt.text.pipeline import Pipeline, Side, SideSettings
from nmt.text.sentencepiece_file import rearranged
from nmt.text.vocabulary import SentencepieceVocabulary, WordVocabulary

NEVER_LOGIT: Final = -1e9  # logit of entries that the other model does not have

Array = NDArray[np.float32]


@dataclass(frozen=True)
class ImportedModel:
    """A model read from the files of another toolkit.

    weights: by the names of our Transformer
    place: of the files, for errors and for the manifest
    """

    options: TransformerOptions
    weights: Mapping[str, Array]
    pipeline: Pipeline
    place: str

    def save(self, output: Path, check: StopCheck) -> None:
        """Write a model folder, whole or not at all. Raises ArtefactError for weights that do not fit the options."""
        vocabularies = Vocabularies(*self.pipeline.sizes, self.pipeline.joint)
        facts = ModelFacts.of("transformer", self.options, vocabularies)
        model = facts.build(Path(self.place))
        put_weights(model, {name: torch.from_numpy(array) for name, array in self.weights.items()}, self.place)
        save_model(output, weights_of(model), facts, self.pipeline, {"made_of": one_line(self.place)}, check)


@dataclass(frozen=True)
class ImportedSide:
    """The text pipeline of a side, and the entry of the other model's vocabulary for each of ours.

    rows: (V,) entries; -1 for PAD and BOS
    is_missing: (V,) whether the other model does not have an entry of ours
    """

    side: Side
    rows: NDArray[np.int64]
    is_missing: NDArray[np.bool_]

    @classmethod
    def of_pieces(
        cls, language: str, model: bytes, ids: Mapping[str, int], size: int, unk: int, eos: int
    ) -> "ImportedSide":
        """A side that segments by a sentencepiece model. See `rearranged`"""
        content, rows = rearranged(model, ids, size, unk, eos)
        settings = SideSettings(language, "none", False, False, "none", "unigram")
        return cls._of(Side(settings, SentencepieceVocabulary(content)), rows, unk)

    @classmethod
    def of_words(cls, language: str, ids: Mapping[str, int], unk: int, eos: int) -> "ImportedSide":
        """A side whose words stand between spaces, with their entries."""
        words = {word: number for word, number in ids.items() if number not in (unk, eos)}
        settings = SideSettings(language, "none", False, False, "none", "none")
        return cls._of(Side(settings, WordVocabulary(list(words))), [-1, -1, eos, unk, *words.values()], unk)

    @classmethod
    def _of(cls, side: Side, rows: Sequence[int], unk: int) -> "ImportedSide":
        numbers = np.array(rows, dtype=np.int64)
        copies = (numbers == unk) & (np.arange(len(numbers)) != rows.index(unk))
        return cls(side, numbers, (numbers < 0) | copies)

    def embeddings(self, table: Array, first: Array | None = None) -> Array:
        """(V, D) our table of embeddings of the other's (V', D). first: (D,) the decoder's first input; None is zero"""
        chosen: Array = np.where((self.rows < 0)[:, None], np.float32(0), table[self.rows.clip(0)])
        if first is not None:
            chosen[1] = first
        return np.ascontiguousarray(chosen, dtype=np.float32)

    def biases(self, bias: Array | None) -> Array:
        """(V,) our biases of the logits, of the other's (V',), None for zeros."""
        own = np.zeros(len(self.rows), np.float32) if bias is None else bias[self.rows.clip(0)]
        return np.where(self.is_missing, np.float32(NEVER_LOGIT), own).astype(np.float32)


def layer_weights(own: str, linears: Mapping[str, Any], norms: Mapping[str, Any]) -> dict[str, Array]:
    """The weights of a layer by our names.

    own: name of the layer, `encoder.0`
    linears: by our name, lists of (weight (out, in), bias (out,)) that are put together
    norms: by our name, (scale, bias)
    """
    weights: dict[str, Array] = {}
    for name, parts in linears.items():
        weights[f"{own}.{name}.weight"] = np.concatenate([weight for weight, _ in parts])
        weights[f"{own}.{name}.bias"] = np.concatenate([bias for _, bias in parts])
    for name, (scale, bias) in norms.items():
        weights[f"{own}.{name}_residual.norm.weight"] = scale
        weights[f"{own}.{name}_residual.norm.bias"] = bias
    return weights
