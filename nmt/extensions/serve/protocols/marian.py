"""The protocol of Marian's server: a message of a web socket is lines of text, and so is its answer."""

import asyncio
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from nmt.extensions.serve.calls import Call, client_address, problem_of
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.service import Service

# Reasons to close, of RFC 6455 and its registry.
GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR, TRY_AGAIN_LATER = 1001, 1008, 1011, 1013
CLOSING_CODES: Final = {500: INTERNAL_ERROR, 503: TRY_AGAIN_LATER, 504: TRY_AGAIN_LATER}  # by status of HTTP
MAX_REASON_BYTES: Final = 123


def routes(service: Service) -> list[WebSocketRoute]:
    """A web socket at /translate, of the first model, or of `?model=NAME`."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        try:
            query = socket.query_params
            key = Call(socket.headers, [], b"").key(query)
            service.gate.check_key(key)  # before a client without one keeps a connection
            model = service.models.find(query.get("model"), query.get("source"), query.get("target"))
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if (text := message.get("text")) is None:
                    raise ProblemError(400, "a message must be text")
                service.gate.check(key, client_address(socket))
                body = text.removesuffix("\n")
                async with asyncio.timeout(service.options.timeout):
                    translated = await service.translated_lines(model, body)
                await socket.send_text(translated + text[len(body) :])
        except WebSocketDisconnect:
            return
        except (Exception, asyncio.CancelledError) as error:
            problem = problem_of(error, "web socket", service.options.timeout)
            is_ending = isinstance(error, asyncio.CancelledError)
            code = GOING_AWAY if is_ending else CLOSING_CODES.get(problem.status, POLICY_VIOLATION)
            await socket.close(code, str(problem).encode()[:MAX_REASON_BYTES].decode(errors="ignore"))

    return [WebSocketRoute("/translate", talk)]
