"""Converts another toolkit's Transformer to a model folder: its weights under nmt's names, and its text pipeline."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.checkpoint import LoadedModel, build_model, put_weights, save_model, weights_of
from nmt.errors import UserError, expecting, one_line, quoted
from nmt.extensions.toolkits.layout import Array, PartReader, read_layers
from nmt.extensions.toolkits.subwords.foreign_pieces import ForeignPiecesVocabulary, foreign_pieces
from nmt.extensions.vocabularies.sentencepiece_model import LANGUAGE_TAG, SENTENCEPIECE_START, UNUSED_NAME, rearranged
from nmt.extensions.vocabularies.subwords.subword_nmt import CodesVocabulary
from nmt.models.base import Model, Vocabularies
from nmt.models.options import TransformerOptions
from nmt.models.saved import ModelFacts
from nmt.models.transformer import Transformer
from nmt.positions.options import LearnedPositionOptions
from nmt.symbols import PIECE_MARK, SPACE_MARK, SYMBOLS
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import SentencepieceVocabulary, Vocabulary, WordVocabulary

LANGUAGE: Final = re.compile(r"[\w@.-]{1,40}")
MAX_PIECES_SHARE: Final = 0.05  # a vocabulary with a larger share of pieces needs a segmenter
# Biases of logits: low enough for a probability near 0, but close enough to the others to be trainable, even in fp16.
NEVER_LOGIT: Final = -1e3  # bias of PAD and BOS, which the other model never generates
COPY_BIAS: Final = -20.0  # bias of unknown pieces, relative to that of the unknown word


@dataclass(frozen=True)
class TextFiles:
    """Files and settings for the text of an imported model, in addition to the model's own files.

    languages: source and target; None to use the languages that the model names
    vocabularies, segmenters: files for source and target, one for both, or none; segmenters are SentencePiece models or
        merges of subword-nmt
    tokenizer: name of the tokenizer that runs before the segmenter
    """

    languages: tuple[str | None, str | None]
    vocabularies: tuple[str, ...] = ()
    segmenters: tuple[str, ...] = ()
    tokenizer: str = "none"

    def named_languages(self, source: object, target: object) -> tuple[str, str]:
        """The chosen languages, or the model's own by default. Raises UserError if there are none."""
        named = [given or found for given, found in zip(self.languages, (source, target), strict=True)]
        for language, flag in zip(named, ("source", "target"), strict=True):
            if not isinstance(language, str) or not language:
                raise UserError(f"the model does not name its languages (add --{flag}-lang CODE)")
            if not LANGUAGE.fullmatch(language):
                raise UserError(f"--{flag}-lang {quoted(language)}: must be a language code such as en or pt-br")
        return str(named[0]), str(named[1])


@dataclass(frozen=True)
class ImportedSide:
    """The text pipeline of a side, and the entry in the other model's vocabulary for each nmt entry.

    rows: (V,) index in the other vocabulary; -1 for PAD and BOS
    is_copy: (V,) whether an nmt entry has no counterpart and uses the row of the unknown word
    """

    side: Side
    rows: NDArray[np.int64]
    is_copy: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        language: str,
        ids: Mapping[str, int],
        size: int,
        unk: int,
        eos: int,
        segmenter: bytes | None,
        tokenizer: str,
        place: object,
    ) -> "ImportedSide":
        """Make a side from the entries of the other vocabulary.

        ids: id of each text
        size: number of entries, including those without a name
        unk, eos: ids of these control symbols
        segmenter: a SentencePiece model or merges of subword-nmt; None if the entries are whole words
        place: location of the segmenter or the vocabulary, for errors
        Raises ArtefactError for invalid files, and UserError for a vocabulary of pieces without its segmenter.
        """
        tags = tuple(tag for text in ids if LANGUAGE_TAG.fullmatch(tag := text.removeprefix(SPACE_MARK)))

        def side(subword: str, vocabulary: Vocabulary) -> Side:
            settings = SideSettings(language, "none", False, False, tokenizer, subword, user_symbols=tags)
            return Side(settings, vocabulary)

        with expecting("a vocabulary or its segmenter", place):
            if segmenter is not None and segmenter.startswith(SENTENCEPIECE_START):
                content, rows = rearranged(segmenter, ids, size, unk, eos)
                if foreign_pieces(content):
                    return cls._of(side("foreign-pieces", ForeignPiecesVocabulary(content, place)), rows, unk)
                return cls._of(side("unigram", SentencepieceVocabulary(content, place)), rows, unk)
            named = {number: word for word, number in ids.items() if word not in SYMBOLS}
            names = {number: named.get(number, f"{UNUSED_NAME}-{number}>") for number in range(size)}
            words = {name: number for number, name in names.items() if number not in (unk, eos)}
            rows = [-1, -1, eos, unk, *words.values()]
            if segmenter is None:
                _check_whole_words(words, place)
                return cls._of(side("none", WordVocabulary(list(words))), rows, unk)
            return cls._of(
                side("subword-nmt", CodesVocabulary(segmenter.decode("utf-8-sig"), list(words), tags)), rows, unk
            )

    @classmethod
    def _of(cls, side: Side, rows: Sequence[int], unk: int) -> "ImportedSide":
        numbers = np.array(rows, dtype=np.int64)
        copies = (numbers == unk) & (np.arange(len(numbers)) != rows.index(unk))
        return cls(side, numbers, copies)

    def embeddings(self, table: Array, first: Array | None = None) -> Array:
        """Convert a table of embeddings: (V', D) -> (V, D). first: (D,) the decoder's first input; None for zeros"""
        if len(table) <= self.rows.max():
            raise ValueError(f"a table has {len(table):,} rows, but its vocabulary has {self.rows.max() + 1:,} entries")
        chosen: Array = np.where((self.rows < 0)[:, None], np.float32(0), table[self.rows.clip(0)])
        if first is not None:
            chosen[1] = first
        return np.ascontiguousarray(chosen, dtype=np.float32)

    def biases(self, bias: Array | None) -> Array:
        """Convert the biases of the logits: (V',) -> (V,). bias: None for zeros"""
        if bias is not None and len(bias) <= self.rows.max():
            raise ValueError(
                f"the logits have {len(bias):,} biases, but the vocabulary has {self.rows.max() + 1:,} entries"
            )
        own = np.zeros(len(self.rows), np.float32) if bias is None else bias[self.rows.clip(0)]
        own = np.where(self.is_copy, own + np.float32(COPY_BIAS), own.clip(NEVER_LOGIT))
        return np.where(self.rows < 0, np.float32(NEVER_LOGIT), own).astype(np.float32)


