"""The interface of the protocols that clients of `nmt serve` use. A server supports all of them at once.

A registered protocol is built as `cls(options, service)`. The options are those of `nmt serve`, including those of the
protocol's own options class.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.routing import BaseRoute, Route

from nmt.extensions.serve.calls import Handler
from nmt.extensions.serve.messages import error_answer
from nmt.extensions.serve.service import Service


class ClientProtocol(ABC):
    """Converts clients' requests to calls to the service, and its translations to responses.

    prefixes: paths whose clients expect the protocol's error format, with all paths below, besides those of its routes
    key_status: HTTP status of the response to a request without a known API key
    """

    part_name: ClassVar[str]
    prefixes: ClassVar[Sequence[str]] = ()
    key_status: ClassVar[int] = 403

    def __init__(self, options: Any, service: Service) -> None:
        self.options, self.service = options, service

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """The routes that the protocol handles. Make them with `route`."""

    def error(self, status: int, message: str) -> Any:
        """The body of an error response, by default in the format of nmt's own protocol. status: HTTP status"""
        return error_answer(status, message)

    def route(self, path: str, handler: Handler, *methods: str, is_open: bool = False, name: str = "") -> Route:
        """Make a route that calls a handler.

        methods: HTTP methods; GET and POST by default
        is_open: whether requests without a key are accepted
        name: name in the metrics; by default the protocol's name
        """
        endpoint = self.service.endpoint(name or self.part_name, handler, self.error, self.key_status, is_open)
        return Route(path, endpoint, methods=methods or ("GET", "POST"))
