"""DeepL's calls for documents, glossaries and languages, as DeepL's clients and Weblate make them."""

import asyncio
import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from conftest import reseal, small_model
from exchange import Exchange
from fake_translator import FakeTranslator
from starlette.datastructures import Headers

from nmt import registry
from nmt.artefact import Artefact
from nmt.extensions.serve import deepl_documents, documents, glossaries, models
from nmt.extensions.serve.app import application
from nmt.extensions.serve.calls import Call
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.service import Service
from nmt.text.pipeline import Pipeline
from nmt.translate.results import TRUNCATED, Candidate, Translation

SRT = "1\n00:00:01,000 --> 00:00:02,000\nThe man sleeps.\n"
LANGUAGES = {"source_lang": "EN", "target_lang": "DE"}


class Phrases(FakeTranslator):
    """Return each text and its phrases; a text with `fail` has an error, one with `long` is truncated."""

    def translate(self, requests):
        super().translate(requests)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if "fail" in request.text:
            return Translation(error="it failed")
        if "long" in request.text:
            return Translation([Candidate(request.text[:8], [], 0.0, 0.0)], warnings={TRUNCATED: "truncated"})
        return Translation([Candidate(" ".join([request.text, *request.phrases]), [], 0.0, 0.0)])


class Served:
    """A server in this process. Work between two requests, such as the translation of a document, waits for the next one."""

    def __init__(self, translator, **options):
        self.loop, self.translator = asyncio.new_event_loop(), translator
        self.options = ServeOptions(**options)
        self.service = Service(self.options, models.Models(self.options, registry.choose("decoder", "beam", {})))
        self.application, self.address = application(self.service), "127.0.0.1"

    def __call__(self, method, path, body=b"", **headers):
        """Returns (status, content), the content parsed if it is JSON."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}

        async def exchange():
            asked = Exchange(self._asked, path, body, names, method)
            status, found = await asked.head()
            content = await asked.body()
            is_json = found.get("content-type", "").startswith("application/json")
            return status, json.loads(content) if is_json else content

        return self.loop.run_until_complete(exchange())

    async def _asked(self, scope, receive, send):
        await self.application({**scope, "client": (self.address, 1)}, receive, send)

    def close(self):
        self.translator.gate.set()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(self.service.models.close())
        self.loop.close()

    def translate(self, **fields):
        status, content = self("POST", "/v2/translate", {"text": ["The man sleeps."], **LANGUAGES, **fields})
        return content["translations"][0]["text"] if status == 200 else status

    def upload(self, name, content, **fields):
        """Upload a document, and return the status and the answer."""
        parts = [
            f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
        ]
        head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        content = content if isinstance(content, bytes) else content.encode()
        body = "".join(parts).encode() + head.encode() + content + b"\r\n--x--\r\n"
        return self("POST", "/v2/document", body, content_type="multipart/form-data; boundary=x")

    def status(self, handle):
        return self("POST", f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]})[1]

    def download(self, handle):
        return self("POST", f"/v2/document/{handle['document_id']}/result", {"document_key": handle["document_key"]})

    def document(self, name, content, **fields):
        """Upload a document, and return its last status and its translation."""
        handle = self.upload(name, content, **{**LANGUAGES, **fields})[1]
        return self.last_status(handle), self.download(handle)[1]

    def last_status(self, handle):
        for _ in range(1000):
            if (status := self.status(handle))["status"] in ("done", "error"):
                return status
        raise AssertionError(status)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    size = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    return small_model(tmp_path_factory.mktemp("deepl") / "m", **size)


@pytest.fixture
def serve(folder, monkeypatch, tmp_path):
    """Make a server with one model per direction."""
    made = []

    def serving(*directions, **options):
        paths = []
        for source, target in directions or [("en", "de")]:
            paths.append(shutil.copytree(folder, tmp_path / f"{len(made)}-{source}-{target}"))
            side = json.loads((paths[-1] / "pipeline/pipeline.json").read_bytes())
            side["source"]["language"], side["target"]["language"] = source, target
            reseal(paths[-1], "pipeline/pipeline.json", json.dumps(side).encode())
        translator = Phrases(batch_tokens=4096)

        def open_fake(opened, *_, **__):
            translator.pipeline = Pipeline.load(Artefact(opened[0], "model"))
            return translator

        monkeypatch.setattr(models, "open_translator", open_fake)
        made.append(Served(translator, model=tuple(map(str, paths)), **options))
        return made[-1]

    yield serving
    for served in made:
        served.close()


def glossary(name="terms", entries="man\tKerl", **fields):
    return {"name": name, **LANGUAGES, "entries": entries, "entries_format": "tsv", **fields}


# Glossaries


def test_a_glossary_of_version_2_can_be_created_listed_read_and_deleted(serve):
    ask = serve()
    assert ask("GET", "/v2/glossary-language-pairs")[1] == {
        "supported_languages": [{"source_lang": "en", "target_lang": "de"}]
    }
    status, made = ask("POST", "/v2/glossaries", glossary(entries="man\tKerl\r\n\ndog\tHund"))
    row = {"name": "terms", "ready": True, "source_lang": "en", "target_lang": "de", "entry_count": 2}
    assert status == 201 and row.items() <= made.items()
    assert datetime.strptime(made["creation_time"], "%Y-%m-%dT%H:%M:%S.%f%z").tzinfo is not None
    path = f"/v2/glossaries/{made['glossary_id']}"
    assert ask("GET", "/v2/glossaries") == (200, {"glossaries": [made]})
    assert ask("GET", path) == (200, made)
    assert ask("GET", f"{path}/entries") == (200, b"man\tKerl\ndog\tHund")
    assert ask("DELETE", path) == (204, b"")
    for method in ("GET", "DELETE"):
        status, content = ask(method, path)
        assert status == 404 and "message" in content
    assert ask("GET", "/v2/glossaries")[1] == {"glossaries": []}


def test_a_glossary_of_version_3_can_be_edited(serve):
    ask = serve(("en", "de"), ("de", "en"))
    one, other = glossary(), glossary(source_lang="de", target_lang="en", entries="Mann,fellow", entries_format="csv")
    rows = [{"source_lang": "en", "target_lang": "de", "entry_count": 1}]
    rows.append({"source_lang": "de", "target_lang": "en", "entry_count": 1})
    status, made = ask("POST", "/v3/glossaries", {"name": "both", "dictionaries": [one, other]})
    assert status == 201 and made["dictionaries"] == rows
    form = {f"dictionaries[{i}].{key}": value for i, row in enumerate((one, other)) for key, value in row.items()}
    status, also = ask(
        "POST",
        "/v3/glossaries",
        urlencode({"name": "node", **form}).encode(),
        content_type="application/x-www-form-urlencoded",
    )
    assert status == 201 and also["dictionaries"] == rows
    path = f"/v3/glossaries/{made['glossary_id']}"
    assert ask("GET", path) == (200, made)
    assert ask("GET", "/v3/glossaries")[1] == {"glossaries": [made, also]}
    assert ask("GET", "/v2/glossaries")[1] == {"glossaries": []}  # version 2 cannot describe two directions
    assert ask("GET", f"/v2/glossaries/{made['glossary_id']}")[0] == 400

    def entries(source="EN", target="DE"):
        status, content = ask("GET", f"{path}/entries?source_lang={source}&target_lang={target}")
        return content["dictionaries"][0]["entries"] if status == 200 else status

    assert (entries(), entries("DE", "EN"), entries("EN", "FR")) == ("man\tKerl", "Mann\tfellow", 404)
    status, edited = ask("PATCH", path, {"name": "new", "dictionaries": [glossary(entries="dog\tHund\nman\tMann")]})
    assert status == 200 and edited["name"] == "new" and edited["dictionaries"][1]["entry_count"] == 2
    assert entries() == "man\tMann\ndog\tHund"
    assert ask("PATCH", path, {"name": "newer"})[1]["name"] == "newer" and entries() == "man\tMann\ndog\tHund"
    replaced = {"source_lang": "en", "target_lang": "de", "entry_count": 1}
    assert ask("PUT", f"{path}/dictionaries", glossary(entries="cat\tKatze")) == (200, replaced)
    assert entries() == "cat\tKatze"
    assert ask("DELETE", f"{path}/dictionaries?source_lang=de&target_lang=en") == (204, b"")
    assert ask("DELETE", f"{path}/dictionaries?source_lang=de&target_lang=en")[0] == 404
    assert [row["name"] for row in ask("GET", "/v2/glossaries")[1]["glossaries"]] == ["newer"]
    assert ask("DELETE", path)[0] == 204 and entries() == 404


def test_a_translation_uses_the_glossary_that_it_names(serve):
    ask = serve(("en", "de"), ("de", "en"))
    first, second = (
        ask("POST", "/v2/glossaries", glossary(entries=entries))[1]["glossary_id"]
        for entries in ("man\tKerl", "man\tMann\nsleeps\truht")
    )
    assert ask.translate() == "The man sleeps."
    assert ask.translate(glossary_id=first) == "The man sleeps. Kerl"
    assert ask.translate(glossary_id=first, source_lang="en-GB", target_lang="DE-AT") == "The man sleeps. Kerl"
    assert ask.translate(glossary_ids=[first, second]) == "The man sleeps. Kerl ruht"
    assert ask.translate(glossary_ids=f"{second},{first}") == "The man sleeps. Mann ruht"
    assert ask.translate(text=["The cat."], glossary_id=first) == "The cat."
    assert ask.translate(text=["<b>The man</b> {man}."], glossary_id=first, tag_handling="xml").count("Kerl") == 1
    for status, fields in (
        (400, {"glossary_id": first, "source_lang": None}),
        (400, {"glossary_id": first, "source_lang": "DE", "target_lang": "EN-US"}),
        (400, {"glossary_id": first, "glossary_ids": [second]}),
        (400, {"glossary_ids": [first] * 6}),
        (400, {"glossary_id": 5}),
        (404, {"glossary_id": "../" + first}),
    ):
        assert ask.translate(**fields) == status
    changed = {"dictionaries": [glossary(entries="man\tBursche")]}
    assert ask("PATCH", f"/v3/glossaries/{first}", changed)[0] == 200
    assert ask.translate(glossary_id=first) == "The man sleeps. Bursche"


@pytest.mark.parametrize(
    "fields",
    [
        {"entries": ""},
        {"entries": "\n\n"},
        {"entries": "man"},
        {"entries": "man\t"},
        {"entries": "man\tKerl\tMann"},
        {"entries": "man\tKerl\nman\tMann"},
        {"entries": "man\tKe\x01rl"},
        {"entries": "man\tKe\u2028rl"},
        {"entries": f"man\t{'x' * 1025}"},
        {"entries": f"{'a ' * 51}\tKerl"},
        {"entries": 'man,"Ke\nrl"', "entries_format": "csv"},
        {"entries": "man", "entries_format": "csv"},
        {"entries": "x" * 200_000, "entries_format": "csv"},
        {"entries": ["man\tKerl"]},
        {"entries_format": "xml"},
        {"entries_format": 1},
        {"name": ""},
        {"name": "x" * 1025},
        {"target_lang": "FR"},
        {"target_lang": None},
        {"source_lang": ["EN"]},
    ],
)
def test_an_invalid_glossary_is_refused(serve, fields):
    ask = serve()
    rows = {key: value for key, value in fields.items() if key != "name"}
    name = fields.get("name", "terms")
    for path, body in (
        ("/v2/glossaries", glossary(**fields)),
        ("/v3/glossaries", {"name": name, "dictionaries": [glossary(**rows)] if rows else []}),
    ):
        status, content = ask("POST", path, body)
        assert status == 400 and isinstance(content["message"], str)
    assert ask("GET", "/v3/glossaries")[1] == {"glossaries": []}


def test_entries_may_be_quoted_and_csv_may_name_the_languages(serve):
    ask = serve()
    for entries, format, wanted in (
        ('"a ""b"""\tc\nsay "d"\t"e"', "tsv", 'a "b"\tc\nsay "d"\te'),
        ('"a, ""b""",c,en,de\r\n\r\nd,e\r\n', "csv", 'a, "b"\tc\nd\te'),
        ("a\tb\na\tb", "tsv", "a\tb"),
    ):
        made = ask("POST", "/v2/glossaries", glossary(entries=entries, entries_format=format))[1]
        assert ask("GET", f"/v2/glossaries/{made['glossary_id']}/entries")[1].decode() == wanted