@dataclass(frozen=True)
class ImportedModel:
    """A model read from the files of another toolkit.

    weights: by their names in nmt's Transformer
    joint: whether both sides share one vocabulary
    place: location of the files, for errors and for the manifest
    vocabularies: files for source and target, if they are elsewhere
    """

    options: TransformerOptions
    weights: Mapping[str, Array]
    source: ImportedSide
    target: ImportedSide
    joint: bool
    place: str
    vocabularies: Sequence[Path] = ()

    @classmethod
    def of(
        cls,
        options: TransformerOptions,
        layers: PartReader,
        sides: Sequence[ImportedSide],
        tables: Sequence[Array],
        place: object,
        *,
        joint: bool,
        first: Array | None = None,
        output: Array | None = None,
        bias: Array | None = None,
        positions: Sequence[Array] = (),
        vocabularies: Sequence[Path] = (),
    ) -> "ImportedModel":
        """Make a model from the other toolkit's arrays, in which V' is the size of its vocabulary.

        layers: see `read_layers`
        tables: (V', D) embeddings of source and target
        first: (D,) the decoder's first input; None for zeros
        output: (V', D) weights of an output layer that is not tied
        bias: (V',) biases of the logits
        positions: (P, D) learned tables for source and target; a shorter table is extended with its last row
        """
        source, target = sides
        weights = read_layers(options, layers)
        weights["source_embedding.weight"] = source.embeddings(tables[0], first)
        if options.tie != "all":
            weights["target_embedding.weight"] = target.embeddings(tables[1], first)
        if output is not None:
            weights["output.weight"] = target.embeddings(output)
        weights["output.bias"] = target.biases(bias)
        for name, table in zip(("source", "target"), positions, strict=False):
            further = ((0, (cast(LearnedPositionOptions, options).max_positions or 0) - len(table)), (0, 0))
            weights[f"{name}_positions.weight"] = np.pad(table, further, mode="edge")
        return cls(options, weights, source, target, joint, str(place), vocabularies)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(self.source.side, self.target.side, self.joint)

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts.of("transformer", self.options, Vocabularies(*self.pipeline.sizes, self.joint))

    def build(self) -> Model:
        """Build the network. Raises ArtefactError for weights that do not match the options."""
        model = build_model(self.facts, Path(self.place))
        put_weights(
            weights_of(model), {name: torch.from_numpy(array) for name, array in self.weights.items()}, self.place
        )
        return model.eval()

    def save(self, model: Model, output: Path) -> None:
        """Write a model folder, completely or not at all. model: result of `build`"""
        save_model(output, weights_of(model), self.facts, self.pipeline, {"made_of": one_line(self.place)})


