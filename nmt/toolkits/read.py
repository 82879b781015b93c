"""Reading a model of any toolkit that we know."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from nmt.errors import UserError, quoted
from nmt.toolkits.huggingface import CONFIG, read_huggingface
from nmt.toolkits.marian import read_marian
from nmt.toolkits.transformer import ImportedModel, TextFiles

READERS: Final[Mapping[str, Callable[[Path, TextFiles], ImportedModel]]] = {
    "marian": read_marian,
    "huggingface": read_huggingface,
}


def read_model(path: Path, format: str, files: TextFiles) -> ImportedModel:
    """Read a file or folder. format: a name in READERS, or auto; Raises UserError and ArtefactError as readers do"""
    return READERS[_format_of(path) if format == "auto" else format](path, files)


def _format_of(path: Path) -> str:
    """The toolkit whose file or folder it is, by the names of files."""
    if path.suffix == ".npz" or any(path.glob("*.npz")):
        return "marian"
    if (path / CONFIG).is_file():
        return "huggingface"
    raise UserError(f"{quoted(path)}: no model of a toolkit that is known (--format {' or '.join(READERS)} names one)")
