"""LibreTranslate's protocol (https://libretranslate.com/docs): fields in the URL, a form or JSON."""

import json
import re
import secrets
import time
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.responses import Response
from starlette.routing import BaseRoute

from nmt import register
from nmt.errors import one_line
from nmt.extensions.serve.calls import FILE_FIELD, Call, Fields, Upload
from nmt.extensions.serve.codes import language_name, nearest_code, standard_code
from nmt.extensions.serve.documents import document_endings, translate_document
from nmt.extensions.serve.models import Details, known_languages
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.version import __version__

MAX_LISTED_ALTERNATIVES: Final = 20
PERCENT: Final = 100
TYPING_PAUSE: Final = 500  # milliseconds that a page should wait for the next key before it sends a text
DOWNLOAD_SECONDS: Final = 1800.0  # how long a translated document can be downloaded
MAX_DOWNLOAD_BYTES: Final = 64 << 20  # size of all translated documents; the oldest are dropped
NO_HOST: Final = re.compile(r"[^\w.:\[\]-]", re.ASCII)  # characters that no host name and no address has
AUTO_SOURCE: Final = "auto"  # value of `source` that asks the server to detect the language
FORMS: Final[dict[str, MarkupName]] = {"": "none", "text": "none", "html": "html"}
SPECIFICATION: Final = Path(__file__).parents[1] / "libretranslate.json"


class _File(NamedTuple):
    """A translated document. began: time of its translation, by time.monotonic"""

    name: str
    content: bytes
    began: float


@register("protocol", "libretranslate", NoOptions)
class LibreTranslate(ClientProtocol):
    """LibreTranslate's protocol: fields in the URL, a form or JSON."""

    prefixes = ("/translate_file", "/download_file", "/frontend")

    def __init__(self, options: ServeOptions, service: Service) -> None:
        super().__init__(options, service)
        self._files = dict[str, _File]()  # by an id that nobody can guess, the oldest first
        self._specification: dict[str, Any] = json.loads(
            SPECIFICATION.read_text(encoding="utf-8").replace("{version}", __version__)
        )

    def routes(self) -> list[BaseRoute]:
        """/translate, /translate_file, /detect, /languages, /suggest, /frontend/settings and /spec."""
        return [
            self.route("/translate", self.translate),
            self.route("/translate_file", self.translate_file, "POST"),
            self.route("/download_file/{file_id}/{name}", self.download, "GET", is_open=True),
            self.route("/detect", self.detect, "POST"),
            self.route("/languages", self.languages, "GET", is_open=True),
            self.route("/languages", self.posted_languages, "POST", is_open=True),
            self.route("/suggest", self.suggest, "POST"),
            self.route("/frontend/settings", self.settings, is_open=True),
            self.route("/spec", self.specification, "GET", is_open=True),
        ]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"error": message}

    async def translate(self, call: Call) -> dict[str, Any]:
        fields = await call.fields()
        texts, is_list = _texts(fields)
        source, target = self._direction(fields)
        if not isinstance(form := fields.get("format", ""), str) or form not in FORMS:
            raise ProblemError(400, f"{one_line(str(form))} format is not supported")
        choices = await self.service.choices(texts, source, target)
        count = _alternatives(fields)
        found = await self.service.translate_each(
            [choice.model for choice in choices],
            list(map(Request, texts)),
            TextSettings(split=True, markup=FORMS[form]),
            Details(scores=count > 0),
        )
        columns: dict[str, list[Any]] = {"translatedText": list(map(self.service.text_of, found))}
        if source is None:
            columns["detectedLanguage"] = [_guess(choice.language, choice.confidence) for choice in choices]
        if count:
            columns["alternatives"] = [self._others(translation, count) for translation in found]
        if any(translation.warnings for translation in found):
            columns["warnings"] = [list(translation.warnings.values()) for translation in found]
        return {name: column if is_list else column[0] for name, column in columns.items()}

    def _direction(self, fields: Fields) -> tuple[str | None, str]:
        """The source language, None to detect it, and the target language. Raises ProblemError in LibreTranslate's words."""
        source, target = _text(fields, "source"), _text(fields, "target")
        is_auto, known = source.lower() == AUTO_SOURCE, self._all_codes()
        for code in [target] if is_auto else [source, target]:
            if nearest_code(code, known) is None:
                raise ProblemError(400, f"{one_line(code)} is not supported")
        return None if is_auto else source, target

    async def translate_file(self, call: Call) -> dict[str, str]:
        fields = await call.fields()
        if not isinstance(upload := fields.get(FILE_FIELD), Upload):
            raise _missing(FILE_FIELD)
        translated = await translate_document(self.service, upload, *self._direction(fields))
        file_id = secrets.token_urlsafe(16)
        self._files[file_id] = _File(upload.name, translated.content, time.monotonic())
        self._forget_files()
        return {"translatedFileUrl": f"{_address(call)}/download_file/{file_id}/{quote(upload.name)}"}

    def _forget_files(self) -> None:
        """Drop translated documents that are too old or too many."""
        size = sum(len(file.content) for file in self._files.values())
        for file_id, file in list(self._files.items()):
            if size <= MAX_DOWNLOAD_BYTES and time.monotonic() - file.began < DOWNLOAD_SECONDS:
                return
            size -= len(self._files.pop(file_id).content)

    async def download(self, call: Call) -> Response:
        self._forget_files()
        if (file := self._files.get(call.path["file_id"])) is None:
            raise ProblemError(404, "this file does not exist, or is not kept any more")
        disposition = f"attachment; filename*=UTF-8''{quote(file.name)}"
        return Response(file.content, 200, {"content-disposition": disposition}, "application/octet-stream")

    def _all_codes(self) -> list[str]:
        """The source languages, followed by those that are only target languages."""
        targets = known_languages(self.service.models)
        return list(dict.fromkeys([*targets, *chain(*targets.values())]))

    def _others(self, translation: Translation, count: int) -> list[str]:
        """The other distinct candidates for a text."""
        best, *others = (self.service.text_of(translation, number) for number in range(count + 1))
        return list(dict.fromkeys(text for text in others if text != best))

    async def detect(self, call: Call) -> list[dict[str, Any]]:
        guesses = await self.service.guesses("\n".join(_texts(await call.fields())[0]))
        return [_guess(standard_code(code), sure) for code, sure in guesses if round(PERCENT * sure)] or [
            _guess(self._all_codes()[0], 0)
        ]

    async def languages(self, _: Call) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        return [
            {"code": code, "name": language_name(code), "targets": targets.get(code, [])} for code in self._all_codes()
        ]

    async def posted_languages(self, call: Call) -> list[dict[str, Any]]:
        """Answer only forms: argostranslate posts one, but LibreTranslate's tests expect POST to be refused."""
        if not call.content_type:
            raise ProblemError(405, "Method Not Allowed", {"Allow": "GET"})
        return await self.languages(call)

    async def suggest(self, _: Call) -> None:
        raise ProblemError(403, "Suggestions are disabled on this server.")

    async def settings(self, _: Call) -> dict[str, Any]:
        """What a web page of LibreTranslate needs to know about the server."""
        codes, targets = self._all_codes(), known_languages(self.service.models)
        needs_key = self.service.options.keys is not None
        return {
            "charLimit": self.service.options.max_characters,
            "frontendTimeout": TYPING_PAUSE,
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": [".txt", *document_endings()],
            "language": {"source": _named(codes[0]), "target": _named(targets[codes[0]][0])},
        }

    async def specification(self, _: Call) -> dict[str, Any]:
        return self._specification


