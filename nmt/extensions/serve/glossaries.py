"""Keeps the glossaries of clients, in memory or as files in a folder, and reads their entries."""

import csv
import hashlib
import io
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from nmt.errors import UserError, one_line, quoted
from nmt.extensions.serve.codes import code_distance
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.texts.glossary import MAX_TERM_WORDS
from nmt.extensions.texts.words import word_pattern
from nmt.files import check_writable, read_bytes, write_file
from nmt.log import log

MAX_GLOSSARIES: Final = 1000  # per key
MAX_GLOSSARY_BYTES: Final = 64 << 20  # of the glossaries of all keys
MAX_DICTIONARY_BYTES: Final = (
    10 << 20
)  # DeepL's limit; the patterns made from the terms take several times as much memory
MAX_TERM_BYTES: Final = 1024
QUOTA_EXCEEDED: Final = 456  # DeepL's HTTP status
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
QUOTED_CELL: Final = re.compile(r'"((?:[^"]|"")*)"')
GLOSSARY_FILE: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")
ENTRY_FORMATS: Final = ("tsv", "csv")


class Dictionary(Struct, frozen=True):
    """Terms and their translations for one direction.

    entries: lines of `TERM TAB TRANSLATION`, which take less memory than a mapping
    """

    source_lang: str
    target_lang: str
    entry_count: int
    entries: str

    @property
    def terms(self) -> dict[str, str]:
        """The translations by term."""
        return terms_of(self.entries)

    def with_terms(self, terms: Mapping[str, str]) -> "Dictionary":
        """A dictionary for the same languages with other terms."""
        lines = "\n".join(f"{term}\t{translation}" for term, translation in terms.items())
        return structs.replace(self, entry_count=len(terms), entries=lines)

    def is_for(self, source: str, target: str) -> bool:
        """Whether the dictionary is for these languages, in any region."""
        pairs = (source, self.source_lang), (target, self.target_lang)
        return all(code_distance(asked, own) is not None for asked, own in pairs)


class StoredGlossary(Struct, frozen=True):
    """A client's glossary, as it is stored.

    owner: hash of the client's key; empty if the server needs no key
    creation_time: in ISO format, in UTC
    """

    glossary_id: str
    name: str
    owner: str
    creation_time: str
    dictionaries: list[Dictionary]

    def with_dictionary(self, new: Dictionary) -> "StoredGlossary":
        """The glossary with a new dictionary, which replaces that of the same languages."""
        return structs.replace(self, dictionaries=[*self.without(new.source_lang, new.target_lang), new])

    def without(self, source: str, target: str) -> list[Dictionary]:
        """The dictionaries of other languages."""
        return [row for row in self.dictionaries if not row.is_for(source, target)]

    def dictionary(self, source: str, target: str) -> Dictionary | None:
        """The dictionary for these languages."""
        return next((row for row in self.dictionaries if row.is_for(source, target)), None)


