"""Opens texts by path, and defines the interface for storages, which hold texts in forms other than the lines of a file.

A registered storage is built as `cls(options)`. It can open paths that are not files, such as `corpus.tgz/train.de`, and
it can extract text from the content of a file.
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
    """A storage does not contain the requested text."""


class Storage:
    """A way to store texts.

    endings: file name endings, before any compression ending; they are not part of a text's name
    """

    endings: ClassVar[Sequence[str]] = ()

    def __init__(self, options: Any) -> None:
        self.options = options

    def holds(self, path: Path) -> bool:
        """Whether a path that is not a file leads into this kind of storage, even if the text does not exist there."""
        return False

    def open(self, path: Path, whole: bool) -> AbstractContextManager[Stream]:
        """Open the decompressed bytes at a path. Raises MissingText if it does not exist, and the errors of `open_text`.

        whole: see `open_text`
        """
        raise NotImplementedError

    def text_of(self, content: Stream, path: Path) -> Stream:
        """Extract lines of text from a file's content, or from the result of `open`. Raises UserError if it is not text."""
        return content


@contextmanager
def open_text(path: Path, whole: bool = False) -> Iterator[Stream]:
    """Open a text as bytes. The first bytes decide whether it is decompressed.

    Memory use is bounded. Opening and reading raise UserError for a missing text, InputError for a damaged file, and
    ArtefactError for a hostile one.
    whole: whether to read the containing file to its end afterwards, because compressed data ends with a checksum
    """
    with _open(path, whole) as content:
        for storage in storages():
            content = storage.text_of(content, path)
        yield content


def _open(path: Path, whole: bool) -> AbstractContextManager[Stream]:
    if path.is_dir():
        raise UserError(f"{quoted(path)} is a folder (name a text file)")
    if path.exists():
        return open_decompressed(path)
    for storage in storages():
        if storage.holds(path):
            return storage.open(path, whole)
    raise UserError(f"{quoted(path)}: no such file")


def text_exists(path: Path) -> bool:
    """Whether a path leads to a file, or to text inside a storage. Raises InputError for a damaged storage."""
    if path.exists() or not any(storage.holds(path) for storage in storages()):
        return path.exists()
    try:
        with open_text(path):
            return True
    except MissingText:
        return False


def storages() -> list[Storage]:
    """All registered storages, ordered by name."""
    return [entry.cls(NoOptions()) for entry in registry.every("storage")]
