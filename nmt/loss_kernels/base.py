"""Loss kernels: faster ways to compute a loss from logits. Without them, the criteria compute the same with torch's operations.

A kernel is registered under the name that a criterion's method declares by `has_kernel`, and is used wherever it fits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from torch import Tensor

from nmt import registry

Method = TypeVar("Method", bound=Callable[..., Any])


class LossKernel(ABC):
    """A faster way to compute a loss. A registered kernel is built as `cls(options)`."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def fits(self, features: Tensor) -> bool:
        """Whether it can compute the loss from features (N, D), depending on their device and type."""

    @abstractmethod
    def sums(self, criterion: Any, *tensors: Tensor) -> Sequence[Tensor]:
        """What the criterion computes from these tensors, logits first: sums (), the loss first.

        The gradient is always taken immediately, with a factor of 1, so a kernel may compute it together with the sums.
        """


def has_kernel(name: str) -> Callable[[Method], Method]:
    """Decorator of a method that computes a loss: the kernel of that name may replace it. A method that overrides it has none."""

    def declared(method: Method) -> Method:
        method.kernel = name  # type: ignore[attr-defined]
        return method

    return declared


def fastest(of_logits: Callable[..., Sequence[Tensor]], features: Tensor) -> Callable[..., Sequence[Tensor]]:
    """The function's kernel, if there is one that fits, or the function itself."""
    name = getattr(of_logits, "kernel", None)
    kernel = None if name is None else _kernel(name)
    if kernel is None or not kernel.fits(features):
        return of_logits
    return partial(kernel.sums, of_logits.__self__)  # type: ignore[attr-defined]  # a criterion's method


@cache
def _kernel(name: str) -> LossKernel | None:
    if name not in registry.names("loss-kernel"):
        return None
    kernel: LossKernel = registry.build(registry.choose("loss-kernel", name))
    return kernel
