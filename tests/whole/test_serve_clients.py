"""What clients of `nmt serve` send and expect: language codes, empty fields, tags, and complete texts."""

import asyncio
import json
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

import pytest
from conftest import reseal, small_model
from exchange import Exchange, events_of
from fake_translator import FakeTranslator

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import UserError
from nmt.extensions.serve import detection, models, service
from nmt.extensions.serve.app import application
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocols import libretranslate, openai, own
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary
from nmt.text.corpus import visible_line
from nmt.text.pipeline import Pipeline
from nmt.translate.results import TRUNCATED, Candidate, Translation

LIBRE, DEEPL, OPENAI, OWN = "/translate", "/v2/translate", "/v1/chat/completions", "/v1/translate"
ENGLISH = "The man walks into the house, and the children are there."
GERMAN = "Der Mann geht in das Haus, und die Kinder sind da."
PAGES = Path(__file__).parents[2] / "docs/how-to"
FORM = {"content-type": "application/x-www-form-urlencoded"}


class Echo(FakeTranslator):
    """Return a text, or put marks around it; warn about a text with `lost`, and truncate one with `truncated`."""

    def translate(self, requests):
        texts = [request.text for request in requests]
        self.batches.append(texts)
        return [self.answer(text) for text in texts]

    def answer(self, text):
        warnings = {kind: f"{kind} something" for kind in ("lost", TRUNCATED) if kind in text}
        texts = [f"«{text}»", f"second «{text}»"] if self.marks else [text]
        return Translation([Candidate(one, [], 0.0, 0.0) for one in texts], warnings=warnings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    size = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    return small_model(tmp_path_factory.mktemp("clients") / "m", **size)


class Asked:
    """A server in this process. opened: its models in the order of loading"""

    def __init__(self, folder, directions, marks, monkeypatch, tmp_path, **options):
        self.opened, paths = [], []
        for name, (source, target) in directions.items():
            paths.append(shutil.copytree(folder, tmp_path / name))
            side = json.loads((paths[-1] / "pipeline/pipeline.json").read_bytes())
            side["source"]["language"], side["target"]["language"] = source, target
            reseal(paths[-1], "pipeline/pipeline.json", json.dumps(side).encode())

        def open_echo(opened, *_, **__):
            echo = Echo(batch_tokens=4096)
            echo.pipeline, echo.marks = Pipeline.load(Artefact(opened[0], "model")), marks
            self.opened.append(echo)
            return echo

        monkeypatch.setattr(models, "open_translator", open_echo)
        self.options = ServeOptions(model=tuple(map(str, paths)), **options)

    def service(self):
        return Service(self.options, models.Models(self.options, registry.choose("decoder", "beam", {})))

    def lines(self, text):
        """The translation of a message of Marian's protocol."""

        async def translated():
            service = self.service()
            translation = await service.translated_lines(service.models.find(), text)
            await service.models.close()
            return translation

        return asyncio.run(translated())

    def __call__(self, path, body=b"", method="POST", **headers):
        """Returns (status, content), the content parsed if it is JSON."""
        return self.in_turn(lambda _: (path, body, method, headers))[0]

    def in_turn(self, *requests):
        """The answers of one server to several requests. Each is a function of the content before it."""

        async def exchanges():
            service, answers = self.service(), [(0, None)]
            app = application(service)
            for request in requests:
                path, body, method, headers = request(answers[-1][1])
                asked = Exchange(app, path, body, {k.replace("_", "-"): v for k, v in headers.items()}, method)
                status, found = await asked.head()
                content = await asked.body()
                is_json = found["content-type"].startswith("application/json")
                answers.append((status, json.loads(content) if is_json else content))
            await service.models.close()
            return answers[1:]

        return asyncio.run(exchanges())


@pytest.fixture
def serve(folder, monkeypatch, tmp_path):
    """Make a server with one model per direction; the models mark the texts that they translate."""

    def made(directions, marks=True, **options):
        return Asked(folder, directions, marks, monkeypatch, tmp_path, **options)

    return made


def ask_all(ask, text, source, target):
    """(status, translation, language of the text) for each protocol with language parameters."""
    status, content = ask(LIBRE, {"q": text, "source": source or "auto", "target": target})
    yield status, content.get("translatedText"), content.get("detectedLanguage", {}).get("language")
    status, content = ask(DEEPL, {"text": [text], "source_lang": source, "target_lang": target})
    row = content.get("translations", [{}])[0]
    yield status, row.get("text"), row.get("detected_source_language") if source is None else None


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        (("en", "de"), ("EN", "DE")),
        (("en", "de"), ("eng", "ger")),
        (("eng", "deu"), ("en", "de")),
        (("en", "pt"), ("en-GB", "pt-BR")),
        (("en", "pt_BR"), ("EN-US", "PT")),
        (("zh", "no"), ("zh-Hans", "NB")),
        (("zh", "nn"), ("ZH-HANT", "no")),
        (("zh-Hant", "nb"), ("zh_TW", "nor")),
        (("cmn", "fas"), ("zh-CN", "per")),
        (("he", "id"), ("iw", "in")),
        (("sr-Latn", "fil"), ("SR", "tl")),
        (("en_US", "xx"), ("en_US.UTF-8", "XX")),
        (("en", "pt-BR"), ("en", "pb")),
        (("en", "zh-Hant"), ("en", "zt")),
        (("en", "sr-Cyrl"), ("en", "sr@cyrillic")),
        (("eng_Latn", "zho_Hans"), ("en", "zh-cn")),
    ],
)
def test_language_codes_of_clients_match_the_languages_of_models(serve, own, asked):
    ask = serve({"m": own})
    for status, text, _ in ask_all(ask, "Word.", *asked):
        assert (status, text) == (200, "«Word.»")
    assert ask(OWN, {"text": "word", "source": asked[0], "target": asked[1]})[0] == 200
    _, content = ask(OPENAI, {"model": "-".join(asked), "messages": [{"role": "user", "content": "Word."}]})
    assert content["choices"][0]["message"]["content"] == "«Word.»"
    [source, *_] = ask("/languages", method="GET")[1]
    assert [status for status, *_ in ask_all(ask, "Word.", source["code"], source["targets"][0])] == [200, 200]


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        (("en", "de"), ("en", "fr")),
        (("en", "de"), ("nl", "de")),
        (("en", "zh-Hans"), ("en", "zh-Hant")),
        (("en", "nb"), ("en", "nn")),
        (("en", "hr"), ("en", "sr")),
        (("uk", "es"), ("ru", "ca")),
        (("en", "de"), ("en", "")),
        (("en", "de"), ("en", "x" * 5000)),
        (("en", "de"), ("en", "de.\n[b]")),
    ],
)
def test_each_protocol_rejects_unsupported_languages_and_lists_the_supported_ones(serve, own, asked):
    ask = serve({"m": own})
    for path, body in (
        (LIBRE, {"q": "a", "source": asked[0], "target": asked[1]}),
        (DEEPL, {"text": ["a"], "source_lang": asked[0], "target_lang": asked[1]}),
        (OWN, {"text": "a", "source": asked[0], "target": asked[1]}),
        (OPENAI, {"model": "-".join(asked), "messages": [{"role": "user", "content": "a"}]}),
    ):
        status, content = ask(path, body)
        assert status == (404 if path == OPENAI else 400)
        message = json.dumps(content).lower()
        if path == LIBRE:  # its clients expect these words
            assert "is not supported" in message or "missing" in message
        else:
            assert not asked[1] or own[0].lower() in message or own[1].lower() in message


