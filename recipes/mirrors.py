"""Files of mirrors, from any byte on: in a folder, at file://, http:// or https://, and the part of one that has come."""

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

from nmt.artefact import write_file
from nmt.errors import quoted

PASSING: Final = (408, 425, 429, 500, 502, 503, 504)  # of HTTP: what may be better when asked again


class AbsentError(Exception):
    """A mirror does not have the file."""


class CutError(Exception):
    """A mirror does not answer, or stopped in the middle."""


class Part:
    """A download under its temporary name, and where it comes from, so that another run can go on with it."""

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
        self.path.unlink(missing_ok=True)
        write_file(self._facts, json.dumps({"address": address, "validator": validator}).encode())
        self.address, self.validator = address, validator

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)
        self.address = self.validator = ""


@dataclass(frozen=True)
class Answer:
    """The bytes of a file from `start` on. size: of the whole file, None if it is not told; validator: of its version."""

    start: int
    size: int | None
    validator: str
    read: Callable[[int], bytes]


@contextlib.contextmanager
def opened(address: str, start: int, validator: str, timeout: float) -> Iterator[Answer]:
    """A file of a mirror from byte `start` on, or from its beginning when its version is another or it must be.

    Raises AbsentError and CutError.
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
        if error.code == 416 and start:  # nothing is left to send: the part is whole, or of another version
            size = error.headers.get("Content-Range", "").rpartition("/")[2]
            if size == str(start):
                yield Answer(start, start, validator, lambda _: b"")
                return
            with opened(address, 0, "", timeout) as answer:
                yield answer
            return
        raise (CutError if error.code in PASSING else AbsentError)(f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise CutError(str(getattr(error, "reason", error)) or type(error).__name__) from None


def answered(response: http.client.HTTPResponse, start: int) -> Answer:
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
        raise CutError(f"asked for bytes from {start} on, it sent '{quoted(span)}'")
    return Answer(start, int(size) if size.isdigit() else None, validator, read)


@contextlib.contextmanager
def opened_file(address: str, start: int, validator: str) -> Iterator[Answer]:
    path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path) if "://" in address else address)
    if not path.is_file():
        raise AbsentError("no such file")
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        version = f"{facts.st_size} {facts.st_mtime_ns}"
        start = start if validator in ("", version) and start <= facts.st_size else 0
        file.seek(start)
        yield Answer(start, facts.st_size, version, file.read)
