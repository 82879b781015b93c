"""What can go wrong for a person, and the exit code of each (docs/contract.md, rule 1)."""

import difflib
import sys
from collections.abc import Iterable
from typing import ClassVar


class UserError(Exception):
    """Something the user can mend: usage, settings or a plug-in. The message is one line that says what to do."""

    code: ClassVar[int] = 2


class InputError(UserError):
    """Input text that cannot be used."""

    code = 3


class ArtefactError(UserError):
    """A model, checkpoint or prepared folder that is damaged, incompatible or hostile."""

    code = 4


class ResourceError(UserError):
    """Disk, memory, permission, or a lost worker."""

    code = 5


class LockedError(UserError):
    """The folder is in use by another run."""

    code = 6


class DivergedError(UserError):
    """Training no longer gives finite numbers."""

    code = 7


class Interrupted(Exception):
    """A signal ended the work after what had to be saved was saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by signal {signal_number}")
        self.signal_number = signal_number


class ReportedElsewhere(Exception):
    """Another process has told what went wrong; this one has only to end with its code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"told by another process; code {code}")
        self.code = code


LONGEST_QUOTE = 200
NEAR = 0.75  # how alike a name has to be to be offered: worse guesses mislead
MOST_NAMED = 20
OUT_OF_MEMORY = (  # how torch and the libraries below it say so where they have no type for it
    "DefaultCPUAllocator",
    "out of memory",
    "_STATUS_ALLOC_FAILED",
    "bad_alloc",
    "could not create a memory",  # oneDNN
    "could not create a primitive",
)


def quoted(value: object) -> str:
    """value as a person may safely see it: control characters escaped, at most 200 characters."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def one_line(message: str) -> str:
    """An error message as one line: what an exception or a file name brought in is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(message.split("\n")))


def unknown(what: str, given: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not known, with the nearest known name."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=NEAR)
    known_ones = f"known: {', '.join(names) or 'none'}" if len(names) <= MOST_NAMED else "--help shows what there is"
    hint = f"did you mean {near[0]!r}?" if near else known_ones
    return UserError(f"unknown {what} '{quoted(given)}' ({hint})")


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory of the machine or of the device ran out; asks torch only if something else has imported it."""
    device_error = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    return isinstance(error, (MemoryError, device_error)) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)
    )
