"""Matrix products of linear layers: torch's, or those of a faster implementation in their place.

Dimensions: N rows, D inputs, E outputs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import linear


class Products:
    """The products by torch. A faster implementation overrides methods, and `use` puts it in place of these.

    Under autocast on a CPU the factors are rounded and the result is float32, so that the operations that follow are
    float32 too: a CPU has fast 16-bit products, but no other fast 16-bit operations.
    """

    def product(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `product`."""
        output = linear(states, weight, bias)
        return output.float() if is_cast(states) else output

    def prepared_product(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """See `prepared_product`."""
        if torch.is_autocast_enabled(weight.device.type):  # which would cast the weight at each call
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
    """The implementation of products in use."""
    return _current


def use(products: Products) -> None:
    """Set the implementation of products."""
    global _current
    _current = products


@contextmanager
def using(products: Products) -> Iterator[None]:
    """Set the implementation of products within this context."""
    previous = current()
    use(products)
    try:
        yield
    finally:
        use(previous)


def product(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """states (..., D) times the transpose of weight (E, D), plus bias (E,): (..., E)"""
    return _current.product(states, weight, bias)


def prepared_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """`product` of (N, D) with a fixed weight (E, D), without gradient: its type and implementation are chosen once."""
    return _current.prepared_product(weight, bias)


def is_cast(states: Tensor) -> bool:
    """Whether autocast rounds the factors of a product, on a CPU; it leaves float64 alone."""
    return states.device.type == "cpu" and torch.is_autocast_enabled("cpu") and states.dtype != torch.float64
