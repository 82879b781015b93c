"""The part of OpenAI's protocol that chat programs need: the last message of the user is translated."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.events import EventStream, json_event
from nmt.extensions.serve.models import ServedModel
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.options import NoOptions


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
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or () if part.type == "text")


class Conversation(msgspec.Struct):
    """The body of /v1/chat/completions. Settings of sampling are read over: a translation is the best one."""

    model: str
    messages: list[Message]
    stream: bool | None = False


@register("protocol", "openai", NoOptions)
class OpenAI(ClientProtocol):
    """The part of OpenAI's protocol that chat programs need."""

    def routes(self) -> list[BaseRoute]:
        """/v1/chat/completions and /v1/models."""
        return [
            self.route("/v1/chat/completions", self.complete, "POST"),
            self.route("/v1/models", self.models, "GET"),
        ]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    async def complete(self, call: Call, _: Fields) -> EventStream | dict[str, Any]:
        asked: Conversation = call.json(Conversation)
        texts = [message.text for message in asked.messages if message.role == "user"]
        if not texts:
            raise ProblemError(400, "messages has none of the user")
        model = self._model(asked.model)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if asked.stream:
            return EventStream(_chunks(head, self.service.stream_text(model, texts[-1])))
        [translation] = await self.service.translated([model], texts[-1:])
        message = {"role": "assistant", "content": translation}
        sizes = {"prompt_tokens": len(texts[-1].split()), "completion_tokens": len(translation.split())}
        return {
            **head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {**sizes, "total_tokens": sum(sizes.values())},
        }

    async def models(self, _: Call, __: Fields) -> dict[str, Any]:
        names = self.service.models.by_name
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "nmt"} for name in names],
        }

    def _model(self, name: str) -> ServedModel:
        """A model by its name, or by its direction, `en-de`."""
        source, dash, target = name.partition("-")
        if name not in self.service.models.by_name and dash:
            return self.service.models.find(None, source, target)
        return self.service.models.find(name)


async def _chunks(head: dict[str, Any], lines: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    """Events of a translation, a line each. head: fields of each event; lines: with their line breaks"""

    def chunk(delta: dict[str, str], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return json_event({**head, "object": "chat.completion.chunk", "choices": [choice]})

    role = {"role": "assistant"}  # of the first event
    async with aclosing(lines):
        async for line in lines:
            yield chunk({**role, "content": line}, None)
            role = {}
    yield chunk({}, "stop")
    yield b"data: [DONE]\n\n"
