"""The interface of kernels, faster implementations of methods such as a loss. Results are the same without a kernel.

A kernel is registered under the name that a method declares with `has_kernel`. It is used whenever it fits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

from torch import Tensor

from nmt import registry

Method = TypeVar("Method", bound=Callable[..., Any])


class Kernel(ABC):
    """A faster implementation of a method. A registered kernel is built as `cls(options)`.

    owner: the object that has the method, such as a criterion
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """Whether the kernel supports inputs of this type on this device. For a loss, the inputs are the features (N, D)."""

    @abstractmethod
    def compute(self, owner: Any, *given: Any) -> Any:
        """Compute the method's result from its arguments.

        The gradient of a loss is always computed immediately, with a factor of 1, so a kernel may compute it along with the loss.
        """


def has_kernel(name: str) -> Callable[[Method], Method]:
    """Decorator for a method that the kernel with this name may replace. Methods that override it are not replaced."""

    def declared(method: Method) -> Method:
        method.kernel = name  # type: ignore[attr-defined]
        return method

    return declared


def fastest(method: Method, inputs: Tensor) -> Method | partial[Any]:
    """The method's kernel if it has one that fits, otherwise the method itself. Any function is accepted."""
    kernel = _kernel(getattr(method, "kernel", ""))
    owner = getattr(method, "__self__", None)
    return method if kernel is None or not kernel.fits(owner, inputs) else partial(kernel.compute, owner)


@cache
def _kernel(name: str) -> Kernel | None:
    return registry.build(registry.choose("kernel", name)) if name in registry.names("kernel") else None
