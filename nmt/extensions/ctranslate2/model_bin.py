"""Reads CTranslate2 models (https://opennmt.net/CTranslate2): model.bin, the vocabularies, and config.json of later versions.

Binary versions 2 to 6 of model.bin are supported. They contain named arrays and, in later versions, aliases of arrays.
Quantized weights are converted to float32. Positions become a table of learned positions.
"""

import struct
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nmt.errors import UserError, expecting, quoted
from nmt.extensions.toolkits.layout import NORMS, Array, Place, array_of, network_options, reading
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, TextFiles, same_vocabulary
from nmt.files import read_bytes
from nmt.models.options import TransformerOptions
from nmt.positions.sinusoidal import sinusoids

CTRANSLATE2_MODEL: Final = "model.bin"
CTRANSLATE2_CONFIG: Final = "config.json"
LAYOUT_VERSIONS: Final = range(2, 7)
FIRST_VERSION_WITH_TYPES: Final = 4
FIRST_VERSION_WITH_ALIASES: Final = 3
NUMBER_TYPES: Final = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "bfloat16"}
SIZED_TYPES: Final = {1: "i1", 2: "<i2", 4: "<f4"}
HEADS_BY_NAME: Final = {"TransformerBase": 8, "TransformerBig": 16}  # for versions that do not store it
CTRANSLATE2_ACTIVATIONS: Final = {0: "relu", 2: "swish", 3: "gelu"}
CTRANSLATE2_EPSILON: Final = 1e-5  # default for layer normalisation, if config.json has no epsilon
COMPUTED_POSITIONS: Final = 1024  # size of the position table for models that do not contain one
CTRANSLATE2_LINEARS: Final = {  # linear layer, index of the slice, number of slices
    "self.queries": ("self_attention/linear_0", 0, 3),
    "self.keys": ("self_attention/linear_0", 1, 3),
    "self.values": ("self_attention/linear_0", 2, 3),
    "self.output": ("self_attention/linear_1", 0, 1),
    "cross.queries": ("attention/linear_0", 0, 1),
    "cross.keys": ("attention/linear_1", 0, 2),
    "cross.values": ("attention/linear_1", 1, 2),
    "cross.output": ("attention/linear_2", 0, 1),
    "inner": ("ffn/linear_0", 0, 1),
    "outer": ("ffn/linear_1", 0, 1),
}
CTRANSLATE2_NORMS: Final = {"self.norm": "self_attention", "cross.norm": "attention", "norm": "ffn"}
UNKNOWN_PARTS: Final = (  # parts of array names in networks that cannot be imported
    "relative_position",
    "layernorm_embedding",
    "linear_0_noact",
    "num_heads_kv",
    "rotary",
    "alibi",
    "embeddings_1",
    "sliding_window",
    "q_norm",
    "project_in",
)
# File names of segmenters that converters copy into the folder, or that packages place next to it.
COPIED_SEGMENTERS: Final = (
    ("source.spm", "target.spm"),
    ("sentencepiece.model",),
    ("pipeline/joint.model",),  # exported by nmt
    ("pipeline/source.model", "pipeline/target.model"),
    ("../sentencepiece.model",),
)
FROM_ZERO: Final = "decoder/start_from_zero_embedding"


class CTranslate2Config(msgspec.Struct):
    """The content of config.json, with the defaults of CTranslate2. Early versions have no such file."""

    unk_token: str = "<unk>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = None


def read_ctranslate2(folder: Path, files: TextFiles) -> ImportedModel:
    """Read a folder that contains a model.bin.

    files: vocabularies and segmenters; by default, files in the folder with the usual names, as in Argos packages
    Raises ArtefactError for damaged files, UserError if nmt does not support the model.
    """
    file = folder / CTRANSLATE2_MODEL
    languages = files.named_languages(None, None)
    config = _config(folder / CTRANSLATE2_CONFIG)
    segmenters: list[bytes | None] = [read_bytes(name) for name in _segmenters(folder, files)] or [None]
    content = read_bytes(file)
    with reading("a Transformer of CTranslate2", file):
        name, arrays = _arrays(content)
        config = _with_flags(config, arrays, file)
        unknown = (array for array in arrays if any(part in array for part in UNKNOWN_PARTS))
        if wrong := next(
            (array for array in unknown if arrays[array].any()), None
        ):  # a flag of 0 means that the feature is off
            raise UserError(f"{quoted(file)}: nmt cannot import networks with '{quoted(wrong)}'")
        if "encoder/layer_0/ffn/layer_norm/gamma" in arrays and "encoder/layer_0/ffn/layer_norm/beta" not in arrays:
            raise UserError(f"{quoted(file)}: nmt cannot import networks with RMS normalisation")
        tables = [
            array_of(arrays, f"{side}/embeddings/weight", f"{side}/embeddings_0/weight")
            for side in ("encoder", "decoder")
        ]
        sides = []
        for i, (side, language) in enumerate(zip(("source", "target"), languages, strict=True)):
            path = Path(files.vocabularies[-1 if i else 0]) if files.vocabularies else _vocabulary_in(folder, side)
            ids = _vocabulary(path)
            if config.eos_token not in ids:
                raise ValueError(f"{path.name} has no entry '{config.eos_token}'")
            ids.setdefault(config.unk_token, len(ids))
            if len(ids) != len(tables[i]):
                raise ValueError(
                    f"the {side} embeddings have {len(tables[i]):,} entries, but the vocabulary has {len(ids):,}"
                )
            ends = ids[config.unk_token], ids[config.eos_token]
            sides.append(
                ImportedSide.of(language, ids, len(ids), *ends, segmenters[-1 if i else 0], files.tokenizer, path)
            )
        from_zero = bool(arrays.get(FROM_ZERO, False))
        first = None if from_zero else tables[1][ids[config.decoder_start_token or ""]]  # `ids`: now the target's
        is_joint = same_vocabulary(*sides) and np.array_equal(tables[0], tables[1])
        options = _options(arrays, name, config, is_joint, file)
        return ImportedModel.of(
            options,
            partial(_part, arrays),
            sides,
            tables,
            folder,
            joint=options.tie == "all",
            first=first,
            output=array_of(arrays, "decoder/projection/weight") if options.tie == "none" else None,
            bias=arrays.get("decoder/projection/bias"),
            positions=[_positions(arrays, side, options.d_model) for side in ("encoder", "decoder")],
        )