def test_the_model_with_the_closest_language_translates(serve):
    ask = serve({"a": ("en", "pt-BR"), "b": ("en", "pt-PT"), "c": ("en", "zh"), "d": ("en", "zh-Hant")})
    for code, name in {"PT-PT": "b", "PT": "a", "pt_br": "a", "zh-TW": "d", "ZH": "c", "zh-CN": "c"}.items():
        assert ask(OWN, {"text": "a", "target": code})[1]["model"] == name
    assert ask(OWN, {"text": "a", "model": "a", "target": "zh"})[0] == 400


def test_a_text_in_a_detected_language_can_be_in_the_target_language(serve):
    ask = serve({"en-de": ("en", "de"), "fr-de": ("fr", "de")})
    french = "L'homme entre dans la maison, et les enfants sont là."
    for text, language in ((ENGLISH, "en"), (french, "fr"), (GERMAN, "de"), (f"\n {GERMAN}\t\n", "de")):
        translated = text if language == "de" else f"«{text}»"
        for code in ("de", "DE-AT", "ger"):
            for status, found, source in ask_all(ask, text, None, code):
                assert (status, found, source.lower().partition("-")[0]) == (200, translated, language)
    _, content = ask(LIBRE, {"q": [GERMAN, ENGLISH, "", "42"], "source": "AUTO", "target": "de"})
    assert content["translatedText"] == [GERMAN, f"«{ENGLISH}»", "", "42"]
    assert [row["language"] for row in content["detectedLanguage"][:2]] == ["de", "en"]
    for status, text, _ in ask_all(ask, ENGLISH, "de", "de-CH"):  # from a language of the server into the same language
        assert (status, text) == (200, ENGLISH)
    [best, *_] = ask("/detect", {"q": french})[1]
    assert best["language"] == "fr" and 50 < best["confidence"] <= 100


