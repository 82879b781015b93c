"""Opening texts by their paths, and the interface of storages: places of texts other than a file for each.

A registered storage is built as `cls(options)`. It answers for paths that name no file, such as `corpus.tgz/train.de`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.errors import UserError, quoted
from nmt.options import NoOptions
from nmt.storages.streams import Stream, open_decompressed


class MissingText(UserError):
    """A storage has no text of that name."""


class Storage(ABC):
    """A place that has texts within it, such as an archive."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def holds(self, path: Path) -> bool:
        """Whether a path that names no file leads into such a storage, which may lack the text itself."""

    @abstractmethod
    def open(self, path: Path, whole: bool) -> AbstractContextManager[Stream]:
        """A text as bytes, decompressed. Raises MissingText if the storage lacks it, and the errors of `open_file`.

        whole: see `open_file`
        """

    @abstractmethod
    def check_text(self, content: Stream) -> None:
        """Raise UserError for the content of a file that is itself such a storage, and therefore no text."""


@contextmanager
def open_file(path: Path, whole: bool = False) -> Iterator[Stream]:
    """A text as bytes, decompressed if its first bytes are those of a compressed file.

    Memory is bounded. Opening and reading raise UserError for a missing text, InputError for a damaged file, ArtefactError
    for a hostile one.
    whole: read what contains the text to its end afterwards, where the check sum of what is compressed stands
    """
    storages = _storages()
    with _open(path, storages, whole) as content:
        for storage in storages:
            storage.check_text(content)
        yield content


def _open(path: Path, storages: list[Storage], whole: bool) -> AbstractContextManager[Stream]:
    if path.is_dir():
        raise UserError(f"{quoted(path)}: is a folder; must be a file of text")
    if path.exists():
        return open_decompressed(path)
    for storage in storages:
        if storage.holds(path):
            return storage.open(path, whole)
    raise UserError(f"{quoted(path)}: no such file")


def text_exists(path: Path) -> bool:
    """Whether a path names a file, or a text in a storage. Raises InputError for a damaged storage."""
    if path.exists() or not any(storage.holds(path) for storage in _storages()):
        return path.exists()
    try:
        with open_file(path):
            return True
    except MissingText:
        return False


def _storages() -> list[Storage]:
    return [registry.find("storage", name).cls(NoOptions()) for name in registry.names("storage")]
