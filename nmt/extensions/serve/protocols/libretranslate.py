"""LibreTranslate's protocol (https://libretranslate.com/docs): fields in the URL, a form or JSON."""

from typing import Any, Final

from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.language_names import language_name
from nmt.extensions.serve.models import Details, known_languages
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.translate.requests import Request

MAX_LISTED_ALTERNATIVES: Final = 20
PERCENT: Final = 100
FORMS: Final[dict[str, MarkupName]] = {"text": "none", "html": "html"}


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
        if not isinstance(form := fields.get("format", "text"), str) or form not in FORMS:
            raise ProblemError(400, f"format is {form!r}; must be one of {', '.join(FORMS)}")
        detected = [self.service.detect(text, target) for text in texts] if source == "auto" else []
        sources = [language for language, _ in detected] or [source] * len(texts)
        models = [self.service.models.find(None, language, target) for language in sources]
        count = _alternatives(fields)
        self.service.check_count(texts)
        settings = TextSettings(split=True, markup=FORMS[form])
        found = await self.service.translate_each(
            models, list(map(Request, texts)), settings, Details(scores=count > 0)
        )
        whole = list(map(self.service.text_of, found))
        answer: dict[str, Any] = {"translatedText": whole if is_list else whole[0]}
        if detected:
            guesses = [{"language": language, "confidence": PERCENT * sure} for language, sure in detected]
            answer["detectedLanguage"] = guesses if is_list else guesses[0]
        if count:
            others = []
            for translation, best in zip(found, whole, strict=True):
                texts_of = [self.service.text_of(translation, number) for number in range(1, count + 1)]
                others.append(list(dict.fromkeys(text for text in texts_of if text != best)))
            answer["alternatives"] = others if is_list else others[0]
        return answer

    async def detect(self, _: Call, fields: Fields) -> list[dict[str, Any]]:
        language, sure = self.service.detect(_texts(fields)[0][0])
        return [{"language": language, "confidence": PERCENT * sure}]

    async def languages(self, _: Call, __: Fields) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        all_codes = dict.fromkeys([*targets, *(code for of_source in targets.values() for code in of_source)])
        return [{"code": code, "name": language_name(code), "targets": targets.get(code, [])} for code in all_codes]


def _texts(fields: Fields) -> tuple[list[str], bool]:
    """The texts of `q`, and whether they came as a list."""
    given = fields.get("q")
    all_given = given if isinstance(given, list) else [given]
    texts = [text for text in all_given if isinstance(text, str)]
    if not texts or len(texts) < len(all_given):
        raise ProblemError(400, "invalid request: q must be a text or a list of texts")
    return texts, isinstance(given, list)


def _text(fields: Fields, name: str) -> str:
    if not isinstance(value := fields.get(name), str) or not value:
        raise ProblemError(400, f"invalid request: missing {name} parameter")
    return value


def _alternatives(fields: Fields) -> int:
    given = fields.get("alternatives", 0)
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = -1
    if not 0 <= count <= MAX_LISTED_ALTERNATIVES:
        raise ProblemError(400, f"alternatives is {given!r}; must be from 0 to {MAX_LISTED_ALTERNATIVES}")
    return count