def test_the_detector_is_loaded_only_when_a_text_needs_it(serve):
    """It takes a second and 80 MB, which clients that name the language do not pay."""
    ask = serve({"m": ("en", "de")})
    detection._identifier.cache_clear()
    assert [row[0] for row in ask_all(ask, ENGLISH, "en", "de")] == [200, 200]
    assert ask("/languages", method="GET")[0] == 200
    assert detection._identifier.cache_info().currsize == 0
    assert ask("/detect", {"q": ENGLISH})[1][0]["language"] == "en"
    assert detection._identifier.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('<p class="the main title of this page">Das Haus steht am Fluss.</p>', "de"),
        ("Der Hund l&auml;uft &uuml;ber die Stra&szlig;e: https://example.org/the/dog/runs", "de"),
        ("<b>Speichern unter dem neuen Namen</b>", "de"),
        ("Save this file under the new name", "en"),
        ("GUTEN MORGEN, WIE GEHT ES IHNEN?", "de"),
        ("Is this the right way to go?", "en"),
        ("Hotel", "en"),  # equally likely in either language, and therefore translated
    ],
)
def test_the_language_of_a_text_is_detected_from_its_words(serve, text, language):
    ask = serve({"m": ("en", "de")}, marks=False)
    for tags in ("text", "html"):
        _, content = ask(LIBRE, {"q": text, "source": "auto", "target": "de", "format": tags})
        assert content["detectedLanguage"]["language"] == language
        assert bool(ask.opened) == (language == "en")
        ask.opened.clear()


def test_a_model_into_the_language_of_a_text_translates_it(serve):
    ask = serve({"m": ("en", "en-GB")})
    for source in (None, "en"):
        assert [row[:2] for row in ask_all(ask, ENGLISH, source, "en-GB")] == [(200, f"«{ENGLISH}»")] * 2


@pytest.mark.parametrize(
    "text", ["", " ", "\n", " 12345 ", "3.14 €\t\n", "→ 10⁶ %", "🙂👍🏽", "!?…", "\u200b", "10\u00a0000"]
)
def test_a_text_without_letters_is_returned_unchanged(serve, text):
    ask = serve({"m": ("en", "de")})
    for source in ("en", None):
        assert [row[:2] for row in ask_all(ask, text, source, "de")] == [(200, text)] * 2
    _, content = ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": text}]})
    assert content["choices"][0]["message"]["content"] == text
    assert ask(OWN, {"text": text, "split": True})[1]["translations"] == [{"translation": text}]


def test_each_protocol_reports_losses_of_a_translation_and_truncation_is_an_error(serve):
    ask = serve({"m": ("en", "de")})

    def message(text, **options):
        return ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": text}], **options})[1]

    text, told = "All is well.\nOne lost.", ["lost something"]
    assert ask(LIBRE, {"q": text, "source": "en", "target": "de"})[1]["warnings"] == told
    assert ask(LIBRE, {"q": ["a", text], "source": "en", "target": "de"})[1]["warnings"] == [[], told]
    rows = ask(DEEPL, {"text": ["a", text], "target_lang": "DE"})[1]["translations"]
    assert [row.get("warnings") for row in rows] == [None, told]
    assert ask(OWN, {"text": text, "split": True})[1]["translations"][0]["warnings"] == told
    assert message(text)["warnings"] == told and "warnings" not in message("a")
    chunks = [chunk for _, chunk in events_of(message(text, stream=True))[:-1]]
    assert [chunk.get("warnings") for chunk in chunks] == [None, None, told]
    for path, body in (
        (LIBRE, {"q": "a truncated text", "source": "en", "target": "de"}),
        (DEEPL, {"text": ["a truncated text"], "target_lang": "DE"}),
        (OPENAI, {"model": "m", "messages": [{"role": "user", "content": "a truncated text"}]}),
    ):
        assert ask(path, body)[0] == 413


# Requests of real programs: what they send, and what they read.


def test_libretranslate_clients_work(serve):
    ask = serve({"m": ("en", "de")})
    fields = {"q": "Word.", "source": "en", "target": "de"}
    weblate = {**fields, "api_key": ""}
    web_page = {**fields, "format": None, "alternatives": None, "api_key": None}
    for body in (weblate, web_page, {**fields, "format": ""}, {**fields, "format": "html", "alternatives": 0}):
        assert ask(LIBRE, body) == (200, {"translatedText": "«Word.»"})
    for params in (
        fields,
        {**fields, "format": "text"},
    ):  # deep-translator puts it in the address, libretranslatepy in a form
        assert ask(f"{LIBRE}?{urlencode(params)}")[1] == {"translatedText": "«Word.»"}
        assert ask(LIBRE, urlencode(params).encode(), content_type=FORM["content-type"])[1] == {
            "translatedText": "«Word.»"
        }
    assert ask(LIBRE, {**fields, "q": ["One.", "Two."]})[1] == {"translatedText": ["«One.»", "«Two.»"]}
    assert ask("/languages", b"", "GET")[1] == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]


