"""The interface of protocols, which clients of `nmt serve` speak. A server speaks all of them at once.

A registered protocol is built as `cls(options, service)`. The options are those of `nmt serve`, which are an instance of the
options class of the protocol too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from nmt.extensions.serve.service import Service


class ClientProtocol(ABC):
    """Turns the requests of clients into those of the service, and its translations into answers."""

    def __init__(self, options: Any, service: Service) -> None:
        self.options, self.service = options, service

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """The paths that it answers. `service.endpoint` makes an endpoint of a name, a handler and the form of its errors."""
