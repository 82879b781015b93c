"""Files of a run to which lines are added."""

import os
from pathlib import Path
from typing import Final

from nmt.errors import storage_error
from nmt.locks import open_without_following

APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def open_to_append(path: Path) -> int:
    """The descriptor of a file whose end is written to. Raises ResourceError if it cannot be opened."""
    try:
        return open_without_following(str(path), APPEND)
    except OSError as error:
        raise storage_error(error, Path(error.filename or path)) from error
