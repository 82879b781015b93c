"""Reads and writes Marian's models (https://marian-nmt.github.io), including OPUS-MT's, and checks them with pymarian."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from nmt import register, signals
from nmt.artefact import new_folder
from nmt.checkpoint import LoadedModel
from nmt.errors import UserError, quoted
from nmt.extensions.toolkits.comparison import compare_export, random_lines
from nmt.extensions.toolkits.layout import WITHOUT_BIAS, Array, parts_of
from nmt.extensions.toolkits.marian_reader import (
    AUTOREGRESSIONS,
    CHOICES,
    MARIAN_EOS,
    MARIAN_UNK,
    MODEL_SETTINGS,
    OUTPUT,
    PROCESSES,
    REQUIRED_OF_SSRU,
    REQUIRED_SETTINGS,
    SIZES,
    array_names,
    read_marian,
    to_yaml,
)
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles, arrays_of, check_exportable, distinct_pieces
from nmt.extensions.vocabularies.sentencepiece_file import read_pieces
from nmt.extensions.vocabularies.sentencepiece_model import control_piece, with_pieces
from nmt.models.options import TransformerOptions
from nmt.options import NoOptions
from nmt.signals import signal_at_end_of_parent
from nmt.symbols import BOS, EOS, SYMBOLS, UNK
from nmt.text.pipeline import Side
from nmt.text.vocabulary import SentencepieceVocabulary

MARIAN: Final = "Marian"
MARIAN_MODEL: Final = "model.npz"
MARIAN_VERSION: Final = "v1.12.0"  # version in the written settings
ROWS_BEFORE: Final = (EOS, UNK)  # nmt ids of Marian's first entries; Marian has neither PAD nor BOS
MAX_MARIAN_SECONDS: Final = 120  # time limit for the pymarian process
TRANSLATE_WITH_MARIAN: Final = """
import json, sys, pymarian
settings, lines = json.load(sys.stdin)
translator = pymarian.Translator(**settings)
json.dump(list(map(translator.translate, lines)), sys.stdout)
"""


@register("toolkit", "marian", NoOptions)
class Marian(Toolkit):
    """Marian's and OPUS-MT's Transformers: a model.npz with its vocabularies."""

    package: ClassVar[str] = "pymarian"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return path.suffix == ".npz" or any(path.glob("*.npz"))

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        return read_marian(path, files)

    def write(self, loaded: LoadedModel, output: Path) -> str:
        options = check_exportable(loaded, MARIAN, AUTOREGRESSIONS.values())
        name, pipeline = quoted(loaded.folder), loaded.pipeline
        weights = arrays_of(loaded)
        if options.positions != "t2t-sinusoidal":
            raise UserError(f"{name}: Marian supports only --positions t2t-sinusoidal, not {options.positions}")
        if options.activation not in CHOICES["transformer-ffn-activation"]:
            raise UserError(f"{name}: Marian does not support --activation {options.activation}")
        if weights.get("target_embedding.weight", weights["source_embedding.weight"])[BOS].any():
            raise UserError(f"{name}: the decoder must start from a zero vector, as in models imported from Marian")
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
                # `allow_pickle` is not passed, because versions of numpy before 2.2 would store it as an array.
                np.savez(file, **{**arrays, MODEL_SETTINGS: content})  # type: ignore[arg-type]
            for side, (_, vocabulary) in files.items():
                (folder / names[side]).write_bytes(vocabulary)
            decoder = {"models": [MARIAN_MODEL], "vocabs": list(names.values()), "relative-paths": True}
            search = {"beam-size": 6, "normalize": 1.0, "word-penalty": 0}
            (folder / f"{MARIAN_MODEL}.decoder.yml").write_bytes(to_yaml(decoder | search))
            signals.check()
        compare_export(self, loaded, output)
        return ""

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        """Yield translations of random sources, because pymarian cannot score pairs. It has its own process, as it may abort."""
        sources = [source for [source] in random_lines(imported.source)]
        settings = {
            "models": imported.place,
            "vocabs": list(map(str, imported.vocabularies)),
            "beam_size": 1,
            "n_best": True,
            "word_scores": True,
            "no_spm_encode": True,
            "no_spm_decode": True,
            "allow_unk": True,
            "max_length_factor": 1.0,
            "cpu_threads": 1,
            "quiet": True,
        }
        lines = [" ".join(map(imported.source.side.piece, source)) for source in sources]
        done = subprocess.run(
            [sys.executable, "-c", TRANSLATE_WITH_MARIAN],
            input=json.dumps([settings, lines]),
            capture_output=True,
            text=True,
            timeout=MAX_MARIAN_SECONDS,
            preexec_fn=partial(signal_at_end_of_parent, signal.SIGKILL),
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().split("\n")[-1] or f"exit status {done.returncode}")
        target_side = imported.target.side
        ids = {target_side.piece(token): token for token in range(target_side.size)}
        # With norms before the layers, Marian's search differs from its training from the second token on.
        compared = 1 if imported.options.norm_position == "pre" else None
        for source, candidates in zip(sources, json.loads(done.stdout), strict=True):
            _, text, scores, *_ = candidates.split("\n")[0].split(" ||| ")
            log_probs = list(map(float, scores.split()[1:]))[:compared]
            yield ScoredPair(source, [ids[name] for name in text.split()], log_probs)


def _arrays(weights: Mapping[str, Array], options: TransformerOptions, sizes: tuple[int, int]) -> dict[str, Array]:
    """The arrays by their names in Marian."""
    arrays: dict[str, Array] = {}
    for place, weight, bias in parts_of(options, weights):
        name, bias_name = array_names(place, options)
        arrays[name] = weight[None] if weight.ndim == 1 else np.ascontiguousarray(weight.T)
        if place.part not in WITHOUT_BIAS:
            arrays[bias_name] = bias[None]
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
    """The network's settings by their names in Marian."""
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
    """The suffix and content of a side's vocabulary file: a SentencePiece model, or a list of words."""
    if isinstance(side.vocabulary, SentencepieceVocabulary):
        model = side.vocabulary.to_bytes()
        pieces = [*map(control_piece, ROWS_BEFORE), *read_pieces(model)[len(SYMBOLS) :]]
        return ".spm", with_pieces(model, pieces, {EOS: MARIAN_EOS, UNK: MARIAN_UNK})
    names = distinct_pieces(side, loaded.folder)
    entries = [*(names[token] for token in ROWS_BEFORE), *names[len(SYMBOLS) :]]
    return ".yml", to_yaml({entry: i for i, entry in enumerate(entries)})
