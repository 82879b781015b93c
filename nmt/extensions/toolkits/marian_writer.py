"""Writing a model of Marian: model.npz, its vocabularies, and the settings that its decoder reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from nmt import signals
from nmt.artefact import new_folder
from nmt.checkpoint import LoadedModel
from nmt.errors import UserError, quoted
from nmt.extensions.toolkits.layout import WITHOUT_BIAS, Array, parts_of
from nmt.extensions.toolkits.marian_reader import (
    AUTOREGRESSIONS,
    MARIAN_ACTIVATIONS,
    MARIAN_EOS,
    MARIAN_UNK,
    MODEL_SETTINGS,
    OUTPUT,
    PROCESSES,
    REQUIRED_OF_SSRU,
    REQUIRED_SETTINGS,
    SIZES,
    array_names,
    to_yaml,
)
from nmt.extensions.toolkits.transformer import arrays_of, check_exportable, distinct_pieces
from nmt.extensions.vocabularies.sentencepiece_model import control_piece, with_pieces
from nmt.models.options import TransformerOptions
from nmt.symbols import BOS, EOS, SYMBOLS, UNK
from nmt.text.pipeline import Side
from nmt.text.sentencepiece_file import read_pieces
from nmt.text.vocabulary import SentencepieceVocabulary

MARIAN: Final = "Marian"
MARIAN_MODEL: Final = "model.npz"
MARIAN_VERSION: Final = "v1.12.0"  # of the settings that are written
ROWS_BEFORE: Final = (EOS, UNK)  # our ids of Marian's first entries; it has neither PAD nor BOS


def write_marian(loaded: LoadedModel, output: Path) -> None:
    """Write a folder for Marian, whole or not at all.

    Raises UserError for a model that Marian does not compute.
    """
    options = check_exportable(loaded, MARIAN, AUTOREGRESSIONS.values())
    name, pipeline = quoted(loaded.folder), loaded.pipeline
    weights = arrays_of(loaded)
    if options.positions != "t2t-sinusoidal":
        raise UserError(f"{name}: has --positions {options.positions}; Marian has t2t-sinusoidal alone")
    if options.activation not in MARIAN_ACTIVATIONS:
        raise UserError(f"{name}: has --activation {options.activation}; Marian's layers do not")
    if weights.get("target_embedding.weight", weights["source_embedding.weight"])[BOS].any():
        raise UserError(f"{name}: its decoder begins with an embedding, Marian's with zeros, as imported models do")
    arrays = _arrays(weights, options, pipeline.sizes)
    files = {
        side: _vocabulary(part, loaded) for side, part in (("source", pipeline.source), ("target", pipeline.target))
    }
    names = {side: f"{'joint' if pipeline.joint else side}{suffix}" for side, (suffix, _) in files.items()}
    needed = sum(array.nbytes for array in arrays.values())
    with new_folder(output, "marian", {"vocabulary": pipeline.hash}, needed) as folder:
        settings = to_yaml(_settings(options, pipeline.sizes))
        content = np.frombuffer(settings + b"\0", np.int8)
        with (folder / MARIAN_MODEL).open("wb") as file:
            # without numpy's allow_pickle, which one before 2.2 would store as an array
            np.savez(file, **{**arrays, MODEL_SETTINGS: content})  # type: ignore[arg-type]
        for side, (_, vocabulary) in files.items():
            (folder / names[side]).write_bytes(vocabulary)
        decoder = {"models": [MARIAN_MODEL], "vocabs": list(names.values()), "relative-paths": True}
        search = {"beam-size": 6, "normalize": 1.0, "word-penalty": 0}
        (folder / f"{MARIAN_MODEL}.decoder.yml").write_bytes(to_yaml(decoder | search))
        signals.check()


def _arrays(weights: Mapping[str, Array], options: TransformerOptions, sizes: tuple[int, int]) -> dict[str, Array]:
    """The arrays by Marian's names."""
    arrays: dict[str, Array] = {}
    for place, weight, bias in parts_of(options, weights):
        name, of_bias = array_names(place, options)
        arrays[name] = weight[None] if weight.ndim == 1 else np.ascontiguousarray(weight.T)
        if place.part not in WITHOUT_BIAS:
            arrays[of_bias] = bias[None]
    rows = [np.array([*ROWS_BEFORE, *range(len(SYMBOLS), size)]) for size in sizes]
    source = weights["source_embedding.weight"][rows[0]]
    if options.tie == "all":
        arrays["Wemb"] = source
    else:
        arrays |= {"encoder_Wemb": source, "decoder_Wemb": weights["target_embedding.weight"][rows[1]]}
    if options.tie == "none":
        arrays[f"{OUTPUT}_Wt"] = weights["output.weight"][rows[1]]
    arrays[f"{OUTPUT}_b"] = weights.get("output.bias", np.zeros(sizes[1], np.float32))[rows[1]][None]
    return arrays


def _settings(options: TransformerOptions, sizes: tuple[int, int]) -> dict[str, Any]:
    """The settings of the network by Marian's names."""
    keys = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    processes = next(processes for processes, position in PROCESSES.items() if position == options.norm_position)
    return {
        **{key: allowed[0] for key, allowed in REQUIRED_SETTINGS.items()},
        **{key: getattr(options, name) for name, key in SIZES.items()},
        **{
            key: process.replace("a", "da") for key, process in zip(keys, processes, strict=True)
        },  # dropout before the sum
        "transformer-decoder-autoreg": {own: name for name, own in AUTOREGRESSIONS.items()}[
            options.decoder_autoregression
        ],
        **{key: allowed[0] for key, allowed in REQUIRED_OF_SSRU.items()},
        "transformer-ffn-activation": options.activation,
        "dim-vocabs": [size - len(SYMBOLS) + len(ROWS_BEFORE) for size in sizes],
        "tied-embeddings-all": options.tie == "all",
        "tied-embeddings": options.tie == "target",
        "version": MARIAN_VERSION,
    }


def _vocabulary(side: Side, loaded: LoadedModel) -> tuple[str, bytes]:
    """The ending and the content of a side's vocabulary file: a sentencepiece model, or a list of words."""
    if isinstance(side.vocabulary, SentencepieceVocabulary):
        model = side.vocabulary.to_bytes()
        pieces = [*map(control_piece, ROWS_BEFORE), *read_pieces(model)[len(SYMBOLS) :]]
        return ".spm", with_pieces(model, pieces, {EOS: MARIAN_EOS, UNK: MARIAN_UNK})
    names = distinct_pieces(side, loaded.folder)
    entries = [*(names[token] for token in ROWS_BEFORE), *names[len(SYMBOLS) :]]
    return ".yml", to_yaml({entry: i for i, entry in enumerate(entries)})
