#!/usr/bin/env python3
"""Fetch the files of a recipe from mirrors into a folder, and check them against lock files.

    fetch.py --to DIR --lock FILE --learned FILE --mirror DIR_OR_URL [--mirror DIR_OR_URL ...] [--plain] NAME...

NAME is a path below a mirror (wmt13/training-parallel-europarl-v7.tgz). In DIR the file has the last part of this
path as its name; a mirror can also have it under that name at its top. Mirrors are tried in order: folders, file://, http:// and
https://. A lock file has a line "sha256  size  name" for each file in DIR. --lock belongs to the recipe and is never
written. A file that it does not list gets its line in --learned, and must match it from then on. Such a file is first
read completely, so that the hash of a damaged archive is never recorded. Exit statuses are those of nmt: 4 if a file
does not match its line, 5 if no mirror has a file or the disk is full.
"""

import argparse
import errno
import fcntl
import os
import shutil
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Final, NamedTuple

try:
    from mirrors import AbsentError, Answer, CutError, Part, opened

    from nmt.errors import ArtefactError, InputError, Interrupted, ResourceError, UserError, quoted, storage_error
    from nmt.extensions.archives.whole import check_whole
    from nmt.files import sha256, write_file
    from nmt.locks import Lock
    from nmt.log import log
    from nmt.signals import Signals
    from nmt.storages.base import open_text
except ModuleNotFoundError as error:
    sys.stderr.write(f"nmt: error: {error} (set PYTHON to the Python that nmt is installed for)\n")
    sys.exit(2)

READ_BYTES: Final = 1 << 18  # bytes read between two checks for signals
MIB: Final = 1 << 20  # bytes; after this much progress, a server's failures are counted from 0 again


class Pin(NamedTuple):
    """The required sha256 and size (bytes) of a file, and the lock file that requires them."""

    sha256: str
    size: int
    lock: Path


class Pins:
    """The hashes of files: those that a recipe requires, and those learned from the first download of other files."""

    def __init__(self, lock: Path, learned: Path) -> None:
        """lock: lock file of the recipe, only read; learned: lock file for the other files. Either may be missing."""
        self.learned = learned
        self._required, self._learned = read_pins(lock), read_pins(learned)

    def get(self, name: str) -> Pin | None:
        return self._required.get(name) or self._learned.get(name)

    def record(self, name: str, pin: Pin) -> None:
        """Add a learned hash, under a lock of the folder: another fetch may record in the same file."""
        self.learned.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.learned.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._learned = read_pins(self.learned) | {name: pin}
            lines = (f"{pin.sha256}  {pin.size}  {name}\n" for name, pin in self._learned.items())
            write_file(self.learned, "".join(lines).encode())
        finally:
            os.close(folder)


def read_pins(path: Path) -> dict[str, Pin]:
    """The lines of a lock file by name; none if there is no such file. Raises UserError for a malformed line."""
    pins = {}
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.strip().split(maxsplit=2)
        if fields and (len(fields) != 3 or len(fields[0]) != 64 or not fields[1].isdigit()):
            raise UserError(f"{quoted(path)}:{number}: expected 'sha256  size  name', got '{quoted(line)}'")
        if fields:
            pins[fields[2]] = Pin(fields[0], int(fields[1]), path)
    return pins