def test_glossaries_in_a_folder_outlive_the_server_and_are_shared(serve, tmp_path, capfd):
    kept = tmp_path / "glossaries"
    kept.mkdir()
    ask, other = serve(glossaries=str(kept)), serve(glossaries=str(kept))
    first = ask("POST", "/v2/glossaries", glossary("first"))[1]
    path = f"/v3/glossaries/{first['glossary_id']}"
    assert other("GET", "/v2/glossaries")[1] == {"glossaries": [first]}
    assert other("PATCH", path, {"dictionaries": [glossary(entries="man\tBursche")]})[0] == 200
    assert ask.translate(glossary_id=first["glossary_id"]) == "The man sleeps. Bursche"
    (kept / "00000000-0000-0000-0000-000000000000.json").write_bytes(b"{")
    (kept / "notes.json").write_text("mine")
    (kept / "11111111-1111-1111-1111-111111111111.json").symlink_to(kept / f"{first['glossary_id']}.json")
    again = serve(glossaries=str(kept))
    for _ in range(3):
        assert again("GET", "/v2/glossaries")[1] == {"glossaries": [first]}
    assert capfd.readouterr().err.count("not a glossary") == 1
    assert other("DELETE", path)[0] == 204
    assert ask("GET", "/v2/glossaries")[1] == again("GET", "/v2/glossaries")[1] == {"glossaries": []}
    assert ask("GET", path)[0] == 404
    assert sorted(file.name for file in kept.iterdir() if not file.is_symlink()) == [
        "00000000-0000-0000-0000-000000000000.json",
        "notes.json",
    ]


