"""The functions that all protocols share: texts of several lines, request limits, and language detection."""

import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from nmt.extensions.serve.access import Gate
from nmt.extensions.serve.calls import Endpoint
from nmt.extensions.serve.codes import code_distance, nearest_code, standard_code
from nmt.extensions.serve.detection import likely_languages
from nmt.extensions.serve.models import Details, Models, ServedModel, in_thread
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.scheduler import NumberedTranslation
from nmt.extensions.texts.placeholders import has_placeholders
from nmt.extensions.texts.text_steps import Round, TextSettings, advance, next_rounds, text_steps
from nmt.text.context import DocumentLines
from nmt.text.corpus import visible_line
from nmt.translate.requests import Request, in_context
from nmt.translate.results import TRUNCATED, TRUNCATED_TEXT, Candidate, Translation

PLAIN: Final = Details()
SENTENCES: Final = TextSettings(split=True)  # for protocols whose clients send texts of any length
STREAM_BATCH_LINES: Final = 16
"""Maximum number of lines of a stream per batch. On one CPU thread, the torch engine translates such a batch of transformer-small
in 0.4 s, at 1.4 times the time per line of a batch of 64. CTranslate2 needs 0.2 s, at 1.2 times the time per line."""
ASSUMED: Final = 0.0  # confidence in the first model's language if nothing indicates the text's language
SURELY_TARGET: Final = 0.9  # minimum confidence to assume that a text is already in the target language


class Choice(NamedTuple):
    """The model and the source language that were chosen for a text.

    model: None if the text stays unchanged
    language: code of the source language
    confidence: probability that this is the language, from 0 to 1
    """

    model: ServedModel | None
    language: str
    confidence: float


