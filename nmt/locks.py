"""Exclusive locks of folders, and who holds one."""

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import IO, Final, Self

from nmt.errors import LockedError, quoted, storage_error

LOCK: Final = ".lock"
HELD: Final = (errno.EAGAIN, errno.EACCES)  # of lockf, where another process has the lock
MAX_HOLDER_BYTES: Final = 200  # of the text in a lock


class Lock:
    """An exclusive `lockf` on `.lock` in a folder, held until closed or until the process ends.

    lockf and not flock: children inherit a flock, so that orphans of a killed run would keep it.

    owns_folder: whether the folder is removed with the lock if it is empty otherwise; the lock has made it
    """

    def __init__(self, folder: Path) -> None:
        """Raises LockedError, which names the holder, when another process holds it."""
        self._path, self.owns_folder = folder / LOCK, False
        try:
            while not self._take():
                pass
        except OSError as error:
            failure = storage_error(error, self._path)  # before there is room again
            if self.owns_folder:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    folder.rmdir()
            raise failure from error

    def _take(self) -> bool:
        """Open and lock the file, and write who holds it; false if its last holder removed it meanwhile."""
        with contextlib.suppress(FileExistsError):  # a file of that name is an error below
            self._path.parent.mkdir(parents=True)
            self.owns_folder = True
        with contextlib.ExitStack() as undo:
            self._file = undo.enter_context(open(self._path, "a+b", buffering=0, opener=open_without_following))
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in HELD:  # the file system has no locks
                    raise
                self._file.seek(0)
                holder = f"in use by {quoted(_holder(self._file))} (wait for it, or end it)"
                raise LockedError(f"{quoted(self._path.parent)}: {holder}") from None
            if is_current := self._is_current():
                self._file.truncate(0)
                self._file.write(f"{socket.gethostname()} pid {os.getpid()}".encode())
                undo.pop_all()
            return is_current

    def _is_current(self) -> bool:
        """Whether the locked file still has its name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._file.closed:
            return
        is_empty = [path.name for path in self._path.parent.glob("*")] == [LOCK]
        if self.owns_folder and is_empty and self._is_current():
            with contextlib.suppress(OSError):  # another process has opened the lock meanwhile
                self._path.unlink()
                self._path.parent.rmdir()
        with contextlib.suppress(OSError):  # closed in any case, and nothing is lost
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def holder_of(path: Path) -> str | None:
    """What a locked file says, of a LOCK host and process id; None if it is not locked, not there, or a link.

    Do not call it in the process that locked it: the end of the look would end its lock, as POSIX demands.
    """
    try:
        with open(path, "rb", opener=open_without_following) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in HELD:
                    return None
                return _holder(file)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
    return None


def _holder(file: IO[bytes]) -> str:
    return file.read(MAX_HOLDER_BYTES).decode(errors="replace").strip() or "unknown"


def open_without_following(path: str, flags: int) -> int:
    """Open a file whose name may be a link of somebody else's, which is an OSError. For `opener` of `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
