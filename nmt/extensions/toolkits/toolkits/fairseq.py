"""Imports checkpoints of fairseq's Transformers (https://github.com/facebookresearch/fairseq) and their dictionaries.

The import handles these differences: the decoder's first input is the end symbol, positions are counted from 2, and the
epsilon of layer normalisation is 1e-5. fairseq's sinusoids become a table of learned positions with the same length.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np

from nmt import register
from nmt.errors import ArtefactError, UserError, expecting, quoted
from nmt.extensions.toolkits.layout import (
    STACKS,
    TORCH_PARTS,
    Array,
    Place,
    array_of,
    check_settings,
    network_options,
    reading,
    weight_and_bias,
)
from nmt.extensions.toolkits.pickled import read_pickled
from nmt.extensions.toolkits.toolkit import Toolkit
from nmt.extensions.toolkits.toolkits.options import ReadOnlyOptions
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, TextFiles, only_file, same_vocabulary
from nmt.files import read_bytes
from nmt.models.options import TransformerOptions
from nmt.positions.options import LearnedPositionOptions
from nmt.positions.sinusoidal import sinusoids

FAIRSEQ_PAD, FAIRSEQ_EOS, FAIRSEQ_UNK = 1, 2, 3
FAIRSEQ_SYMBOLS: Final = 4  # number of symbols whose ids precede the entries of a dictionary file
FAIRSEQ_EPSILON: Final = 1e-5  # added to the variance in layer normalisation
FIRST_POSITION: Final = FAIRSEQ_PAD + 1
# Usual names of segmenters in published folders.
USUAL_SEGMENTERS: Final = ("bpecodes", "code", "codes", "sentencepiece.bpe.model", "spm.model")
DEFAULT_MAX_POSITIONS: Final = 1024  # default of max_source_positions and max_target_positions
UNSUPPORTED_ARGUMENTS: Final = (  # arguments that nmt's Transformer does not support
    "no_scale_embedding",
    "layernorm_embedding",
    "no_token_positional_embeddings",
    "adaptive_softmax_cutoff",
    "cross_self_attention",
    "no_cross_attention",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
)
REQUIRED_ARGUMENTS: Final = {
    **dict.fromkeys(UNSUPPORTED_ARGUMENTS, (False, None, "")),
    "activation_fn": ("relu", "gelu", "swish"),
}
FAIRSEQ_SIZES: Final = {"d_model": "embed_dim", "d_ff": "ffn_embed_dim", "heads": "attention_heads"}
EQUAL_ARGUMENTS: Final = (
    *FAIRSEQ_SIZES.values(),
    "normalize_before",
    "learned_pos",
)  # arguments that must be the same for encoder and decoder
OUTPUTS: Final = ("decoder.output_projection.weight", "decoder.embed_out")  # new and old names of the output layer


@register("toolkit", "fairseq", ReadOnlyOptions)
class Fairseq(Toolkit):
    """fairseq's Transformers: a checkpoint with the dictionaries next to it."""

    order: ClassVar[int] = 3  # tried late, because other toolkits use the same file names

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return path.suffix == ".pt" or any(path.glob("*.pt"))

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        """Read a checkpoint, or a folder that contains one.

        files: vocabularies (by default `dict.LANGUAGE.txt` next to the checkpoint) and segmenters (by default a file
            there with a usual name)
        Raises ArtefactError for damaged files, and UserError for other kinds of models.
        """
        file = only_file(path, ".pt")
        content = read_pickled(file, Namespace)
        arguments = _arguments(content, file)
        if not isinstance(arrays := content.get("model"), Mapping):
            raise ArtefactError(f"{quoted(file)}: no weights ('model') in this checkpoint")
        languages = files.named_languages(arguments.get("source_lang"), arguments.get("target_lang"))
        default_files = [file.parent / f"dict.{language}.txt" for language in languages]
        vocabularies = [Path(name) for name in files.vocabularies] or default_files
        usual = [path for name in USUAL_SEGMENTERS if (path := file.parent / name).is_file()]
        named = [Path(name) for name in files.segmenters] or usual[:1]
        segmenters: list[bytes | None] = [*map(read_bytes, named)] or [None]
        with reading("a fairseq Transformer", file):
            tables = [array_of(arrays, f"{side}.embed_tokens.weight") for side in STACKS]
            sides = []
            per_side = (vocabularies[0], vocabularies[-1]), (segmenters[0], segmenters[-1]), languages, map(len, tables)
            for listed, segmenter, language, size in zip(*per_side, strict=True):
                ids = _dictionary(listed)
                if len(ids) + FAIRSEQ_SYMBOLS != size:
                    raise ValueError(
                        f"{listed.name} has {len(ids) + FAIRSEQ_SYMBOLS:,} entries, but the model has {size:,}"
                    )
                sides.append(
                    ImportedSide.of(language, ids, size, FAIRSEQ_UNK, FAIRSEQ_EOS, segmenter, files.tokenizer, listed)
                )
            options = _options(arguments, same_vocabulary(*sides) and np.array_equal(tables[0], tables[1]), file)
            count = FIRST_POSITION + cast(LearnedPositionOptions, options).max_positions
            if arguments.get("encoder_learned_pos"):
                positions = [array_of(arrays, f"{side}.embed_positions.weight") for side in STACKS]
            else:
                positions = [sinusoids(count, options.d_model, "t2t-sinusoidal").numpy()] * 2
            return ImportedModel.of(
                options,
                partial(_part, arrays),
                sides,
                tables,
                file,
                joint=options.tie == "all",
                first=tables[1][FAIRSEQ_EOS],
                output=array_of(arrays, *OUTPUTS) if options.tie == "none" else None,
                positions=[table[FIRST_POSITION:count] for table in positions],
            )


