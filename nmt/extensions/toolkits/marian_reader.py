"""Imports Marian's Transformers (https://marian-nmt.github.io): a model.npz, its settings, and its vocabularies.

The import handles these differences: the decoder's first input is a vector of zeros; EOS has id 0 and UNK id 1; there is
neither padding nor BOS; each linear layer has a bias and a weight of shape (in, out); positions are `t2t-sinusoidal`.
"""

import lzma
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from nmt.errors import ArtefactError, UserError, expecting, naming, quoted
from nmt.extensions.toolkits.layout import (
    NORMS,
    WITHOUT_BIAS,
    Array,
    Place,
    array_of,
    check_settings,
    network_options,
    reading,
)
from nmt.extensions.toolkits.pickled import check_archive
from nmt.extensions.toolkits.transformer import ImportedModel, ImportedSide, TextFiles, only_file, same_vocabulary
from nmt.extensions.vocabularies.sentencepiece_file import read_pieces
from nmt.files import read_bytes
from nmt.installation import required
from nmt.models.options import TransformerOptions
from nmt.symbols import EOS, SYMBOLS, UNK

MODEL_SETTINGS: Final = "special:model.yml"  # array of the npz that holds the settings: YAML, followed by NUL
OUTPUT: Final = (
    "decoder_ff_logit_out"  # prefix of the output layer's arrays; _W or, in newer versions, _Wt (transposed) follows
)
MARIAN_EOS, MARIAN_UNK = 0, 1
OPUS_SEGMENTERS: Final = ("source.spm", "target.spm")  # segmenters in OPUS-MT's folders
MARIAN_EPSILON: Final = 1e-6  # added to the variance in layer normalisation
REQUIRED_SETTINGS: Final[
    dict[str, tuple[Any, ...]]
] = {  # settings that change the network, with the values that nmt supports
    "type": ("transformer",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
    "transformer-disable-position-embeddings": (False,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-attention-mask": ("default",),
    "right-left": (False,),
    "skip": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "factors-dim-emb": (0,),
    "tied-embeddings-src": (False,),
}
CHOICES: Final[dict[str, tuple[Any, ...]]] = {  # supported values of settings that have an equivalent option in nmt
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish"),
}
AUTOREGRESSIONS: Final = {"self-attention": "self-attention", "rnn": "ssru"}
REQUIRED_OF_SSRU: Final[dict[str, tuple[Any, ...]]] = {
    "dec-cell": ("ssru",),
    "transformer-rnn-projection": (False,),
    "layer-normalization": (False,),
}
PROCESSES: Final = {  # preprocess, postprocess, postprocess-top -> norm_position; d is dropout, a the sum, n the norm
    ("", "an", ""): "post",
    ("n", "a", "n"): "pre",
}
SIZES: Final = {
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
    "d_model": "dim-emb",
    "d_ff": "transformer-dim-ffn",
    "heads": "transformer-heads",
}
MARIAN_LINEARS: Final = {  # block and letter in the array names of each part
    "self.queries": ("self", "q"),
    "self.keys": ("self", "k"),
    "self.values": ("self", "v"),
    "self.output": ("self", "o"),
    "cross.queries": ("context", "q"),
    "cross.keys": ("context", "k"),
    "cross.values": ("context", "v"),
    "cross.output": ("context", "o"),
    "inner": ("ffn", "1"),
    "outer": ("ffn", "2"),
    "recurrence.values": ("rnn", ""),
    "recurrence.forget": ("rnn", "f"),
}
MARIAN_NORMS: Final = {"self.norm": "self_Wo", "cross.norm": "context_Wo", "norm": "ffn_ffn"}
RECURRENT_NORM_NAMES: Final = {"post": "rnn_ffn", "pre": "rnn"}
NORM_ENDS: Final = {"post": "", "pre": "_pre"}


def read_marian(model: Path, files: TextFiles) -> ImportedModel:
    """Read a model.npz, or a folder that contains one.

    files: vocabularies and segmenters; by default the vocabularies named in `decoder.yml` next to the model
    Raises ArtefactError for damaged files, and UserError for a model that nmt's Transformer does not support.
    """
    file = only_file(model, ".npz", without=".optimizer.")
    languages = files.named_languages(None, None)
    arrays = _read_arrays(file)
    settings = _settings(arrays, file)
    vocabularies = [Path(name) for name in files.vocabularies] or _named_vocabularies(file)
    vocabularies = [vocabularies[0], vocabularies[-1]]
    named = [Path(name) for name in files.segmenters]
    segmenters = (named[0], named[-1]) if named else (file.parent / name for name in OPUS_SEGMENTERS)
    with reading("a Marian model", file):
        tables = [array_of(arrays, f"{side}_Wemb", "Wemb") for side in ("encoder", "decoder")]
        per_side = zip(vocabularies, languages, map(len, tables), segmenters, strict=True)
        sides = [_side(*side, files) for side in per_side]
        joint = same_vocabulary(*sides)
        options = _options(settings, joint, file)

        def part(place: Place) -> tuple[Array, Array]:
            name, bias_name = array_names(place, options)
            weight = array_of(arrays, name, dims=None).reshape(-1) if place.part in NORMS else array_of(arrays, name).T
            if place.part in WITHOUT_BIAS:
                return weight, np.zeros(len(weight), np.float32)
            return weight, array_of(arrays, bias_name, dims=None).reshape(-1)

        output = None
        if options.tie == "none":
            output = array_of(arrays, f"{OUTPUT}_Wt") if f"{OUTPUT}_Wt" in arrays else array_of(arrays, f"{OUTPUT}_W").T
        return ImportedModel.of(
            options,
            part,
            sides,
            tables,
            file,
            joint=joint,
            output=output,
            bias=array_of(arrays, f"{OUTPUT}_b", dims=None).reshape(-1) if f"{OUTPUT}_b" in arrays else None,
            vocabularies=vocabularies,
        )


def _read_arrays(file: Path) -> dict[str, Any]:
    """Read the arrays of an npz by name, without unpickling. Sizes are checked before anything is read."""
    with naming(file):
        check_archive(file)
    content = read_bytes(file)
    with reading("a Marian model (.npz)", file):
        try:
            with zipfile.ZipFile(BytesIO(content)) as packed:
                arrays = ((name, BytesIO(packed.read(name))) for name in packed.namelist())  # `read` verifies checksums
                return {
                    name.removesuffix(".npy"): np.lib.format.read_array(array, allow_pickle=False)
                    for name, array in arrays
                }
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            raise ValueError(error) from None


def _settings(arrays: Mapping[str, Any], file: Path) -> dict[str, Any]:
    if MODEL_SETTINGS not in arrays:
        raise ArtefactError(f"{quoted(file)}: not a Marian model: its settings ({MODEL_SETTINGS}) are missing")
    return read_yaml(arrays[MODEL_SETTINGS].tobytes().split(b"\0")[0], f"{file}:{MODEL_SETTINGS}")


def import_yaml() -> Any:
    """Import the package that reads and writes Marian's settings. Raises UserError if it is not installed."""
    return required("yaml", "reading Marian's settings", "import")


def to_yaml(table: Mapping[str, Any]) -> bytes:
    """Encode a table as YAML."""
    return str(import_yaml().safe_dump(dict(table), allow_unicode=True, sort_keys=False)).encode()


def read_yaml(content: bytes, place: object, as_text: bool = False) -> dict[str, Any]:
    """Decode a table from YAML. as_text: keep all values as text, including words such as `no` and numbers such as `01`"""
    yaml = import_yaml()
    kind = "BaseLoader" if as_text else "SafeLoader"
    with expecting("YAML", place):
        try:
            loader = getattr(yaml, f"C{kind}", getattr(yaml, kind))
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, Loader=loader)):
                raise ValueError("it has aliases, which Marian does not write")  # a few aliases can expand to gigabytes
            loaded = yaml.load(content, Loader=loader)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from None
        if not isinstance(loaded, dict):
            raise ValueError("it is not a table")
    return loaded


