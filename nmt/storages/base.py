"""Opens texts by their paths; and the interface of storages, which hold texts in other forms than lines of a file.

A registered storage is built as `cls(options)`. It may open paths that are no files, such as `corpus.tgz/train.de`, and
it may extract the text from what a file contains.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from nmt import registry
from nmt.errors import UserError, quoted
from nmt.options import NoOptions
from nmt.storages.streams import Stream, open_decompressed


class MissingText(UserError):
    """A storage has no text of that name."""


class Storage:
    """A way to store texts.

    endings: endings of its file names, before one of compression; not part of a text's name
    """

    endings: ClassVar[Sequence[str]] = ()

    def __init__(self, options: Any) -> None:
        self.options = options

    def holds(self, path: Path) -> bool:
        """Whether a path that is no file leads into such a storage, whether or not that has the text."""
        return False

    def open(self, path: Path, whole: bool) -> AbstractContextManager[Stream]:
        """The decompressed bytes at such a path. Raises MissingText if it does not exist, and the errors of `open_text`.

        whole: see `open_text`
        """
        raise NotImplementedError

    def text_of(self, content: Stream, path: Path) -> Stream:
        """The lines of the text in a file, or in what `open` returned. Raises UserError if it is no text."""
        return content


@contextmanager
def open_text(path: Path, whole: bool = False) -> Iterator[Stream]:
    """The lines of a text as bytes, decompressed if its first bytes are those of a compressed file.

    Memory is bounded. Opening and reading raise UserError for a missing text, InputError for a damaged file, ArtefactError
    for a hostile one.
    whole: read the file that contains the text to its end afterwards, since the checksum of compressed data is there
    """
    with _open(path, whole) as content:
        for storage in storages():
            content = storage.text_of(content, path)
        yield content


def _open(path: Path, whole: bool) -> AbstractContextManager[Stream]:
    if path.is_dir():
        raise UserError(f"{quoted(path)}: is a folder; must be a file of text")
    if path.exists():
        return open_decompressed(path)
    for storage in storages():
        if storage.holds(path):
            return storage.open(path, whole)
    raise UserError(f"{quoted(path)}: no such file")


def text_exists(path: Path) -> bool:
    """Whether a path is a file or a text in a storage. Raises InputError for a damaged storage."""
    if path.exists() or not any(storage.holds(path) for storage in storages()):
        return path.exists()
    try:
        with open_text(path):
            return True
    except MissingText:
        return False


def storages() -> list[Storage]:
    """All storages, by name."""
    return [entry.cls(NoOptions()) for entry in registry.every("storage")]
