"""The part of OpenAI's protocol that chat programs need: the last message of the user is translated."""

import re
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nmt.serve.calls import Call, Fields
from nmt.serve.models import ServedModel
from nmt.serve.problems import ProblemError
from nmt.serve.service import Service


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
        parts = self.content if isinstance(self.content, list) else []
        return (
            self.content
            if isinstance(self.content, str)
            else "".join(part.text for part in parts if part.type == "text")
        )


class Conversation(msgspec.Struct):
    """The body of /v1/chat/completions. Settings of sampling are read over: a translation is the best one."""

    model: str
    messages: list[Message]
    stream: bool = False


def _shape(status: int, message: str) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def routes(service: Service) -> list[Route]:
    """/v1/chat/completions and /v1/models."""

    async def complete(call: Call, _: Fields) -> Response | dict[str, Any]:
        asked: Conversation = call.json(Conversation)
        texts = [message.text for message in asked.messages if message.role == "user"]
        if not texts:
            raise ProblemError(400, "messages has none of the user")
        model = _model(service, asked.model)
        [translation] = await service.translated(model, texts[-1:])
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if asked.stream:
            return StreamingResponse(_events(head, translation), media_type="text/event-stream")
        message = {"role": "assistant", "content": translation}
        sizes = {"prompt_tokens": len(texts[-1].split()), "completion_tokens": len(translation.split())}
        return {
            **head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {**sizes, "total_tokens": sum(sizes.values())},
        }

    async def models(_: Call, __: Fields) -> dict[str, Any]:
        names = service.models.by_name
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "nmt"} for name in names],
        }

    endpoint = service.answerer.endpoint
    return [
        Route("/v1/chat/completions", endpoint("openai", complete, _shape), methods=["POST"]),
        Route("/v1/models", endpoint("openai", models, _shape), methods=["GET"]),
    ]


def _model(service: Service, name: str) -> ServedModel:
    """A model by its name, or by its direction, `en-de`."""
    source, dash, target = name.partition("-")
    if name not in service.models.by_name and dash:
        return service.models.find(None, source, target)
    return service.models.find(name)


async def _events(head: dict[str, Any], text: str) -> AsyncIterator[bytes]:
    """The translation as server-sent events, a line at a time."""
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant"}, None)]
    deltas += [({"content": line}, None) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    for delta, reason in [*deltas, ({}, "stop")]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        yield b"data: " + msgspec.json.encode(event) + b"\n\n"
    yield b"data: [DONE]\n\n"
