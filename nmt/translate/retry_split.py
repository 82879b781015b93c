"""Retry a failing batch in halves until only the failing lines are left."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nmt.errors import UserError, quoted

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Failure:
    """The result of a line that failed. message: the reason"""

    message: str


def retry_split(
    work: Callable[[slice], list[_Result | Failure]], num_lines: int
) -> tuple[list[_Result | Failure], str | None]:
    """The results of `work` for all lines. A batch that fails is retried in halves, down to the single failing line.

    work: called with a slice of the lines; returns a result or a failure for each
    returns: the outcome of each line, and a warning if the whole batch failed
    Raises UserError if `work` does: it is not the fault of a line.
    """
    warning = None

    def attempt(start: int, end: int) -> list[_Result | Failure]:
        nonlocal warning
        try:
            return work(slice(start, end))
        except UserError:
            raise
        except Exception as error:
            # the exception itself would keep the tensors alive that filled the memory
            reason = f"{type(error).__name__}: {quoted(error)}"
        if end - start == 1:
            return [Failure(reason)]
        warning = warning or f"a batch of {end - start} sentences failed ({reason}) and was retried in halves"
        middle = (start + end) // 2
        return attempt(start, middle) + attempt(middle, end)

    return attempt(0, num_lines), warning
