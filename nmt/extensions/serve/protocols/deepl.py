"""DeepL's protocol, version 2 (https://developers.deepl.com/docs): texts as JSON or form data."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.codes import language_name, nearest_code
from nmt.extensions.serve.models import known_languages
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.service import Choice
from nmt.extensions.serve.tag_rules import Disguise, TagRules
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.translate.results import Translation

NO_NEWLINES: Final = "nonewlines"  # a value of split_sentences that turns line breaks into spaces
NO_LIMIT: Final = 1 << 40  # reported as the monthly limit of characters
REFUSED_FIELDS: Final = ("glossary_id", "glossary_ids", "style_id", "custom_instructions", "translation_memory_id")
IGNORED_FORMALITY: Final = ("default", "prefer_more", "prefer_less")  # preferences, which a translation may ignore
TAGS: Final[dict[object, MarkupName]] = {None: "none", "": "none", "html": "html", "xml": "xml"}


@register("protocol", "deepl", NoOptions)
class DeepL(ClientProtocol):
    """DeepL's protocol, version 2: texts as JSON or form data."""

    def routes(self) -> list[BaseRoute]:
        """/v2/translate, /v2/languages, /v2/usage, and an empty list of glossaries."""
        handlers = {
            "translate": self.translate,
            "languages": self.languages,
            "usage": self.usage,
            "glossary-language-pairs": self.glossary_pairs,
        }
        return [self.route(f"/v2/{name}", handler) for name, handler in handlers.items()]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"message": message}

    async def translate(self, _: Call, fields: Fields) -> dict[str, Any]:
        texts = fields.get("text")
        texts = texts if isinstance(texts, list) else [texts]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ProblemError(400, "Value for 'text' not supported.")
        _refuse(fields)
        if not isinstance(context := fields.get("context", ""), str):
            raise ProblemError(400, "Value for 'context' not supported.")
        settings = _settings(fields)
        choices = await self._choices(texts, _code(fields, "source_lang"), _code(fields, "target_lang"))
        has_breaks = fields.get("split_sentences") != NO_NEWLINES
        disguise = Disguise(_rules(fields), texts)
        lines = [
            disguise.put_on(text if has_breaks or choice.model is None else text.replace("\n", " "))
            for text, choice in zip(texts, choices, strict=True)
        ]
        translated = await self.service.translated([choice.model for choice in choices], lines, settings, context)
        rows = [
            {
                "detected_source_language": choice.language.upper(),
                "text": disguise.taken_off(translation.text),
                "billed_characters": len(text),
                **_warnings(translation, disguise),
            }
            for text, choice, translation in zip(texts, choices, translated, strict=True)
        ]
        return {"translations": rows}

    async def _choices(self, texts: Sequence[str], source: str | None, target: str | None) -> list[Choice]:
        """Choose the model for each text. For an unsupported language, raises a ProblemError that names the field."""
        known = known_languages(self.service.models)
        targets = dict.fromkeys(code for source_targets in known.values() for code in source_targets)
        if target is None or nearest_code(target, [*known, *targets]) is None:
            raise _unsupported("target_lang", targets)
        if source is not None and nearest_code(source, [*known, *targets]) is None:
            raise _unsupported("source_lang", known)
        return await self.service.choices(texts, source, target)

    async def languages(self, _: Call, fields: Fields) -> list[dict[str, Any]]:
        targets = known_languages(self.service.models)
        codes = dict.fromkeys(code for source_targets in targets.values() for code in source_targets)
        if fields.get("type", "source") == "source":
            return [{"language": code.upper(), "name": language_name(code)} for code in targets]
        return [{"language": code.upper(), "name": language_name(code), "supports_formality": False} for code in codes]

    async def glossary_pairs(self, _: Call, __: Fields) -> dict[str, list[str]]:
        return {"supported_languages": []}

    async def usage(self, _: Call, __: Fields) -> dict[str, int]:
        return {"character_count": self.service.characters, "character_limit": NO_LIMIT}


def _refuse(fields: Fields) -> None:
    """Raise ProblemError for fields that request unsupported features."""
    for name in REFUSED_FIELDS:
        if fields.get(name):
            raise ProblemError(400, f"Value for '{name}' not supported.")
    formality = fields.get("formality") or "default"
    if formality in ("more", "less"):
        raise ProblemError(400, "'formality' is not supported for given 'target_lang'.")
    if formality not in IGNORED_FORMALITY:
        raise ProblemError(400, "Value for 'formality' not supported.")


def _settings(fields: Fields) -> TextSettings:
    """The settings that tag_handling and split_sentences request."""
    tags, split = fields.get("tag_handling"), fields.get("split_sentences")
    if not isinstance(tags, str | None) or tags not in TAGS:
        raise ProblemError(400, "Value for 'tag_handling' not supported.")
    if split not in (None, "", "0", "1", 0, 1, False, True, NO_NEWLINES):
        raise ProblemError(400, "Value for 'split_sentences' not supported.")
    return TextSettings(split=split not in ("0", 0), markup=TAGS[tags], check=True)


def _warnings(translation: Translation, disguise: Disguise) -> dict[str, Any]:
    """The field `warnings`, which DeepL's own responses do not have."""
    warnings = [disguise.taken_off(warning) for warning in translation.warnings.values()]
    return {"warnings": warnings} if warnings else {}


def _rules(fields: Fields) -> TagRules:
    """The tag rules listed in a request that sets tag_handling."""
    if not fields.get("tag_handling"):
        return TagRules()
    outline = str(fields.get("outline_detection", 1)).lower() not in ("0", "false")
    ignored, splitting, inline = (_names(fields, f"{kind}_tags") for kind in ("ignore", "splitting", "non_splitting"))
    return TagRules(ignored, splitting, inline, outline)


def _names(fields: Fields, name: str) -> frozenset[str]:
    """Names of tags, from a list or a comma-separated text."""
    given = fields.get(name) or []
    given = given if isinstance(given, list) else [given]
    if not all(isinstance(names, str) for names in given):
        raise ProblemError(400, f"Value for '{name}' not supported.")
    return frozenset(one.strip() for names in given for one in names.split(",") if one.strip())


def _code(fields: Fields, name: str) -> str | None:
    """The language code in a field, or None if the field is empty."""
    if not isinstance(language := fields.get(name) or None, str | None):
        raise ProblemError(400, f"Value for '{name}' not supported.")
    return language


def _unsupported(name: str, known: Iterable[str]) -> ProblemError:
    """The error for a field with a language that no model supports."""
    return ProblemError(
        400, f"Value for '{name}' not supported. This server supports {', '.join(map(str.upper, known))}."
    )
