"""Our Transformer as CTranslate2 (https://opennmt.net/CTranslate2) wants it, and that engine asked in our ids."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from nmt.checkpoint import LoadedModel
from nmt.errors import UserError, quoted
from nmt.models.transformer import Transformer
from nmt.nn.layers import EPSILON, DecoderLayer, EncoderLayer, FeedForward, Residual
from nmt.symbols import BOS, EOS, SYMBOLS, UNK
from nmt.text.pipeline import Pipeline, Side

POSITIONS: Final = 2048  # of either side that there are at least: the engine has a table, and stops where it ends
SENTENCES: Final = 32  # of a batch; a CPU gains nothing by more


def library() -> Any:
    """The package; UserError where it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        told = f"CTranslate2 cannot be imported: {quoted(error)} (pip install 'nmt-toolkit[ctranslate2]')"
        raise UserError(told) from None
    return ctranslate2


def specification(loaded: LoadedModel) -> Any:
    """A model as a ctranslate2.specs.TransformerSpec, float32. Raises UserError with the reason where there is none."""
    model, pipeline = loaded.model, loaded.pipeline
    if type(model) is not Transformer:
        raise UserError(
            f"{quoted(loaded.folder)}: its model is '{quoted(loaded.facts.model)}'; CTranslate2 runs 'transformer' only"
        )
    if pipeline.target.settings.right_to_left:
        told = "was prepared with --right-to-left; CTranslate2 would give its words in reverse order"
        raise UserError(f"{quoted(loaded.folder)}: {told}")
    o = model.options
    shape = cast(EncoderLayer, model.encoder[0]).self_attention.shape
    if shape.keys != shape.values:
        raise UserError(
            f"{quoted(loaded.folder)}: its heads have keys of width {shape.keys} and values of width {shape.values}; "
            "CTranslate2 has one width for both"
        )
    spec = library().specs.TransformerSpec.from_config(
        (o.encoder_layers, o.decoder_layers), o.heads, pre_norm=o.norm_position == "pre"
    )
    spec.encoder.embeddings[0].weight = _copy(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _copy(model.target_embedding.weight)
    positions = max(POSITIONS, o.max_positions)
    spec.encoder.position_encodings.encodings = _copy(model.source_positions(0, positions))
    spec.decoder.position_encodings.encodings = _copy(model.target_positions(0, positions))
    for of_layer, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _put_encoder_layer(of_layer, cast(EncoderLayer, layer))
    for of_layer, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _put_decoder_layer(of_layer, cast(DecoderLayer, layer))
    if o.norm_position == "pre":
        _put_norm(spec.encoder.layer_norm, model.encoder_norm)
        _put_norm(spec.decoder.layer_norm, model.decoder_norm)
    _put_linear(spec.decoder.projection, cast(nn.Linear, model.output))
    _put_text(spec, pipeline, loaded.folder)
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    return spec


def _put_text(spec: Any, pipeline: Pipeline, folder: Path) -> None:
    """The vocabularies, and how a sentence begins and ends: a source gets EOS, a target follows BOS."""
    spec.register_source_vocabulary(_vocabulary(pipeline.source, folder))
    spec.register_target_vocabulary(_vocabulary(pipeline.target, folder))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = SYMBOLS[UNK], SYMBOLS[BOS], SYMBOLS[EOS]
    spec.config.decoder_start_token, spec.config.add_source_eos = SYMBOLS[BOS], True


def _vocabulary(side: Side, folder: Path) -> list[str]:
    """The pieces by id. Raises UserError where two ids have one piece: the engine knows words by their text only."""
    pieces = [side.piece(token) for token in range(side.size)]
    known: set[str] = set()
    for piece in pieces:
        if piece in known:
            raise UserError(
                f"{quoted(folder)}: two entries of its vocabulary are written '{quoted(piece)}', one may be a control "
                "symbol; CTranslate2 cannot tell them apart"
            )
        known.add(piece)
    return pieces


def _put_encoder_layer(spec: Any, layer: EncoderLayer) -> None:
    attention = layer.self_attention
    linears = attention.queries_keys_values, attention.output
    _put_attention(spec.self_attention, layer.self_attention_residual, linears, attention.shape.keys)
    _put_feed_forward(spec.ffn, layer.feed_forward_residual, layer.feed_forward)


def _put_decoder_layer(spec: Any, layer: DecoderLayer) -> None:
    attention, cross = layer.self_attention, layer.cross_attention
    linears = attention.queries_keys_values, attention.output
    _put_attention(spec.self_attention, layer.self_attention_residual, linears, attention.shape.keys)
    of_memory = cross.queries, cross.keys_values, cross.output
    _put_attention(spec.attention, layer.cross_attention_residual, of_memory, cross.shape.keys)
    _put_feed_forward(spec.ffn, layer.feed_forward_residual, layer.feed_forward)


def _put_attention(spec: Any, residual: Residual, linears: Iterable[nn.Linear], keys: int) -> None:
    """linears: in the order of their use. keys: width of a head, which need not be d_model / heads: the scale says it."""
    _put_norm(spec.layer_norm, residual.norm)
    spec.queries_scale = 1 / math.sqrt(keys)
    for of_linear, linear in zip(spec.linear, linears, strict=True):
        _put_linear(of_linear, linear)


def _put_feed_forward(spec: Any, residual: Residual, feed_forward: FeedForward) -> None:
    _put_norm(spec.layer_norm, residual.norm)
    _put_linear(spec.linear_0, feed_forward.inner)
    _put_linear(spec.linear_1, feed_forward.outer)


def _put_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _put_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _copy(linear.weight)
    if linear.bias is not None:
        spec.bias = _copy(linear.bias)


def _copy(weight: object) -> Tensor:
    """The numbers in memory of their own: quantising a specification overwrites what it was given."""
    return cast(Tensor, weight).detach().clone(memory_format=torch.contiguous_format)


class Engine:
    """CTranslate2 on the CPU with an exported model: ids in, ids out. threads: None leaves it to the engine"""

    def __init__(self, folder: Path, pipeline: Pipeline, threads: int | None) -> None:
        self._translator = library().Translator(str(folder), device="cpu", intra_threads=threads or 0)
        self._pieces = [pipeline.source.piece(token) for token in range(pipeline.source.size)]
        self._ids = {pipeline.target.piece(token): token for token in range(pipeline.target.size)}

    def translate(
        self, sources: Iterable[Sequence[int]], beam_size: int, length_penalty: float, max_length: int
    ) -> list[list[int]]:
        """The best translation of each sentence, as ids without EOS. sources: likewise.

        beam_size: 1 is greedy search; length_penalty: a score is divided by tokens ** length_penalty, EOS counted
        max_length: tokens after which a translation is cut
        """
        found = self._translator.translate_batch(
            [[self._pieces[token] for token in source] for source in sources],
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_decoding_length=max_length,
            max_input_length=0,
            max_batch_size=SENTENCES,
        )
        return [[self._ids[piece] for piece in one.hypotheses[0]] for one in found]
