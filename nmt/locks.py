"""Exclusive locks of folders, and who holds one."""

import contextlib
import errno
import fcntl
import os
import socket
from io import FileIO
from pathlib import Path
from typing import Final, Self

from nmt.errors import LockedError, lacks_inodes, quoted, storage_error

LOCK: Final = ".lock"
HELD: Final = (errno.EAGAIN, errno.EACCES)  # of lockf, where another process has the lock
MAX_HOLDER_BYTES: Final = 200  # of the text in a lock


class Lock:
    """An exclusive `lockf` on `.lock` in a folder, held until closed or until the process ends.

    lockf and not flock: children inherit a flock, so that orphans of a killed run would keep it.
    A folder that the lock created is removed with it if it is still empty.

    created_folder: whether it did
    """

    def __init__(self, folder: Path) -> None:
        """Raises LockedError, which names the holder, when another process holds it."""
        self._path, self.created_folder = folder / LOCK, False
        try:
            self._file = self._open_and_lock()
            while not self._is_current():  # its last holder removed it between opening and locking here
                self._file.close()
                self._file = self._open_and_lock()
            self._write_holder()
        except OSError as error:
            no_inode = lacks_inodes(self._path)
            if self.created_folder:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    folder.rmdir()
            raise storage_error(error, self._path, None, no_inode) from error

    def _write_holder(self) -> None:
        try:
            self._file.truncate(0)
            self._file.write(f"{socket.gethostname()} pid {os.getpid()}".encode())
        except OSError:
            self._file.close()
            raise

    def _open_and_lock(self) -> FileIO:
        try:
            self._path.parent.mkdir(parents=True)
            self.created_folder = True
        except FileExistsError:
            pass  # a file of that name is an error below
        file = open(self._path, "a+b", buffering=0, opener=open_without_following)  # noqa: SIM115 - until the lock is closed
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in HELD:  # the file system has no locks
                file.close()
                raise
            file.seek(0)
            holder = quoted(file.read(MAX_HOLDER_BYTES).decode(errors="replace").strip() or "unknown")
            file.close()
            raise LockedError(f"{quoted(self._path.parent)}: in use by {holder} (wait for it, or end it)") from None
        return file

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
        if self.created_folder and is_empty and self._is_current():
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
                return (file.read(MAX_HOLDER_BYTES) or b"").decode(errors="replace").strip() or "unknown"
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
    return None


def open_without_following(path: str, flags: int) -> int:
    """Open a file whose name may be a link of somebody else's, which is an OSError. For `opener` of `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
