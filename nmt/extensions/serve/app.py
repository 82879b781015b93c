"""The server's ASGI application: all protocols on top of one service."""

import time

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from nmt import registry
from nmt.extensions.serve.calls import json_response, record, request_id
from nmt.extensions.serve.messages import error_answer
from nmt.extensions.serve.service import Service


def application(service: Service) -> Starlette:
    """Build the application with the routes of all protocols."""

    async def not_found(request: Request, error: Exception) -> Response:
        status, number = getattr(error, "status_code", 404), request_id(request)
        record(request, number, status, time.monotonic(), "unknown", service.metrics, service.options)
        content = error_answer(status, getattr(error, "detail", "not found"))
        return json_response(content, status, {"X-Request-Id": number})

    middleware = []
    if origins := list(service.options.cors):
        middleware = [Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])]
    protocols = [entry.cls(service.options, service) for entry in registry.every("protocol")]
    routes = [route for protocol in protocols for route in protocol.routes()]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={404: not_found, 405: not_found})