def test_libretranslate_answers_as_its_own_tests_expect(serve):
    """The requests of LibreTranslate's test suite, with the statuses and the error texts that it asserts."""
    ask = serve({"en-es": ("en", "es"), "es-en": ("es", "en")})
    assert ask("/detect", b"q=Hello", **FORM)[1][0].keys() == {"language", "confidence"}
    status, content = ask("/detect", b"", **FORM)
    assert (status, content) == (400, {"error": "Invalid request: missing q parameter"})
    hello = {"q": ["Hello", "World"], "source": "en", "target": "es", "format": "text"}
    assert ask(LIBRE, hello) == (200, {"translatedText": ["«Hello»", "«World»"]})
    assert ask(LIBRE, urlencode({**hello, "q": "Hello", "target": "zz"}).encode(), **FORM) == (
        400,
        {"error": "zz is not supported"},
    )
    assert ask(LIBRE, b"source=en&target=es", **FORM) == (400, {"error": "Invalid request: missing q parameter"})
    assert ask("/health", method="GET") == (200, {"status": "ok"})
    for path, wrong in (("/detect", "GET"), ("/languages", "POST"), ("/health", "POST"), ("/spec", "POST")):
        assert ask(path, method=wrong, content_type="")[0] == 405
    # argostranslate posts an empty form.
    assert ask("/languages", **FORM) == ask("/languages", method="GET")
    assert ask("/suggest", {**hello, "s": "Hola"})[0] == 403
    status, settings = ask("/frontend/settings", method="GET")
    assert status == 200 and not settings["keyRequired"]
    assert {".txt", ".docx", ".srt", ".html"} < set(settings["supportedFilesFormat"])
    assert ".pdf" not in settings["supportedFilesFormat"]
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "es", "name": "Spanish"},
    }


def multipart(name, content, **fields):
    """(body, headers) of a form with a file"""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    file = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return "".join([*parts, file]).encode() + content + b"\r\n--x--\r\n", "multipart/form-data; boundary=x"


@pytest.mark.parametrize("source", ["en", "auto"])
@pytest.mark.parametrize(
    ("name", "content", "translated"),
    [
        ("a b.txt", f"{ENGLISH}\n\nTwo dogs.\n", f"«{ENGLISH}»\n\n«Two dogs.»\n"),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\nThe man sleeps.\n",
            "1\n00:00:01,000 --> 00:00:02,000\n«The man sleeps.»\n",
        ),
        ("a.html", f"<p>{ENGLISH}</p>", f"<p>«{ENGLISH}»</p>"),
    ],
    ids=["text", "srt", "html"],
)
def test_libretranslate_translates_files(serve, name, content, translated, source):
    ask = serve({"m": ("en", "de")}, hosts=("example.org",))
    body, kind = multipart(name, content.encode(), source=source, target="de")
    headers = {
        "content_type": kind,
        "host": "example.org:5000",
        "x_forwarded_proto": "https",
        "x_forwarded_host": "evil.example",
    }
    address = "http://example.org:5000"  # nobody named a proxy
    [(status, answer), downloaded] = ask.in_turn(
        lambda _: ("/translate_file", body, "POST", headers),
        lambda answer: (unquote(answer["translatedFileUrl"].removeprefix(address)), b"", "GET", {}),
    )
    assert status == 200 and re.fullmatch(
        address + r"/download_file/[\w-]{20,}/" + quote(name), answer["translatedFileUrl"]
    )
    assert downloaded == (200, translated.encode())


@pytest.mark.parametrize("name", ["..", "."])
def test_a_file_with_a_name_that_addresses_cannot_have_can_be_downloaded(serve, name):
    ask = serve({"m": ("en", "de")})
    body, kind = multipart(name, b"One.", source="en", target="de")
    address = ask("/translate_file", body, content_type=kind)[1]["translatedFileUrl"]
    assert address.rpartition("/")[2] == "file"


def test_a_model_in_a_folder_whose_name_is_not_utf_8_is_listed_and_measured(serve):
    ask = serve({os.fsdecode(b"l\xe9"): ("en", "de")})
    assert ask("/v1/models", method="GET")[1]["data"][0]["id"] == r"l\udce9"
    assert rb'model="l\\udce9"' in ask("/metrics", method="GET")[1]
    assert ask(OPENAI, {"model": r"l\udce9", "messages": [{"role": "user", "content": "One."}]})[0] == 200


