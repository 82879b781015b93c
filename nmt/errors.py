"""Errors that a user can fix, each with its exit status (docs/reference/contract.md), and helper functions for messages."""

import contextlib
import difflib
import errno
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

MAX_QUOTED_CHARACTERS: Final = 200
MAX_LISTED_NAMES: Final = 20
MAX_HINTED_NAMES: Final = 5
MIN_CONTAINED_CHARACTERS: Final = 3  # minimum length of a word to look for inside names
MIN_SIMILARITY: Final = 0.75  # minimum similarity of a suggested name; less similar names would mislead
OUT_OF_MEMORY: Final = (  # parts of messages, because torch and its libraries raise plain RuntimeErrors
    "DefaultCPUAllocator",
    "out of memory",
    "_STATUS_ALLOC_FAILED",
    "bad_alloc",
    "could not create a memory",  # oneDNN
    "could not create a primitive",
    "failed to map segment",  # occurs when a library is loaded
    "can't start new thread",  # occurs if there is no memory for a thread's stack
)


class UserError(Exception):
    """An error in usage, settings or a plug-in, which the user can fix. The message is one line that says what to do."""

    code: ClassVar[int] = 2

    @property
    def messages(self) -> list[str]:
        """The messages of all errors, one line each."""
        return [str(self)]


class UsageError(UserError):
    """All errors of a command line or of its settings files.

    correction: the corrected command line; empty if only the user can correct it
    """

    def __init__(self, messages: Sequence[str], correction: str = "") -> None:
        super().__init__("; ".join(messages))
        self._messages, self.correction = messages, correction

    @property
    def messages(self) -> list[str]:
        return [*self._messages]


class InputError(UserError):
    """An error for input text that cannot be used."""

    code = 3


class ArtefactError(UserError):
    """An error for a model folder, checkpoint or data folder that is damaged, incompatible or hostile."""

    code = 4


class OtherFormatError(ArtefactError):
    """An error for a folder written by another version of nmt. The folder may be intact, so the error must not say "damaged"."""


class ResourceError(UserError):
    """An error for a lack of disk space, memory or permissions, or for a worker process that died."""

    code = 5


class LockedError(UserError):
    """An error for a folder that another run is using."""

    code = 6


class DivergedError(UserError):
    """An error for a training run whose loss or gradient is no longer finite."""

    code = 7


class Interrupted(Exception):
    """A signal ended the command, after everything necessary was saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by signal {signal_number}")
        self.signal_number = signal_number


class RankFailed(Exception):
    """Another rank failed and reports its error. This process ends with an exit status and without a message."""

    def __init__(self, code: int) -> None:
        super().__init__(f"another rank failed with exit status {code}")
        self.code = code


def quoted(value: object) -> str:
    """Format a value for a message: escape control characters, and truncate it to 200 characters."""
    text = _escaped(str(value))
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[: MAX_QUOTED_CHARACTERS - 1] + "…"


def is_utf8(name: str) -> bool:
    """Whether the bytes of a file name are UTF-8. Python represents other bytes as surrogates."""
    return name == name.encode(errors="replace").decode()


def one_line(message: str) -> str:
    """Make a message one line: replace line breaks by spaces, and escape other control characters."""
    return _escaped(" ".join(message.split("\n")))


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The known names that contain a word, if there are only a few; otherwise the most similar name, if any."""
    names, word = sorted(known), given.strip("-").lower()
    near = [name for name in names if word in name.lower()] if len(word) >= MIN_CONTAINED_CHARACTERS else []
    if not 0 < len(near) <= MAX_HINTED_NAMES:
        near = difflib.get_close_matches(given, names, n=1, cutoff=MIN_SIMILARITY)
    return near


def unknown(noun: str, given: str, known: Iterable[str], listed_by: str = "") -> UserError:
    """The error for an unknown name, with suggestions: names that contain it, the most similar name, or all names.

    listed_by: flag or command that lists all names; it is shown instead of many names
    """
    names, near = sorted(known), nearest(given, known)
    listed = f"known: {', '.join(names) or 'none'}"
    if listed_by and len(names) > MAX_LISTED_NAMES:
        listed = f"`{listed_by}` lists them"
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else listed
    return UserError(f"unknown {noun} '{quoted(given)}' ({hint})")


def missing_torch(what: str, advice: str = "pip install torch") -> UserError:
    """The error for a feature that needs torch, which is not installed. advice: what to do"""
    return UserError(f"{what} needs torch, which is not installed ({advice})")


@contextlib.contextmanager
def needing_torch(what: str, advice: str = "pip install torch") -> Iterator[None]:
    """Turn the import error for a missing torch into the error of `missing_torch`.

    If torch is installed but cannot be loaded, its own error is raised.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing_torch(what, advice) from error


@contextlib.contextmanager
def naming(path: object) -> Iterator[None]:
    """Add the file name to OSErrors, because those from reading or closing a file lack it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def expecting(expected: str, place: object) -> Iterator[None]:
    """Turn errors from parsing content into an ArtefactError, `PLACE: not EXPECTED: why`.

    json, msgspec and Unicode decoding raise a ValueError, or a RecursionError for deeply nested lists.
    """
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{quoted(place)}: not {expected}: {quoted(error)}") from None


def storage_error(error: OSError, path: Path, needed: int | None = None, no_inode: bool = False) -> UserError:
    """The error for an OSError while writing a file: a ResourceError, or a UserError for a name that is too long.

    needed: bytes to write, if known; no_inode: whether no inode was free when the error occurred
    """
    message = f"{quoted(path)} cannot be written: {error.strerror or error}"
    if error.errno == errno.ENAMETOOLONG:
        return UserError(f"{message} (choose a shorter name)")
    message += {errno.ENOENT: " (create its folder first)", errno.EISDIR: " (use the path of a file)"}.get(
        error.errno or 0, ""
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        at_least = f"at least {needed:,} bytes needed, " if needed is not None else ""
        inodes = ", but no inode" if no_inode or lacks_inodes(path) else ""
        message += f" ({at_least}{free_bytes(path):,} free{inodes}; make space or choose another folder)"
    return ResourceError(message)


def _nearest_folder(path: Path) -> Path:
    """The folder itself if it exists, or its nearest existing parent."""
    return next((place for place in (path.absolute(), *path.absolute().parents) if place.is_dir()), Path())


def lacks_inodes(path: Path) -> bool:
    """Whether a path's file system has run out of inodes. The path need not exist."""
    system = os.statvfs(_nearest_folder(path))
    return bool(system.f_files) and not system.f_favail


def free_bytes(path: Path) -> int:
    """The free bytes on a path's file system. The path need not exist."""
    return shutil.disk_usage(_nearest_folder(path)).free


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that the machine or the device ran out of memory. Does not import torch."""
    device_error = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    return isinstance(error, (MemoryError, device_error)) or (
        isinstance(error, RuntimeError | ResourceError | ImportError)
        and any(words in str(error) for words in OUT_OF_MEMORY)
    )
