"""The server's ASGI application: all protocols on top of one service."""

import time
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nmt import registry
from nmt.extensions.serve.calls import headers_of, json_response, record, request_id
from nmt.extensions.serve.messages import error_answer
from nmt.extensions.serve.service import Service


class Application:
    """Passes each request to the endpoint of its route.

    Routes with a fixed path are found in a table, which takes a hundredth of the time of Starlette's search.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        protocols = [entry.cls(service.options, service) for entry in registry.every("protocol")]
        routes = [route for protocol in protocols for route in protocol.routes()]
        self._router = Starlette(routes=routes, exception_handlers={404: self._not_found, 405: self._not_found})
        self._endpoints: dict[tuple[Any, str], ASGIApp] = {}
        for route in routes:
            if isinstance(route, Route) and not route.param_convertors:
                for method in route.methods or ():
                    self._endpoints.setdefault((method, route.path), route.app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get((scope.get("method"), scope["path"]), self._router)
        await endpoint(scope, receive, send)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status, number = getattr(error, "status_code", 404), request_id(headers_of(request.scope))
        record(request.scope, number, status, time.monotonic(), "unknown", self.service.metrics, self.service.options)
        content = error_answer(status, getattr(error, "detail", "not found"))
        return json_response(content, status, {"X-Request-Id": number})


def application(service: Service) -> ASGIApp:
    """The application with the routes of all protocols, and with the answers to questions of browsers about origins."""
    made = Application(service)
    if origins := list(service.options.cors):
        return CORSMiddleware(made, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    return made
