"""The web page for users, which loads nothing from other servers, and the calls that only the page makes."""

import mimetypes
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nmt import register
from nmt.extensions.serve.calls import Call
from nmt.extensions.serve.codes import standard_code
from nmt.extensions.serve.documents import document_endings
from nmt.extensions.serve.messages import Direction
from nmt.extensions.serve.models import in_thread
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.protocols.options import PageOptions
from nmt.extensions.serve.service import SURELY_TARGET, Choice
from nmt.extensions.texts.text_steps import leading_tags, text_sentences
from nmt.text.pipeline import Pipeline

FOLDER: Final = Path(__file__).parents[1] / "page"
MAIN_FILE: Final = "page.html"
PAGE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # files of two versions must not be mixed
}


class PageFacts(Struct):
    """What the page must know about the server.

    keys: whether requests need a key
    endings: file name endings of the documents that nmt can translate
    max_texts, max_characters: limits per request
    max_bytes: maximum size of a document
    """

    directions: list[Direction]
    keys: bool
    endings: list[str]
    max_texts: int
    max_characters: int
    max_bytes: int


class SplitRequest(Struct, forbid_unknown_fields=True):
    """A text to split into sentences.

    model: name of the model; by default the one that is closest to the languages
    source: None detects the language
    """

    text: str
    target: str
    source: str | None = None
    model: str | None = None


class Sentence(Struct):
    """A sentence of a text.

    before: white space before the sentence
    gap: white space before its translation
    tags: tags that start the text, such as the target language, unless the sentence has tags of its own
    """

    before: str
    text: str
    gap: str
    tags: str = ""


class SplitAnswer(Struct):
    """The sentences of a text, and the model that translates them.

    model: None if the text stays unchanged: without letters, in the target language, or in one that no model translates into it
    source: the source language, detected if the request did not name it
    context: number of preceding sentences that the model reads
    after: white space after the last sentence
    """

    model: str | None
    source: str
    confidence: float
    context: int
    sentences: list[Sentence]
    after: str


@register("protocol", "page", PageOptions)
class Page(ClientProtocol):
    """A web page for users, unless --no-page turns it off."""

    def routes(self) -> list[BaseRoute]:
        """The page at /, its other files, and its calls, all below /page."""
        if not self.options.page:
            return []
        files = [path for path in sorted(FOLDER.iterdir()) if path.name != MAIN_FILE]
        return [
            self._file("/", FOLDER / MAIN_FILE),
            *(self._file(f"/page/{path.name}", path) for path in files),
            self.route("/page/facts", self.facts, "GET", is_open=True),
            self.route("/page/sentences", self.sentences, "POST"),
        ]

    def _file(self, route: str, path: Path) -> Route:
        content, kind = path.read_bytes(), mimetypes.guess_type(path.name)[0]

        async def answer(_: Call) -> Response:
            return Response(content, media_type=kind, headers=PAGE_HEADERS)

        return self.route(route, answer, "GET", is_open=True)

    async def facts(self, _: Call) -> PageFacts:
        directions = [
            Direction(model.name, standard_code(model.source_lang), standard_code(model.target_lang), model.is_loaded)
            for model in self.service.models.by_name.values()
        ]
        options = self.options
        return PageFacts(
            directions,
            options.keys is not None,
            document_endings(),
            options.max_texts,
            options.max_characters,
            options.max_body_bytes,
        )

    async def sentences(self, call: Call) -> SplitAnswer:
        asked: SplitRequest = call.json(SplitRequest)
        [choice] = await self.service.choices([asked.text], asked.source, asked.target)
        if asked.source is None:
            choice = await self._unless_other_language(asked, choice)
        model = choice.model
        if model is not None and asked.model is not None:
            model = self.service.models.find(asked.model, choice.language, asked.target)
        pipeline = (model or self.service.models.find(None, None, asked.target)).pipeline
        rows, after = await in_thread(partial(_sentences, asked.text, pipeline))  # long texts must not delay others
        name = model.name if model else None
        return SplitAnswer(name, choice.language, choice.confidence, pipeline.context, rows, after)

    async def _unless_other_language(self, asked: SplitRequest, choice: Choice) -> Choice:
        """The choice, but without a model if the text is very likely in a language that no model translates into the target."""
        models = self.service.models.by_name.values()
        sources = [model.source_lang for model in models]
        guesses = await self.service.guesses(asked.text, sources) if choice.model else []
        for language, confidence in guesses[:1]:
            is_known = any(model.distance(language, asked.target) is not None for model in models)
            if confidence >= SURELY_TARGET and not is_known:
                return Choice(None, standard_code(language), confidence)
        return choice


def _sentences(text: str, pipeline: Pipeline) -> tuple[list[Sentence], str]:
    """The sentences of a text, and the white space after the last one."""
    rows, end, gap, tags = list[Sentence](), 0, "", leading_tags(text, pipeline)
    for part in text_sentences(text, pipeline):
        if isinstance(part, str):
            gap += part
            continue
        start = text.index(part.text, end)
        own_tags = leading_tags(part.text, pipeline)
        rows.append(Sentence(text[end:start], part.text, gap, "" if own_tags else tags))
        end, gap = start + len(part.text), ""
    return rows, text[end:]