class GlossaryStore:
    """The glossaries of all clients. Its methods block: call them in a thread. They raise ProblemError.

    Several servers may use the same folder.
    """

    def __init__(self, folder: Path | None) -> None:
        """folder: None keeps the glossaries in memory. Raises UserError for a folder that cannot be used."""
        self._folder, self._lock = folder, threading.Lock()
        self._by_id: dict[str, StoredGlossary] = {}
        self._sizes: dict[str, int] = {}
        self._stamps: dict[str, tuple[int, int]] = {}  # time of change and size of each file that was read
        if folder is not None:
            if not folder.is_dir():
                raise UserError(f"--glossaries {quoted(folder)}: not a folder (create it first)")
            check_writable(folder)

    def of_owner(self, owner: str) -> list[StoredGlossary]:
        """The glossaries of a client, oldest first."""
        with self._current():
            own = [glossary for glossary in self._by_id.values() if glossary.owner == owner]
        return sorted(own, key=lambda glossary: glossary.creation_time)

    def get(self, owner: str, glossary_id: str) -> StoredGlossary:
        """A client's glossary by its id."""
        with self._current():
            return self._found(owner, glossary_id)

    def create(self, owner: str, name: str, dictionaries: Sequence[Dictionary]) -> StoredGlossary:
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        glossary = StoredGlossary(str(uuid.uuid4()), name, owner, created, list(dictionaries))
        with self._current():
            if sum(other.owner == owner for other in self._by_id.values()) >= MAX_GLOSSARIES:
                raise ProblemError(QUOTA_EXCEEDED, f"there are {MAX_GLOSSARIES:,} glossaries already (delete some)")
            self._save(glossary)
        return glossary

    def edit(
        self, owner: str, glossary_id: str, name: str | None, dictionaries: Iterable[Dictionary]
    ) -> StoredGlossary:
        """Rename a glossary, and add entries to its dictionaries. name: None keeps the name"""
        with self._current():
            glossary = self._found(owner, glossary_id)
            if name is not None:
                glossary = structs.replace(glossary, name=name)
            for new in dictionaries:
                old = glossary.dictionary(new.source_lang, new.target_lang)
                glossary = glossary.with_dictionary(new.with_terms(old.terms | new.terms) if old else new)
            self._save(glossary)
        return glossary

    def put_dictionary(self, owner: str, glossary_id: str, new: Dictionary) -> None:
        """Add a dictionary to a glossary, or replace the one for the same languages."""
        with self._current():
            self._save(self._found(owner, glossary_id).with_dictionary(new))

    def drop_dictionary(self, owner: str, glossary_id: str, source: str, target: str) -> None:
        with self._current():
            glossary = self._found(owner, glossary_id)
            if len(left := glossary.without(source, target)) == len(glossary.dictionaries):
                raise ProblemError(404, "the glossary has no dictionary for these languages")
            self._save(structs.replace(glossary, dictionaries=left))

    def delete(self, owner: str, glossary_id: str) -> None:
        with self._current():
            self._found(owner, glossary_id)
            if self._folder is not None:
                (self._folder / f"{glossary_id}.json").unlink(missing_ok=True)
            self._forget(glossary_id)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Hold the lock, with the glossaries as they are in the folder."""
        with self._lock:
            self._refresh()
            yield

    def _found(self, owner: str, glossary_id: str) -> StoredGlossary:
        glossary = self._by_id.get(glossary_id)
        if glossary is None or glossary.owner != owner:
            raise ProblemError(404, "glossary not found")
        return glossary

    def _save(self, glossary: StoredGlossary) -> None:
        if any(len(row.entries.encode()) > MAX_DICTIONARY_BYTES for row in glossary.dictionaries):
            raise ProblemError(413, f"a dictionary of a glossary may have at most {MAX_DICTIONARY_BYTES:,} bytes")
        content, glossary_id = msgspec.json.encode(glossary), glossary.glossary_id
        if sum(self._sizes.values()) - self._sizes.get(glossary_id, 0) + len(content) > MAX_GLOSSARY_BYTES:
            limit = f"{MAX_GLOSSARY_BYTES:,} bytes"
            raise ProblemError(QUOTA_EXCEEDED, f"the glossaries of this server would exceed {limit} (delete some)")
        if self._folder is not None:
            try:
                write_file(self._folder / f"{glossary_id}.json", content)
            except (UserError, OSError) as error:
                log.error(f"--glossaries: {one_line(str(error))}")
                raise ProblemError(503, "the glossary cannot be saved (see the server's log)") from error
        self._by_id[glossary_id], self._sizes[glossary_id] = glossary, len(content)

    def _refresh(self) -> None:
        """Read the files that were changed, by this server or another one."""
        if self._folder is None:
            return
        stamps = dict(_stamps(self._folder))
        for glossary_id in (self._by_id.keys() | self._stamps.keys()) - stamps.keys():
            self._forget(glossary_id)
        for glossary_id, stamp in stamps.items():
            if self._stamps.get(glossary_id) == stamp:
                continue
            self._stamps[glossary_id] = stamp
            path = self._folder / f"{glossary_id}.json"
            try:
                glossary = msgspec.json.decode(read_bytes(path), type=StoredGlossary)
            except (UserError, OSError, msgspec.MsgspecError, ValueError) as error:
                log.warn(f"{quoted(path)}: not a glossary, so it is ignored: {one_line(str(error))}")
                continue
            self._by_id[glossary_id] = structs.replace(glossary, glossary_id=glossary_id)
            self._sizes[glossary_id] = stamp[1]

    def _forget(self, glossary_id: str) -> None:
        for table in (self._by_id, self._sizes, self._stamps):
            table.pop(glossary_id, None)


def _stamps(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the id, and the time of change and the size, of each glossary's file."""
    with os.scandir(folder) as files:
        for file in files:
            if GLOSSARY_FILE.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # another server deleted it just now
                    status = file.stat(follow_symlinks=False)
                    yield file.name.removesuffix(".json"), (status.st_mtime_ns, status.st_size)


def owner_of(key: str) -> str:
    """What a glossary stores instead of its owner's key."""
    return hashlib.sha256(key.encode()).hexdigest() if key else ""


def terms_of(entries: str) -> dict[str, str]:
    """The translations by term, from lines of `TERM TAB TRANSLATION`."""
    cells = (line.partition("\t") for line in entries.split("\n"))
    return {term: translation for term, _, translation in cells}


def read_entries(text: str, format: str) -> dict[str, str]:
    """Read entries, one term and its translation per line. Raises ProblemError for invalid ones.

    format: tsv or csv
    """
    if format not in ENTRY_FORMATS:
        raise ProblemError(400, "Value for 'entries_format' not supported: use tsv or csv.")
    entries: dict[str, str] = {}
    for number, row in enumerate(_csv_rows(text) if format == "csv" else map(_tsv_row, text.split("\n")), 1):
        if not any(row):
            continue
        if len(row) not in ((2,) if format == "tsv" else (2, 3, 4)):  # CSV may also name the languages
            raise ProblemError(400, f"entry {number} has {len(row)} columns: give a term and its translation")
        term, translation = (_checked_term(cell, number) for cell in row[:2])
        if entries.setdefault(term, translation) != translation:
            raise ProblemError(400, f"entry {number}: the term '{quoted(term)}' has two translations")
    if not entries:
        raise ProblemError(400, "Value for 'entries' not supported: there are no entries.")
    return entries


def _csv_rows(text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        raise ProblemError(400, f"the entries are not valid CSV: {quoted(error)}") from None


def _tsv_row(line: str) -> list[str]:
    """The cells of a line. Quotation marks count only if they enclose the whole cell."""
    cells = line.removesuffix("\r").split("\t") if line.strip() else []
    return [found[1].replace('""', '"') if (found := QUOTED_CELL.fullmatch(cell)) else cell for cell in cells]


def _checked_term(cell: str, number: int) -> str:
    term = cell.strip()
    if not term or CONTROL.search(term) or len(term.encode(errors="replace")) > MAX_TERM_BYTES:
        rule = f"must not be empty or contain control characters, and have at most {MAX_TERM_BYTES:,} bytes"
        raise ProblemError(400, f"entry {number}: a term or translation {rule}")
    if len(word_pattern().findall(term)) > MAX_TERM_WORDS:
        raise ProblemError(400, f"entry {number}: a term or translation may have at most {MAX_TERM_WORDS} words")
    return term
