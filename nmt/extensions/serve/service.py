"""What all protocols share: texts of several lines, limits of a request, and the language of a text."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from nmt.extensions.doctor.languages import guess_language
from nmt.extensions.serve.calls import Endpoint, Gate
from nmt.extensions.serve.metrics import Metrics
from nmt.extensions.serve.models import Details, Models, ServedModel, in_thread
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.scheduler import NumberedTranslation
from nmt.extensions.texts.text_steps import Round, TextSettings, advance, next_rounds, text_steps
from nmt.text.context import DocumentLines
from nmt.text.corpus import visible_line
from nmt.text.languages import base_language
from nmt.translate.requests import Request, in_context
from nmt.translate.results import CUT, CUT_TEXT, Translation

PLAIN: Final = Details()
SENTENCES: Final = TextSettings(split=True)  # of protocols whose clients send any text
STREAM_BATCH_LINES: Final = 16
"""Lines of a stream in a batch. On one thread of a CPU such a batch of transformer-small takes 0.4 s by our own engine, a line of
it 1.4 times as long as in a batch of 64; by CTranslate2 0.2 s, and 1.2 times as long."""
GUESSED: Final = 0.9  # confidence of a guess that function words or a script give
ASSUMED: Final = 0.0  # of the language of the first model, where they give none


class Service:
    """Translations for protocols. Its methods raise ProblemError."""

    def __init__(self, options: ServeOptions, models: Models, metrics: Metrics) -> None:
        self.options, self.models, self.metrics = options, models, metrics
        self.gate = Gate(options)
        self.endpoint = partial(Endpoint, options, metrics, self.gate)
        self.characters = 0  # translated since the start
        for model in models.by_name.values():
            metrics.watch(model.name, partial(getattr, model, "waiting_lines"), partial(getattr, model, "is_loaded"))

    async def stream_texts(
        self,
        model: ServedModel,
        requests: Sequence[Request],
        settings: TextSettings,
        details: Details = PLAIN,
        max_batch_lines: int = STREAM_BATCH_LINES,
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """The translations of requests, each of any text, with their numbers, as soon as they are there.

        Close the iterator (`contextlib.aclosing`), which drops the lines that are not begun.
        max_batch_lines: of these requests in a batch; fewer come sooner
        """
        self._check(requests)
        has_phrases = details.phrases or settings.glossary is not None
        details = details._replace(phrases=has_phrases, tags=settings.needs_attention)
        requests = in_context(requests, DocumentLines(model.pipeline.context))
        texts = [text_steps(request, settings, model.pipeline) for request in requests]
        waiting: dict[int, Round] = {}
        is_plain = settings == TextSettings()

        async def go_on(number: int, answer: list[Translation] | None) -> Translation | None:
            """Parsing and placing tags take a while; they must not hold up others."""
            work = partial(advance, texts[number], answer, waiting, number)
            return work() if is_plain else await in_thread(work)

        for number in range(len(texts)):
            if (done := await go_on(number, None)) is not None:
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
                    if (done := await go_on(number, [answer[k] for k in range(len(answer))])) is not None:
                        yield number, done

    async def _lines(
        self, model: ServedModel, requests: Sequence[Request], details: Details, max_batch_lines: int
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """The translations of requests, each of one line; where repairs cannot be searched, their failure in place of each."""
        num_lines, num_characters = (of.labels(model.name) for of in (self.metrics.lines, self.metrics.characters))
        left = set(range(len(requests)))
        try:
            self._check(requests, contexts=False)
            async with aclosing(self.models.translate(model, requests, details, max_batch_lines)) as translations:
                async for number, translation in translations:
                    left.remove(number)
                    length = len(requests[number].text)
                    self.characters += length
                    num_lines.inc()
                    num_characters.inc(length)
                    yield number, translation
        except ProblemError as error:
            if not details.repair:
                raise
            for number in left:
                yield number, Translation(error=str(error))

    async def translate_texts(
        self, model: ServedModel, requests: Sequence[Request], settings: TextSettings, details: Details = PLAIN
    ) -> list[Translation]:
        """A translation for each request, which is any text."""
        async with aclosing(self.stream_texts(model, requests, settings, details, sys.maxsize)) as translations:
            by_number = dict([numbered async for numbered in translations])
        return [by_number[number] for number in range(len(requests))]

    async def translate_each(
        self,
        models: Sequence[ServedModel],
        requests: Sequence[Request],
        settings: TextSettings,
        details: Details = PLAIN,
    ) -> list[Translation]:
        """A translation for each request, which is any text, by the model at its place."""
        self._check(requests)
        found: dict[int, Translation] = {}
        for model in dict.fromkeys(models):
            numbers = [number for number, own in enumerate(models) if own is model]
            translations = await self.translate_texts(model, [requests[n] for n in numbers], settings, details)
            found.update(zip(numbers, translations, strict=True))
        return [found[number] for number in range(len(requests))]

    async def translated(
        self,
        models: Sequence[ServedModel],
        texts: Sequence[str],
        settings: TextSettings = SENTENCES,
        context: str = "",
    ) -> list[str]:
        """The translation of each text, by the model at its place. Raises ProblemError if one cannot be translated.

        context: a text before each of them, for a model that reads one
        """
        self.check_count(texts)
        before = (visible_line(context),) if context else None
        requests = [
            Request(text, context=before if model.pipeline.context else None)
            for model, text in zip(models, texts, strict=True)
        ]
        return list(map(self.text_of, await self.translate_each(models, requests, settings)))

    async def translated_lines(self, model: ServedModel, text: str) -> str:
        """The translation of a text, each of whose lines is one sentence. Raises ProblemError."""
        lines = [Request(visible_line(line)) for line in text.split("\n")]
        return "\n".join(map(self.text_of, await self.translate_texts(model, lines, TextSettings())))

    async def stream_text(self, model: ServedModel, text: str) -> AsyncGenerator[str, None]:
        """The translations of a text's lines, in their order and with the line breaks.

        Close the iterator, as that of `stream_texts`. Raises ProblemError if a line cannot be translated.
        """
        lines = text.split("\n")
        ready: dict[int, str] = {}
        next_line = 0
        async with aclosing(self.stream_texts(model, list(map(Request, lines)), SENTENCES)) as translations:
            async for number, translation in translations:
                ready[number] = self.text_of(translation)
                while next_line in ready:
                    line_break = "\n" if next_line < len(lines) - 1 else ""
                    yield ready.pop(next_line) + line_break
                    next_line += 1

    def _check(self, requests: Sequence[Request], contexts: bool = True) -> None:
        """Raise ProblemError for requests with more characters or lines than one may have.

        contexts: whether theirs count, which the client gave
        """
        characters = sum(len(request.text) for request in requests)
        characters += sum(len(line) for request in requests for line in request.context or ()) if contexts else 0
        if characters > self.options.max_characters:
            what = "the texts, each with its context, have"
            raise ProblemError(413, f"{what} {characters:,} characters, at most {self.options.max_characters:,}")
        if len(requests) > self.options.max_waiting:
            raise ProblemError(413, f"the texts have {len(requests):,} lines, at most {self.options.max_waiting:,}")

    def check_count(self, texts: Sequence[object]) -> None:
        """Raise ProblemError for more texts than a request may have."""
        if len(texts) > self.options.max_texts:
            raise ProblemError(413, f"{len(texts):,} texts, at most {self.options.max_texts:,}")

    def text_of(self, translation: Translation, candidate: int = 0) -> str:
        """The text of a candidate; the last one where there are fewer. Raises ProblemError for a line that was cut."""
        if cut := translation.warnings.get(CUT) or translation.warnings.get(CUT_TEXT):
            raise ProblemError(413, f"a line is too long: it would be {cut}")
        if translation.error:
            raise ProblemError(422, f"a line cannot be translated: {translation.error}")
        return translation.candidate(candidate).text

    def detect(self, text: str, target: str | None = None) -> tuple[str, float]:
        """The language of a text among those of the models, and how sure that is, from 0 to 1.

        target: a language; if there are models into it, those of other models are left out
        """
        models = self.models.by_name.values()
        base = base_language(target) if target is not None else None
        into_target = [model.source_lang for model in models if base_language(model.target_lang) == base]
        known = into_target or [model.source_lang for model in models]
        guess = guess_language(text)
        found = next((language for language in known if guess is not None and base_language(language) == guess), None)
        return (found, GUESSED) if found else (known[0], ASSUMED)
