"""Reads and writes Hugging Face's MarianMTModel, and compares its scores with those of the package transformers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np
import torch

from nmt import register, signals
from nmt.artefact import new_folder
from nmt.checkpoint import LoadedModel, size_of, write_tensors
from nmt.errors import UserError, quoted
from nmt.extensions.toolkits.comparison import compare_export, random_lines
from nmt.extensions.toolkits.huggingface_reader import (
    HUGGINGFACE_CONFIG,
    SPM_FILES,
    TOKENIZER_CONFIG,
    VOCABULARY_FILES,
    WEIGHT_FILES,
    read_huggingface,
    sines_before_cosines,
)
from nmt.extensions.toolkits.layout import STACKS, TORCH_PARTS, Array, parts_of, reordered, reordered_part
from nmt.extensions.toolkits.toolkit import ScoredPair, Toolkit
from nmt.extensions.toolkits.transformer import (
    ImportedModel,
    TextFiles,
    arrays_of,
    check_exportable,
    distinct_pieces,
    segmenters_of,
)
from nmt.extensions.vocabularies.sentencepiece_model import LANGUAGE_TAG
from nmt.files import to_json
from nmt.models.options import TransformerOptions
from nmt.models.transformer import Transformer
from nmt.options import NoOptions
from nmt.positions.options import LearnedPositionOptions
from nmt.symbols import BOS, EOS, PAD, SPACE_MARK, SYMBOLS, UNK

HUGGINGFACE: Final = "Hugging Face's Marian"
GENERATION_CONFIG: Final = "generation_config.json"
DEFAULT_POSITIONS: Final = 512  # number of positions declared for models without a table of positions
TABLES: Final = ("source_embedding.weight", "target_embedding.weight", "output.weight")  # weights of shape (V, D)
NUM_BEAMS: Final = 4  # beam size in the settings of a written folder


@register("toolkit", "huggingface", NoOptions)
class HuggingFace(Toolkit):
    """Hugging Face's Marian models: a folder with a MarianMTModel and a MarianTokenizer."""

    order: ClassVar[int] = 2
    package: ClassVar[str] = "transformers"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / HUGGINGFACE_CONFIG).is_file()

    def read(self, path: Path, files: TextFiles) -> ImportedModel:
        return read_huggingface(path, files)

    def write(self, loaded: LoadedModel, output: Path) -> str:
        options, pipeline = check_exportable(loaded, HUGGINGFACE), loaded.pipeline
        if options.norm_position == "pre":
            raise UserError(f"{quoted(loaded.folder)}: {HUGGINGFACE} does not support --norm-position pre")
        segmenters = segmenters_of(loaded, HUGGINGFACE)
        sides = (pipeline.source,) if pipeline.joint else (pipeline.source, pipeline.target)
        names = [list(map(_without_mark, distinct_pieces(side, loaded.folder))) for side in sides]
        if any(len(set(pieces)) < len(pieces) for pieces in names):
            raise UserError(
                f"{quoted(loaded.folder)}: a language tag appears twice in its vocabulary, which {HUGGINGFACE} does not support"
            )
        vocabularies = [{piece: i for i, piece in enumerate(pieces)} for pieces in names]
        tensors = {
            name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in _tensors(loaded, options).items()
        }
        with new_folder(output, "huggingface", {"vocabulary": pipeline.hash}, size_of(tensors)) as folder:
            write_tensors(folder / WEIGHT_FILES[0], tensors, {"format": "pt"})
            for name, content in _configs(loaded, options).items():
                (folder / name).write_bytes(to_json(content))
            for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=False):
                (folder / name).write_bytes(to_json(vocabulary))
            for name, segmenter in zip(SPM_FILES, segmenters, strict=True):
                (folder / name).write_bytes(segmenter)
            signals.check()
        compare_export(self, loaded, output)
        return ""

    def scores(self, imported: ImportedModel) -> Iterator[ScoredPair]:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model = transformers.MarianMTModel.from_pretrained(imported.place, local_files_only=True).eval()
        eos = model.config.eos_token_id
        for source, target in random_lines(imported.source, imported.target):
            labels = torch.tensor([[*imported.target.rows[target], eos]])
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([[*imported.source.rows[source], eos]]), labels=labels).logits
            yield ScoredPair(source, target, logits.log_softmax(-1).gather(2, labels[..., None]).flatten().tolist())


