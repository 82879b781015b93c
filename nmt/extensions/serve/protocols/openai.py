"""The part of OpenAI's protocol that chat programs need: the user's last message is translated."""

import re
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import regex
from starlette.routing import BaseRoute

from nmt import register
from nmt.errors import one_line
from nmt.extensions.serve.calls import Call
from nmt.extensions.serve.events import EventStream, json_event
from nmt.extensions.serve.models import Details, ServedModel, in_thread
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.protocols.options import OpenAIOptions
from nmt.extensions.serve.service import SENTENCES, Service
from nmt.translate.requests import Request

UNAUTHORIZED: Final = 401  # HTTP status
ERROR_CODES: Final = {  # by HTTP status
    UNAUTHORIZED: "invalid_api_key",
    404: "model_not_found",
    413: "context_length_exceeded",
    429: "rate_limit_exceeded",
}
NO_SUCH_MODEL: Final = 404  # HTTP status
MAX_CHOICES: Final = 20
PATTERN_SECONDS: Final = 1.0  # time limit for each --prompt-pattern
RULE_ROLES: Final = ("system", "developer")
# A line that separates texts, such as `==PART==`, if the system message mentions it.
PART_SEPARATOR: Final = re.compile(r"[^\w\s]\S*[^\w\s]")


class MessagePart(msgspec.Struct):
    """A part of a message."""

    type: str
    text: str = ""


class Message(msgspec.Struct):
    """A message of a conversation."""

    role: str
    content: str | list[MessagePart] | None = None

    @property
    def text(self) -> str:
        """The text of all parts. Raises ProblemError for a part that is not text."""
        if isinstance(self.content, str):
            return self.content
        for part in self.content or ():
            if part.type != "text":
                raise ProblemError(
                    400, f"message parts of type '{one_line(part.type)}' cannot be translated (send only text)"
                )
        return "".join(part.text for part in self.content or ())


class StreamOptions(msgspec.Struct):
    """The options of a streamed response."""

    include_usage: bool | None = False


class ResponseFormat(msgspec.Struct):
    """The form of the response. Only plain text is supported."""

    type: str = "text"


class Conversation(msgspec.Struct):
    """The body of /v1/chat/completions. Sampling settings, limits and stop words are ignored.

    n: number of candidates
    tools, functions, response_format: refused, because the response is always a translation
    """

    model: str
    messages: list[Message]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None

    def check(self) -> None:
        """Raise ProblemError for settings that a translation cannot follow."""
        form = self.response_format or ResponseFormat()
        if form.type != "text":
            raise ProblemError(400, f"'response_format' {one_line(form.type)} is not supported (use text)")
        for name in ("tools", "functions"):
            if getattr(self, name):
                raise ProblemError(400, f"'{name}' is not supported")
        if self.stream and (self.n or 1) > 1:
            raise ProblemError(400, "'n' must be 1 if 'stream' is true")