def _config(path: Path) -> CTranslate2Config:
    if not path.is_file():
        return CTranslate2Config()
    content = read_bytes(path)
    with expecting("settings of CTranslate2", path):
        config = msgspec.json.decode(content, type=CTranslate2Config)
    _check_start(config, path)
    return config


def _with_flags(config: CTranslate2Config, arrays: Mapping[str, Array], file: Path) -> CTranslate2Config:
    """Update the settings from the arrays, which contain all settings in early versions.

    A decoder that starts from zeros comes from Marian. Its sources always end with EOS, whatever the settings say.
    """

    def flag(name: str, default: bool) -> bool:
        return bool(arrays[name].any()) if name in arrays else default

    own_start = config.eos_token if not flag("with_target_bos", True) else config.decoder_start_token
    found = msgspec.structs.replace(
        config,
        add_source_bos=flag("with_source_bos", config.add_source_bos),
        add_source_eos=flag("with_source_eos", config.add_source_eos) or flag(FROM_ZERO, False),
        decoder_start_token=None if flag("user_decoder_start_tokens", False) else own_start,
    )
    _check_start(found, file)
    return found


def _check_start(config: CTranslate2Config, place: Path) -> None:
    if config.decoder_start_token is None or config.add_source_bos:
        raise UserError(
            f"{quoted(place)}: models that add a start token to sources, or take a start token for each line, cannot be imported"
        )


def _vocabulary_in(folder: Path, side: str) -> Path:
    names = [f"{name}_vocabulary.{ending}" for name in (side, "shared") for ending in ("json", "txt")]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise UserError(f"{quoted(folder)}: the {side} vocabulary is missing ({names[0]})")
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    content = read_bytes(path)
    with expecting("a vocabulary of CTranslate2", path):
        if path.suffix == ".json":
            entries = msgspec.json.decode(content, type=list[str])
        else:
            entries = content.decode().removesuffix("\n").split("\n")
        ids = {entry: i for i, entry in enumerate(entries)}
        if len(ids) < len(entries):
            raise ValueError("an entry occurs twice")
        return ids


class _File(BytesIO):
    """Reads the bytes of a model.bin in order. Raises ValueError if they end too early."""

    def take(self, size: int) -> bytes:
        taken = self.read(size)
        if len(taken) < size:
            raise ValueError("the file is truncated")
        return taken

    def number(self, form: str) -> int:
        [value] = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        return self.take(self.number("H")).removesuffix(b"\0").decode()


def _arrays(content: bytes) -> tuple[str, dict[str, Array]]:
    """Return the name of the network and its arrays by name. Arrays are float32, except for scalars.

    Quantized weights are divided by their scale.
    """
    file = _File(content)
    if (version := file.number("I")) not in LAYOUT_VERSIONS:
        raise ValueError(
            f"binary version {version} is not supported; nmt reads versions {LAYOUT_VERSIONS[0]} to {LAYOUT_VERSIONS[-1]}"
        )
    network, _ = file.text(), file.number("I")
    arrays = dict(_array(file, version) for _ in range(file.number("I")))
    for name in [name for name in arrays if name.endswith("/weight_scale")]:
        weight, scale = arrays[name.removesuffix("_scale")], arrays[name]
        if weight.ndim != 2 or scale.shape not in ((), (len(weight),)):
            raise ValueError(f"'{name}' has shape {scale.shape}, but its weight has shape {weight.shape}")
        arrays[name.removesuffix("_scale")] = weight / (scale[:, None] if scale.ndim else scale)
    for _ in range(file.number("I") if version >= FIRST_VERSION_WITH_ALIASES else 0):
        alias, name = file.text(), file.text()
        arrays[alias] = arrays[name]
    return network, arrays


