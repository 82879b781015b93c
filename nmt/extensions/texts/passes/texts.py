"""The pass that translates any text: several sentences, tags, glossaries, and repairs of failed translations."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from nmt import register
from nmt.decoders.options import phrase_decoders
from nmt.engines.base import MODEL_KINDS, kind_of_folder
from nmt.engines.torch_engine import has_torch
from nmt.errors import UserError, missing_torch
from nmt.extensions.texts.again import search_again, with_phrases
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.passes.options import TextOptions
from nmt.extensions.texts.text_steps import (
    MAX_TEXT_CHARACTERS,
    Round,
    TextSettings,
    advance,
    next_rounds,
    text_steps,
)
from nmt.log import Bar, log
from nmt.options import Part
from nmt.passes.base import Pass, Searches
from nmt.runs import find_model
from nmt.translate.options import TranslatorOptions
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

# The first line of a page, or of a script, style or comment that continues on the next line.
PAGE: Final = re.compile(
    r"\s*(?:<!doctype\s+html\b|<(?:html|head|body)\b|<(script|style)\b(?!.*</\1)|<!--(?!.*-->))(?!.*\n)", re.IGNORECASE
)


@register("pass", "texts", TextOptions)
class TextPass(Pass):
    """Translates texts with several sentences, tags and glossary terms, and repairs failed translations."""

    order = 10

    def __init__(self, options: TextOptions) -> None:
        super().__init__(options)
        glossary = Glossary.read(Path(options.glossary)) if options.glossary is not None else None
        self.settings = TextSettings(options.split, options.markup, glossary, options.repair, options.check)

    def search(self, models: Sequence[str], part: Part) -> Part:
        settings = self.settings
        if settings.glossary and part.name not in (usable := ["beam", *phrase_decoders()]):
            raise UserError(f"--glossary needs --decoder {' or '.join(usable)}, not {part.name}")
        if settings.repair and any(kind_of_folder(find_model(Path(model))) not in MODEL_KINDS for model in models):
            raise UserError(
                "--repair needs the built-in search, which exported folders do not support (use the original model)"
            )
        if settings.repair and not has_torch():
            raise missing_torch("--repair")
        return with_phrases(part) if settings.glossary else part

    def inner(self, options: TranslatorOptions) -> TranslatorOptions:
        if not self.settings.needs_attention:
            return options
        attention: dict[str, Any] = {"alignment": "soft", "raw_tokens": True}
        return replace(options, **attention)

    def around(self, translator: Translator, searches: Searches) -> Translator:
        # Captured steps do not support a coverage penalty.
        plain: dict[str, Any] = {"capture": False} if hasattr(searches.options, "capture") else {}
        again = replace(searches.options, engine="torch", **plain)

        def open_repair() -> Translator:
            return searches.open(again, search_again(searches.search, searches.models))

        return TextTranslator(translator, searches, self.settings, cache(open_repair))


class TextTranslator(Translator):
    """A Translator for texts of any kind, built on one for lines.

    inner: the translator for lines
    open_repair: opens the translator that retries failed translations, when it is first needed
    """

    def __init__(
        self, inner: Translator, searches: Searches, settings: TextSettings, open_repair: Callable[[], Translator]
    ) -> None:
        super().__init__(inner.engine, searches.options, searches.filter_texts)
        self.inner, self.settings, self._open_repair = inner, settings, open_repair
        if settings.split or settings.needs_attention:
            self.max_characters = MAX_TEXT_CHARACTERS
        self._is_page = False

    def translate(self, requests: Sequence[Request | str], bar: Bar | None = None) -> list[Translation]:
        """See Translator. Rounds of different texts are translated together."""
        parsed = self.parsed(requests)
        self._warn_of_page(parsed)
        texts = [text_steps(request, self.settings, self.pipeline) for request in parsed]
        waiting: dict[int, Round] = {}
        results = [advance(text, None, waiting, number) for number, text in enumerate(texts)]
        while waiting:
            is_repair, now = next_rounds(waiting)
            passages = [request for step in now.values() for request in step.requests]
            translator = self._open_repair() if is_repair else self.inner
            # The progress bar counts texts, not passages.
            answers = iter(translator.translate(passages, Bar("translating")))
            for number, step in now.items():
                results[number] = advance(texts[number], [next(answers) for _ in step.requests], waiting, number)
        if bar is not None:
            bar.advance(len(texts))
        return [result or Translation() for result in results]

    def _warn_of_page(self, requests: Sequence[Request]) -> None:
        """Warn once if the lines look like an HTML page, where scripts and comments may span several lines."""
        if self.settings.markup == "html" and not self._is_page:
            self._is_page = any(PAGE.match(request.text) for request in requests)
            if self._is_page:
                log.warn(
                    "the input looks like an HTML page, but each line is translated separately (use --format html)"
                )
