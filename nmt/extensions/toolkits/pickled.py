"""Files of torch.save, read without running what they contain."""

import errno
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

import torch

from nmt.errors import ArtefactError, naming, quoted

MAX_COMPRESSION: Final = 20  # of an archive of weights; torch does not compress them


def read_pickled(path: Path, *allowed: type) -> Any:
    """The content of a file of torch.save: tensors, numbers, texts, and lists and tables of them.

    allowed: further classes whose objects may be made
    Raises ArtefactError for anything else, which is not executed.
    """
    with naming(path), path.open("rb") as file:
        check_archive(path)
        try:
            with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings(action="ignore"):
                return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            reason = next((line for line in str(error).split("\n") if "Unsupported" in line), str(error).split("\n")[0])
            raise ArtefactError(f"{quoted(path)}: holds more than tensors, and is not read: {quoted(reason)}") from None
        except (OSError, RuntimeError, ValueError, EOFError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # which a place outside the file gives
                raise
            raise ArtefactError(f"{quoted(path)}: not a file of torch.save: {quoted(error)}") from None


def check_archive(path: Path) -> None:
    """Raise ArtefactError for a zip archive that is damaged, or far larger than its file, before it is read."""
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ArtefactError(f"{quoted(path)}: a damaged archive: {quoted(error)}") from None
    if size > MAX_COMPRESSION * path.stat().st_size:
        raise ArtefactError(f"{quoted(path)}: its arrays have {size:,} bytes, far more than the file")
