"""DeepL's protocol (https://developers.deepl.com/docs): texts as JSON or form data, documents, and glossaries."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

import langcodes
from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.codes import language_name, nearest_code, standard_code
from nmt.extensions.serve.deepl_documents import DocumentCalls, uploaded
from nmt.extensions.serve.deepl_glossaries import GlossaryCalls, base_code, listed_values
from nmt.extensions.serve.models import known_languages
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.protocols.options import DeepLOptions
from nmt.extensions.serve.service import Choice, Service
from nmt.extensions.serve.tag_rules import Disguise, TagRules
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.text_steps import TextSettings
from nmt.translate.results import Translation

NO_NEWLINES: Final = "nonewlines"  # a value of split_sentences that turns line breaks into spaces
NO_LIMIT: Final = 1 << 40  # reported as the monthly limit of characters
REFUSED_FIELDS: Final = ("style_id", "custom_instructions", "translation_memory_id")
IGNORED_FORMALITY: Final = ("default", "prefer_more", "prefer_less")  # preferences, which a translation may ignore
TAGS: Final[dict[object, MarkupName]] = {None: "none", "": "none", "html": "html", "xml": "xml"}
UNSUPPORTED_CALLS: Final = ("/v2/write", "/v3/style_rules", "/v3/translation_memories", "/v3/voice", "/v2/admin")
RESOURCES: Final = ("translate_text", "translate_document", "glossary")  # values of a field of /v3/languages
STABLE: Final = {"status": "stable"}
# Target languages that DeepL's clients know only with a region or script, and what DeepL calls them.
REGIONS: Final = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
CHINESE: Final = {
    "Hans": {"ZH": "Chinese (simplified)", "ZH-HANS": "Chinese (simplified)"},
    "Hant": {"ZH-HANT": "Chinese (traditional)"},
}


@register("protocol", "deepl", DeepLOptions)
class DeepL(ClientProtocol):
    """DeepL's protocol: texts as JSON or form data, documents, and glossaries."""

    prefixes = ("/v2", "/v3")

    def __init__(self, options: Any, service: Service) -> None:
        super().__init__(options, service)
        self._glossaries = GlossaryCalls(service, options.glossaries)
        self._documents = DocumentCalls(service)

    def routes(self) -> list[BaseRoute]:
        """The calls of DeepL's version 2, and those of version 3 for glossaries and languages."""
        handlers = {  # of GET and POST
            "/v2/translate": self.translate,
            "/v2/languages": self.languages,
            "/v2/usage": self.usage,
            "/v3/languages": self.languages_v3,
            **self._documents.handlers,
        }
        return [
            *(self.route(path, handler) for path, handler in handlers.items()),
            self.route("/v2/document", self.translate_document, "POST"),
            *(
                self.route(path, handler, method)
                for path, by_method in self._glossaries.handlers.items()
                for method, handler in by_method.items()
            ),
            *(
                self.route(path + rest, self.refuse, "GET", "POST", "PUT", "PATCH", "DELETE")
                for path in UNSUPPORTED_CALLS
                for rest in ("", "/{rest:path}")
            ),
        ]

    def error(self, status: int, message: str) -> dict[str, str]:
        return {"message": message}

    async def refuse(self, _: Call) -> NoReturn:
        raise ProblemError(404, "This server does not support this call: it translates texts and documents.")

    async def translate(self, call: Call) -> dict[str, Any]:
        fields = await call.fields()
        texts = fields.get("text")
        texts = texts if isinstance(texts, list) else [texts]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ProblemError(400, "Value for 'text' not supported.")
        _refuse(fields)
        if not isinstance(context := fields.get("context", ""), str):
            raise ProblemError(400, "Value for 'context' not supported.")
        source, target = self._direction(fields)
        settings = _settings(fields, await self._glossaries.chosen(call, source, target))
        choices = await self.service.choices(texts, source, target)
        has_breaks = fields.get("split_sentences") != NO_NEWLINES
        disguise = Disguise(_rules(fields), texts)
        lines = [
            disguise.put_on(text if has_breaks or choice.model is None else text.replace("\n", " "))
            for text, choice in zip(texts, choices, strict=True)
        ]
        translated = await self.service.translated([choice.model for choice in choices], lines, settings, context)
        return {
            "translations": [
                _row(text, choice, translation, disguise)
                for text, choice, translation in zip(texts, choices, translated, strict=True)
            ]
        }

    async def translate_document(self, call: Call) -> dict[str, str]:
        fields = await call.fields()
        upload = uploaded(fields)
        _refuse(fields)
        source, target = self._direction(fields)
        glossary = await self._glossaries.chosen(call, source, target)
        client = await self._glossaries.owner(call) or call.client
        return self._documents.add(client, upload, source, target, glossary)

    def _direction(self, fields: Fields) -> tuple[str | None, str]:
        """The languages that a request names. For an unsupported one, raises a ProblemError that names the field."""
        source, target = _code(fields, "source_lang"), _code(fields, "target_lang")
        known = known_languages(self.service.models)
        targets = dict.fromkeys(code for source_targets in known.values() for code in source_targets)
        if target is None or nearest_code(target, [*known, *targets]) is None:
            raise _unsupported("target_lang", targets)
        if source is not None and nearest_code(source, [*known, *targets]) is None:
            raise _unsupported("source_lang", known)
        return source, target

    async def languages_v3(self, call: Call) -> list[dict[str, Any]]:
        """All languages in one list, in the form of version 3. It is empty for what the server does not do."""
        fields = await call.fields()
        if fields.get("resource", fields.get("product", RESOURCES[0])) not in RESOURCES:
            return []
        targets = known_languages(self.service.models)
        sources = {base_code(code).upper() for code in targets}
        names = {code: language_name(code) for code in sources}
        into = dict(row for own in targets.values() for code in own for row in _target_names(code))
        with_features = {code for pair in self._glossaries.directions() for code in pair}
        features = {"auto_detection": STABLE, "tag_handling": STABLE, "glossary": STABLE}
        return [
            {
                "lang": _mixed_case(code),
                "name": name,
                "usable_as_source": code in sources,
                "usable_as_target": code in into,
                "status": "stable",
                "features": features if base_code(code) in with_features else {"auto_detection": STABLE},
            }
            for code, name in sorted((names | into).items())
        ]

    async def languages(self, call: Call) -> list[dict[str, Any]]:
        fields = await call.fields()
        targets = known_languages(self.service.models)
        if fields.get("type", "source") == "source":
            codes = dict.fromkeys(base_code(code).upper() for code in targets)
            return [{"language": code, "name": language_name(code)} for code in codes]
        names = dict(row for own in targets.values() for code in own for row in _target_names(code))
        return [{"language": code, "name": name, "supports_formality": False} for code, name in names.items()]

    async def usage(self, _: Call) -> dict[str, int]:
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