def test_each_key_has_its_own_glossaries_and_documents(serve, tmp_path):
    (tmp_path / "keys").write_text("one\ntwo\n")
    ask = serve(keys=str(tmp_path / "keys"))
    one, two = ({"authorization": f"DeepL-Auth-Key {key}"} for key in ("one", "two"))
    made = ask("POST", "/v2/glossaries", glossary(), **one)[1]
    path = f"/v2/glossaries/{made['glossary_id']}"
    assert ask("GET", "/v2/glossaries", **one)[1] == {"glossaries": [made]}
    assert ask("GET", "/v2/glossaries", **two)[1] == {"glossaries": []}
    fields = {"text": ["The man."], **LANGUAGES, "glossary_id": made["glossary_id"]}
    assert ask("POST", "/v2/translate", fields, **two)[0] == 404
    assert ask("DELETE", path, **two)[0] == 404 and ask("DELETE", path)[0] == 403
    assert ask("DELETE", path, **one)[0] == 204


def test_the_number_and_the_size_of_glossaries_are_limited(serve, monkeypatch):
    ask = serve()
    monkeypatch.setattr(glossaries, "MAX_GLOSSARIES", 2)
    made = [ask("POST", "/v2/glossaries", glossary(str(i)))[1] for i in range(2)]
    for path, body in (("/v2/glossaries", glossary()), ("/v3/glossaries", {"name": "a", "dictionaries": [glossary()]})):
        assert ask("POST", path, body)[0] == 456
    assert ask("DELETE", f"/v2/glossaries/{made[0]['glossary_id']}")[0] == 204
    monkeypatch.setattr(glossaries, "MAX_GLOSSARY_BYTES", 1500)
    large = glossary(entries="\n".join(f"word{i}\tWort{i}" for i in range(100)))
    assert ask("POST", "/v2/glossaries", large)[0] == 456
    assert ask("PUT", f"/v3/glossaries/{made[1]['glossary_id']}/dictionaries", large)[0] == 456
    assert ask("GET", f"/v2/glossaries/{made[1]['glossary_id']}/entries")[1] == b"man\tKerl"
    assert ask("POST", "/v2/glossaries", glossary())[0] == 201
    half = glossary(entries="\n".join(f"word{i}\tWort{i}" for i in range(50)))
    for _ in range(2):  # a glossary that replaces itself needs no additional memory
        assert ask("PUT", f"/v3/glossaries/{made[1]['glossary_id']}/dictionaries", half)[0] == 200
    monkeypatch.setattr(glossaries, "MAX_DICTIONARY_BYTES", 500)
    assert ask("PUT", f"/v3/glossaries/{made[1]['glossary_id']}/dictionaries", half)[0] == 413


