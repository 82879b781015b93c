"""Reading a model of any toolkit that we know."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from nmt.errors import UserError, quoted
from nmt.extensions.ctranslate2.model_bin import CTRANSLATE2_MODEL, read_ctranslate2
from nmt.extensions.toolkits.fairseq import read_fairseq
from nmt.extensions.toolkits.huggingface import HUGGINGFACE_CONFIG, read_huggingface
from nmt.extensions.toolkits.marian import read_marian
from nmt.extensions.toolkits.transformer import ImportedModel, TextFiles

MODEL_READERS: Final[Mapping[str, Callable[[Path, TextFiles], ImportedModel]]] = {
    "marian": read_marian,
    "huggingface": read_huggingface,
    "fairseq": read_fairseq,
    "ctranslate2": read_ctranslate2,
}


def format_of(path: Path) -> str:
    """The name in MODEL_READERS of a file or folder, by the names of files. Raises UserError or OSError if there is none."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if path.suffix == ".npz" or any(path.glob("*.npz")):
        return "marian"
    if (path / CTRANSLATE2_MODEL).is_file():
        return "ctranslate2"
    if (path / HUGGINGFACE_CONFIG).is_file():
        return "huggingface"
    if path.suffix == ".pt" or any(path.glob("*.pt")):
        return "fairseq"
    raise UserError(
        f"{quoted(path)}: no model of a toolkit that is known (--format {' or '.join(MODEL_READERS)} names one)"
    )