def _address(call: Call) -> str:
    """The address of the server as the client sees it, even behind a proxy that keeps the Host header."""
    return f"{call.scheme}://{NO_HOST.sub('', call.headers.get('host', ''))}"


def _named(code: str) -> dict[str, str]:
    return {"code": code, "name": language_name(code)}


def _guess(language: str, sure: float) -> dict[str, Any]:
    return {"language": language, "confidence": round(PERCENT * sure)}


def _texts(fields: Fields) -> tuple[list[str], bool]:
    """The texts in `q`, and whether they were sent as a list."""
    if (given := fields.get("q")) is None:
        raise _missing("q")
    all_given = given if isinstance(given, list) else [given]
    texts = [text for text in all_given if isinstance(text, str)]
    if not texts or len(texts) < len(all_given):
        raise ProblemError(400, "Invalid request: q must be a string or a list of strings")
    return texts, isinstance(given, list)


def _text(fields: Fields, name: str) -> str:
    if not isinstance(value := fields.get(name), str) or not value:
        raise _missing(name)
    return value


def _missing(name: str) -> ProblemError:
    return ProblemError(400, f"Invalid request: missing {name} parameter")


def _alternatives(fields: Fields) -> int:
    try:
        count = int(fields.get("alternatives") or 0)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(400, "Invalid request: alternatives parameter is not a number") from None
    if count > MAX_LISTED_ALTERNATIVES:
        raise ProblemError(400, f"Invalid request: alternatives parameter must be <= {MAX_LISTED_ALTERNATIVES}")
    return max(count, 0)