def test_what_a_model_does_not_support_is_refused_even_before_it_is_loaded(serve, monkeypatch, capfd):
    ask, open_echo = serve({"m": ("en", "de")}), models.open_translator

    def open_as_ctranslate2(paths, options, *given, **named):
        if options.engine == "torch":
            raise UserError("a folder for CTranslate2")
        return open_echo(paths, options, *given, **named)

    monkeypatch.setattr(models, "open_translator", open_as_ctranslate2)
    status, content = ask(OWN, {"text": "One.", "alignment": True})
    assert status == 400 and "does not support alignment" in content["error"]["message"]
    assert "nmt: error" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("limit", "value", "kept"), [("DOWNLOAD_SECONDS", 0, [404, 404]), ("MAX_DOWNLOAD_BYTES", 20, [404, 200])]
)
def test_translated_files_are_dropped_after_some_time_or_for_newer_ones(serve, monkeypatch, limit, value, kept):
    monkeypatch.setattr(libretranslate, limit, value)
    ask, addresses = serve({"m": ("en", "de")}), []
    body, kind = multipart("a.txt", b"Two dogs.", source="en", target="de")

    def upload(_):
        return "/translate_file", body, "POST", {"content_type": kind}

    def download(number):
        def request(answer):
            if isinstance(answer, dict) and "translatedFileUrl" in answer:
                addresses.append(unquote(answer["translatedFileUrl"].removeprefix("http://")))
            return addresses[number], b"", "GET", {}

        return request

    def second_upload(answer):
        addresses.append(unquote(answer["translatedFileUrl"].removeprefix("http://")))
        return upload(answer)

    answers = ask.in_turn(upload, second_upload, download(0), download(1))
    assert [status for status, _ in answers[2:]] == kept


def test_libretranslate_refuses_files_that_it_cannot_translate(serve):
    ask = serve({"m": ("en", "de")})
    for name, content, fields, told in (
        ("a.pdf", b"%PDF", {"source": "en", "target": "de"}, "plain text"),
        ("a.docx", b"no archive", {"source": "en", "target": "de"}, "a.docx"),
        ("a.txt", b"One.", {"source": "en", "target": "zz"}, "zz is not supported"),
        ("a.txt", b"One.", {"source": "en"}, "missing target parameter"),
    ):
        body, kind = multipart(name, content, **fields)
        status, answer = ask("/translate_file", body, content_type=kind)
        assert status == 400 and told in answer["error"] and "/tmp" not in answer["error"]
    body = urlencode({"file": "a", "source": "en", "target": "de"}).encode()
    assert ask("/translate_file", body, **FORM)[1]["error"] == "Invalid request: missing file parameter"
    assert ask("/download_file/../a", method="GET")[0] == 404


def test_the_description_of_libretranslates_protocol_lists_its_routes(serve):
    """Every route and method exists, and every reference leads to a definition."""
    ask = serve({"m": ("en", "de")})
    status, document = ask("/spec", method="GET")
    assert status == 200 and document["swagger"] == "2.0" and "{version}" not in document["info"]["version"]
    for path, methods in document["paths"].items():
        for method in methods:
            status, content = ask(path, method=method.upper())
            assert status not in (404, 405) or "this file does not exist" in content["error"]
    text = json.dumps(document)
    references = set(re.findall(r"#/definitions/(\w+)", text))
    assert references == set(document["definitions"])
    fields = {row["name"] for row in document["paths"]["/translate"]["post"]["parameters"]}
    assert fields == {"q", "source", "target", "format", "alternatives", "api_key"}


def test_deepl_clients_work(serve):
    ask = serve({"m": ("en", "de")})
    own_client = {
        "text": ["One.", "Two."], "target_lang": "DE", "show_billed_characters": True, "split_sentences": "1",
        "preserve_formatting": True, "formality": "prefer_more", "model_type": "quality_optimized", "context": "A day.",
    }  # fmt: skip
    for more in ({}, {"source_lang": "EN"}, {"source_lang": None, "context": None, "tag_handling": None}):
        status, content = ask(DEEPL, {**own_client, **more})
        assert status == 200 and [row["text"] for row in content["translations"]] == ["«One.»", "«Two.»"]
        assert {"detected_source_language": "EN", "billed_characters": 4}.items() <= content["translations"][0].items()
    form = [("text", "One."), ("text", "Two."), ("target_lang", "DE"), ("auth_key", "k")]
    assert ask(DEEPL, urlencode(form).encode(), content_type=FORM["content-type"])[1] == content
    assert ask(f"{DEEPL}?{urlencode(form)}", b"", "GET")[1] == content  # deep-translator
    assert ask("/v2/languages?type=target", method="GET")[1][0]["language"] == "DE"
    assert ask("/v2/glossary-language-pairs", method="GET") == (
        200,
        {"supported_languages": [{"source_lang": "en", "target_lang": "de"}]},
    )  # Weblate queries this
    for name, value in (
        ("formality", "more"),
        ("formality", "rude"),
        ("style_id", "g"),
        ("custom_instructions", ["x"]),
    ):
        status, content = ask(DEEPL, {**own_client, name: value})
        assert status == 400 and name in content["message"]


