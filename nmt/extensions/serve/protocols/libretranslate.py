"""LibreTranslate's protocol (https://libretranslate.com/docs): fields in the URL, a form or JSON."""

from typing import Any, Final

from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.codes import language_name, standard_code
from nmt.extensions.serve.models import Details, known_languages
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.translate.requests import Request
from nmt.translate.results import Translation

MAX_LISTED_ALTERNATIVES: Final = 20
PERCENT: Final = 100
AUTO_SOURCE: Final = "auto"  # value of `source` that asks the server to detect the language
FORMS: Final[dict[str, MarkupName]] = {"": "none", "text": "none", "html": "html"}


@register("protocol", "libretranslate", NoOptions)
class LibreTranslate(ClientProtocol):
    """LibreTranslate's protocol: fields in the URL, a form or JSON."""

    def routes(self) -> list[BaseRoute]:
        """/translate, /detect and /languages."""
        return [
            self.route("/translate", self.translate),
            self.route("/detect", self.detect),
            self.route("/languages", self.languages, is_open=True),
        ]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"error": message}

    async def translate(self, _: Call, fields: Fields) -> dict[str, Any]:
        texts, is_list = _texts(fields)
        source, target = (_text(fields, name) for name in ("source", "target"))
        if not isinstance(form := fields.get("format", ""), str) or form not in FORMS:
            raise ProblemError(400, f"invalid format {form!r}: must be {' or '.join(filter(None, FORMS))}")
        choices = await self.service.choices(texts, None if source.lower() == AUTO_SOURCE else source, target)
        count = _alternatives(fields)
        found = await self.service.translate_each(
            [choice.model for choice in choices],
            list(map(Request, texts)),
            TextSettings(split=True, markup=FORMS[form]),
            Details(scores=count > 0),
        )
        columns: dict[str, list[Any]] = {"translatedText": list(map(self.service.text_of, found))}
        if source.lower() == AUTO_SOURCE:
            columns["detectedLanguage"] = [_guess(choice.language, choice.confidence) for choice in choices]
        if count:
            columns["alternatives"] = [self._others(translation, count) for translation in found]
        if any(translation.warnings for translation in found):
            columns["warnings"] = [list(translation.warnings.values()) for translation in found]
        return {name: column if is_list else column[0] for name, column in columns.items()}

    def _others(self, translation: Translation, count: int) -> list[str]:
        """The other distinct candidates for a text."""
        best, *others = (self.service.text_of(translation, number) for number in range(count + 1))
        return list(dict.fromkeys(text for text in others if text != best))

    async def detect(self, _: Call, fields: Fields) -> list[dict[str, Any]]:
        guesses = await self.service.guesses(_texts(fields)[0][0])
        first = standard_code(next(iter(self.service.models.by_name.values())).source_lang)
        return [_guess(standard_code(code), sure) for code, sure in guesses if round(PERCENT * sure)] or [
            _guess(first, 0)
        ]

    async def languages(self, _: Call, __: Fields) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        all_codes = dict.fromkeys([*targets, *(code for source_targets in targets.values() for code in source_targets)])
        return [{"code": code, "name": language_name(code), "targets": targets.get(code, [])} for code in all_codes]


def _guess(language: str, sure: float) -> dict[str, Any]:
    return {"language": language, "confidence": round(PERCENT * sure)}


def _texts(fields: Fields) -> tuple[list[str], bool]:
    """The texts in `q`, and whether they were sent as a list."""
    given = fields.get("q")
    all_given = given if isinstance(given, list) else [given]
    texts = [text for text in all_given if isinstance(text, str)]
    if not texts or len(texts) < len(all_given):
        raise ProblemError(400, "invalid request: q must be a string or a list of strings")
    return texts, isinstance(given, list)


def _text(fields: Fields, name: str) -> str:
    if not isinstance(value := fields.get(name), str) or not value:
        raise ProblemError(400, f"invalid request: missing {name} parameter")
    return value


def _alternatives(fields: Fields) -> int:
    given = fields.get("alternatives") or 0
    try:
        count = int(given)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if not 0 <= count <= MAX_LISTED_ALTERNATIVES:
        raise ProblemError(400, f"invalid alternatives {given!r}: must be between 0 and {MAX_LISTED_ALTERNATIVES}")
    return count
