"""What all protocols share: texts of several lines, limits of a request, and the language of a text."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from nmt.doctor.languages import base_language, guess_language
from nmt.serve.calls import Answerer
from nmt.serve.metrics import Metrics
from nmt.serve.models import Details, Models, ServedModel
from nmt.serve.options import ServeOptions
from nmt.serve.problems import ProblemError
from nmt.text.corpus import clean, is_invisible
from nmt.translate.requests import Request
from nmt.translate.results import Translation

PLAIN: Final = Details()
GUESSED: Final = 0.9  # confidence of a guess that function words or a script give
ASSUMED: Final = 0.0  # of the language of the first model, where they give none


class Service:
    """Translations for protocols. Its methods raise ProblemError."""

    def __init__(self, options: ServeOptions, models: Models, metrics: Metrics) -> None:
        self.options, self.models, self.metrics = options, models, metrics
        self.answerer = Answerer(options, metrics)
        self.characters = 0  # translated since the start
        for model in models.by_name.values():
            metrics.watch(model.name, partial(getattr, model, "waiting_lines"), partial(getattr, model, "is_loaded"))

    async def translate(
        self, model: ServedModel, requests: Sequence[Request], details: Details = PLAIN
    ) -> list[Translation]:
        """A translation for each request, which is one line."""
        characters = sum(len(request.text) for request in requests)
        if characters > self.options.max_characters:
            raise ProblemError(
                413, f"the texts have {characters:,} characters, at most {self.options.max_characters:,}"
            )
        if len(requests) > self.options.max_waiting:
            raise ProblemError(413, f"the texts have {len(requests):,} lines, at most {self.options.max_waiting:,}")
        translations = await self.models.translate(model, requests, details)
        self.characters += characters
        self.metrics.lines.labels(model.name).inc(len(requests))
        self.metrics.characters.labels(model.name).inc(characters)
        return translations

    async def translate_texts(
        self, model: ServedModel, texts: Sequence[str], details: Details = PLAIN
    ) -> list[list[Translation]]:
        """The translations of the lines of each text; blank lines have an empty one."""
        if len(texts) > self.options.max_texts:
            raise ProblemError(413, f"{len(texts):,} texts, at most {self.options.max_texts:,}")
        lines = [text.split("\n") for text in texts]
        requests = [Request("" if is_invisible(line) else clean(line)) for of_text in lines for line in of_text]
        found = iter(await self.translate(model, [request for request in requests if request.text], details))
        results = iter([next(found) if request.text else Translation() for request in requests])
        return [[next(results) for _ in of_text] for of_text in lines]

    async def translated(self, model: ServedModel, texts: Sequence[str]) -> list[str]:
        """The translation of each text, with its line breaks. Raises ProblemError if a line cannot be translated."""
        return ["\n".join(map(self.text_of, lines)) for lines in await self.translate_texts(model, texts)]

    def text_of(self, translation: Translation, candidate: int = 0) -> str:
        """The text of a candidate; the last one where there are fewer."""
        if translation.error:
            raise ProblemError(422, f"a line cannot be translated: {translation.error}")
        candidates = translation.candidates
        return candidates[min(candidate, len(candidates) - 1)].text if candidates else ""

    def detect(self, text: str) -> tuple[str, float]:
        """The language of a text among those of the models, and how sure that is, from 0 to 1."""
        known = [model.source_lang for model in self.models.by_name.values()]
        guess = guess_language(text)
        found = next((language for language in known if guess is not None and base_language(language) == guess), None)
        return (found, GUESSED) if found else (known[0], ASSUMED)
