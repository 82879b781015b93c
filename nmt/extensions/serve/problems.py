"""What goes wrong with a request, each with the status of HTTP that says so."""

from collections.abc import Mapping
from types import MappingProxyType


class ProblemError(Exception):
    """A request that gets an error as its answer; a protocol gives it its own shape.

    status: of HTTP
    headers: of the answer
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


def busy(seconds: float) -> ProblemError:
    """The error of a full queue. seconds: after which there is room"""
    return ProblemError(
        503, "too many texts are waiting (ask again later)", {"Retry-After": f"{max(1, round(seconds))}"}
    )
