"""Matrix products of linear layers: torch's, or those of a faster implementation.

Dimensions: N rows, D inputs, E outputs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import linear


class Products:
    """Matrix products with torch. A faster implementation overrides the methods, and `use` makes it the current one.

    Under autocast on a CPU the factors are rounded but the result is float32. The following operations are then float32 too,
    because CPUs have fast 16-bit products but no other fast 16-bit operations.
    """

    def product(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `product`."""
        output = linear(states, weight, bias)
        return output.float() if is_cast(states) else output

    def fixed_product(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """See `fixed_product`."""
        if torch.is_autocast_enabled(weight.device.type):  # cast once, because autocast would do it at each call
            dtype = torch.get_autocast_dtype(weight.device.type)
            weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        transposed, rounds = weight.t(), is_cast(weight)

        def product(states: Tensor) -> Tensor:
            states = states.to(weight.dtype) if rounds else states
            output = torch.mm(states, transposed) if bias is None else torch.addmm(bias, states, transposed)
            return output.float() if rounds else output

        return product


_current = Products()


def current() -> Products:
    """The current implementation of products."""
    return _current


def use(products: Products) -> None:
    """Set the current implementation of products."""
    global _current
    _current = products


@contextmanager
def using(products: Products) -> Iterator[None]:
    """Context that sets the current implementation of products."""
    previous = current()
    use(products)
    try:
        yield
    finally:
        use(previous)


def product(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply states (..., D) by the transpose of weight (E, D) and add bias (E,): (..., E)"""
    return _current.product(states, weight, bias)


def fixed_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A function that computes `product` for (N, D) with a fixed weight (E, D), without gradients. It casts the weight once."""
    return _current.fixed_product(weight, bias)


def is_cast(states: Tensor) -> bool:
    """Whether autocast rounds the factors of a product on a CPU. It leaves float64 unchanged."""
    return states.device.type == "cpu" and torch.is_autocast_enabled("cpu") and states.dtype != torch.float64
