"""Errors that a user can mend, each with its exit code (docs/reference/contract.md), and how messages quote and hint."""

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
MIN_CONTAINED_CHARACTERS: Final = 3  # of a given word that names are searched for
MIN_SIMILARITY: Final = 0.75  # of a suggested name to the given one: less alike names mislead
OUT_OF_MEMORY: Final = (  # messages of torch, and of libraries below it, that raise a plain RuntimeError
    "DefaultCPUAllocator",
    "out of memory",
    "_STATUS_ALLOC_FAILED",
    "bad_alloc",
    "could not create a memory",  # oneDNN
    "could not create a primitive",
    "failed to map segment",  # of a library that is loaded
    "can't start new thread",  # whose stack needs memory
)


class UserError(Exception):
    """An error in usage, settings or a plug-in, which the user can mend. The message is one line that says what to do."""

    code: ClassVar[int] = 2

    @property
    def messages(self) -> list[str]:
        """The message of each error, one line each."""
        return [str(self)]


class UsageError(UserError):
    """All errors of a command line or of its settings files.

    correction: the command line without them; empty if only the user knows it
    """

    def __init__(self, messages: Sequence[str], correction: str = "") -> None:
        super().__init__("; ".join(messages))
        self._messages, self.correction = messages, correction

    @property
    def messages(self) -> list[str]:
        return [*self._messages]


class InputError(UserError):
    """Input text that cannot be used."""

    code = 3


class ArtefactError(UserError):
    """A model, checkpoint or prepared folder that is damaged, incompatible or hostile."""

    code = 4


class OtherFormatError(ArtefactError):
    """A folder that another version of nmt wrote, whole perhaps, and not to be taken for damaged."""


class ResourceError(UserError):
    """A lack of disk, memory or permission, or a lost worker."""

    code = 5


class LockedError(UserError):
    """A folder that another run uses."""

    code = 6


class DivergedError(UserError):
    """A training run whose loss or gradient is no longer finite."""

    code = 7


class Interrupted(Exception):
    """A signal ended the command, after everything that had to be saved was saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by signal {signal_number}")
        self.signal_number = signal_number


class RankFailed(Exception):
    """Another rank failed and reports its error; this process ends with an exit code and no message."""

    def __init__(self, code: int) -> None:
        super().__init__(f"another rank failed with exit code {code}")
        self.code = code


def quoted(value: object) -> str:
    """A value for a message: control characters escaped, at most 200 characters."""
    text = _escaped(str(value))
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[: MAX_QUOTED_CHARACTERS - 1] + "…"


def is_utf8(name: str) -> bool:
    """Whether the bytes of a file name are UTF-8. Python keeps others as surrogates."""
    return name == name.encode(errors="replace").decode()


def one_line(message: str) -> str:
    """A message as one line: line breaks are spaces, other control characters are escaped."""
    return _escaped(" ".join(message.split("\n")))


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The known names that contain a word, if they are few; else the one that is most like it; none for neither."""
    names, word = sorted(known), given.strip("-").lower()
    near = [name for name in names if word in name.lower()] if len(word) >= MIN_CONTAINED_CHARACTERS else []
    if not 0 < len(near) <= MAX_HINTED_NAMES:
        near = difflib.get_close_matches(given, names, n=1, cutoff=MIN_SIMILARITY)
    return near


def unknown(noun: str, given: str, known: Iterable[str], listed_by: str = "") -> UserError:
    """The error for an unknown name, with the known names that contain it, else the nearest one, else all of them.

    listed_by: the flag or command that lists them, which is named where they are many
    """
    names, near = sorted(known), nearest(given, known)
    listed = f"known: {', '.join(names) or 'none'}"
    if listed_by and len(names) > MAX_LISTED_NAMES:
        listed = f"`{listed_by}` lists them"
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else listed
    return UserError(f"unknown {noun} '{quoted(given)}' ({hint})")


def missing_torch(what: str, advice: str = "pip install torch") -> UserError:
    """The error for what needs torch where it is not installed. advice: what to do"""
    return UserError(f"{what} needs torch, which is not installed ({advice})")


@contextlib.contextmanager
def needing_torch(what: str, advice: str = "pip install torch") -> Iterator[None]:
    """Turn the error of an import of torch, where it is not installed, into that of `missing_torch`.

    A torch that is installed but cannot be loaded is reported as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing_torch(what, advice) from error


@contextlib.contextmanager
def naming(path: object) -> Iterator[None]:
    """Give an OSError the name of the file it came from, which that of a read or a close lacks."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def expecting(expected: str, place: object) -> Iterator[None]:
    """Make the error for content that cannot be read an ArtefactError, `PLACE: not EXPECTED: why`.

    It is a ValueError of json, msgspec and Unicode, or a RecursionError of lists within lists.
    """
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{quoted(place)}: not {expected}: {quoted(error)}") from None


def storage_error(error: OSError, path: Path, needed: int | None = None, no_inode: bool = False) -> UserError:
    """The error for an OSError while writing a file: ResourceError, but for a name that is too long.

    needed: bytes to be written, if known; no_inode: whether no inode was free when the error came
    """
    message = f"{quoted(path)}: cannot be written: {error.strerror or error}"
    if error.errno == errno.ENAMETOOLONG:
        return UserError(f"{message} (name another)")
    message += {errno.ENOENT: " (make its folder first)", errno.EISDIR: " (name a file)"}.get(error.errno or 0, "")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        at_least = f"at least {needed:,} bytes needed, " if needed is not None else ""
        inodes = ", but no inode" if no_inode or lacks_inodes(path) else ""
        message += f" ({at_least}{free_bytes(path):,} free{inodes}; make room or name another folder)"
    return ResourceError(message)


def _nearest_folder(path: Path) -> Path:
    """The folder of a path that may not exist, or the nearest one above that does."""
    return next((place for place in (path.absolute(), *path.absolute().parents) if place.is_dir()), Path())


def lacks_inodes(path: Path) -> bool:
    """Whether the file system of a path, which need not exist, has inodes and none is free."""
    system = os.statvfs(_nearest_folder(path))
    return bool(system.f_files) and not system.f_favail


def free_bytes(path: Path) -> int:
    """Free bytes of the file system of a path, which need not exist."""
    return shutil.disk_usage(_nearest_folder(path)).free


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory of the machine or of the device ran out. Does not import torch."""
    device_error = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    return isinstance(error, (MemoryError, device_error)) or (
        isinstance(error, RuntimeError | ResourceError | ImportError)
        and any(words in str(error) for words in OUT_OF_MEMORY)
    )