@pytest.mark.parametrize(
    ("text", "kept", "fields"),
    [
        ('Hi &amp; <x id="7">%s Menu</x> there.', '<x id="7">%s Menu</x>', {"ignore_tags": ["x"]}),  # Weblate's
        ("A <b>bold</b> <code>Menu</code>.", "<code>Menu</code>", {"ignore_tags": "code, kbd"}),
        ("A <b>bold</b> <i>Menu</i>.", "<i>Menu</i>", {"ignore_tags": ["i", "u"], "outline_detection": "0"}),
        ("A <n0.x>bold</n0.x> <x><b>Menu</b></x>.", "<x><b>Menu</b></x>", {"ignore_tags": ["x"]}),
    ],
)
def test_deepl_ignore_tags_keep_their_text(serve, text, kept, fields):
    ask = serve({"m": ("en", "de")}, marks=False)
    for tags in ("xml", "html"):
        ask.opened.clear()
        body = {"text": [text], "target_lang": "DE", "tag_handling": tags, **fields}
        found = ask(DEEPL, body)[1]["translations"][0]["text"]
        # A model without attention places tags anywhere.
        assert kept in found and sorted(found.replace(" ", "")) == sorted(text.replace(" ", ""))
        assert "Menu" not in str([echo.batches for echo in ask.opened])


def test_deepl_sentences_end_at_the_splitting_tags(serve):
    ask = serve({"m": ("en", "de")}, marks=False)
    text = "<doc><par>The man <em>sleeps</em></par> <par>the dog</par></doc>"

    def lines(**fields):
        ask.opened.clear()
        body = {"text": [text], "target_lang": "DE", "tag_handling": "xml", **fields}
        found = ask(DEEPL, body)[1]["translations"][0]["text"]
        assert sorted(re.findall("<[^<>]*>", found)) == sorted(re.findall("<[^<>]*>", text))
        return [line for echo in ask.opened for batch in echo.batches for line in batch]

    assert lines(splitting_tags=["par"]) == ["The man sleeps", "the dog"]
    assert lines(splitting_tags="par,em", outline_detection=False) == ["The man", "sleeps", "the dog"]
    assert lines(outline_detection=False) == lines(non_splitting_tags=["par", "doc"]) == ["The man sleeps the dog"]