def _without_mark(piece: str) -> str:
    """A piece as written in Hugging Face's vocabulary, where language tags have no space mark."""
    tag = piece.removeprefix(SPACE_MARK)
    return tag if LANGUAGE_TAG.fullmatch(tag) else piece


def _tensors(loaded: LoadedModel, options: TransformerOptions) -> dict[str, Array]:
    """The weights by their names in MarianMTModel."""
    weights, model = arrays_of(loaded), cast(Transformer, loaded.model)
    order = np.argsort(sines_before_cosines(options.d_model)) if options.positions == "sinusoidal" else None
    tensors = {}
    for place, weight, bias in parts_of(options, weights):
        name = f"model.{place.side}.layers.{place.layer}.{TORCH_PARTS[place.part]}"
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = reordered_part(place.part, weight, bias, order)
    tables = {name: reordered(weights[name], 1, order, name) for name in TABLES if name in weights}
    source = tables["source_embedding.weight"]
    if options.tie == "all":
        tensors["model.shared.weight"] = source
    else:
        target = tables["target_embedding.weight"]
        tensors |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
    if options.tie == "none":
        tensors["lm_head.weight"] = tables["output.weight"]
    bias = weights.get("output.bias", np.zeros(loaded.pipeline.target.size, np.float32))
    tensors["final_logits_bias"] = bias[None]
    if order is None:  # otherwise, MarianMTModel computes the positions itself
        for side, positions in zip(STACKS, (model.source_positions, model.target_positions), strict=True):
            table = positions(0, _max_positions(options)).detach().numpy()
            tensors[f"model.{side}.embed_positions.weight"] = table
    return tensors


def _max_positions(options: TransformerOptions) -> int:
    learned = cast(LearnedPositionOptions, options)
    return learned.max_positions if options.positions == "learned" else DEFAULT_POSITIONS


def _configs(loaded: LoadedModel, options: TransformerOptions) -> dict[str, dict[str, Any]]:
    """The settings files by name."""
    pipeline, positions = loaded.pipeline, _max_positions(options)
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": BOS, "forced_eos_token_id": EOS}
    search = {
        **ids,
        "bad_words_ids": [[PAD], [BOS]],
        "num_beams": NUM_BEAMS,
        "length_penalty": 1.0,
        "max_length": min(DEFAULT_POSITIONS, positions),
    }
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": options.d_model,
        "encoder_layers": options.encoder_layers,
        "decoder_layers": options.decoder_layers,
        "encoder_ffn_dim": options.d_ff,
        "decoder_ffn_dim": options.d_ff,
        "encoder_attention_heads": options.heads,
        "decoder_attention_heads": options.heads,
        "activation_function": options.activation,
        "dropout": options.dropout,
        "attention_dropout": options.attention_dropout,
        "activation_dropout": options.activation_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": options.tie == "all",
        "tie_word_embeddings": options.tie != "none",
        "vocab_size": pipeline.source.size,
        "decoder_vocab_size": pipeline.target.size,
        "is_encoder_decoder": True,
        **ids,
    }
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": pipeline.source_lang,
        "target_lang": pipeline.target_lang,
        "separate_vocabs": not pipeline.joint,
        "model_max_length": min(DEFAULT_POSITIONS, positions),
        "bos_token": SYMBOLS[BOS],  # the decoder's first input, which never appears in text
        "unk_token": SYMBOLS[UNK],
        "eos_token": SYMBOLS[EOS],
        "pad_token": SYMBOLS[PAD],
    }
    return {HUGGINGFACE_CONFIG: config, TOKENIZER_CONFIG: tokenizer, GENERATION_CONFIG: search}
