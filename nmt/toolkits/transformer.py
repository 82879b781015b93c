"""A Transformer of another toolkit as a model folder: its weights by our names, and its text pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.checkpoint import ModelFacts, put_weights, save_model, weights_of
from nmt.errors import UserError, one_line
from nmt.models.base import Vocabularies
from nmt.models.options import TransformerOptions
from nmt.signals import StopCheck
from nmt.text.pipeline import Pipeline, Side, SideSettings
from nmt.text.sentencepiece_file import SENTENCEPIECE_START, rearranged
from nmt.text.vocabulary import CodesVocabulary, SentencepieceVocabulary, Vocabulary, WordVocabulary
from nmt.toolkits.layout import Array

NEVER_LOGIT: Final = -1e9  # logit of entries that the other model does not have


@dataclass(frozen=True)
class TextFiles:
    """What a model is read with, beside its own files.

    languages: source and target; None for those that the model names
    vocabularies, segmenters: files of source and target, one for both, or none; a segmenter is a model of sentencepiece
        or merges of subword-nmt
    tokenizer: a name in TOKENIZERS, of the text before the segmenter
    """

    languages: tuple[str | None, str | None]
    vocabularies: tuple[str, ...] = ()
    segmenters: tuple[str, ...] = ()
    tokenizer: str = "none"

    def named_languages(self, source: object, target: object) -> tuple[str, str]:
        """The languages, those of the model where none are given. Raises UserError if nothing names them."""
        named = [given or found for given, found in zip(self.languages, (source, target), strict=True)]
        for language, flag in zip(named, ("source", "target"), strict=True):
            if not isinstance(language, str) or not language:
                raise UserError(f"--{flag}-lang is missing: the model does not name its languages")
        return str(named[0]), str(named[1])


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
    def of(
        cls,
        language: str,
        ids: Mapping[str, int],
        size: int,
        unk: int,
        eos: int,
        segmenter: bytes | None = None,
        tokenizer: str = "none",
    ) -> "ImportedSide":
        """A side by the entries of the other vocabulary.

        ids: the entry of each text; size: entries in all, named or not; unk, eos: two of them
        segmenter: a model of sentencepiece or merges of subword-nmt; None for words between spaces
        Raises ValueError for a segmenter that is neither.
        """

        def side(subword: str, vocabulary: Vocabulary) -> Side:
            return Side(SideSettings(language, "none", False, False, tokenizer, subword), vocabulary)

        if segmenter is not None and segmenter.startswith(SENTENCEPIECE_START):
            content, rows = rearranged(segmenter, ids, size, unk, eos)
            return cls._of(side("unigram", SentencepieceVocabulary(content)), rows, unk)
        words = {word: number for word, number in ids.items() if number not in (unk, eos)}
        rows = [-1, -1, eos, unk, *words.values()]
        if segmenter is None:
            return cls._of(side("none", WordVocabulary(list(words))), rows, unk)
        return cls._of(side("subword-nmt", CodesVocabulary(segmenter.decode(), list(words))), rows, unk)

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


def same_vocabulary(source: ImportedSide, target: ImportedSide) -> bool:
    """Whether both sides segment alike into the same entries, and so may share embeddings."""
    return (
        source.side.settings.subword == target.side.settings.subword
        and source.side.vocabulary.to_bytes() == target.side.vocabulary.to_bytes()
        and np.array_equal(source.rows, target.rows)
    )
