"""Export of a Transformer to CTranslate2 (https://opennmt.net/CTranslate2), and a check that it gives the same translations."""

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
from nmt.models.layers import Residual, TransformerLayer
from nmt.models.transformer import Transformer
from nmt.symbols import BOS, EOS, SYMBOLS, UNK
from nmt.text.pipeline import PIPELINE_FOLDER, Pipeline

SEARCH_FILE: Final = "nmt-search.json"


@dataclass(frozen=True)
class CTranslate2Export:
    """Results of an export.

    agreements: the comparison of each search
    length_penalty: the recommended penalty, which is written to the folder
    tuned: results of the tuning; None without tuning
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
    """Write a folder that CTranslate2 can read, with the model's pipeline and search settings. No folder is left after an error.

    quantization: CTranslate2's name of a number format, such as float32 or int8
    lines: source ids that both engines translate
    dev: development set for tuning the length penalty; None uses DEFAULT_PENALTY
    threads: number of threads that CTranslate2 uses; None lets CTranslate2 choose
    shortlist: written as the vocabulary map; the comparison does not use it
    more_facts: further entries of the manifest
    max_different: number of lines that may differ with float32 weights
    Raises UserError if CTranslate2 cannot run the model, ArtefactError if its float32 results differ.
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
                f"{quoted(output)}: not written, because CTranslate2's log-probabilities differ from nmt's by {nats:.1g} nats"
            )
        agreements = [compare_engines(loaded, engine, lines, beam_size) for beam_size in (1, TUNED_BEAM_SIZE)]
        for agreement in agreements if quantization == "float32" else ():
            if agreement.different > max_different:
                raise ArtefactError(
                    f"{quoted(output)}: not written, because CTranslate2 translates {agreement.different:,} of "
                    f"{agreement.lines:,} lines differently ({agreement.search}); the first is {agreement.example}"
                )
        tuned = tune_length_penalty(loaded, engine, dev) if dev is not None else None
        penalty = tuned.best if tuned else DEFAULT_PENALTY
        # recommended arguments for CTranslate2's `translate_batch`
        search = {"beam_size": TUNED_BEAM_SIZE, "length_penalty": penalty, "max_decoding_length": MAX_TARGET_TOKENS}
        content = {"translate_batch": search, "tuned": asdict(tuned) if tuned else None}
        (folder / SEARCH_FILE).write_bytes(to_json(content))
        signals.check()
    return CTranslate2Export(agreements, penalty, tuned)


def specification(loaded: LoadedModel) -> Any:
    """Convert a model to a ctranslate2.specs.TransformerSpec in float32. Raises UserError if that is impossible."""
    model, pipeline, name = loaded.model, loaded.pipeline, quoted(loaded.folder)
    if type(model) is not Transformer:
        raise UserError(f"{name}: CTranslate2 runs only the model 'transformer', not '{quoted(loaded.facts.model)}'")
    o: Any = model.options  # includes the options of variants
    shape = model.decoder_layers[0].cross_attention.shape
    reasons = {
        "the model already has 8-bit weights (export the model that it was made from)": loaded.facts.weights == "int8",
        "CTranslate2 would return the words of a --right-to-left model in reverse order": (
            pipeline.target.settings.right_to_left
        ),
        "CTranslate2 supports only dense feed-forward networks, not experts (--ffn moe)": o.ffn == "moe",
        "relative positions cannot be exported to CTranslate2 (translate with `nmt translate`, or train with "
        "--positions sinusoidal)": o.positions == "relative",
        "CTranslate2 supports sinusoidal or rotary positions, but not both (translate with `nmt translate`, or train with "
        "--positions rotary)": o.positions == "sinusoidal-rotary",
        f"CTranslate2 supports only self-attention, not --decoder-autoregression {o.decoder_autoregression}": (
            o.decoder_autoregression != "self-attention"
        ),
        f"CTranslate2 does not support --attention-window {o.attention_window} (translate with `nmt translate`, or train "
        "without it)": o.attention_window is not None,
        f"CTranslate2 needs keys and values of the same width; the model's have {shape.keys} and {shape.values}": (
            shape.keys != shape.values
        ),
        f"with --kv-heads {o.kv_heads}, CTranslate2 needs heads of width {o.d_model // o.heads} (--d-model / --heads), "
        f"not {shape.keys}": (o.kv_heads not in (None, o.heads) and shape.keys * o.heads != o.d_model),
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
    except TypeError as error:  # the keyword is unknown to the installed version
        raise UserError(
            f"{name}: the installed CTranslate2 lacks a layer of this model: {error} (upgrade CTranslate2)"
        ) from None
    spec.encoder.embeddings[0].weight = _copy(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _copy(model.target_embedding.weight)
    if o.positions != "rotary":
        positions = max(POSITIONS, o.max_positions)
        spec.encoder.position_encodings.encodings = _copy(model.source_positions(0, positions))
        spec.decoder.position_encodings.encodings = _copy(model.target_positions(0, positions))
    layer_specs = [*spec.encoder.layer, *spec.decoder.layer]
    for layer_spec, layer in zip(layer_specs, [*model.encoder_layers, *model.decoder_layers], strict=True):
        _set_layer(layer_spec, layer, o.ffn == "glu")
    if o.norm_position == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    _set_linear(spec.decoder.projection, cast(nn.Linear, model.output))
    spec.register_source_vocabulary(distinct_pieces(pipeline.source, loaded.folder))
    spec.register_target_vocabulary(distinct_pieces(pipeline.target, loaded.folder))
    config = spec.config  # a source may end with EOS, and a target starts with BOS
    config.unk_token, config.bos_token, config.eos_token = SYMBOLS[UNK], SYMBOLS[BOS], SYMBOLS[EOS]
    config.decoder_start_token, config.layer_norm_epsilon = SYMBOLS[BOS], o.norm_epsilon
    config.add_source_eos = o.source_eos
    spec.validate()
    return spec


def vocabulary_map(shortlist: Shortlist, pipeline: Pipeline) -> str:
    """A shortlist in CTranslate2's format: source token, TAB, target tokens. Lines without a source token always apply."""
    rows = [("", shortlist.of(np.array([EOS])))]  # every sentence contains EOS
    rows += [
        (pipeline.source.piece(token), shortlist.tokens[shortlist.starts[token] : shortlist.starts[token + 1]])
        for token in range(pipeline.source.size)
    ]
    return "".join(f"{piece}\t{' '.join(map(pipeline.target.piece, tokens.tolist()))}\n" for piece, tokens in rows)


def _set_layer(spec: Any, layer: TransformerLayer, gated: bool) -> None:
    """Set the weights of a layer. gated: whether the feed-forward network has gated linear units"""
    attention = cast(SelfAttention, layer.self_attention)
    linears = attention.queries_keys_values, attention.output
    _set_attention(spec.self_attention, layer.self_attention_residual, linears, attention.shape.keys)
    if layer.reads_memory:
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
    """Set the weights of an attention layer and its norm. keys: width of a head, which may differ from d_model / heads"""
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
    """Copy a weight, because quantizing a specification overwrites its tensors."""
    return cast(Tensor, weight).detach().clone(memory_format=torch.contiguous_format)
