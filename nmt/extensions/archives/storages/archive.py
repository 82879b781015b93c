"""Reads texts from archives. A path treats the archive as a folder: `europarl.tgz/training/europarl-v7.de-en.de`."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nmt import register
from nmt.errors import ArtefactError, UserError, quoted
from nmt.extensions.archives.members import ARCHIVE_ENDINGS, IS_FOLDER, is_archive, is_zip, members_of
from nmt.options import NoOptions
from nmt.storages.base import MissingText, Storage
from nmt.storages.streams import READ_BYTES, Stream, open_decompressed

OFFICE_MEMBERS: Final = frozenset(["[Content_Types].xml", "mimetype"])  # every office document contains one of them
MAX_SUGGESTED_NAMES: Final = 1000  # similar names are looked for among this many names


@register("storage", "archive", NoOptions)
class ArchiveStorage(Storage):
    """Members of tar and zip archives, including compressed and nested archives. Nothing is unpacked to disk."""

    def holds(self, path: Path) -> bool:
        file = next((parent for parent in path.parents if parent.is_file()), None)
        if file is None:
            return False
        with open_decompressed(file) as content:
            return is_archive(content)

    @contextmanager
    def open(self, path: Path, whole: bool) -> Iterator[Stream]:
        file = next(parent for parent in path.parents if parent.is_file())
        wanted = path.relative_to(file).as_posix()
        if ".." in wanted.split("/"):
            raise ArtefactError(f"{quoted(path)}: a path inside an archive must not contain '..'")
        with open_decompressed(file) as archive:
            content = archive
            while wanted:
                content, wanted = _find_member(content, wanted)
            yield content
            while whole and archive.read(READ_BYTES):
                pass

    def text_of(self, content: Stream, path: Path) -> Stream:
        if not is_archive(content):
            if path.name.lower().endswith(ARCHIVE_ENDINGS):
                raise content.damaged("file", "its name says that it is an archive, but it is not (rename it)")
            return content
        of_zip = is_zip(content)
        names = (member.name for member in members_of(content) if not member.refused)
        first = next(names, "NAME")
        if of_zip and not OFFICE_MEMBERS.isdisjoint([first, *names]):
            raise UserError(
                f"{quoted(content.place)}: this is an office document (save it as plain text, or as .docx to translate it)"
            )
        text = quoted(f"{content.place}/{first}")
        raise UserError(f"{quoted(content.place)}: this is an archive (name a file inside it, as in {text})")


def _find_member(archive: Stream, wanted: str) -> tuple[Stream, str]:
    """Find the first member that is, or contains, a requested path. Return its content and the rest of the path."""
    if not is_archive(archive):
        raise MissingText(
            f"{quoted(archive.place)}: this file is not an archive, so it does not contain '{quoted(wanted)}'"
        )
    names: list[str] = []
    for member in members_of(archive):
        rest = member.name_within(wanted)
        if rest is None:
            names += [member.name] if len(names) < MAX_SUGGESTED_NAMES and not member.refused else []
            continue
        if member.refused == IS_FOLDER:  # the path leads to the folder itself
            raise UserError(f"{quoted(f'{archive.place}/{member.name}')} is a folder (name a text file)")
        return member.open(archive), rest
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean '{quoted(near[0])}'?" if near else f"its members: {quoted(', '.join(names) or 'none')}"
    raise MissingText(f"{quoted(archive.place)}: no member '{quoted(wanted)}' ({hint})")