class Service:
    """Translates for all protocols. Its methods raise ProblemError.

    not_ready: why the server cannot translate at the moment; empty if it can
    characters: number of characters translated since the server started
    """

    def __init__(self, options: ServeOptions, models: Models) -> None:
        self.options, self.models, self.metrics = options, models, models.metrics
        self.gate = Gate(options)
        self.endpoint = partial(Endpoint, options, self.metrics, self.gate)
        self.not_ready, self.characters = "", 0

    def stream_texts(
        self,
        model: ServedModel,
        requests: Sequence[Request],
        settings: TextSettings,
        details: Details = PLAIN,
        max_batch_lines: int = STREAM_BATCH_LINES,
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """The index and translation of each request as soon as it is ready. Requests may contain any kind of text.

        Close the iterator (`contextlib.aclosing`) to drop the lines whose translation has not started.
        max_batch_lines: maximum number of these requests in one batch; small batches finish earlier
        """
        self.check_size(requests)
        has_phrases = details.phrases or settings.glossary is not None
        details = details._replace(phrases=has_phrases, tags=settings.needs_attention)
        requests = in_context(requests, DocumentLines(model.pipeline.context))
        if settings == TextSettings():
            return self._lines(model, requests, details, max_batch_lines)
        return self._texts(model, requests, settings, details, max_batch_lines)

    async def _texts(
        self,
        model: ServedModel,
        requests: Sequence[Request],
        settings: TextSettings,
        details: Details,
        max_batch_lines: int,
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """Yield the translations of requests whose texts need several steps."""
        texts = [text_steps(request, settings, model.pipeline) for request in requests]
        waiting: dict[int, Round] = {}

        async def next_step(number: int, answer: list[Translation] | None) -> Translation | None:
            """Run the next step in a thread, because parsing and placing tags must not delay other requests."""
            return await in_thread(partial(advance, texts[number], answer, waiting, number))

        for number, request in enumerate(requests):
            if not _has_letters(request.text):
                yield number, _unchanged(request.text)
            elif (done := await next_step(number, None)) is not None:
                yield number, done
        while waiting:
            is_repair, now = next_rounds(waiting)
            lines = [(number, k, request) for number, step in now.items() for k, request in enumerate(step.requests)]
            answers: dict[int, dict[int, Translation]] = {number: {} for number in now}
            own = details._replace(repair=is_repair)
            async with aclosing(self._lines(model, [row[2] for row in lines], own, max_batch_lines)) as translations:
                async for i, translation in translations:
                    number, k, _ = lines[i]
                    answers[number][k] = translation
                    if len(answers[number]) < len(now[number].requests):
                        continue
                    answer = answers.pop(number)
                    if (done := await next_step(number, [answer[k] for k in range(len(answer))])) is not None:
                        yield number, done

    async def _lines(
        self, model: ServedModel, requests: Sequence[Request], details: Details, max_batch_lines: int
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """Yield the translations of one-line requests. If a retry search fails, the remaining translations contain its error."""
        left = set(range(len(requests)))
        try:
            self.check_size(requests, contexts=False)
            async with aclosing(self.models.translate(model, requests, details, max_batch_lines)) as translations:
                async for number, translation in translations:
                    left.remove(number)
                    length = len(requests[number].text)
                    self.characters += length
                    model.metrics.lines.inc()
                    model.metrics.characters.inc(length)
                    yield number, translation
        except ProblemError as error:
            if not details.repair:
                raise
            for number in left:
                yield number, Translation(error=str(error))

    async def translate_texts(
        self, model: ServedModel, requests: Sequence[Request], settings: TextSettings, details: Details = PLAIN
    ) -> list[Translation]:
        """Translate requests with texts of any kind, and return the translations in order."""
        async with aclosing(self.stream_texts(model, requests, settings, details, sys.maxsize)) as translations:
            by_number = dict([numbered async for numbered in translations])
        return [by_number[number] for number in range(len(requests))]

    async def translate_each(
        self,
        models: Sequence[ServedModel | None],
        requests: Sequence[Request],
        settings: TextSettings,
        details: Details = PLAIN,
    ) -> list[Translation]:
        """Translate each request's text with the model at the same index. A text without a model (None) stays unchanged."""
        self.check_size(requests)
        found = {
            number: _unchanged(request.text)
            for number, (model, request) in enumerate(zip(models, requests, strict=True))
            if model is None
        }
        for model in filter(None, dict.fromkeys(models)):
            numbers = [number for number, own in enumerate(models) if own is model]
            translations = await self.translate_texts(model, [requests[n] for n in numbers], settings, details)
            found.update(zip(numbers, translations, strict=True))
        return [found[number] for number in range(len(requests))]

    async def translated(
        self,
        models: Sequence[ServedModel | None],
        texts: Sequence[str],
        settings: TextSettings = SENTENCES,
        context: str = "",
    ) -> list[Translation]:
        """Translate each text with the model at the same index. Raises ProblemError if a text cannot be translated.

        context: text that precedes each text, for models that read context
        """
        self.check_count(texts)
        before = (visible_line(context),) if context else None
        requests = [
            Request(text, context=before if model and model.pipeline.context else None)
            for model, text in zip(models, texts, strict=True)
        ]
        translations = await self.translate_each(models, requests, settings)
        for translation in translations:
            self.text_of(translation)
        return translations

    async def translated_lines(self, model: ServedModel, text: str) -> str:
        """Translate a text with one sentence per line, keeping placeholders. Raises ProblemError."""
        lines = [Request(visible_line(line)) for line in text.split("\n")]
        self.check_size(lines)  # first, because nothing can interrupt a regular expression
        settings = TextSettings(check=has_placeholders(text))
        return "\n".join(map(self.text_of, await self.translate_texts(model, lines, settings)))

    async def stream_text(
        self, model: ServedModel, text: str, kept: Collection[str]
    ) -> AsyncGenerator[tuple[str, list[str]], None]:
        """Yield the translation of each line of a text in order, with its line break and its warnings.

        Close the iterator, as for `stream_texts`. Raises ProblemError if a line cannot be translated.
        kept: lines that stay unchanged
        """
        lines = text.split("\n")
        numbers = [number for number, line in enumerate(lines) if line.strip() not in kept]
        ready = {number: (line, list[str]()) for number, line in enumerate(lines) if line.strip() in kept}
        requests = [Request(lines[number]) for number in numbers]
        async with aclosing(self.stream_texts(model, requests, SENTENCES)) as translations:
            for next_line in range(len(lines)):
                while next_line not in ready:
                    i, translation = await anext(translations)
                    ready[numbers[i]] = self.text_of(translation), list(translation.warnings.values())
                line, warnings = ready.pop(next_line)
                yield line + ("\n" if next_line < len(lines) - 1 else ""), warnings

    def check_size(self, requests: Sequence[Request], contexts: bool = True) -> None:
        """Raise ProblemError if the requests have too many characters or lines.

        contexts: whether to include the contexts that the client sent
        """
        characters = sum(len(request.text) for request in requests)
        characters += sum(len(line) for request in requests for line in request.context or ()) if contexts else 0
        if characters > self.options.max_characters:
            limit = f"at most {self.options.max_characters:,} characters, including contexts"
            raise ProblemError(413, f"the texts have {characters:,} characters, but a request may have {limit}")
        if len(requests) > self.options.max_waiting:
            raise ProblemError(
                413, f"the request has {len(requests):,} lines; the limit is {self.options.max_waiting:,}"
            )

    def check_count(self, texts: Sequence[object]) -> None:
        """Raise ProblemError if a request has too many texts."""
        if len(texts) > self.options.max_texts:
            raise ProblemError(413, f"the request has {len(texts):,} texts; the limit is {self.options.max_texts:,}")

    def text_of(self, translation: Translation, candidate: int = 0) -> str:
        """The text of a candidate by index, or of the last one if there are fewer. Raises ProblemError for truncated lines."""
        if truncated := translation.warnings.get(TRUNCATED) or translation.warnings.get(TRUNCATED_TEXT):
            raise ProblemError(413, f"a line is too long and would be {truncated}")
        if translation.error:
            raise ProblemError(422, f"a line cannot be translated: {translation.error}")
        return translation.candidate(candidate).text

    async def choices(self, texts: Sequence[str], source: str | None, target: str) -> list[Choice]:
        """Choose the model for each text. Raises ProblemError for languages that no model supports.

        A text without letters stays unchanged. So does a text in the target language, unless a model translates it.
        source: None detects the language of each text
        """
        self.check_count(texts)
        self.check_size(list(map(Request, texts)))
        if source is not None:
            model = self._model_between(source, target)
            return [Choice(model, standard_code(source), 1.0) for _ in texts]
        self.models.find(None, None, target)  # raises ProblemError for an unknown target
        return [await self._choice(text, target) for text in texts]

    async def _choice(self, text: str, target: str) -> Choice:
        """Choose the model for a text in an unknown language."""
        into = [model for model in self.models.by_name.values() if model.distance(None, target) is not None]
        sources = [model.source_lang for model in into]
        if not _has_letters(text):
            return Choice(None, standard_code(sources[0]), ASSUMED)
        has_own_model = any(model.distance(target, target) is not None for model in into)
        guesses = await self.guesses(text, sources if has_own_model else [*sources, target])
        if not has_own_model and guesses and guesses[0][0] == target and guesses[0][1] >= SURELY_TARGET:
            return Choice(None, standard_code(target), guesses[0][1])
        language, confidence = next((row for row in guesses if row[0] in sources), (sources[0], ASSUMED))
        return Choice(self.models.find(None, language, target), standard_code(language), confidence)

    def _model_between(self, source: str, target: str) -> ServedModel | None:
        """The model for a direction; None if there is none and both codes name the same known language."""
        try:
            return self.models.find(None, source, target)
        except ProblemError:
            if code_distance(source, target) is None or nearest_code(target, self._languages()) is None:
                raise
            return None

    async def guesses(self, text: str, codes: Sequence[str] = ()) -> list[tuple[str, float]]:
        """The likely languages of a text among `codes`, or by default among those of all models (see `likely_languages`)."""
        return await in_thread(partial(likely_languages, text, codes or self._languages()))

    def _languages(self) -> list[str]:
        return [code for model in self.models.by_name.values() for code in (model.source_lang, model.target_lang)]


def _unchanged(text: str) -> Translation:
    return Translation([Candidate(text, [], 0.0, 0.0)])


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))