class Fetcher:
    """Fetches the files of one call."""

    def __init__(self, given: argparse.Namespace, signals: Signals) -> None:
        self.to, self.mirrors, self.plain = Path(given.to), list[str](given.mirror), bool(given.plain)
        self.tries, self.wait, self.timeout = int(given.tries), float(given.wait), float(given.timeout)
        self.pins, self.signals = Pins(Path(given.lock), Path(given.learned)), signals

    def fetch(self, name: str) -> None:
        """Fetch a file unless it exists. Raises ArtefactError for wrong bytes, ResourceError for no file or a full disk."""
        final = self.to / self.local_name(name)
        failures: list[str] = []
        refused = final.exists() and self.set_aside(final)
        if final.exists():
            return
        for mirror in self.mirrors:
            for address in self.addresses(mirror, name):
                try:
                    self.from_address(address, final)
                    return
                except AbsentError as error:
                    failures.append(f"{quoted(address)}: {error}")
                except CutError as error:
                    failures.append(f"{quoted(address)}: {error}")
                    break  # the mirror's other addresses would fail too
                except ArtefactError as error:
                    refused = True
                    failures.append(f"{quoted(address)}: {error}")
                    log.warn(failures[-1])
        message = f"{quoted(final)}: cannot be fetched: {'; '.join(failures)} (name another mirror, or try again)"
        raise ArtefactError(message) if refused else ResourceError(message)

    def local_name(self, name: str) -> str:
        """The name of a file in DIR."""
        last = name.rpartition("/")[2]
        return last.removesuffix(".gz") if self.plain else last

    def addresses(self, mirror: str, name: str) -> list[str]:
        """The addresses at which a mirror may have a file."""
        others = [name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"] if self.plain else []
        paths = [path for candidate in (name, *others) for path in (candidate, candidate.rpartition("/")[2])]
        quote = urllib.parse.quote if "://" in mirror else str
        return list(dict.fromkeys(f"{mirror.rstrip('/')}/{quote(path)}" for path in paths))

    def set_aside(self, final: Path) -> bool:
        """Rename a file that does not match its pin; returns whether it was renamed."""
        try:
            self.check(final, final.name)
            return False
        except ArtefactError as error:
            final.replace(final.with_name(f"{final.name}.refused"))
            log.warn(f"{quoted(final)}: {error}; renamed to {quoted(final.name)}.refused, and fetched again")
            return True

    def from_address(self, address: str, final: Path) -> None:
        """Download and accept a file; a file that mixes two versions is downloaded again from its first byte."""
        part = Part(self.to, urllib.parse.unquote(address.rpartition("/")[2]))
        for again in (False, True):
            continued = self.download(address, part, None if self.plain else self.pins.get(final.name))
            try:
                self.accept(part, final, address)
                return
            except ArtefactError as error:
                part.remove()
                if again or not continued:
                    raise
                log.warn(
                    f"{quoted(address)}: {error}; the earlier partial download is discarded, and the file is fetched again"
                )

    def download(self, address: str, part: Part, pin: Pin | None) -> bool:
        """Complete a part; returns whether an earlier run started it, perhaps with another version of the file."""
        if not self.may_continue(part, address):
            part.remove()
        num_failures, begun = 0, part.size > 0
        while True:
            size_before = part.size
            if pin is not None and size_before == pin.size:
                return begun
            try:
                with opened(
                    address, size_before, part.validator if part.address == address else "", self.timeout
                ) as answer:
                    self.write(answer, address, part, pin)
                return begun
            except CutError as error:
                num_failures = 1 if part.size >= size_before + MIB else num_failures + 1
                if num_failures >= self.tries:
                    raise CutError(f"{error} ({num_failures} failures, {part.size:,} bytes downloaded)") from None
                log.warn(f"{quoted(address)}: {error}; trying again")
                self.pause(self.wait * 2 ** (num_failures - 1))

    def may_continue(self, part: Part, address: str) -> bool:
        """Whether a part can be continued: the mirror reports its version, or the hash of the complete file is known."""
        pin = self.pins.get(self.local_name(part.name))
        return pin is not None or (part.address == address and bool(part.validator))

    def write(self, answer: Answer, address: str, part: Part, pin: Pin | None) -> None:
        """Append an answer to a part. Raises CutError if it ends early, ResourceError if the disk is full."""
        if pin is not None and answer.size not in (None, pin.size):
            raise ArtefactError(f"{answer.size:,} bytes, but {quoted(pin.lock)} requires {pin.size:,}")
        needed = None if answer.size is None else answer.size - answer.start
        try:
            if not answer.start:
                part.begin(address, answer.validator)
            if needed is not None and needed > shutil.disk_usage(self.to).free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            total = answer.size and answer.size // MIB
            with part.path.open("ab", buffering=0) as file, log.progress(part.name, total, "MiB") as bar:
                while data := memoryview(answer.read(READ_BYTES)):
                    while data:
                        data = data[file.write(data) :]
                    if pin is not None and file.tell() > pin.size:
                        part.remove()
                        raise ArtefactError(f"more than the {pin.size:,} bytes that {quoted(pin.lock)} requires")
                    bar.advance(file.tell() // MIB - bar.count)
                    self.signals.check()
                os.fsync(file.fileno())
        except OSError as error:
            kept = f"; the next run continues after the {part.size:,} bytes already downloaded"
            raise ResourceError(f"{storage_error(error, part.path, needed)}{kept}") from error
        if answer.size is not None and part.size < answer.size:
            raise CutError(f"ended after {part.size:,} of {answer.size:,} bytes")

    def accept(self, part: Part, final: Path, address: str) -> None:
        """Check a complete file and give it its final name. Raises ArtefactError for wrong bytes."""
        whole = part.path
        if self.plain:
            whole = self.to / f".{final.name}.plain"
            self.unpack(part, whole)
        try:
            result = self.check(whole, final.name)
        except ArtefactError:
            whole.unlink()
            raise
        whole.replace(final)
        part.remove()
        folder = os.open(self.to, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        log.info(f"fetched {final.name} from {quoted(address)}: {final.stat().st_size:,} bytes, {result}")

    def unpack(self, part: Part, text: Path) -> None:
        """Write the decompressed content of a part to a file."""
        try:
            if self.pins.get(self.local_name(part.name)) is None:
                check_whole(part.path, part.name)
            with open_text(part.path) as content, text.open("wb") as file:
                shutil.copyfileobj(content, file, READ_BYTES)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            text.unlink(missing_ok=True)
            raise storage_error(error, text) from error
        except UserError as error:
            text.unlink(missing_ok=True)
            raise ArtefactError(str(error)) from None

    def check(self, path: Path, name: str) -> str:
        """Check a file against its pin, or record it if it has none. Returns the result for the log line."""
        pin, size = self.pins.get(name), path.stat().st_size
        if pin is not None and size != pin.size:
            raise ArtefactError(f"{size:,} bytes, but {quoted(pin.lock)} requires {pin.size:,}")
        digest = sha256(path)
        if pin is not None and digest != pin.sha256:
            raise ArtefactError(f"sha256 {digest}, but {quoted(pin.lock)} requires {pin.sha256}")
        if pin is not None:
            return f"matches {quoted(pin.lock)}"
        try:
            check_whole(path, name)
        except InputError as error:
            raise ArtefactError(str(error)) from None
        self.pins.record(name, Pin(digest, size, self.pins.learned))
        return f"no hash was known; recorded sha256 {digest} in {quoted(self.pins.learned)}"

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            self.signals.check()


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", metavar="DIR", required=True, help="folder for the files")
    parser.add_argument("--lock", metavar="FILE", required=True, help="lock file of the recipe; never written")
    parser.add_argument(
        "--learned", metavar="FILE", required=True, help="lock file for files that --lock does not list"
    )
    parser.add_argument(
        "--mirror",
        metavar="DIR_OR_URL",
        action="append",
        required=True,
        help="source of the files; can be repeated",
    )
    parser.add_argument(
        "--plain", action="store_true", help="try both NAME and NAME.gz, and store the text decompressed"
    )
    parser.add_argument(
        "--tries", type=int, default=5, help="consecutive failures of a server before the next mirror (%(default)s)"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=1,
        help="seconds before the second try, doubled for each further try (%(default)s)",
    )
    parser.add_argument("--timeout", type=float, default=30, help="seconds to wait for a silent server (%(default)s)")
    parser.add_argument("names", metavar="NAME", nargs="+", help="path of a file below a mirror")
    given = parser.parse_args(argv)
    last = [name.rpartition("/")[2] for name in given.names]
    if len(set(last)) < len(last) or "" in last or ".." in last:
        parser.error("two NAMEs must not have the same last part")
    for mirror in given.mirror:
        if not is_mirror(mirror):
            parser.error(
                f"--mirror '{quoted(mirror)}': expected a folder or an address with file://, http:// or https://"
            )
    return given


def is_mirror(name: str) -> bool:
    """Whether a name is a folder, or an address with a known scheme."""
    try:
        scheme = urllib.parse.urlsplit(name).scheme if "://" in name else "folder"
    except ValueError:
        return False
    return bool(name) and scheme in ("folder", "http", "https", "file")


def main(argv: list[str] | None = None) -> int:
    """Fetch the files of the command line; returns the exit status (docs/reference/contract.md)."""
    given = arguments(argv)
    try:
        with Lock(Path(given.to)), Signals() as signals:
            fetcher = Fetcher(given, signals)
            for name in given.names:
                fetcher.fetch(name)
        return 0
    except UserError as error:
        log.error(str(error))
        return error.code
    except OSError as error:
        log.error(f"{error.filename or given.to}: {error.strerror or error}")
        return 5
    except Interrupted as error:
        return 128 + error.signal_number
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