def test_a_folder_of_glossaries_that_disappears_or_changes_is_no_bug(serve, tmp_path, monkeypatch, capfd):
    kept = tmp_path / "glossaries"
    kept.mkdir()
    ask, scandir = serve(glossaries=str(kept)), os.scandir
    first, second = (ask("POST", "/v2/glossaries", glossary())[1]["glossary_id"] for _ in range(2))

    class Entry(SimpleNamespace):
        """A file that another server deletes before it is examined."""

        def stat(self, **_):
            Path(self.path).unlink()
            return Path(self.path).stat()

    @contextmanager
    def deleting(folder):
        with scandir(folder) as files:
            yield [Entry(name=file.name, path=file.path, is_file=file.is_file) for file in files]

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", deleting)
        assert ask("GET", "/v2/glossaries") == (200, {"glossaries": []})
    assert ask("DELETE", f"/v2/glossaries/{first}")[0] == 404
    kept.rmdir()
    assert ask("GET", "/v2/glossaries")[0] == ask("DELETE", f"/v2/glossaries/{second}")[0] == 503
    assert str(kept) in capfd.readouterr().err
    kept.mkdir()
    assert ask("POST", "/v2/glossaries", glossary())[0] == 201


# Documents


def test_without_space_for_temporary_files_only_documents_that_need_some_fail(serve, tmp_path, monkeypatch, capfd):
    ask = serve()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        assert ask.document("a.txt", "The man sleeps.\n" + 400 * ("\u3000" * 1000 + "\n"))[0]["status"] == "done"
        status = ask.document("a.srt", SRT)[0]
    assert status["status"] == "error" and "resource" in status["message"]
    assert str(tmp_path / "missing") in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "The man sleeps.\r\n\r\n  A dog {man} %s.\n"),
        ("a.unknown", "\ufeffThe man sleeps."),
        ("a.srt", SRT),
        ("a.HTML", "<html><body><p>The <b>man</b> sleeps.</p></body></html>"),
        ("a.md", "# The man\n\nThe man sleeps.\n"),
        ("Übung 1.json", '{"a": "The man sleeps."}'),
        ("a.csv", "en,de\nThe man sleeps.,\n"),
    ],
)
def test_a_document_of_each_kind_is_translated(serve, name, content):
    ask = serve()
    number = ask("POST", "/v2/glossaries", glossary(entries="sleeps\truht"))[1]["glossary_id"]
    status, translated = ask.document(name, content)
    assert status["status"] == "done" and status["billed_characters"] > 0 and "error_message" not in status
    if not name.endswith("csv"):  # the table gets its translation in another column
        assert translated.decode() == content
    assert "ruht" in ask.document(name, content, glossary_id=number)[1].decode()


