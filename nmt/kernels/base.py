"""Kernels: faster ways to compute what a method computes, such as a loss. Without them, torch's operations compute the same.

A kernel is registered under the name that a method declares by `has_kernel`, and is used wherever it fits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

from torch import Tensor

from nmt import registry

Method = TypeVar("Method", bound=Callable[..., Any])


class Kernel(ABC):
    """A faster way to compute a method. A registered kernel is built as `cls(options)`.

    owner: the object that has the method, such as a criterion
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def fits(self, owner: Any, inputs: Tensor) -> bool:
        """Whether it can compute from inputs of this device and type: of a loss the features (N, D)."""

    @abstractmethod
    def compute(self, owner: Any, *given: Any) -> Any:
        """What the method computes from its arguments.

        The gradient of a loss is always taken immediately, with a factor of 1, so a kernel may compute both together.
        """


def has_kernel(name: str) -> Callable[[Method], Method]:
    """Decorator of a method: the kernel of that name may replace it. A method that overrides it has none."""

    def declared(method: Method) -> Method:
        method.kernel = name  # type: ignore[attr-defined]
        return method

    return declared


def fastest(method: Method, inputs: Tensor) -> Method | partial[Any]:
    """The method's kernel, if there is one that fits, or the method itself. Any function may be given; most have no kernel."""
    kernel = _kernel(getattr(method, "kernel", ""))
    owner = getattr(method, "__self__", None)
    return method if kernel is None or not kernel.fits(owner, inputs) else partial(kernel.compute, owner)


@cache
def _kernel(name: str) -> Kernel | None:
    return registry.build(registry.choose("kernel", name)) if name in registry.names("kernel") else None
