"""DeepL's protocol, version 2 (https://developers.deepl.com/docs): texts in JSON or a form."""

from collections.abc import Iterable
from typing import Any, Final

from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.language_names import language_name
from nmt.extensions.serve.models import known_languages
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.text.languages import base_language

NO_NEWLINES: Final = "nonewlines"  # of split_sentences: line breaks are spaces
NO_LIMIT: Final = 1 << 40  # characters of a month
REFUSED_FIELDS: Final = ("glossary_id", "style_id", "ignore_tags")  # fields that would change the translation
TAGS: Final[dict[object, MarkupName]] = {None: "none", "": "none", "html": "html", "xml": "xml"}


@register("protocol", "deepl", NoOptions)
class DeepL(ClientProtocol):
    """DeepL's protocol, version 2: texts in JSON or a form."""

    def routes(self) -> list[BaseRoute]:
        """/v2/translate, /v2/languages and /v2/usage."""
        handlers = {"translate": self.translate, "languages": self.languages, "usage": self.usage}
        return [self.route(f"/v2/{name}", handler) for name, handler in handlers.items()]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"message": message}

    async def translate(self, _: Call, fields: Fields) -> dict[str, Any]:
        texts = fields.get("text")
        texts = texts if isinstance(texts, list) else [texts]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ProblemError(400, "Value for 'text' not supported.")
        for name in REFUSED_FIELDS:
            if fields.get(name):
                raise ProblemError(400, f"Value for '{name}' not supported.")
        settings = _settings(fields)
        targets = known_languages(self.service.models)
        source, asked = _code(fields, "source_lang", targets), _code(fields, "target_lang", ())
        if asked is None:
            raise ProblemError(400, "Value for 'target_lang' not supported.")
        sources = [source or self.service.detect(text, asked)[0] for text in texts]
        models = [
            self.service.models.find(None, language, _code(fields, "target_lang", targets.get(language, ())))
            for language in sources
        ]
        if fields.get("split_sentences") == NO_NEWLINES:
            texts = [text.replace("\n", " ") for text in texts]
        context = fields.get("context", "")
        if not isinstance(context, str):
            raise ProblemError(400, "Value for 'context' not supported.")
        translated = await self.service.translated(models, texts, settings, context)
        rows = [
            {"detected_source_language": language.upper(), "text": translation, "billed_characters": len(text)}
            for language, text, translation in zip(sources, texts, translated, strict=True)
        ]
        return {"translations": rows}

    async def languages(self, _: Call, fields: Fields) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        codes = dict.fromkeys(code for of_source in targets.values() for code in of_source)
        if fields.get("type", "source") == "source":
            return [{"language": code.upper(), "name": language_name(code)} for code in targets]
        return [{"language": code.upper(), "name": language_name(code), "supports_formality": False} for code in codes]

    async def usage(self, _: Call, __: Fields) -> dict[str, int]:
        return {"character_count": self.service.characters, "character_limit": NO_LIMIT}


def _settings(fields: Fields) -> TextSettings:
    """What tag_handling and split_sentences ask for."""
    tags, split = fields.get("tag_handling"), fields.get("split_sentences")
    if not isinstance(tags, str | None) or tags not in TAGS:
        raise ProblemError(400, "Value for 'tag_handling' not supported.")
    if split not in (None, "", "0", "1", 0, 1, False, True, NO_NEWLINES):
        raise ProblemError(400, "Value for 'split_sentences' not supported.")
    return TextSettings(split=split not in ("0", 0), markup=TAGS[tags])


def _code(fields: Fields, name: str, known: Iterable[str]) -> str | None:
    """The language of a field as the models have it: `PT-BR` is `pt-BR`, or else `pt`; None for a field without one.

    known: the codes of the models
    """
    language = fields.get(name)
    if language is None or language == "":
        return None
    if not isinstance(language, str):
        raise ProblemError(400, f"Value for '{name}' not supported.")
    base = base_language(language)
    alike = [code for code in known if base_language(code) == base]
    same = [code for code in alike if code.lower().replace("_", "-") == language.lower()]
    return next(iter([*same, *alike]), base)