def _arguments(content: Any, file: Path) -> dict[str, Any]:
    """The training arguments of the model and of the task."""
    if isinstance(content, dict):
        config = content.get("cfg")
        tables = [content.get("args"), *(config.get(key) for key in ("task", "model") if isinstance(config, dict))]
        found = [vars(table) if isinstance(table, Namespace) else table for table in tables]
        pairs = [pair for table in found if isinstance(table, dict) for pair in table.items()]
        if pairs:
            return {key: value for key, value in pairs if value is None or isinstance(value, (str, int, float))}
    raise ArtefactError(
        f"{quoted(file)}: not a fairseq checkpoint: its training arguments ('args' or 'cfg') are missing"
    )


def _dictionary(path: Path) -> dict[str, int]:
    """The entries of a dictionary file, which has one line `ENTRY COUNT` for each entry except the control symbols."""
    ids: dict[str, int] = {}
    with expecting("a fairseq dictionary", path):
        for number, line in enumerate(read_bytes(path).decode().removesuffix("\n").split("\n"), 1):
            word, space, _ = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
            if not space or word in ids:
                raise ValueError(f"line {number} must contain an entry and its count, and entries must be unique")
            ids[word] = len(ids) + FAIRSEQ_SYMBOLS
    return ids


def _options(arguments: Mapping[str, Any], is_joint: bool, file: Path) -> TransformerOptions:
    check_settings(arguments, REQUIRED_ARGUMENTS, file)
    for key in FAIRSEQ_SIZES.values():
        if f"encoder_{key}" not in arguments:
            raise ValueError(f"the argument encoder_{key} is missing")
    for key in EQUAL_ARGUMENTS:
        if arguments.get(f"encoder_{key}") != arguments.get(f"decoder_{key}"):
            raise UserError(f"{quoted(file)}: encoder_{key} and decoder_{key} differ; nmt supports only equal values")
    shares_all, shares_output = (
        arguments.get(f"share_{what}") for what in ("all_embeddings", "decoder_input_output_embed")
    )
    values = {
        **{ours: arguments[f"encoder_{key}"] for ours, key in FAIRSEQ_SIZES.items()},
        "encoder_layers": arguments.get("encoder_layers", 0),
        "decoder_layers": arguments.get("decoder_layers", 0),
        "norm_position": "pre" if arguments.get("encoder_normalize_before") else "post",
        "norm_epsilon": FAIRSEQ_EPSILON,
        "activation": arguments.get("activation_fn", "relu"),
        "positions": "learned",
        "max_positions": max(
            int(arguments.get(f"max_{side}_positions") or DEFAULT_MAX_POSITIONS) for side in ("source", "target")
        ),
        "attention_bias": True,
        "output_bias": True,
        "tie": "all" if shares_all and is_joint else "target" if shares_all or shares_output else "none",
    }
    return network_options(values, file)


def _part(arrays: Mapping[str, Any], place: Place) -> tuple[Array, Array]:
    """The weight and the bias of a part."""
    own = "layer_norm" if place.part == "top" else f"layers.{place.layer}.{TORCH_PARTS[place.part]}"
    path = f"{place.side}.{own}"
    prefix, _, name = path.rpartition(".")
    if f"{path}.weight" not in arrays and name.startswith(("q", "k", "v")):  # names from earlier versions
        third = ("q_proj", "k_proj", "v_proj").index(name)
        weight = array_of(arrays, f"{prefix}.in_proj_weight")
        bias = array_of(arrays, f"{prefix}.in_proj_bias", dims=1)
        return np.split(weight, 3)[third], np.split(bias, 3)[third]
    return weight_and_bias(arrays, path, place.part)