def test_a_document_in_another_encoding_keeps_it(serve):
    content = "The man sleeps.\n".encode("utf-16")
    assert serve().document("a.txt", content)[1] == content


def test_the_language_of_a_document_is_detected(serve):
    ask = serve(("en", "de"), ("fr", "de"))
    german = "Der Mann geht in das Haus, und die Kinder sind da.\n"
    handle = ask.upload("a.txt", german, target_lang="DE")[1]
    assert ask.last_status(handle)["status"] == "done"
    assert ask.download(handle)[1].decode() == german and not ask.translator.batches
    handle = ask.upload("a.txt", "L'homme entre dans la maison, et les enfants sont là.", target_lang="DE")[1]
    assert ask.last_status(handle)["status"] == "done" and ask.translator.pipeline.source_lang == "fr"


def test_a_document_can_be_downloaded_once_with_its_key_when_it_is_translated(serve, monkeypatch):
    monkeypatch.setattr(deepl_documents, "PATIENCE_SECONDS", 0.05)
    ask = serve()
    ask.translator.gate.clear()
    handle = ask.upload("a.txt", "The man.", **LANGUAGES)[1]
    status = ask.status(handle)
    assert status["status"] == "translating" and status["seconds_remaining"] > 0
    assert ask.download(handle)[0] == 503
    ask.translator.gate.set()
    assert ask.last_status(handle)["status"] == "done"
    for wrong in ("", "ü", None, handle["document_key"][:-1]):
        assert ask("POST", f"/v2/document/{handle['document_id']}", {"document_key": wrong})[0] == 404
        assert ask.download({**handle, "document_key": wrong})[0] == 404
    assert ask("POST", "/v2/document/0", {"document_key": handle["document_key"]})[0] == 404
    assert ask.download(handle) == (200, b"The man.")
    assert ask.download(handle)[0] == 404


