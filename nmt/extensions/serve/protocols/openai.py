"""The part of OpenAI's protocol that chat programs need: the user's last message is translated."""

import re
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
from starlette.routing import BaseRoute

from nmt import register
from nmt.errors import one_line
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.events import EventStream, json_event
from nmt.extensions.serve.models import ServedModel
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.service import STREAM_BATCH_LINES
from nmt.options import NoOptions

NO_SUCH_MODEL: Final = 404  # HTTP status
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


class Conversation(msgspec.Struct):
    """The body of /v1/chat/completions. Sampling settings are ignored: the response is the best translation."""

    model: str
    messages: list[Message]
    stream: bool | None = False
    stream_options: StreamOptions | None = None


@register("protocol", "openai", NoOptions)
class OpenAI(ClientProtocol):
    """The part of OpenAI's protocol that chat programs need."""

    def routes(self) -> list[BaseRoute]:
        """/v1/chat/completions, /v1/models and /v1/models/NAME."""
        return [
            self.route("/v1/chat/completions", self.complete, "POST"),
            self.route("/v1/models", self.models, "GET"),
            self.route("/v1/models/{name:path}", self.one_model, "GET"),
        ]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = "model_not_found" if status == NO_SUCH_MODEL else None
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    async def complete(self, call: Call, _: Fields) -> EventStream | dict[str, Any]:
        asked: Conversation = call.json(Conversation)
        texts = [message.text for message in asked.messages if message.role == "user"]
        if not texts:
            raise ProblemError(400, "'messages' contains no message with the role 'user'")
        text = texts[-1]
        rules = [message.text for message in asked.messages if message.role in RULE_ROLES]
        kept = {line for rule in rules for line in map(str.strip, rule.split("\n")) if PART_SEPARATOR.fullmatch(line)}
        max_batch_lines = STREAM_BATCH_LINES if asked.stream else sys.maxsize
        lines = self.service.stream_text(self._model(asked.model), text, kept, max_batch_lines)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if asked.stream:
            has_usage = bool(asked.stream_options and asked.stream_options.include_usage)
            return EventStream(_chunks(head, text, lines, has_usage))
        async with aclosing(lines):
            rows = [row async for row in lines]
        translation = "".join(line for line, _ in rows)
        choice = {"index": 0, "message": {"role": "assistant", "content": translation}, "finish_reason": "stop"}
        warnings = _warnings(warning for _, own in rows for warning in own)
        return {
            **head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(text, translation),
            **warnings,
        }

    async def models(self, _: Call, __: Fields) -> dict[str, Any]:
        return {"object": "list", "data": list(map(_described, self.service.models.by_name))}

    async def one_model(self, call: Call, _: Fields) -> dict[str, Any]:
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


def _usage(text: str, translation: str) -> dict[str, int]:
    """The usage counted in words, because each model tokenizes texts differently."""
    sizes = {"prompt_tokens": len(text.split()), "completion_tokens": len(translation.split())}
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
        yield json_event({**head, "choices": [], "usage": _usage(text, translation)})
    yield b"data: [DONE]\n\n"