def _array(file: _File, version: int) -> tuple[str, Array]:
    name = file.text()
    shape = [file.number("I") for _ in range(file.number("B"))]
    if version >= FIRST_VERSION_WITH_TYPES:
        kind, size = NUMBER_TYPES[file.number("B")], file.number("I")
    else:
        width = file.number("B")
        kind, size = SIZED_TYPES[width], width * file.number("I")
    numbers = file.take(size)
    if kind == "bfloat16":
        values: Array = (np.frombuffer(numbers, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(numbers, kind)
        values = values.astype(np.float32) if shape else values  # the type of a scalar may carry meaning
    return name, values.reshape(shape)


def _segmenters(folder: Path, files: TextFiles) -> list[Path]:
    """The segmenters of source and target, or one for both, or none."""
    named = [Path(name) for name in files.segmenters]
    usual = [[folder / name for name in names] for names in COPIED_SEGMENTERS]
    return named or next((paths for paths in usual if all(path.is_file() for path in paths)), [])


def _options(
    arrays: Mapping[str, Array], network: str, config: CTranslate2Config, is_joint: bool, file: Path
) -> TransformerOptions:
    width = arrays["decoder/projection/weight"].shape[1]
    stored = next((arrays[name] for name in ("encoder/num_heads", "num_heads") if name in arrays), None)
    heads = float(HEADS_BY_NAME.get(network, 0) if stored is None else stored)
    rows = len(array_of(arrays, "encoder/layer_0/self_attention/linear_0/weight"))
    of_head = int(rows / (3 * heads)) if heads > 0 else 0
    is_usual = of_head * heads == width
    activation = int(arrays.get("encoder/activation", np.zeros(())))
    if activation not in CTRANSLATE2_ACTIVATIONS or activation != int(arrays.get("decoder/activation", activation)):
        raise UserError(f"{quoted(file)}: activation {activation} is not supported; it must be relu, swish or gelu")
    for side in ("encoder", "decoder"):
        scale = arrays.get(f"{side}/scale_embeddings", np.ones((), np.int8))
        by_width = scale == 1 if np.issubdtype(scale.dtype, np.integer) else np.isclose(scale, width**0.5)
        if not by_width:
            raise UserError(
                f"{quoted(file)}: embeddings are scaled by {float(scale):g}; nmt supports only the square root of their width"
            )
    for name in ("num_heads", "pre_norm"):
        both = [float(arrays[f"{side}/{name}"]) for side in ("encoder", "decoder") if f"{side}/{name}" in arrays]
        if len(set(both)) > 1:
            raise UserError(
                f"{quoted(file)}: {name} is {both[0]:g} in the encoder and {both[1]:g} in the decoder; "
                "nmt supports only equal values"
            )
    tables = arrays.get("decoder/embeddings/weight"), arrays["decoder/projection/weight"]
    is_tied = tables[0] is not None and np.array_equal(tables[0], tables[1])
    values = {
        "encoder_layers": _count(arrays, "encoder"),
        "decoder_layers": _count(arrays, "decoder"),
        "d_model": width,
        "d_ff": len(arrays["encoder/layer_0/ffn/linear_0/weight"]),
        "heads": heads,
        "d_k": None if is_usual else of_head,
        "d_v": None if is_usual else of_head,
        "norm_position": "pre" if arrays.get("encoder/pre_norm", True) else "post",
        "norm_epsilon": config.layer_norm_epsilon or CTRANSLATE2_EPSILON,
        "activation": CTRANSLATE2_ACTIVATIONS[activation],
        "positions": "learned",
        "max_positions": max(len(_positions(arrays, side, width)) for side in ("encoder", "decoder")),
        "source_eos": config.add_source_eos,
        "attention_bias": True,
        "output_bias": True,
        "tie": ("all" if is_joint else "target") if is_tied else "none",
    }
    return network_options(values, file)


def _count(arrays: Mapping[str, Array], side: str) -> int:
    """The number of layers on one side."""
    return len({name.split("/")[1] for name in arrays if name.startswith(f"{side}/layer_") and name.count("/") > 2})


def _positions(arrays: Mapping[str, Array], side: str, width: int) -> Array:
    """The table of positions. A model without a table uses the t2t-sinusoidal positions, starting at 1."""
    computed: Array = sinusoids(COMPUTED_POSITIONS + 1, width, "t2t-sinusoidal").numpy()[1:]
    return arrays.get(f"{side}/position_encodings/encodings", computed)


def _part(arrays: Mapping[str, Array], place: Place) -> tuple[Array, Array]:
    """The weight and bias of one layer or norm."""
    layer = f"{place.side}/layer_{place.layer}"
    if place.part in NORMS:
        block = place.side if place.part == "top" else f"{layer}/{CTRANSLATE2_NORMS[place.part]}"
        gamma, beta = (array_of(arrays, f"{block}/layer_norm/{name}", dims=1) for name in ("gamma", "beta"))
        return gamma, beta
    name, part, parts = CTRANSLATE2_LINEARS[place.part]
    weight = array_of(arrays, f"{layer}/{name}/weight")
    bias = arrays.get(f"{layer}/{name}/bias", np.zeros(len(weight), np.float32))
    return np.split(weight, parts)[part], np.split(bias, parts)[part]