def _options(settings: Mapping[str, Any], joint: bool, file: Path) -> TransformerOptions:
    autoregression = settings.get("transformer-decoder-autoreg", "self-attention")
    check_settings(settings, REQUIRED_SETTINGS | CHOICES | (REQUIRED_OF_SSRU if autoregression == "rnn" else {}), file)
    processes = tuple(
        str(settings.get(f"transformer-{key}", "")).replace("d", "")
        for key in ("preprocess", "postprocess", "postprocess-top")
    )
    if processes not in PROCESSES:
        supported = "postprocess dan, or preprocess n with postprocess da and postprocess-top n"
        raise UserError(f"{quoted(file)}: this placement of layer norms is not supported (supported: {supported})")
    is_tied = settings.get("tied-embeddings-all") or settings.get("tied-embeddings")
    options = {
        "norm_position": PROCESSES[processes],
        "norm_epsilon": MARIAN_EPSILON,
        "activation": settings.get("transformer-ffn-activation", "relu"),
        "positions": "t2t-sinusoidal",
        "decoder_autoregression": AUTOREGRESSIONS[autoregression],
        "attention_bias": True,
        "output_bias": True,
        "tie": "all" if settings.get("tied-embeddings-all") and joint else "target" if is_tied else "none",
    }
    sizes = {name: settings.get(key, 0) for name, key in SIZES.items()}
    return network_options({**sizes, **options}, file)


