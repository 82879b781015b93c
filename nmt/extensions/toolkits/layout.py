"""Converts the weights of Transformer layers between nmt's layout and the separate parts of other toolkits."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.data.batching import Indices
from nmt.errors import ArtefactError, UserError, expecting, is_out_of_memory, quoted
from nmt.models.options import TransformerOptions
from nmt.options import make

Array = NDArray[np.float32]

STACKS: Final = ("encoder", "decoder")
PARTS: Final = {  # nmt's linear layer or norm -> the parts that it joins
    "self_attention.queries_keys_values": ("self.queries", "self.keys", "self.values"),
    "self_attention.output": ("self.output",),
    "cross_attention.queries": ("cross.queries",),
    "cross_attention.keys_values": ("cross.keys", "cross.values"),
    "cross_attention.output": ("cross.output",),
    "feed_forward.inner": ("inner",),
    "feed_forward.outer": ("outer",),
    "self_attention_residual.norm": ("self.norm",),
    "cross_attention_residual.norm": ("cross.norm",),
    "feed_forward_residual.norm": ("norm",),
}
RECURRENT_PARTS: Final = {  # parts that replace self-attention in SSRU decoders
    "self_attention.values": ("recurrence.values",),
    "self_attention.forget": ("recurrence.forget",),
}
WITHOUT_BIAS: Final = ("recurrence.values",)
NORMS: Final = ("self.norm", "cross.norm", "norm", "top")
TORCH_PARTS: Final = {  # names of the parts in fairseq and Hugging Face
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
    "self.norm": "self_attn_layer_norm",
    "cross.norm": "encoder_attn_layer_norm",
    "norm": "final_layer_norm",
}
WRITING: Final = ("self.output", "cross.output", "outer", *NORMS)  # parts that output states; all others read them


class Place(NamedTuple):
    """The location of a part in the network.

    side: "encoder" or "decoder"
    layer: index from 0
    part: an entry of PARTS or RECURRENT_PARTS, or "top" for the norm after the last layer; `layer` is then the number of layers
    """

    side: str
    layer: int
    part: str


PartReader = Callable[[Place], tuple[Array, Array]]


@contextmanager
def reading(what: str, place: object) -> Iterator[None]:
    """Convert errors about unexpected content, including array sizes, to an ArtefactError: `PLACE: not WHAT: why`."""
    with expecting(what, place):
        try:
            yield
        except (LookupError, TypeError, ArithmeticError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(f"{type(error).__name__}: {error}") from None


def read_layers(options: TransformerOptions, read: PartReader) -> dict[str, Array]:
    """Read the weights of all layers, and of the norms after them, in nmt's layout.

    read: returns the weight (out, in) and the bias (out,) of a part, or both (D,) for a norm; the bias is ignored for parts
        in WITHOUT_BIAS
    """
    weights: dict[str, Array] = {}
    for name, places in _places(options):
        parts = [read(place) for place in places]
        weights[f"{name}.weight"] = np.concatenate([weight for weight, _ in parts])
        if places[0].part not in WITHOUT_BIAS:
            weights[f"{name}.bias"] = np.concatenate([bias for _, bias in parts])
    return weights


def check_settings(settings: Mapping[str, Any], required: Mapping[str, Collection[Any]], file: Path) -> None:
    """Raise UserError for settings that nmt's Transformer does not support.

    required: supported values by setting; the first is the default
    """
    for key, allowed in required.items():
        if (value := settings.get(key, next(iter(allowed)))) not in allowed:
            raise UserError(f"{quoted(file)}: its {key} is {quoted(value)}, which nmt's Transformer does not support")


def network_options(values: Mapping[str, Any], place: object) -> TransformerOptions:
    """The options of an imported network. Raises ArtefactError if they are invalid. place: location of its settings"""
    try:
        made: TransformerOptions = make(TransformerOptions, values)
    except UserError as error:
        raise ArtefactError(f"{quoted(place)}: {error}") from None
    return made


def array_of(arrays: Mapping[str, Any], *names: str, dims: int | None = 2) -> Array:
    """The first existing array or tensor with one of these names, as float32.

    dims: required number of dimensions; None for any number
    Raises ValueError if there is none, or if it is empty, has the wrong number of dimensions, or is not a plain array of numbers.
    """
    name = next((name for name in names if name in arrays), None)
    if name is None:
        raise ValueError(f"'{names[0]}' is missing")
    values = arrays[name]
    if isinstance(values, torch.Tensor):
        is_plain = values.layout is torch.strided and values.device.type == "cpu"
        if not is_plain or values.is_quantized or values.is_complex():
            raise ValueError(f"'{name}' is not a plain tensor of numbers")
        if values.numel() * values.element_size() > values.untyped_storage().nbytes():
            raise ValueError(f"'{name}' is an expanded tensor, which repeats its numbers")
        values = values.detach().float().numpy()
    array: Array = np.asarray(values, dtype=np.float32)
    if dims is not None and (array.ndim != dims or not array.size):
        raise ValueError(f"'{name}' has shape {array.shape}, but must have {dims} dimensions, none of them 0")
    return array


def weight_and_bias(arrays: Mapping[str, Any], name: str, part: str) -> tuple[Array, Array]:
    """The arrays `NAME.weight` and `NAME.bias` of a part, read by `array_of`."""
    dims = 1 if part in NORMS else 2
    return array_of(arrays, f"{name}.weight", dims=dims), array_of(arrays, f"{name}.bias", dims=1)


def parts_of(options: TransformerOptions, weights: Mapping[str, Array]) -> Iterator[tuple[Place, Array, Array]]:
    """Yield each part of nmt's weights: its weight (out, in) and bias (out,), both (D,) for a norm; missing biases are zeros."""
    for name, places in _places(options):
        weight = weights[f"{name}.weight"]
        bias = weights.get(f"{name}.bias", np.zeros(len(weight), np.float32))
        yield from zip(places, np.split(weight, len(places)), np.split(bias, len(places)), strict=True)


def reordered(array: Array, axis: int, order: Indices | None, name: str) -> Array:
    """Reorder an array along the axis of the states' dimensions. order: (D,), or None to keep the order

    Raises ValueError if the axis has a different width.
    """
    if order is None:
        return array
    if array.shape[axis] != len(order):
        raise ValueError(f"{name} has width {array.shape[axis]}, but the embeddings have width {len(order)}")
    return array.take(order, axis)


def reordered_part(part: str, weight: Array, bias: Array, order: Indices | None) -> tuple[Array, Array]:
    """Reorder a part's weight (out, in) and bias for reordered states. order: (D,), or None to keep the order"""
    if part in WRITING:
        return reordered(weight, 0, order, part), reordered(bias, 0, order, part)
    return reordered(weight, 1, order, part), bias


def _places(options: TransformerOptions) -> Iterator[tuple[str, list[Place]]]:
    """Yield the name of each of nmt's linear layers and norms, and the places of its parts."""
    decoder = PARTS
    if options.decoder_autoregression != "self-attention":
        decoder = RECURRENT_PARTS | {name: of for name, of in PARTS.items() if not name.startswith("self_attention.")}
    encoder = {name: of for name, of in PARTS.items() if not name.startswith("cross")}
    for side, count, parts in (
        ("encoder", options.encoder_layers, encoder),
        ("decoder", options.decoder_layers, decoder),
    ):
        for layer in range(count):
            for name, of in parts.items():
                yield f"{side}.{layer}.{name}", [Place(side, layer, part) for part in of]
        if options.norm_position == "pre":
            yield f"{side}_norm", [Place(side, count, "top")]
