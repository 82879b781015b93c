"""The server's ASGI application: all protocols on top of one service."""

import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nmt import registry
from nmt.extensions.serve.access import Access
from nmt.extensions.serve.calls import headers_of, json_response, record, request_id
from nmt.extensions.serve.messages import error_answer
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.service import Service


class Application:
    """Passes each request to the endpoint of its route, if its host and its origin are accepted.

    Routes with a fixed path are found in a table, because Starlette would try all routes one after the other.
    """

    def __init__(self, service: Service) -> None:
        self.service, self.access = service, Access(service.options)
        protocols = [entry.cls(service.options, service) for entry in registry.every("protocol")]
        routes = [(route, protocol) for protocol in protocols for route in protocol.routes()]
        handlers: Any = {HTTPException: self._not_found}
        self._routes = [route for route, _ in routes]
        self._router = Starlette(routes=self._routes, exception_handlers=handlers)
        self._endpoints: dict[tuple[Any, str], ASGIApp] = {}
        places = [(prefix, protocol) for protocol in protocols for prefix in protocol.prefixes]
        for route, protocol in routes:
            if isinstance(route, Route):
                places.append((route.path, protocol))
                for method in route.methods or () if not route.param_convertors else ():
                    self._endpoints.setdefault((method, route.path), route.app)
        self._places = sorted(places, key=lambda place: len(place[0]), reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.access.check(headers_of(scope))
        except ProblemError as problem:
            await self._problem(scope, problem)(scope, receive, send)
            return
        endpoint = self._endpoints.get((scope.get("method"), scope["path"]), self._router)
        await endpoint(scope, receive, send)

    async def _not_found(self, request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        routes = (route for route in self._routes if route.matches(request.scope)[0] is not Match.NONE)
        if methods := sorted(
            {method for route in routes if isinstance(route, Route) for method in route.methods or ()}
        ):
            headers["Allow"] = ", ".join(methods)  # of all routes with this path
        return self._problem(request.scope, ProblemError(error.status_code, error.detail, headers))

    def _problem(self, scope: Scope, problem: ProblemError) -> Response:
        """The response to a request that reaches no endpoint, in the format of the protocol that its path belongs to."""
        number, shape = request_id(headers_of(scope)), error_answer
        for prefix, protocol in self._places:
            if scope["path"] == prefix or scope["path"].startswith(f"{prefix}/"):
                shape = protocol.error
                break
        if scope["type"] == "http":
            now = time.monotonic()
            record(scope, number, problem.status, now, "unknown", self.service.metrics, self.service.options)
        headers = {**problem.headers, "X-Request-Id": number}
        return json_response(shape(problem.status, str(problem)), problem.status, headers)


def application(service: Service) -> ASGIApp:
    """The application with the routes of all protocols, and with the answers to questions of browsers about origins."""
    made = Application(service)
    if origins := list(service.options.cors):
        return CORSMiddleware(made, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    return made