def array_names(place: Place, options: TransformerOptions) -> tuple[str, str]:
    """The names of the arrays for a part's weight (in, out) and bias, or for a norm's scale and bias."""
    if place.part == "top":
        return f"{place.side}_top_ln_scale", f"{place.side}_top_ln_bias"
    layer = f"{place.side}_l{place.layer + 1}"
    if place.part not in NORMS:
        block, letter = MARIAN_LINEARS[place.part]
        return f"{layer}_{block}_W{letter}", f"{layer}_{block}_b{letter}"
    is_recurrent = options.decoder_autoregression == "ssru" and (place.side, place.part) == ("decoder", "self.norm")
    block = RECURRENT_NORM_NAMES[options.norm_position] if is_recurrent else MARIAN_NORMS[place.part]
    end = NORM_ENDS[options.norm_position]
    return f"{layer}_{block}_ln_scale{end}", f"{layer}_{block}_ln_bias{end}"


def _named_vocabularies(file: Path) -> list[Path]:
    """The vocabularies named in the decoder.yml next to a model."""
    for name in (f"{file.name}.decoder.yml", "decoder.yml"):
        path = file.parent / name
        if path.is_file():
            listed = read_yaml(read_bytes(path), path).get("vocabs")
            if isinstance(listed, list) and len(listed) == 2 and all(isinstance(vocab, str) for vocab in listed):
                return [file.parent / name for name in listed]
    raise UserError(
        f"{quoted(file)}: its vocabularies are unknown, because no decoder.yml next to it names them (add --vocab SOURCE TARGET)"
    )


def _side(path: Path, language: str, size: int, segmenter: Path, files: TextFiles) -> ImportedSide:
    """Make a side from its vocabulary: a SentencePiece model, or a list of words with their ids (.yml).

    size: number of entries with embeddings
    segmenter: segmenter for a list; ignored if the file does not exist
    """
    content = read_bytes(path)
    with reading("a Marian vocabulary", path):
        if path.suffix != ".yml":
            ids = {piece.text: i for i, piece in enumerate(read_pieces(content))}
            return ImportedSide.of(language, ids, size, MARIAN_UNK, MARIAN_EOS, content, files.tokenizer, path)
        ids = {word: int(number) for word, number in read_yaml(content, path, as_text=True).items()}
        segments = read_bytes(segmenter) if files.segmenters or segmenter.is_file() else None
        if (ids.get(SYMBOLS[EOS]), ids.get(SYMBOLS[UNK])) != (MARIAN_EOS, MARIAN_UNK) or min(ids.values()) < 0:
            raise ValueError(f"'{SYMBOLS[EOS]}' must have id 0, '{SYMBOLS[UNK]}' id 1, and no id may be negative")
        return ImportedSide.of(language, ids, size, MARIAN_UNK, MARIAN_EOS, segments, files.tokenizer, path)
