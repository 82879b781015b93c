"""The interface of the protocols that clients of `nmt serve` use. A server answers all of them at once.

A registered protocol is built as `cls(options, service)`. The options are those of `nmt serve`, which are an instance of the
options class of the protocol too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from nmt.extensions.serve.service import Service


class ClientProtocol(ABC):
    """Converts clients' requests for the service, and its translations into responses."""

    def __init__(self, options: Any, service: Service) -> None:
        self.options, self.service = options, service

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """The routes that it answers. `service.endpoint` makes an endpoint from a name, a handler and a function for errors."""
