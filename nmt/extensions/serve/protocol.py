"""The interface of the protocols that clients of `nmt serve` use. A server answers all of them at once.

A registered protocol is built as `cls(options, service)`. The options are those of `nmt serve`, which are an instance of the
options class of the protocol too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.routing import BaseRoute, Route

from nmt.extensions.serve.calls import Handler
from nmt.extensions.serve.messages import error_answer
from nmt.extensions.serve.service import Service


class ClientProtocol(ABC):
    """Converts clients' requests for the service, and its translations into responses."""

    part_name: ClassVar[str]

    def __init__(self, options: Any, service: Service) -> None:
        self.options, self.service = options, service

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """The routes that it answers, made by `route`."""

    def error(self, status: int, message: str) -> Any:
        """The body of an error: that of our own protocol, unless a protocol has another. status: of HTTP"""
        return error_answer(status, message)

    def route(self, path: str, handler: Handler, *methods: str, is_open: bool = False, name: str = "") -> Route:
        """A path that a handler answers, with GET and POST unless methods are given.

        is_open: whether it needs no key; name: in the metrics, by default the protocol's
        """
        endpoint = self.service.endpoint(name or self.part_name, handler, self.error, is_open)
        return Route(path, endpoint, methods=methods or ("GET", "POST"))
