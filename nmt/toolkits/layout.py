"""The weights of a Transformer's layers in the parts that other toolkits keep apart, from ours and to ours."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.batching import Indices
from nmt.errors import ArtefactError, UserError, expecting, is_out_of_memory, quoted
from nmt.models.options import TransformerOptions
from nmt.options import make

Array = NDArray[np.float32]

LINEARS: Final = {  # our linear layer -> the parts that are put together in it
    "self_attention.queries_keys_values": ("self.queries", "self.keys", "self.values"),
    "self_attention.output": ("self.output",),
    "cross_attention.queries": ("cross.queries",),
    "cross_attention.keys_values": ("cross.keys", "cross.values"),
    "cross_attention.output": ("cross.output",),
    "feed_forward.inner": ("inner",),
    "feed_forward.outer": ("outer",),
}
RECURRENT_LINEARS: Final = {  # in place of self-attention in decoders with ssru
    "self_attention.values": ("recurrence.values",),
    "self_attention.forget": ("recurrence.forget",),
}
WITHOUT_BIAS: Final = ("recurrence.values",)
NORMS: Final = {"self_attention": "self", "cross_attention": "cross", "feed_forward": "feed_forward"}
TORCH_LINEARS: Final = {  # the names of parts and norms that fairseq and Hugging Face have in common
    "self.queries": "self_attn.q_proj",
    "self.keys": "self_attn.k_proj",
    "self.values": "self_attn.v_proj",
    "self.output": "self_attn.out_proj",
    "cross.queries": "encoder_attn.q_proj",
    "cross.keys": "encoder_attn.k_proj",
    "cross.values": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "inner": "fc1",
    "outer": "fc2",
}
TORCH_NORMS: Final = {
    "self": "self_attn_layer_norm",
    "cross": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
}
WRITING: Final = ("self.output", "cross.output", "outer")  # parts that add to the states; all others read them


class Place(NamedTuple):
    """Where a part stands.

    side: "encoder" or "decoder"
    layer: from 0
    part: of LINEARS or RECURRENT_LINEARS; or of NORMS
    """

    side: str
    layer: int
    part: str


PartReader = Callable[[Place], tuple[Array, Array]]


@contextmanager
def reading(what: str, place: object) -> Iterator[None]:
    """Make errors of an unexpected content an ArtefactError, `PLACE: not WHAT: why`: also of arrays of other sizes."""
    with expecting(what, place):
        try:
            yield
        except (LookupError, TypeError, ArithmeticError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(f"{type(error).__name__}: {error}") from None


def read_layers(options: TransformerOptions, linear: PartReader, norm: PartReader) -> dict[str, Array]:
    """Our weights of all layers.

    linear: the weight (out, in) and the bias (out,) of a part, which is unused for those WITHOUT_BIAS
    norm: the scale and the bias of a norm, (D,) each
    """
    weights: dict[str, Array] = {}
    for side, layer in _layers(options):
        own = f"{side}.{layer}"
        for name, parts in _linears(options, side).items():
            pairs = [linear(Place(side, layer, part)) for part in parts]
            weights[f"{own}.{name}.weight"] = np.concatenate([weight for weight, _ in pairs])
            if parts[0] not in WITHOUT_BIAS:
                weights[f"{own}.{name}.bias"] = np.concatenate([bias for _, bias in pairs])
        for name, part in NORMS.items():
            if side == "decoder" or part != "cross":
                scale, bias = norm(Place(side, layer, part))
                weights[f"{own}.{name}_residual.norm.weight"] = scale
                weights[f"{own}.{name}_residual.norm.bias"] = bias
    return weights


def network_options(values: Mapping[str, Any], place: object) -> TransformerOptions:
    """The options of an imported network. place: of its settings. Raises ArtefactError"""
    try:
        made: TransformerOptions = make(TransformerOptions, values)
    except UserError as error:
        raise ArtefactError(f"{quoted(place)}: {error}") from None
    return made


def array_of(arrays: Mapping[str, Array], *names: str, dims: int = 2) -> Array:
    """The first array of these names that is there. Raises ValueError if none is, it is empty, or has other dimensions."""
    name = next((name for name in names if name in arrays), None)
    if name is None:
        raise ValueError(f"has no '{names[0]}'")
    array = arrays[name]
    if array.ndim != dims or not array.size:
        raise ValueError(f"'{name}' has the shape {array.shape}; must have {dims} dimensions, none of them 0")
    return array


def weight_and_bias(arrays: Mapping[str, Array], name: str, dims: int = 2) -> tuple[Array, Array]:
    """The arrays `NAME.weight` and `NAME.bias`, by `array_of`. dims: of the weight"""
    return array_of(arrays, f"{name}.weight", dims=dims), array_of(arrays, f"{name}.bias", dims=1)


def linears_of(options: TransformerOptions, weights: Mapping[str, Array]) -> Iterator[tuple[Place, Array, Array]]:
    """The weight (out, in) and the bias (out,) of each part of our weights; zeros where we have no bias."""
    for side, layer in _layers(options):
        for name, parts in _linears(options, side).items():
            weight = weights[f"{side}.{layer}.{name}.weight"]
            bias = weights.get(f"{side}.{layer}.{name}.bias", np.zeros(len(weight), np.float32))
            split = zip(parts, np.split(weight, len(parts)), np.split(bias, len(parts)), strict=True)
            yield from ((Place(side, layer, part), rows, biases) for part, rows, biases in split)


def norms_of(options: TransformerOptions, weights: Mapping[str, Array]) -> Iterator[tuple[Place, Array, Array]]:
    """The scale and the bias of each norm of our weights, (D,) each."""
    for side, layer in _layers(options):
        for name, part in NORMS.items():
            if side == "decoder" or part != "cross":
                own = f"{side}.{layer}.{name}_residual.norm"
                yield Place(side, layer, part), weights[f"{own}.weight"], weights[f"{own}.bias"]


def reordered(part: str, weight: Array, bias: Array, order: Indices | None) -> tuple[Array, Array]:
    """A part's weight (out, in) and bias for states whose width has another order. order: (D,) None for the same"""
    if order is None:
        return weight, bias
    return (weight[order], bias[order]) if part in WRITING else (weight[:, order], bias)


def _linears(options: TransformerOptions, side: str) -> dict[str, tuple[str, ...]]:
    """The linear layers of a layer, and their parts."""
    if side == "encoder":
        return {name: parts for name, parts in LINEARS.items() if not name.startswith("cross")}
    if options.decoder_autoregression == "self-attention":
        return LINEARS
    return RECURRENT_LINEARS | {name: parts for name, parts in LINEARS.items() if not name.startswith("self")}


def _layers(options: TransformerOptions) -> Iterator[tuple[str, int]]:
    for side, layers in (("encoder", options.encoder_layers), ("decoder", options.decoder_layers)):
        for layer in range(layers):
            yield side, layer
