"""Request errors, each with its HTTP status."""

from collections.abc import Mapping
from types import MappingProxyType


class ProblemError(Exception):
    """An error that the client gets as the response to its request. Each protocol formats it in its own way.

    status: HTTP status
    headers: headers of the response
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class UnknownKeyError(ProblemError):
    """The error for a request without a known API key. Protocols have different statuses for it."""

    def __init__(self, status: int = 403) -> None:
        super().__init__(status, "the API key is missing or unknown", {"WWW-Authenticate": "Bearer"})


def busy(seconds: float) -> ProblemError:
    """The error for a full queue. seconds: expected time until the queue has space again"""
    return ProblemError(
        503, "too many texts are waiting (try again later)", {"Retry-After": f"{max(1, round(seconds))}"}
    )