def test_documents_are_forgotten_after_a_time_and_their_number_is_limited(serve, monkeypatch):
    monkeypatch.setattr(deepl_documents, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(deepl_documents, "MAX_DOCUMENTS", 3)
    ask = serve()
    ask.translator.gate.clear()
    handles = [ask.upload("a.txt", "The man.", **LANGUAGES)[1] for _ in range(3)]
    assert [ask.status(handle)["status"] for handle in handles] == ["translating", "translating", "queued"]
    assert ask.upload("a.txt", "The man.", **LANGUAGES)[0] == 429
    ask.translator.gate.set()
    assert ask.last_status(handles[2])["status"] == "done"
    fourth = ask.upload("a.txt", "The man.", **LANGUAGES)[1]  # the oldest translation makes room
    assert ask.download(handles[0])[0] == 404 and ask.download(handles[1])[0] == 200
    assert ask.last_status(fourth)["status"] == "done"
    for limit in ("MAX_ALL_BYTES", "MAX_CLIENT_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(deepl_documents, limit, 20)
            assert ask.upload("a.txt", "The man sleeps, and the dog too.", **LANGUAGES)[0] == 429
    assert ask.download(fourth)[0] == 200  # a document that is refused drops no other
    monkeypatch.setattr(deepl_documents, "DOCUMENT_SECONDS", 0.0)
    last = ask.upload("a.txt", "The man.", **LANGUAGES)[1]
    for _ in range(1000):
        if ask("POST", f"/v2/document/{last['document_id']}", {"document_key": last["document_key"]})[0] == 404:
            return
    raise AssertionError("never forgotten")


def test_the_documents_of_one_client_do_not_delay_those_of_another(serve, monkeypatch):
    monkeypatch.setattr(deepl_documents, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(deepl_documents, "MAX_DOCUMENTS", 3)
    ask = serve()
    ask.translator.gate.clear()
    for status in (200, 200, 200, 429):
        assert ask.upload("a.txt", "The man.", **LANGUAGES)[0] == status
    ask.address = "127.0.0.2"
    handle = ask.upload("a.txt", "The man.", **LANGUAGES)[1]
    assert ask.status(handle)["status"] == "translating"


def test_a_document_that_cannot_be_translated_says_why(serve, tmp_path):
    ask = serve(max_document_characters=100, max_body=0.01)
    for name, content, word in (
        ("a.pdf", "%PDF", "docx"),
        ("a.docx", "PK", "DOCX"),
        ("a.txt", b"\xff\xfe\xff", "UTF"),
        ("a.txt", b"M\xe4nner", "UTF-8"),
        ("a.txt", "word " * 100, "100"),
        ("a.csv", "a,b\nc,d\n", "columns"),
    ):
        handle = ask.upload(name, content, **LANGUAGES)[1]
        status = ask.last_status(handle)
        assert status["status"] == "error" and word in status["error_message"]
        assert "/tmp" not in status["error_message"] and "--" not in status["error_message"]
        assert ask.download(handle)[0] == 400
    assert ask.upload("a.txt", "word " * 3000, **LANGUAGES)[0] == 413
    for fields in (
        {"target_lang": "FR"},
        {"target_lang": "DE", "source_lang": "FR"},
        {"source_lang": "EN"},
        {**LANGUAGES, "output_format": "docx"},
        {**LANGUAGES, "formality": "more"},
        {"target_lang": "DE", "glossary_id": "x"},
    ):
        status, content = ask.upload("a.txt", "The man.", **fields)
        assert status == 400 and isinstance(content["message"], str)
    assert ask.upload("a.txt", "The man.", **LANGUAGES, glossary_id="x")[0] == 404
    assert ask("POST", "/v2/document", {"file": "The man.", **LANGUAGES})[0] == 400
    assert ask.upload("a", "The man.", **LANGUAGES, filename="b.txt", output_format="TXT")[0] == 200


def test_lines_that_fail_stay_as_they_are_and_are_reported(serve, capfd):
    ask = serve()
    status, translated = ask.document("a.txt", "The man sleeps.\nthey fail here\ntoo long a line\nThe dog.\n")
    assert translated.decode() == "The man sleeps.\nthey fail here\ntoo long a line\nThe dog.\n"
    assert len(status["warnings"]) == 2 and "a.txt:2" in status["warnings"][0] and "too long" in status["warnings"][1]
    status, translated = ask.document("a.srt", SRT.replace("sleeps", "will fail"))
    assert "kept unchanged" in status["report"] and "will fail" in translated.decode()
    assert "fail" not in capfd.readouterr().err  # texts are not logged


def test_a_long_document_leaves_the_engine_to_others_between_its_parts(serve):
    ask = serve()
    count = 3 * documents.WINDOW_TEXTS + 1
    lines = [f"The man {number}." for number in range(count)]
    assert ask.document("a.txt", "\n".join(lines))[1].decode().split("\n") == lines
    assert len(ask.translator.batches) >= 4
    assert max(map(len, ask.translator.batches)) <= documents.WINDOW_TEXTS
    limited = serve(max_characters=30)
    assert limited.document("a.txt", "\n".join(lines[:10]))[1].decode().split("\n") == lines[:10]
    assert max(len("".join(batch)) for batch in limited.translator.batches) <= 30


def test_a_document_waits_while_the_server_is_busy(serve, monkeypatch):
    ask = serve(max_waiting=100)
    refused = []

    async def busy(model, requests, settings, *_, original=ask.service.translate_texts):
        if len(refused) < 3:
            refused.append(1)
            raise models.busy(1)
        return await original(model, requests, settings)

    monkeypatch.setattr(ask.service, "translate_texts", busy)
    monkeypatch.setattr(documents, "PAUSES", (0.01,) * 5)
    assert ask.document("a.txt", "The man.")[1] == b"The man." and len(refused) == 3


def test_a_file_of_a_form_is_read_as_bytes_and_other_files_as_text():
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../a\n/b\x07.docx"\r\n\r\n\xff\x00\r\n'
        b'--x\r\nContent-Disposition: form-data; name="q"; filename="q.txt"\r\n\r\n\xc3\xbc\r\n--x--\r\n'
    ).replace(b"a\n", b"a")
    fields = asyncio.run(Call(Headers({"content-type": "multipart/form-data; boundary=x"}), [], body).fields())
    assert fields["q"] == "ü" and fields["file"].content == b"\xff\x00"
    assert (
        "/" not in fields["file"].name and "\x07" not in fields["file"].name and fields["file"].name.endswith(".docx")
    )


# Languages and other calls


@pytest.mark.parametrize(
    ("own", "sources", "targets"),
    [
        (("en", "de"), ["EN"], ["DE"]),
        (("de", "en"), ["DE"], ["EN-GB", "EN-US"]),
        (("de", "en-US"), ["DE"], ["EN-US"]),
        (("de-AT", "pt"), ["DE"], ["PT-BR", "PT-PT"]),
        (("pt-BR", "de-CH"), ["PT"], ["DE-CH", "DE"]),
        (("zh-Hans", "zh-Hant"), ["ZH"], ["ZH-HANT"]),
        (("zh", "zh-CN"), ["ZH"], ["ZH", "ZH-HANS"]),
        (("no", "no"), ["NB"], ["NB"]),
        (("eng", "sr-Latn"), ["EN"], ["SR-LATN"]),
    ],
)
def test_languages_are_listed_as_deepls_clients_expect_and_each_can_be_used(serve, own, sources, targets):
    ask = serve(own)
    assert [row["language"] for row in ask("GET", "/v2/languages")[1]] == sources
    assert [row["language"] for row in ask("GET", "/v2/languages?type=source")[1]] == sources
    found = ask("GET", "/v2/languages?type=target")[1]
    assert [row["language"] for row in found] == targets
    assert not any(row["supports_formality"] for row in found)
    for resource in ("translate_text", "translate_document", "glossary"):
        rows = ask("GET", f"/v3/languages?resource={resource}")[1]
        for usable, wanted in (("usable_as_source", sources), ("usable_as_target", targets)):
            assert sorted(row["lang"].upper() for row in rows if row[usable]) == sorted(wanted)
        assert all("glossary" in row["features"] for row in rows)
    assert all(re.fullmatch("[a-z]{2}(-[A-Z]{2}|-[A-Z][a-z]{3})?", row["lang"]) for row in rows)
    assert ask("GET", "/v3/languages?resource=write") == (200, [])
    for source in sources:
        for target in targets:
            assert ask.translate(source_lang=source, target_lang=target) == "The man sleeps."


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/write/rephrase"),
        ("GET", "/v3/style_rules"),
        ("DELETE", "/v3/translation_memories/5"),
        ("PUT", "/v3/style_rules/5/configured_rules"),
    ],
)
def test_calls_for_what_the_server_does_not_do_get_an_error_that_clients_understand(serve, method, path):
    status, content = serve()(method, path)
    assert status == 404 and content["message"]


@pytest.mark.parametrize(
    "mark", ["{name}", "%s", "%(name)s", "{{ name }}", "$name", "<x id='1'/>", "https://example.com/a"]
)
@pytest.mark.parametrize("split", ["0", "1", "nonewlines"])
def test_placeholders_are_kept(serve, mark, split):
    ask = serve()
    assert mark in ask.translate(text=[f"The man {mark} sleeps."], split_sentences=split)

    def lost(request, answer=ask.translator.answer):
        answered = answer(request)
        return Translation([Candidate("Der Mann schläft.", [], 0.0, 0.0)]) if answered.candidates else answered

    ask.translator.answer = lost  # a model that loses them: then the text stays
    assert mark in ask.translate(text=[f"The man {mark} sleeps."], split_sentences=split)
