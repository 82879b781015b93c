"""Storages of texts: each comes in one file, and every command reads the texts within it."""

import sqlite3

from nmt import registry
from nmt.cli.main import run

DATABASES = '''
import sqlite3
from contextlib import contextmanager
from nmt import UserError, register
from nmt.options import NoOptions
from nmt.storages.base import MissingText, Storage
from nmt.storages.streams import ChunkReader, Stream, open_stored


def is_database(path):
    with open_stored(path) as content:
        return content.peek(6).startswith(b"SQLite")


@register("storage", "database", NoOptions)
class Database(Storage):
    """The tables of an SQLite file."""

    def holds(self, path):
        return path.parent.is_file() and is_database(path.parent)

    @contextmanager
    def open(self, path, whole):
        tables = sqlite3.connect(path.parent)
        if (path.name,) not in tables.execute("SELECT name FROM sqlite_master").fetchall():
            raise MissingText(f"{path}: no such table")
        lines = (f"{text}\\n".encode() for (text,) in tables.execute(f"SELECT text FROM {path.name}"))
        with open_stored(path.parent) as stored:
            yield Stream(ChunkReader(lines), str(path), stored.disk)
        tables.close()

    def text_of(self, content, path):
        if content.peek(6).startswith(b"SQLite"):
            raise UserError(f"{content.place}: is a database (name a table of it)")
        return content
'''


def test_a_storage_from_one_file_is_read_by_commands(tmp_path, capfd):
    (tmp_path / "databases.py").write_text(DATABASES)
    (tmp_path / "reference").write_text("ban kit mus lora\nkit mus lora ban\n")
    with sqlite3.connect(tmp_path / "texts.db") as texts:
        texts.execute("CREATE TABLE output (text TEXT)")
        texts.executemany("INSERT INTO output VALUES (?)", [("ban kit mus lora",), ("kit mus lora ban",)])
    words = [
        "evaluate",
        f"--reference={tmp_path / 'reference'}",
        f"--plugin={tmp_path / 'databases.py'}",
        "--metrics=bleu",
    ]
    try:
        assert run([*words, f"--hypothesis={tmp_path / 'texts.db/output'}"]) == 0
        assert "100.0" in capfd.readouterr().out
        for name, why in (
            ("texts.db", "name a table"),
            ("texts.db/input", "no such table"),
            ("reference/x", "no such file"),
        ):
            assert run([*words, f"--hypothesis={tmp_path / name}"]) == 2
            assert why in capfd.readouterr().err
    finally:
        del registry._shelf.parts["storage", "database"]
