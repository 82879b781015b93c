"""Reads files that torch.save wrote, without executing any code in them."""

import errno
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any, Final

import torch

from nmt.errors import ArtefactError, naming, quoted

MAX_COMPRESSION: Final = 20  # maximum compression ratio of an archive; torch does not compress weights


def read_pickled(path: Path, *allowed: type) -> Any:
    """Read a file that torch.save wrote, if it contains only tensors, numbers, texts, and lists and tables of these.

    allowed: further classes that may be instantiated
    Raises ArtefactError for any other content, which is never executed.
    """
    with naming(path), path.open("rb") as file:
        check_archive(path)
        try:
            with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings(action="ignore"):
                return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            reason = next((line for line in str(error).split("\n") if "Unsupported" in line), str(error).split("\n")[0])
            raise ArtefactError(
                f"{quoted(path)}: the file contains objects other than tensors, which is unsafe: {quoted(reason)}"
            ) from None
        except (OSError, RuntimeError, ValueError, EOFError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL means an offset outside the file
                raise
            raise ArtefactError(f"{quoted(path)}: not a file that torch.save wrote: {quoted(error)}") from None


def check_archive(path: Path) -> None:
    """Raise ArtefactError if a zip archive is damaged or would expand far beyond its size. Called before the archive is read."""
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ArtefactError(f"{quoted(path)}: damaged archive: {quoted(error)}") from None
    if size > MAX_COMPRESSION * path.stat().st_size:
        raise ArtefactError(
            f"{quoted(path)}: damaged archive: its arrays would have {size:,} bytes, far more than the file"
        )