@register("protocol", "openai", OpenAIOptions)
class OpenAI(ClientProtocol):
    """The part of OpenAI's protocol that chat programs need."""

    prefixes = ("/v1",)
    key_status = UNAUTHORIZED

    def __init__(self, options: ServeOptions, service: Service) -> None:
        super().__init__(options, service)
        # Some patterns would search some texts for hours, during which `re`, unlike `regex`, stops all threads.
        self._patterns = [regex.compile(pattern, regex.DOTALL) for pattern in self.options.prompt_pattern]

    def routes(self) -> list[BaseRoute]:
        """/v1/chat/completions, /v1/models and /v1/models/NAME."""
        return [
            self.route("/v1/chat/completions", self.complete, "POST"),
            self.route("/v1/models", self.models, "GET"),
            self.route("/v1/models/{name:path}", self.one_model, "GET"),
        ]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": ERROR_CODES.get(status)}}

    async def complete(self, call: Call) -> EventStream | dict[str, Any]:
        asked: Conversation = call.json(Conversation)
        asked.check()
        text = await self._text(asked.messages)
        rules = [message.text for message in asked.messages if message.role in RULE_ROLES]
        kept = {line for rule in rules for line in map(str.strip, rule.split("\n")) if PART_SEPARATOR.fullmatch(line)}
        model, count = self._model(asked.model), asked.n or 1
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if asked.stream:
            has_usage = bool(asked.stream_options and asked.stream_options.include_usage)
            return EventStream(_chunks(head, text, self.service.stream_text(model, text, kept), has_usage))
        translations, warnings = await self._translations(model, text, kept, count)
        return {
            **head,
            "object": "chat.completion",
            "choices": [_choice(number, translation) for number, translation in enumerate(translations)],
            "usage": _usage(text, translations),
            **_warnings(warnings),
        }

    async def _text(self, messages: Sequence[Message]) -> str:
        """The last user message, or the part of it that a pattern finds. Raises ProblemError if there is none."""
        texts = [message.text for message in messages if message.role == "user"]
        if not texts:
            raise ProblemError(400, "'messages' contains no message with the role 'user'")
        if not self._patterns:
            return texts[-1]
        try:
            return await in_thread(partial(self._found, texts[-1]))
        except TimeoutError:
            raise ProblemError(400, "a --prompt-pattern takes too long to search this message") from None

    def _found(self, message: str) -> str:
        """The text that the first fitting pattern finds in a message, or the whole message. Raises TimeoutError."""
        for pattern in self._patterns:
            if found := pattern.search(message, timeout=PATTERN_SECONDS, concurrent=True):
                return found[1] or ""
        return message

    async def _translations(
        self, model: ServedModel, text: str, kept: Collection[str], count: int
    ) -> tuple[list[str], list[str]]:
        """`count` translations of a text, the best first, and the warnings. The last one is repeated if there are fewer."""
        lines = text.split("\n")
        numbers = [number for number, line in enumerate(lines) if line.strip() not in kept]
        requests = [Request(lines[number]) for number in numbers]
        found = await self.service.translate_texts(model, requests, SENTENCES, Details(scores=count > 1))
        translations = []
        for candidate in range(count):
            own = dict(zip(numbers, (self.service.text_of(row, candidate) for row in found), strict=True))
            translations.append("\n".join(own.get(number, line) for number, line in enumerate(lines)))
        return translations, [warning for row in found for warning in row.warnings.values()]

    async def models(self, _: Call) -> dict[str, Any]:
        return {"object": "list", "data": list(map(_described, self.service.models.by_name))}

    async def one_model(self, call: Call) -> dict[str, Any]:
        self._model(call.path["name"])
        return _described(call.path["name"])

    def _model(self, name: str) -> ServedModel:
        """The model with this name, or the one for a direction such as `en-de` or `zh-Hant-en`. Raises ProblemError."""
        models = self.service.models.by_name
        if name in models:
            return models[name]
        for dash in re.finditer("[-_]", name):
            with suppress(ProblemError):
                return self.service.models.find(None, name[: dash.start()], name[dash.end() :])
        known = ", ".join(f"{own} ({model.source_lang}-{model.target_lang})" for own, model in models.items())
        raise ProblemError(NO_SUCH_MODEL, f"the model '{one_line(name)}' does not exist (available: {known})")


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "nmt"}


def _warnings(warnings: Iterable[str]) -> dict[str, Any]:
    """The field `warnings`, an addition to OpenAI's responses, which lists each distinct warning."""
    return {"warnings": found} if (found := list(dict.fromkeys(warnings))) else {}


def _choice(number: int, translation: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": translation, "refusal": None}
    return {"index": number, "message": message, "logprobs": None, "finish_reason": "stop"}


def _usage(text: str, translations: Iterable[str]) -> dict[str, int]:
    """The usage counted in words, because each model tokenizes texts differently."""
    words = sum(len(translation.split()) for translation in translations)
    sizes = {"prompt_tokens": len(text.split()), "completion_tokens": words}
    return {**sizes, "total_tokens": sum(sizes.values())}


async def _chunks(
    head: dict[str, Any], text: str, lines: AsyncGenerator[tuple[str, list[str]], None], has_usage: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a translation, one per line.

    head: fields that all events share
    text: source text
    lines: translated lines with their warnings (see `Service.stream_text`)
    """
    head = {**head, "object": "chat.completion.chunk", **({"usage": None} if has_usage else {})}

    def chunk(delta: dict[str, str], reason: str | None, **more: Any) -> bytes:
        return json_event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more})

    role = {"role": "assistant"}  # only in the first event
    translation, warnings = "", list[str]()
    async with aclosing(lines):
        async for line, own in lines:
            yield chunk({**role, "content": line}, None)
            role = {}
            translation += line
            warnings += own
    yield chunk({}, "stop", **_warnings(warnings))
    if has_usage:
        yield json_event({**head, "choices": [], "usage": _usage(text, [translation])})
    yield b"data: [DONE]\n\n"
