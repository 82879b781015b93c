"""Imports folders of Hugging Face's MarianMTModel (https://huggingface.co/docs/transformers/model_doc/marian).

These models use the paper's sinusoids with all sines before all cosines. Reordering the dimensions of all states converts
a model to nmt's order without changing any result. If the files contain a different table of positions, that table is used.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from nmt.checkpoint import read_tensors
from nmt.data.batching import Indices
from nmt.errors import ArtefactError, UserError, expecting, quoted
from nmt.extensions.toolkits.layout import (
    STACKS,
    TORCH_PARTS,
    Array,
    Place,
    array_of,
    network_options,
    reading,
    reordered,
    reordered_part,
    weight_and_bias,
)
from nmt.extensions.toolkits.pickled import read_pickled
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, TextFiles, same_vocabulary
from nmt.files import read_bytes
from nmt.models.options import TransformerOptions
from nmt.positions.sinusoidal import sinusoids
from nmt.symbols import EOS, SYMBOLS, UNK

_T = TypeVar("_T")

HUGGINGFACE_CONFIG: Final = "config.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
WEIGHT_FILES: Final = ("model.safetensors", "pytorch_model.bin")
HUGGINGFACE_EPSILON: Final = 1e-5  # added to the variance in layer normalisation
VOCABULARY_FILES: Final = ("vocab.json", "target_vocab.json")  # the second exists only with "separate_vocabs"
SPM_FILES: Final = ("source.spm", "target.spm")
HUGGINGFACE_ACTIVATIONS: Final = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}


class MarianConfig(msgspec.Struct):
    """The content of config.json, with Hugging Face's defaults."""

    model_type: str
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    activation_function: str = "gelu"
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 1024
    decoder_start_token_id: int = 58100

    def __post_init__(self) -> None:
        if self.model_type != "marian" or not self.scale_embedding:
            raise ValueError("model_type must be marian, and scale_embedding must be true")
        if (self.encoder_ffn_dim, self.encoder_attention_heads) != (self.decoder_ffn_dim, self.decoder_attention_heads):
            raise ValueError("encoder and decoder layers differ in size; nmt supports only equal sizes")
        if self.activation_function not in HUGGINGFACE_ACTIVATIONS:
            raise ValueError(f"activation_function must be one of {', '.join(HUGGINGFACE_ACTIVATIONS)}")


class TokenizerConfig(msgspec.Struct):
    """The content of tokenizer_config.json."""

    source_lang: str | None = None
    target_lang: str | None = None
    separate_vocabs: bool = False


def read_huggingface(folder: Path, files: TextFiles) -> ImportedModel:
    """Read a folder with a MarianMTModel and a MarianTokenizer.

    Raises ArtefactError for damaged files, and UserError for other kinds of models.
    """
    if files.vocabularies or files.segmenters:
        raise UserError(
            "Hugging Face folders contain their own vocabulary and segmenter (drop --vocab and --segmenter)"
        )
    config = _read(folder / HUGGINGFACE_CONFIG, MarianConfig)
    tokenizer = _read(folder / TOKENIZER_CONFIG, TokenizerConfig)
    languages = files.named_languages(tokenizer.source_lang, tokenizer.target_lang)
    arrays = _read_weights(folder)
    with reading("a Hugging Face Marian model", folder):
        tables = [array_of(arrays, f"model.{side}.embed_tokens.weight", "model.shared.weight") for side in STACKS]
        vocabularies = VOCABULARY_FILES if tokenizer.separate_vocabs else VOCABULARY_FILES[:1] * 2
        sides = [
            _side(folder, language, vocabulary, segmenter, len(table), files.tokenizer)
            for language, vocabulary, segmenter, table in zip(languages, vocabularies, SPM_FILES, tables, strict=True)
        ]
        is_shared = np.array_equal(tables[0], tables[1]) and same_vocabulary(*sides)
        positions, order = _positions(arrays, tables[0].shape[1])
        options = _options(config, positions, is_shared, folder)
        start = config.decoder_start_token_id
        if not 0 <= start < len(tables[1]):
            raise ValueError(f"decoder_start_token_id is {start}, but there are only {len(tables[1]):,} token ids")

        def part(place: Place) -> tuple[Array, Array]:
            name = f"model.{place.side}.layers.{place.layer}.{TORCH_PARTS[place.part]}"
            return reordered_part(place.part, *weight_and_bias(arrays, name, place.part), order)

        def checked_table(table: Array) -> Array:
            if table.shape[1] != options.d_model:
                raise ValueError(f"an embedding table has width {table.shape[1]}, but d_model is {options.d_model}")
            return reordered(table, 1, order, "an embedding table")

        tables = list(map(checked_table, tables))
        has_bias = "final_logits_bias" in arrays
        learned = [f"model.{side}.embed_positions.weight" for side in STACKS] if positions == "learned" else []
        return ImportedModel.of(
            options,
            part,
            sides,
            tables,
            folder,
            joint=is_shared,
            first=tables[1][start],
            output=checked_table(array_of(arrays, "lm_head.weight")) if options.tie == "none" else None,
            bias=array_of(arrays, "final_logits_bias", dims=None).reshape(-1) if has_bias else None,
            positions=[array_of(arrays, name) for name in learned],
        )


