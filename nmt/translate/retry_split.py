"""Work on many lines together that may fail for all because of one, or because memory runs out."""

from collections.abc import Callable
from typing import TypeVar

from nmt.errors import UserError, quoted
from nmt.log import log

Result = TypeVar("Result")


def retry_split(work: Callable[[slice], list[Result | str]], count: int) -> list[Result | str]:
    """What work gives for so many lines; where it fails it is tried with halves of them, down to the line that fails.

    work: called with which lines; of each it gives a result, or what went wrong
    Raises UserError when the work does: that is no line's fault.
    """

    def tried(start: int, end: int) -> list[Result | str]:
        try:
            return work(slice(start, end))
        except UserError:
            raise
        except Exception as error:
            # not the error, which holds on to what filled the memory
            reason = f"{type(error).__name__}: {quoted(error)}"
        if end - start == 1:
            return [reason]
        log.warn(f"a batch of {end - start} sentences failed ({reason}); trying halves of it")
        middle = (start + end) // 2
        return tried(start, middle) + tried(middle, end)

    return tried(0, count)
