"""LibreTranslate's protocol (https://libretranslate.com/docs): fields in the URL, a form or JSON."""

import json
from pathlib import Path
from typing import Any, Final

from starlette.routing import BaseRoute

from nmt import register
from nmt.errors import one_line
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.codes import language_name, nearest_code, standard_code
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
AUTO_SOURCE: Final = "auto"  # value of `source` that asks the server to detect the language
FORMS: Final[dict[str, MarkupName]] = {"": "none", "text": "none", "html": "html"}
SPECIFICATION: Final = Path(__file__).parents[1] / "libretranslate.json"


@register("protocol", "libretranslate", NoOptions)
class LibreTranslate(ClientProtocol):
    """LibreTranslate's protocol: fields in the URL, a form or JSON."""

    prefixes = ("/translate_file", "/download_file", "/frontend")

    def __init__(self, options: ServeOptions, service: Service) -> None:
        super().__init__(options, service)
        self._specification: dict[str, Any] = json.loads(
            SPECIFICATION.read_text(encoding="utf-8").replace("{version}", __version__)
        )

    def routes(self) -> list[BaseRoute]:
        """/translate, /detect, /languages, /suggest, /frontend/settings and /spec."""
        return [
            self.route("/translate", self.translate),
            self.route("/detect", self.detect, "POST"),
            self.route("/languages", self.languages, "GET", is_open=True),
            self.route("/languages", self.posted_languages, "POST", is_open=True),
            self.route("/suggest", self.suggest, "POST"),
            self.route("/frontend/settings", self.settings, is_open=True),
            self.route("/spec", self.specification, "GET", is_open=True),
        ]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"error": message}

    async def translate(self, _: Call, fields: Fields) -> dict[str, Any]:
        texts, is_list = _texts(fields)
        source, target = (_text(fields, name) for name in ("source", "target"))
        is_auto = source.lower() == AUTO_SOURCE
        self._check_languages(*([target] if is_auto else [source, target]))
        if not isinstance(form := fields.get("format", ""), str) or form not in FORMS:
            raise ProblemError(400, f"{one_line(str(form))} format is not supported")
        choices = await self.service.choices(texts, None if is_auto else source, target)
        count = _alternatives(fields)
        found = await self.service.translate_each(
            [choice.model for choice in choices],
            list(map(Request, texts)),
            TextSettings(split=True, markup=FORMS[form]),
            Details(scores=count > 0),
        )
        columns: dict[str, list[Any]] = {"translatedText": list(map(self.service.text_of, found))}
        if is_auto:
            columns["detectedLanguage"] = [_guess(choice.language, choice.confidence) for choice in choices]
        if count:
            columns["alternatives"] = [self._others(translation, count) for translation in found]
        if any(translation.warnings for translation in found):
            columns["warnings"] = [list(translation.warnings.values()) for translation in found]
        return {name: column if is_list else column[0] for name, column in columns.items()}

    def _check_languages(self, *codes: str) -> None:
        """Raise ProblemError, in LibreTranslate's words, for a language that no model reads or writes."""
        known = self._all_codes()
        for code in codes:
            if nearest_code(code, known) is None:
                raise ProblemError(400, f"{one_line(code)} is not supported")

    def _all_codes(self) -> list[str]:
        """The source languages, followed by those that are only target languages."""
        targets = known_languages(self.service.models)
        return list(
            dict.fromkeys([*targets, *(code for targets_of_one in targets.values() for code in targets_of_one)])
        )

    def _others(self, translation: Translation, count: int) -> list[str]:
        """The other distinct candidates for a text."""
        best, *others = (self.service.text_of(translation, number) for number in range(count + 1))
        return list(dict.fromkeys(text for text in others if text != best))

    async def detect(self, _: Call, fields: Fields) -> list[dict[str, Any]]:
        guesses = await self.service.guesses("\n".join(_texts(fields)[0]))
        return [_guess(standard_code(code), sure) for code, sure in guesses if round(PERCENT * sure)] or [
            _guess(self._all_codes()[0], 0)
        ]

    async def languages(self, _: Call, __: Fields) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        return [
            {"code": code, "name": language_name(code), "targets": targets.get(code, [])} for code in self._all_codes()
        ]

    async def posted_languages(self, call: Call, fields: Fields) -> list[dict[str, Any]]:
        """Answer only forms: argostranslate posts one, but LibreTranslate's tests expect POST to be refused."""
        if not call.content_type:
            raise ProblemError(405, "Method Not Allowed", {"Allow": "GET"})
        return await self.languages(call, fields)

    async def suggest(self, _: Call, __: Fields) -> None:
        raise ProblemError(403, "Suggestions are disabled on this server.")

    async def settings(self, _: Call, __: Fields) -> dict[str, Any]:
        """What a web page of LibreTranslate needs to know about the server."""
        codes, targets = self._all_codes(), known_languages(self.service.models)
        needs_key = self.service.options.keys is not None
        return {
            "charLimit": self.service.options.max_characters,
            "frontendTimeout": TYPING_PAUSE,
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {"source": _named(codes[0]), "target": _named(targets[codes[0]][0])},
        }

    async def specification(self, _: Call, __: Fields) -> dict[str, Any]:
        return self._specification


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
