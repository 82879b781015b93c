"""Exclusive locks on folders, and who holds them."""

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import IO, Final, Self

from nmt.errors import LockedError, quoted, storage_error

LOCK: Final = ".lock"
HELD: Final = (errno.EAGAIN, errno.EACCES)  # lockf's errors if another process holds the lock
MAX_HOLDER_BYTES: Final = 200  # maximum length of the text in a lock file


class Lock:
    """An exclusive `lockf` on `.lock` in a folder, held until it is closed or the process ends.

    It uses lockf instead of flock, because children inherit a flock, so orphans of a killed run would keep it.

    owns_folder: whether the lock created the folder, and removes it at the end if it is empty
    """

    def __init__(self, folder: Path) -> None:
        """Raises LockedError, which names the holder, if another process holds the lock."""
        self._path, self.owns_folder = folder / LOCK, False
        try:
            while not self._take():
                pass
        except OSError as error:
            failure = storage_error(error, self._path)  # measures the free space before the file is removed below
            if self.owns_folder:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    folder.rmdir()
            raise failure from error

    def _take(self) -> bool:
        """Open and lock the file, and write the holder into it. Returns False if its last holder has just removed it."""
        with contextlib.suppress(FileExistsError):  # if the folder is a file, opening the lock fails below
            self._path.parent.mkdir(parents=True)
            self.owns_folder = True
        with contextlib.ExitStack() as undo:
            self._file = undo.enter_context(open(self._path, "a+b", buffering=0, opener=open_without_following))
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in HELD:  # the file system does not support locks
                    raise
                self._file.seek(0)
                holder = f"is in use by {quoted(_holder(self._file))} (wait for that process, or stop it)"
                raise LockedError(f"{quoted(self._path.parent)} {holder}") from None
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
            with contextlib.suppress(OSError):  # another process may have opened the lock in the meantime
                self._path.unlink()
                self._path.parent.rmdir()
        with contextlib.suppress(OSError):  # the file is closed in any case, and nothing is lost
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def holder_of(path: Path) -> str | None:
    """The content of a locked file; for LOCK, the host and process id of the holder. None if it is unlocked, missing or a link.

    Do not call this in the process that holds the lock: under POSIX, closing the file would release the lock.
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
    """Open a file without following a link, which another user could have created. An `opener` for `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
