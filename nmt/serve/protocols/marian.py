"""The protocol of Marian's server: a message of a web socket is lines of text, and so is its answer."""

import asyncio

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from nmt.serve.calls import client_address
from nmt.serve.problems import ProblemError
from nmt.serve.service import Service

POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013  # reasons to close, of RFC 6455 and its registry


def routes(service: Service) -> list[WebSocketRoute]:
    """A web socket at /translate, of the first model, or of `?model=NAME`."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        try:
            query = socket.query_params
            model = service.models.find(query.get("model"), query.get("source"), query.get("target"))
            while True:
                text = await socket.receive_text()
                service.gate.check(query.get("api_key", ""), client_address(socket))
                body = text.removesuffix("\n")
                async with asyncio.timeout(service.options.timeout):
                    translated = await service.translated_lines(model, body)
                await socket.send_text(translated + text[len(body) :])
        except (WebSocketDisconnect, KeyError):
            return
        except TimeoutError:
            await socket.close(TRY_AGAIN_LATER, "the translation took too long")
        except ProblemError as error:
            await socket.close(TRY_AGAIN_LATER if error.status == 503 else POLICY_VIOLATION, str(error)[:100])

    return [WebSocketRoute("/translate", talk)]