def _read(path: Path, kind: type[_T]) -> _T:
    """Read a JSON file as the given type."""
    content = read_bytes(path)
    with expecting("a file of a Hugging Face Marian model", path):
        return msgspec.json.decode(content, type=kind)


def _read_weights(folder: Path) -> Mapping[str, Any]:
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            content = (read_pickled if name.endswith(".bin") else read_tensors)(folder / name)
            if not isinstance(content, Mapping):
                raise ArtefactError(f"{quoted(folder / name)}: this file contains no named tensors")
            return content
    raise UserError(f"{quoted(folder)}: no weights in this folder ({' or '.join(WEIGHT_FILES)} expected)")


def _side(folder: Path, language: str, vocabulary: str, segmenter: str, size: int, tokenizer: str) -> ImportedSide:
    ids = _read(folder / vocabulary, dict[str, int])
    if not all(0 <= number < size for number in ids.values()):
        raise ValueError(f"{vocabulary} has an entry beyond the {size:,} rows of the embeddings")
    if missing := {SYMBOLS[UNK], SYMBOLS[EOS]} - ids.keys():
        raise ValueError(f"{vocabulary} lacks '{min(missing)}'")
    unk, eos = ids[SYMBOLS[UNK]], ids[SYMBOLS[EOS]]
    return ImportedSide.of(language, ids, size, unk, eos, read_bytes(folder / segmenter), tokenizer, folder / segmenter)


def sines_before_cosines(width: int) -> Indices:
    """The index of each dimension of the paper's sinusoids in an order with all sines first: (D,)."""
    return np.arange(width).reshape(2, -1).T.flatten()


def _positions(arrays: Mapping[str, Any], width: int) -> tuple[str, Indices | None]:
    """The value of --positions, and the order of the states' dimensions that it requires; None if the order stays the same."""
    names = [f"model.{side}.embed_positions.weight" for side in STACKS]
    tables = [array_of(arrays, name) for name in names if name in arrays]
    for form, order in (("sinusoidal", sines_before_cosines(width)), ("t2t-sinusoidal", None)):
        in_order = (table if order is None else table[:, order] for table in tables)
        if all(np.allclose(table, sinusoids(len(table), table.shape[1], form).numpy()) for table in in_order):
            return form, order
    return "learned", None


def _options(config: MarianConfig, positions: str, is_shared: bool, folder: Path) -> TransformerOptions:
    values = {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.d_model,
        "d_ff": config.encoder_ffn_dim,
        "heads": config.encoder_attention_heads,
        "norm_epsilon": HUGGINGFACE_EPSILON,
        "activation": HUGGINGFACE_ACTIVATIONS[config.activation_function],
        "positions": positions,
        "max_positions": config.max_position_embeddings,
        "attention_bias": True,
        "output_bias": True,
        "tie": ("all" if is_shared else "target") if config.tie_word_embeddings else "none",
    }
    return network_options(values, folder / HUGGINGFACE_CONFIG)