def test_openai_clients_work(serve):
    ask = serve({"m": ("en", "de")})
    asked = {"model": "m", "messages": [{"role": "user", "content": "One.\n\n  Two more. "}]}
    whole = ask(OPENAI, asked)[1]
    assert whole["choices"][0]["message"]["content"] == "«One.»\n\n  «Two more.» "
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    for options in ({"include_usage": True}, {"include_usage": False}, None):
        *chunks, (_, end) = events_of(ask(OPENAI, {**asked, "stream": True, "stream_options": options})[1])
        chunks = [chunk for _, chunk in chunks]
        assert end == "[DONE]"
        text = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
        assert text == "«One.»\n\n  «Two more.» "
        if options and options["include_usage"]:
            assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
            assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        else:
            assert not any("usage" in chunk for chunk in chunks)
    [listed] = ask("/v1/models", method="GET")[1]["data"]
    assert ask("/v1/models/m", method="GET") == (200, listed)
    assert ask("/v1/models/EN-DE", method="GET")[1]["id"] == "EN-DE"
    for status, content in (ask("/v1/models/gpt", method="GET"), ask(OPENAI, {**asked, "model": "gpt"})):
        assert (
            status == 404 and content["error"]["code"] == "model_not_found" and "en-de" in content["error"]["message"]
        )
    picture = [{"type": "text", "text": "One."}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": picture}]})[0] == 400
    rules = {"role": "system", "content": "The strings are divided by\n==PART==\nand so are your answers.\nOne."}
    texts = {"role": "user", "content": "One.\n==PART==\n==OTHER==\n==PART=="}
    for stream in (False, True):
        content = ask(OPENAI, {"model": "m", "messages": [rules, texts], "stream": stream})[1]
        chunks = (
            [chunk["choices"][0]["delta"] for _, chunk in events_of(content)[:-1]]
            if stream
            else [content["choices"][0]["message"]]
        )
        assert "".join(chunk.get("content", "") for chunk in chunks) == "«One.»\n==PART==\n«==OTHER==»\n==PART=="


PROMPTS = {  # as real programs send them, with the pattern that the how-to page lists for each
    "gpt-po-translator": (
        "Translate the following text from English to German. Return only the direct translation without any explanation. "
        "Here is the text to translate:\nOpen %(name)s.\nNow.",
        r"Here is the text to translate:\n(.*)",
    ),
    "pdf2zh": (
        "Translate the following markdown source text to de. Keep the formula notation {v*} unchanged.\n\n"
        "Source Text: Open %(name)s.\nNow.\n\nTranslated Text:",
        r"Source Text: (.*)\n\nTranslated Text:",
    ),
    "babeldoc": (
        ";; Treat next line as plain text input and translate it into de, output translation ONLY. NO notes. Input:\n\n"
        "Open %(name)s.\nNow.",
        r"Input:\n\n(.*)",
    ),
    "deep-translator": (
        'Translate the text below into german.\nText: "Open %(name)s.\nNow."',
        r'^Translate the text below into .*?\nText: "(.*)"$',
    ),
    "tinbox": ("Open %(name)s.\nNow.\n\nTranslation without commentary:", r"(.*)\n\nTranslation without commentary:"),
}


@pytest.mark.parametrize("program", PROMPTS)
def test_a_pattern_finds_the_text_in_the_prompt_of_a_program(serve, program):
    prompt, pattern = PROMPTS[program]
    assert f"`{pattern}`" in (PAGES / "programs.md").read_text()
    ask = serve({"m": ("en", "de")}, prompt_pattern=("nowhere (.*)", pattern))
    for stream in (False, True):
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": stream}
        content = ask(OPENAI, body)[1]
        choices = [chunk["choices"][0] for _, chunk in events_of(content)[:-1]] if stream else content["choices"]
        text = "".join(choice["delta" if stream else "message"].get("content", "") for choice in choices)
        assert text == "«Open %(name)s.»\n«Now.»"
    content = ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": "A text without a prompt."}]})[1]
    assert content["choices"][0]["message"]["content"] == "«A text without a prompt.»"


def test_a_pattern_that_takes_too_long_to_search_a_message_ends_the_request(serve, monkeypatch):
    monkeypatch.setattr(openai, "PATTERN_SECONDS", 0.1)
    ask = serve({"m": ("en", "de")}, prompt_pattern=("((?:a|aa)+)b",))
    message = {"role": "user", "content": "a" * 100}
    status, content = ask(OPENAI, {"model": "m", "messages": [message]})
    assert status == 400 and "--prompt-pattern" in content["error"]["message"]


def test_the_size_of_texts_is_checked_before_they_are_searched_for_placeholders(serve, monkeypatch):
    for module in (own, service):
        monkeypatch.setattr(module, "has_placeholders", lambda text: pytest.fail("searched"))
    ask = serve({"m": ("en", "de")}, max_characters=10)
    assert ask("/v1/translate", {"text": "more than ten characters"})[0] == 413
    with pytest.raises(ProblemError, match="24 characters"):
        ask.lines("more than ten characters")


def test_a_glossary_is_read_in_a_thread_so_that_a_large_one_delays_no_other_request(serve, monkeypatch):
    threads = []
    monkeypatch.setattr(own, "Glossary", lambda terms: threads.append(threading.current_thread()) or Glossary(terms))
    serve({"m": ("en", "de")})("/v1/translate", {"text": "A dog.", "glossary": {"dog": "Hund"}})
    assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize("pattern", ["Text: .*", "Text: (.*"])
def test_a_pattern_without_a_group_is_refused_at_the_start(pattern):
    with pytest.raises(ValueError, match="--prompt-pattern"):
        ServeOptions(model=("m",), prompt_pattern=(pattern,))


def test_openai_choices_are_different_translations(serve):
    ask = serve({"m": ("en", "de")})
    rules = {"role": "system", "content": "Keep this line:\n==PART=="}
    body = {"model": "m", "messages": [rules, {"role": "user", "content": "One.\n==PART==\nTwo."}], "n": 2}
    content = ask(OPENAI, body)[1]
    assert [choice["index"] for choice in content["choices"]] == [0, 1]
    texts = [choice["message"]["content"] for choice in content["choices"]]
    assert texts == ["«One.»\n==PART==\n«Two.»", "second «One.»\n==PART==\nsecond «Two.»"]
    assert content["usage"]["completion_tokens"] == sum(len(text.split()) for text in texts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("functions", [{"name": "f"}]),
        ("n", 21),
        ("n", 0),
    ],
)
def test_openai_settings_that_a_translation_cannot_follow_are_refused(serve, name, value):
    ask = serve({"m": ("en", "de")})
    asked = {"model": "m", "messages": [{"role": "user", "content": "One."}]}
    status, content = ask(OPENAI, {**asked, name: value})
    assert status == 400 and name in content["error"]["message"]
    assert ask(OPENAI, {**asked, "n": 2, "stream": True})[0] == 400


def test_openai_settings_of_the_sampling_change_nothing(serve):
    ask = serve({"m": ("en", "de")})
    asked = {"model": "m", "messages": [{"role": "user", "content": "One. Two."}]}
    ignored = {
        "max_tokens": 1, "max_completion_tokens": 1, "stop": ["Two"], "temperature": 2, "top_p": 0.1, "seed": 1, "user": "u",
        "response_format": {"type": "text"}, "tools": [], "logit_bias": {}, "presence_penalty": 1, "logprobs": False, "n": None,
    }  # fmt: skip
    assert ask(OPENAI, {**asked, **ignored})[1]["choices"] == ask(OPENAI, asked)[1]["choices"]


