"""Read files from mirrors (folders, file://, http:// and https://), starting at any byte, and handle partial downloads."""

import contextlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nmt.errors import quoted
from nmt.files import write_file

TRANSIENT_CODES: Final = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses after which another request may succeed


class AbsentError(Exception):
    """A mirror does not have the file."""


class CutError(Exception):
    """A mirror does not answer, or stopped in the middle of a file."""


class Part:
    """A partial download under a temporary name, with its address, so that another run can continue it.

    address: address of the file; validator: identifies its version; "" if unknown
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path, self._facts = folder / f".{name}.part", folder / f".{name}.part.json"
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads(self._facts.read_bytes())
            self.address, self.validator = str(facts["address"]), str(facts["validator"])
            return
        self.address = self.validator = ""

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def begin(self, address: str, validator: str) -> None:
        """Start from the first byte, with a file of this version."""
        self.path.unlink(missing_ok=True)
        write_file(self._facts, json.dumps({"address": address, "validator": validator}).encode())
        self.address, self.validator = address, validator

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)
        self.address = self.validator = ""


@dataclass(frozen=True)
class Answer:
    """The bytes of a file from `start` on.

    size: bytes of the whole file, or None if unknown
    validator: an ETag or time that identifies its version
    """

    start: int
    size: int | None
    validator: str
    read: Callable[[int], bytes]


@contextlib.contextmanager
def opened(address: str, start: int, validator: str, timeout: float) -> Iterator[Answer]:
    """Open a file of a mirror at byte `start`, or at its first byte if its version differs or the mirror cannot resume.

    Raises AbsentError for a missing file, CutError for a mirror that fails.
    """
    if not address.startswith(("http://", "https://")):
        with opened_file(address, start, validator) as answer:
            yield answer
        return
    headers = {"User-Agent": "nmt", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout) as response:
            yield answered(response, start)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # no byte is left: the part is complete, or from another version
            size = error.headers.get("Content-Range", "").rpartition("/")[2]
            if size == str(start):
                yield Answer(start, start, validator, lambda _: b"")
                return
            with opened(address, 0, "", timeout) as answer:
                yield answer
            return
        raise (CutError if error.code in TRANSIENT_CODES else AbsentError)(f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise CutError(str(getattr(error, "reason", error)) or type(error).__name__) from None


def answered(response: http.client.HTTPResponse, start: int) -> Answer:
    """The answer of an HTTP server. Raises CutError for a range that was not requested."""

    def read(count: int) -> bytes:
        try:
            return response.read(count)
        except (OSError, http.client.HTTPException) as error:
            raise CutError(str(error) or type(error).__name__) from None

    tag = response.headers.get("ETag", "")
    validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
    if response.status != 206:
        length = response.headers.get("Content-Length", "")
        return Answer(0, int(length) if length.isdigit() else None, validator, read)
    span, _, size = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    if span.partition("-")[0] != str(start):
        raise CutError(f"requested bytes from {start}, but received '{quoted(span)}'")
    return Answer(start, int(size) if size.isdigit() else None, validator, read)


@contextlib.contextmanager
def opened_file(address: str, start: int, validator: str) -> Iterator[Answer]:
    """Open a file of a folder at byte `start`, or at its first byte if its version differs."""
    path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path) if "://" in address else address)
    if not path.is_file():
        raise AbsentError("no such file")
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        version = f"{status.st_size} {status.st_mtime_ns}"
        start = start if validator in ("", version) and start <= status.st_size else 0
        file.seek(start)
        yield Answer(start, status.st_size, version, file.read)