def _settings(fields: Fields, glossary: Glossary | None) -> TextSettings:
    """The settings that tag_handling and split_sentences request."""
    tags, split = fields.get("tag_handling"), fields.get("split_sentences")
    if not isinstance(tags, str | None) or tags not in TAGS:
        raise ProblemError(400, "Value for 'tag_handling' not supported.")
    if split not in (None, "", "0", "1", 0, 1, False, True, NO_NEWLINES):
        raise ProblemError(400, "Value for 'split_sentences' not supported.")
    return TextSettings(split=split not in ("0", 0), markup=TAGS[tags], glossary=glossary, check=True)


def _row(text: str, choice: Choice, translation: Translation, disguise: Disguise) -> dict[str, Any]:
    """The answer for a text."""
    return {
        "detected_source_language": base_code(choice.language).upper(),
        "text": disguise.taken_off(translation.text),
        "billed_characters": len(text),
        **_warnings(translation, disguise),
    }


def _mixed_case(code: str) -> str:
    """A code as version 3 writes it: `en-US`, `zh-Hans`."""
    base, *parts = code.split("-")
    return "-".join([base.lower(), *(part.title() if len(part) == 4 else part for part in parts)])


def _target_names(code: str) -> Iterator[tuple[str, str]]:
    """Yield the codes, with names, by which clients may ask for a target language."""
    standard, base = standard_code(code), base_code(code)
    tag = langcodes.get(standard)
    if base == "zh":
        yield from CHINESE[tag.maximize().script or ""].items()
    elif base in REGIONS and not tag.territory:
        yield from REGIONS[base].items()
    elif base in REGIONS:
        yield standard.upper(), REGIONS[base].get(standard.upper(), language_name(code))
    else:
        codes = [standard] if tag.script else [standard, base] if tag.territory else [base]
        yield from ((own.upper(), language_name(code)) for own in codes)


def _warnings(translation: Translation, disguise: Disguise) -> dict[str, Any]:
    """The field `warnings`, which DeepL's own responses do not have."""
    warnings = [disguise.taken_off(warning) for warning in translation.warnings.values()]
    return {"warnings": warnings} if warnings else {}


def _rules(fields: Fields) -> TagRules:
    """The tag rules listed in a request that sets tag_handling."""
    if not fields.get("tag_handling"):
        return TagRules()
    outline = str(fields.get("outline_detection", 1)).lower() not in ("0", "false")
    kinds = ("ignore", "splitting", "non_splitting")
    ignored, splitting, inline = (frozenset(listed_values(fields, f"{kind}_tags")) for kind in kinds)
    return TagRules(ignored, splitting, inline, outline)


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
