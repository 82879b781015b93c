"""Export of our Transformer to CTranslate2 (https://opennmt.net/CTranslate2), checked to translate as we do."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from nmt import signals
from nmt.artefact import new_folder
from nmt.checkpoint import LoadedModel
from nmt.errors import ArtefactError, UserError, quoted
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.extensions.ctranslate2.comparison import (
    DEFAULT_PENALTY,
    MAX_NATS_FLOAT32,
    MAX_TARGET_TOKENS,
    TUNED_BEAM_SIZE,
    DevelopmentSet,
    EngineComparison,
    TokenIds,
    TunedPenalty,
    compare_engines,
    largest_difference,
    tune_length_penalty,
)
from nmt.extensions.ctranslate2.engine import (
    MAP_FILE,
    POSITIONS,
    CTranslate2Model,
    import_ctranslate2,
)
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.extensions.toolkits.transformer import distinct_pieces
from nmt.files import to_json
from nmt.mixers.self_attention import SelfAttention
from nmt.models.layers import DecoderLayer, EncoderLayer, Residual
from nmt.models.transformer import Transformer
from nmt.symbols import BOS, EOS, SYMBOLS, UNK
from nmt.text.pipeline import PIPELINE_FOLDER, Pipeline

SEARCH_FILE: Final = "nmt-search.json"


@dataclass(frozen=True)
class CTranslate2Export:
    """Results of an export.

    agreements: the comparison of each search
    length_penalty: written as the one to search with
    tuned: None without tuning
    """

    agreements: list[EngineComparison]
    length_penalty: float
    tuned: TunedPenalty | None


def export_ctranslate2(
    loaded: LoadedModel,
    output: Path,
    quantization: str,
    lines: Sequence[TokenIds],
    dev: DevelopmentSet | None,
    threads: int | None,
    shortlist: Shortlist | None = None,
    more_facts: Mapping[str, Any] = MappingProxyType({}),
    max_different: int = 0,
) -> CTranslate2Export:
    """Write a folder that CTranslate2 reads, with the model's pipeline and search, whole or not at all.

    quantization: float32, int8, ... by the names of CTranslate2
    lines: source ids that both engines translate
    dev: the length penalty is tuned on it; None leaves DEFAULT_PENALTY
    threads: of CTranslate2; None leaves the choice to it
    shortlist: written as the map of the vocabulary; the comparison does without it
    more_facts: for the manifest
    max_different: lines that may differ with weights in float32
    Raises UserError for a model that CTranslate2 cannot run, ArtefactError if it computes another model in float32.
    """
    spec = specification(loaded)
    spec.optimize(quantization)
    versions = {"torch": str(torch.__version__), "ctranslate2": import_ctranslate2().__version__}
    facts = {**versions, "quantization": quantization, "vocabulary": loaded.pipeline.hash, **more_facts}
    with new_folder(output, CTRANSLATE2_KIND, facts) as folder:
        spec.save(str(folder))
        (folder / PIPELINE_FOLDER).mkdir()
        loaded.pipeline.save(folder / PIPELINE_FOLDER)
        if shortlist is not None:
            (folder / MAP_FILE).write_text(vocabulary_map(shortlist, loaded.pipeline), encoding="utf-8", newline="\n")
        engine = CTranslate2Model(folder, loaded.pipeline, "default", 1, threads or 0)
        nats = largest_difference(loaded, engine, lines)
        if not math.isfinite(nats) or (quantization == "float32" and nats > MAX_NATS_FLOAT32):
            raise ArtefactError(
                f"{quoted(output)}: not written: CTranslate2's log-probabilities differ by {nats:.1g} nats"
            )
        agreements = [compare_engines(loaded, engine, lines, beam_size) for beam_size in (1, TUNED_BEAM_SIZE)]
        for agreement in agreements if quantization == "float32" else ():
            if agreement.different > max_different:
                raise ArtefactError(
                    f"{quoted(output)}: not written: of {agreement.lines:,} lines CTranslate2 translates "
                    f"{agreement.different:,} otherwise than nmt does ({agreement.search}), first {agreement.example}"
                )
        tuned = tune_length_penalty(loaded, engine, dev) if dev is not None else None
        penalty = tuned.best if tuned else DEFAULT_PENALTY
        # how to search with the model, by the names of CTranslate2's `translate_batch`
        search = {"beam_size": TUNED_BEAM_SIZE, "length_penalty": penalty, "max_decoding_length": MAX_TARGET_TOKENS}
        content = {"translate_batch": search, "tuned": asdict(tuned) if tuned else None}
        (folder / SEARCH_FILE).write_bytes(to_json(content))
        signals.check()
    return CTranslate2Export(agreements, penalty, tuned)


def specification(loaded: LoadedModel) -> Any:
    """A model as a ctranslate2.specs.TransformerSpec in float32; raises UserError for one that it cannot describe."""
    model, pipeline, name = loaded.model, loaded.pipeline, quoted(loaded.folder)
    if type(model) is not Transformer:
        raise UserError(f"{name}: its model is '{quoted(loaded.facts.model)}'; CTranslate2 runs 'transformer' only")
    o: Any = model.options  # of the core, and of the variants
    shape = model.decoder_layers[0].cross_attention.shape
    reasons = {
        "has weights of 8 bits already (export the model it was made of)": loaded.facts.weights == "int8",
        "was prepared with --right-to-left; CTranslate2 would give its words in reverse order": (
            pipeline.target.settings.right_to_left
        ),
        "has experts (--ffn moe); CTranslate2 has dense feed-forward networks only": o.ffn == "moe",
        "has relative positions, which the export to CTranslate2 does not write (translate with `nmt translate`, or train "
        "with --positions sinusoidal)": o.positions == "relative",
        f"has --decoder-autoregression {o.decoder_autoregression}; CTranslate2 has self-attention alone": (
            o.decoder_autoregression != "self-attention"
        ),
        f"has --attention-window {o.attention_window}; CTranslate2 sees all positions (translate with `nmt translate`, or "
        "train without it)": o.attention_window is not None,
        f"its heads have keys of width {shape.keys} and values of width {shape.values}; CTranslate2 has one width for both": (
            shape.keys != shape.values
        ),
        f"has --kv-heads {o.kv_heads} with heads of width {shape.keys}; CTranslate2 groups queries only where the width is "
        f"that of --d-model by --heads, {o.d_model // o.heads}": (
            o.kv_heads not in (None, o.heads) and shape.keys * o.heads != o.d_model
        ),
    }
    if reason := next((reason for reason, is_so in reasons.items() if is_so), None):
        raise UserError(f"{name}: {reason}")
    specs = import_ctranslate2().specs
    activations = {"relu": specs.Activation.RELU, "swish": specs.Activation.SWISH, "gelu": specs.Activation.GELU}
    network: dict[str, Any] = {"pre_norm": o.norm_position == "pre", "activation": activations[o.activation]}
    network |= {"ffn_glu": o.ffn == "glu", "rms_norm": o.norm == "rms"}
    if o.positions == "rotary":
        network |= {"rotary_dim": shape.keys, "rotary_interleave": False}
    of_decoder = {} if o.kv_heads is None else {"num_heads_kv": o.kv_heads}
    try:
        spec = specs.TransformerSpec(
            specs.TransformerEncoderSpec(o.encoder_layers, o.heads, **network),
            specs.TransformerDecoderSpec(o.decoder_layers, o.heads, **network, **of_decoder),
        )
    except TypeError as error:  # a keyword that this version does not know
        raise UserError(f"{name}: this version of CTranslate2 has no such layers: {error} (upgrade it)") from None
    spec.encoder.embeddings[0].weight = _copy(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _copy(model.target_embedding.weight)
    if o.positions != "rotary":
        positions = max(POSITIONS, o.max_positions)
        spec.encoder.position_encodings.encodings = _copy(model.source_positions(0, positions))
        spec.decoder.position_encodings.encodings = _copy(model.target_positions(0, positions))
    layer_specs = [*spec.encoder.layer, *spec.decoder.layer]
    for layer_spec, layer in zip(layer_specs, [*model.encoder_layers, *model.decoder_layers], strict=True):
        _set_layer(layer_spec, cast(EncoderLayer | DecoderLayer, layer), o.ffn == "glu")
    if o.norm_position == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    _set_linear(spec.decoder.projection, cast(nn.Linear, model.output))
    spec.register_source_vocabulary(distinct_pieces(pipeline.source, loaded.folder))
    spec.register_target_vocabulary(distinct_pieces(pipeline.target, loaded.folder))
    config = spec.config  # a sentence may have EOS after its source, and has BOS before its target
    config.unk_token, config.bos_token, config.eos_token = SYMBOLS[UNK], SYMBOLS[BOS], SYMBOLS[EOS]
    config.decoder_start_token, config.layer_norm_epsilon = SYMBOLS[BOS], o.norm_epsilon
    config.add_source_eos = o.source_eos
    spec.validate()
    return spec


def vocabulary_map(shortlist: Shortlist, pipeline: Pipeline) -> str:
    """A shortlist as CTranslate2 reads it: a source token, TAB, target tokens; the line of no source token is for all."""
    rows = [("", shortlist.of(np.array([EOS])))]  # which each sentence has
    rows += [
        (pipeline.source.piece(token), shortlist.tokens[shortlist.starts[token] : shortlist.starts[token + 1]])
        for token in range(pipeline.source.size)
    ]
    return "".join(f"{piece}\t{' '.join(map(pipeline.target.piece, tokens.tolist()))}\n" for piece, tokens in rows)


def _set_layer(spec: Any, layer: EncoderLayer | DecoderLayer, gated: bool) -> None:
    """gated: whether the feed-forward network has gated linear units"""
    attention = cast(SelfAttention, layer.self_attention)
    linears = attention.queries_keys_values, attention.output
    _set_attention(spec.self_attention, layer.self_attention_residual, linears, attention.shape.keys)
    if isinstance(layer, DecoderLayer):
        cross = layer.cross_attention
        cross_linears = cross.queries, cross.keys_values, cross.output
        _set_attention(spec.attention, layer.cross_attention_residual, cross_linears, cross.shape.keys)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    feed_forward = cast(Any, layer.feed_forward)
    if gated:
        spec.ffn.linear_0.weight, spec.ffn.linear_0_noact.weight = map(_copy, feed_forward.inner.weight.chunk(2))
    else:
        _set_linear(spec.ffn.linear_0, feed_forward.inner)
    _set_linear(spec.ffn.linear_1, feed_forward.outer)


def _set_attention(spec: Any, residual: Residual, linears: Iterable[nn.Linear], keys: int) -> None:
    """Set an attention and its norm. keys: width of a head, which need not be d_model / heads"""
    _set_norm(spec.layer_norm, residual.norm)
    spec.queries_scale = 1 / math.sqrt(keys)
    for linear_spec, linear in zip(spec.linear, linears, strict=True):
        _set_linear(linear_spec, linear)


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _copy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _copy(norm.bias)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _copy(linear.weight)
    if linear.bias is not None:
        spec.bias = _copy(linear.bias)


def _copy(weight: object) -> Tensor:
    """A copy of a weight, since quantising a specification overwrites its tensors."""
    return cast(Tensor, weight).detach().clone(memory_format=torch.contiguous_format)
