"""The protocol of Marian's server: a message of a web socket is lines of text, and so is its answer."""

import asyncio
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from nmt.errors import one_line
from nmt.log import log
from nmt.serve.calls import Call, client_address
from nmt.serve.problems import ProblemError
from nmt.serve.service import Service

# Reasons to close, of RFC 6455 and its registry.
GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR, TRY_AGAIN_LATER = 1001, 1008, 1011, 1013
MAX_REASON_BYTES: Final = 123


def routes(service: Service) -> list[WebSocketRoute]:
    """A web socket at /translate, of the first model, or of `?model=NAME`."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        try:
            query = socket.query_params
            model = service.models.find(query.get("model"), query.get("source"), query.get("target"))
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if (text := message.get("text")) is None:
                    raise ProblemError(400, "a message must be text")
                service.gate.check(Call(socket.headers, [], b"").key(query), client_address(socket))
                body = text.removesuffix("\n")
                async with asyncio.timeout(service.options.timeout):
                    translated = await service.translated_lines(model, body)
                await socket.send_text(translated + text[len(body) :])
        except WebSocketDisconnect:
            return
        except (Exception, asyncio.CancelledError) as error:
            code, reason = _closing(error)
            await socket.close(code, reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore"))

    return [WebSocketRoute("/translate", talk)]


def _closing(error: BaseException) -> tuple[int, str]:
    """The code and the reason with which an error closes a web socket."""
    if isinstance(error, asyncio.CancelledError):
        return GOING_AWAY, "the server ends"
    if isinstance(error, TimeoutError):
        return TRY_AGAIN_LATER, "the translation took too long"
    if isinstance(error, ProblemError):
        return TRY_AGAIN_LATER if error.status == 503 else POLICY_VIOLATION, str(error)
    log.error(f"web socket: {type(error).__name__}: {one_line(str(error))}")
    return INTERNAL_ERROR, "the server failed (its log says how)"