@pytest.mark.parametrize(
    "text", ["Open %s now.", "Dear {name}, hello.", "See {{x}} here.", "%(count)d files are here."]
)
def test_each_protocol_keeps_the_placeholders_of_a_text(serve, monkeypatch, text):
    """The model loses them, unless they have the form of a code such as X1."""

    def lossy(_, source):
        return Translation([Candidate(re.sub(r"[{}%$]+\(?\w*\)?\w*[{}]*", "", source), [], 0.0, 0.0)])

    monkeypatch.setattr(Echo, "answer", lossy)
    ask = serve({"m": ("en", "de")})
    assert [row[1] for row in ask_all(ask, text, "en", "de")] == [text] * 2
    _, content = ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": text}]})
    assert content["choices"][0]["message"]["content"] == text
    for more in ({}, {"split": True}, {"check": True}):
        assert ask(OWN, {"text": ["Hello.", text], **more})[1]["translations"][1] == {"translation": text}
    assert ask(OWN, {"text": text, "check": False})[1]["translations"][0]["translation"] != text
    assert ask.lines(text) == text  # Marian's protocol
    assert ask(OWN, {"text": text, "check": True, "alignment": True})[0] == 400


# Texts that a perfect model returns: two sentences and the characters around them, in twenty scripts.
SCRIPTS = {
    "latin": "Čekám „dnes“ večer – u\u00a0domu. Nesl 10\u202f000\u00a0Kč, že?",
    "vietnamese": "Tôi đang đọc sách. Ne\u0302\u0301u trời mưa thì sao?",  # one letter with combining marks
    "turkish": "İstanbul'da ılık bir gün. Iğdır da öyle…",
    "cyrillic": "Ёлка стоит во дворе. «Привет»\u00a0— сказал он!",
    "greek": "Ο άνθρωπος μπαίνει στο σπίτι. Τι κάνεις;",
    "armenian": "Մարդը մտնում է տուն։ Ինչպե՞ս ես։",
    "georgian": "კაცი სახლში შედის. როგორ ხარ?",
    "hebrew": "הָאִישׁ נִכְנָס\u200f לַבַּיִת. מה שלומך?",
    "arabic": "\u202bدخل الرجل\u202c إلى البيت. كيف حالك؟",
    "persian": "مرد به خانه می\u200cرود. حال شما چطور است؟",
    "urdu": "آدمی گھر میں داخل ہوتا ہے۔ آپ کیسے ہیں؟",
    "devanagari": "आदमी घर में क\u094d\u200dष जाता है। आप कैसे हैं?",
    "bengali": "লোকটি ঘরে যায়। আপনি কেমন আছেন?",
    "tamil": "மனிதன் வீட்டிற்குள் செல்கிறான். எப்படி இருக்கிறீர்கள்?",
    "telugu": "మనిషి ఇంట్లోకి వెళ్తాడు. మీరు ఎలా ఉన్నారు?",
    "malayalam": "മനുഷ്യൻ വീട്ടിലേക്ക് പോകുന്നു. അവന\u0d4d\u200d വരും.",
    "sinhala": "මිනිසා ශ\u0dca\u200dරී නිවසට යයි. ඔබට කොහොමද?",
    "thai": "ผู้ชายเดินเข้าบ้าน สบายดีไหม",
    "khmer": "បុរស\u200bចូល\u200bផ្ទះ។ សុខសប្បាយទេ?",
    "burmese": "လူသည် အိမ်ထဲသို့ ဝင်သည်။ နေကောင်းလား။",
    "tibetan": "མི་དེ་ཁང་པར་འགྲོ། ཁྱེད་ག་འདྲ་འདུག",
    "amharic": "ሰውየው ወደ ቤት ገባ። እንዴት ነህ?",
    "chinese": "男人走进了房子。你好吗？“很好”，他说。",
    "japanese": "男の人が家に入る。は\u3099か、元気ですか？",
    "korean": "남자가 집에 들어간다. 잘 지내세요?",
    "emoji": "Hallo 👨\u200d👩\u200d👧\u200d👦! Wie geht's ❤\ufe0f?",
    "mathematical": "𝑎² + 𝑏² ≤ ½·𝑐. H₂O ﬁts 5 µm²!",
}
AROUND = ("{}", "\n{}\n", "  {}\t\n\n\n{}  ", "{}\r\n\t{}", "\u3000{}\u00a0")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_perfect_model_returns_texts_of_each_script_letter_by_letter(serve, script):
    target = {"chinese": "zh", "japanese": "ja"}.get(
        script, "de"
    )  # in the other languages a space separates the sentences
    ask = serve({"m": ("en", target)}, marks=False)
    texts = [form.format(SCRIPTS[script], SCRIPTS[script]) for form in AROUND]
    _, content = ask(LIBRE, {"q": texts, "source": "en", "target": target})
    assert content["translatedText"] == texts
    _, content = ask(DEEPL, {"text": texts, "source_lang": "EN", "target_lang": target})
    assert [row["text"] for row in content["translations"]] == texts
    _, content = ask(OWN, {"text": texts, "split": True})
    assert [row["translation"] for row in content["translations"]] == texts
    for text in texts:
        _, content = ask(OPENAI, {"model": "m", "messages": [{"role": "user", "content": text}]})
        assert content["choices"][0]["message"]["content"] == text
    _, content = ask(OWN, {"text": texts})
    assert [row["translation"] for row in content["translations"]] == list(map(visible_line, texts))
