"""The protocol of Marian's server: each WebSocket message contains lines of text, and so does each response."""

import asyncio
from typing import Final

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from nmt import register
from nmt.extensions.serve.calls import Call, client_address, problem_of
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.options import NoOptions

# WebSocket close codes from RFC 6455 and its registry.
GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR, TRY_AGAIN_LATER = 1001, 1008, 1011, 1013
CLOSING_CODES: Final = {500: INTERNAL_ERROR, 503: TRY_AGAIN_LATER, 504: TRY_AGAIN_LATER}  # close codes by HTTP status
MAX_REASON_BYTES: Final = 123


@register("protocol", "marian", NoOptions)
class MarianSocket(ClientProtocol):
    """Marian's server protocol: each WebSocket message contains lines of text."""

    def routes(self) -> list[BaseRoute]:
        """A WebSocket at /translate that uses the first model, or the one given by `?model=NAME` or `?source=en&target=de`."""
        return [WebSocketRoute("/translate", self.talk)]

    async def talk(self, socket: WebSocket) -> None:
        await socket.accept()
        try:
            query = socket.query_params
            key = Call(socket.headers, [], b"").key(query)
            self.service.gate.check_key(key)  # checked first, because a client without a key must not stay connected
            model = self.service.models.find(query.get("model"), query.get("source"), query.get("target"))
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if (text := message.get("text")) is None:
                    raise ProblemError(400, "messages must be text")
                self.service.gate.check(key, client_address(socket.scope))
                body = text.removesuffix("\n")
                async with asyncio.timeout(self.service.options.timeout):
                    translated = await self.service.translated_lines(model, body)
                await socket.send_text(translated + text[len(body) :])
        except WebSocketDisconnect:
            return
        except (Exception, asyncio.CancelledError) as error:
            problem = problem_of(error, "WebSocket", self.service.options.timeout)
            is_ending = isinstance(error, asyncio.CancelledError)
            code = GOING_AWAY if is_ending else CLOSING_CODES.get(problem.status, POLICY_VIOLATION)
            await socket.close(code, str(problem).encode()[:MAX_REASON_BYTES].decode(errors="ignore"))
