"""Reads a file (or all members of an archive) to the end before its hash is recorded."""

import re
from pathlib import Path
from typing import Final

from nmt.errors import quoted
from nmt.extensions.archives.members import (
    ARCHIVE_ENDINGS,
    COMPRESSED_ARCHIVES,
    IS_FOLDER,
    is_archive,
    is_zip,
    members_of,
)
from nmt.storages.streams import COMPRESSED_ENDINGS, READ_BYTES, Stream, decompressed, open_stored

HTML_START: Final = re.compile(rb"\s*<(?:!doctype\s+html|html)", re.IGNORECASE)
HTML_BYTES: Final = 512
MAX_NESTED_ARCHIVES: Final = 4  # maximum depth of nested archives


def check_whole(path: Path, name: str = "") -> None:
    """Read a file to its end, including every member if it is an archive.

    name: the file's real name if the path is temporary; used to detect errors such as an HTML page named `a.tgz`
    Raises InputError for a damaged or truncated file, ArtefactError for a hostile one.
    """
    name = (name or path.name).lower()
    with open_stored(path) as stored:
        content = decompressed(stored)
        if name.endswith((*COMPRESSED_ENDINGS, *COMPRESSED_ARCHIVES)) and content is stored:
            raise stored.damaged("file", f"it is not compressed, although its name is {quoted(name)}")
        if name.endswith(ARCHIVE_ENDINGS) and not is_archive(content):
            raise stored.damaged("file", f"it is not an archive, although its name is {quoted(name)}")
        if HTML_START.match(stored.peek(HTML_BYTES)) and not name.endswith((".html", ".htm")):
            raise stored.damaged("file", "it is an HTML page, which servers send when a file is missing")
        _read_whole(content, MAX_NESTED_ARCHIVES)


def _read_whole(content: Stream, levels: int) -> None:
    is_stream_of_zip = not content.seekable() and is_zip(content)  # a zip file's table of members is at its end
    if levels and not is_stream_of_zip and is_archive(content):
        for member in members_of(content):
            if member.refused != IS_FOLDER:
                _read_whole(member.open(content), levels - 1)
    while content.read(READ_BYTES):  # the checksum of a compressed file is at its end
        pass