def _check_whole_words(words: Collection[str], place: object) -> None:
    """Raise UserError for a vocabulary of pieces, which needs a segmenter."""
    pieces = [word for word in words if word.startswith(SPACE_MARK) or word.endswith(PIECE_MARK)]
    if len(pieces) > MAX_PIECES_SHARE * len(words):
        what = f"its entries are pieces of words, such as '{quoted(max(pieces, key=len))}', but there is no segmenter next to it"
        raise UserError(f"{quoted(place)}: {what} (add --segmenter SOURCE TARGET, from SentencePiece or subword-nmt)")


def only_file(path: Path, ending: str, without: str = "") -> Path:
    """The file itself or, for a folder, its only file with the given suffix. without: text in the names of ignored files

    Raises UserError for a folder with no such file, or with several.
    """
    if not path.is_dir():
        return path
    found = sorted(file for file in path.glob(f"*{ending}") if not without or without not in file.name)
    if len(found) != 1:
        raise UserError(f"{quoted(path)}: {len(found)} models (*{ending}) in this folder (name one file)")
    return found[0]


def same_vocabulary(source: ImportedSide, target: ImportedSide) -> bool:
    """Whether both sides segment text in the same way into the same entries, so that they may share embeddings."""
    return (
        source.side.settings.subword == target.side.settings.subword
        and source.side.vocabulary.to_bytes() == target.side.vocabulary.to_bytes()
        and np.array_equal(source.rows, target.rows)
    )


def check_exportable(
    loaded: LoadedModel, toolkit: str, autoregressions: Collection[str] = ("self-attention",)
) -> TransformerOptions:
    """The options of a model. Raises UserError unless it is a Transformer that the other toolkit supports.

    autoregressions: values of `--decoder-autoregression` that this toolkit supports
    """
    model, pipeline, name = loaded.model, loaded.pipeline, quoted(loaded.folder)
    if type(model) is not Transformer:
        raise UserError(
            f"{name}: the model is '{quoted(loaded.facts.model)}', but {toolkit} supports only 'transformer'"
        )
    o: Any = model.options  # options of the core and of the variants
    d_head = o.d_model // o.heads
    reasons = {
        "--right-to-left": pipeline.target.settings.right_to_left,
        f"--ffn {o.ffn}": o.ffn != "dense",
        "--norm rms": o.norm == "rms",
        "--kv-heads": o.kv_heads not in (None, o.heads),
        "--attention-window": o.attention_window is not None,
        f"--positions {o.positions}": o.positions not in ("sinusoidal", "t2t-sinusoidal", "learned"),
        f"--decoder-autoregression {o.decoder_autoregression}": o.decoder_autoregression not in autoregressions,
        "--no-source-eos": not o.source_eos,
        "--d-k or --d-v": {(o.d_k or d_head) * o.heads, (o.d_v or d_head) * o.heads} != {o.d_model},
    }
    if reason := next((reason for reason, is_so in reasons.items() if is_so), None):
        raise UserError(f"{name}: {toolkit} does not support {reason}")
    return model.options


def distinct_pieces(side: Side, place: object) -> list[str]:
    """The names of all tokens by id, for toolkits that identify tokens by name. place: location of the model, for errors

    Raises UserError if two tokens have the same name.
    """
    pieces = [side.piece(token) for token in range(side.size)]
    if len(set(pieces)) < len(pieces):
        twice = quoted(next(piece for piece, times in Counter(pieces).items() if times > 1))
        raise UserError(
            f"{quoted(place)}: two entries of its vocabulary are named '{twice}' (one may be a control symbol), but "
            "other toolkits need unique names"
        )
    return pieces


def segmenters_of(loaded: LoadedModel, toolkit: str) -> tuple[bytes, bytes]:
    """The SentencePiece models of source and target. Raises UserError for text steps that the toolkit does not support."""
    models = []
    for side in (loaded.pipeline.source, loaded.pipeline.target):
        settings = side.settings
        steps = {
            "--tokenizer": settings.tokenizer != "none",
            "--truecase": settings.truecase,
            "--lowercase": settings.lowercase,
            "--normalize-punctuation": settings.normalize_punctuation,
            f"--subword {settings.subword}": not isinstance(side.vocabulary, SentencepieceVocabulary),
        }
        if step := next((step for step, is_so in steps.items() if is_so), None):
            raise UserError(
                f"{quoted(loaded.folder)}: {toolkit} supports only SentencePiece, but the model's text pipeline uses {step}"
            )
        models.append(side.vocabulary.to_bytes())
    return models[0], models[1]


def arrays_of(loaded: LoadedModel) -> dict[str, Array]:
    """The weights of a model by nmt's names. Tied weights appear under the name of each layer that uses them."""
    named = loaded.model.named_parameters(remove_duplicate=False)
    layer_weights = {name: weight for name, weight in named if name.startswith(("encoder.", "decoder."))}
    return {name: tensor.detach().numpy() for name, tensor in (weights_of(loaded.model) | layer_weights).items()}
