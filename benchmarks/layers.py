"""Measure Table 1 of "Attention Is All You Need": FLOPs, sequential operations and path length of a layer as n grows.

    python benchmarks/layers.py [--lengths 32 64 128 256 512]

The layers are the package's own, with random weights in float64. Prints three tables, each with the published
complexity next to the measured one:
- FLOPs of the forward pass, as torch counts them, fitted by a n^2 d + b w n d + c n d^2 + e w n d^2 with w = r or k;
- sequential operations: nodes on the longest chain of the autograd graph between output and input;
- path length: layers until the last output position has a gradient with respect to the first input position. For a
  recurrent layer: nodes on the shortest chain of the autograd graph from its last state to its first.
Nothing is timed, so the tables are the same on every machine.
"""

import argparse
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import cycle, islice
from math import inf, log
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from nmt import registry
from nmt.extensions.zoo.models.bytenet import ResidualBlock
from nmt.extensions.zoo.models.convs2s import ConvolutionLayer
from nmt.extensions.zoo.models.options import ConvolutionShape
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm
from nmt.extensions.zoo.nn.recurrent import BidirectionalGru
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape, recording
from nmt.nn.cost import count_flops

Layer = Callable[[Tensor], Tensor]
"""A layer of a stack: (1, n, d) -> (1, n, d)."""

WIDTH: Final = 32  # d for the graphs
WIDTHS: Final = (64, 128)  # d for the counted FLOPs
LENGTHS: Final = (32, 64, 128, 256, 512)


class Kind(NamedTuple):
    """A kind of layer. flops, sequential, path: as published; layers: the layers of a stack, from d and w

    spans: values of w, which is r or k; the first is used for the path length; 0 for none
    """

    flops: str
    sequential: str
    path: str
    layers: Callable[[int, int], Iterator[Layer]]
    spans: tuple[int, ...] = (0,)
    recurrent: bool = False


def fixed(module: nn.Module) -> Any:
    """A module with frozen weights, so that every chain of the graph ends at the input."""
    return module.double().eval().requires_grad_(False)


def self_attention(d: int, r: int) -> Iterator[Layer]:
    options = TransformerOptions(attention_window=r or None)
    attention = registry.selected("mixer", "self-attention", options).cls
    while True:
        yield fixed(attention(options, AttentionShape(d, heads=2, keys=d // 2, values=d // 2)))


def convolution(d: int, k: int) -> Iterator[Layer]:
    while True:
        layer = fixed(ConvolutionLayer(d, ConvolutionShape(d, k), 0.0, causal=False))
        yield lambda states, layer=layer: layer(states, torch.ones_like(states[..., :1], dtype=torch.bool))


def dilated(max_dilation: int) -> Callable[[int, int], Iterator[Layer]]:
    """The blocks of ByteNet's encoder, with inner width d / 2."""
    dilations = [2**i for i in range(max_dilation.bit_length())]

    def layers(d: int, k: int) -> Iterator[Layer]:
        return (fixed(ResidualBlock(d // 2, k, dilation, 0.0, causal=False)) for dilation in cycle(dilations))

    return layers


def lstm(d: int, _: int) -> Iterator[Layer]:
    """An LSTM run step by step, as in a search."""
    layer: Lstm = fixed(Lstm(d, d, LstmForm()))

    def run(states: Tensor) -> Tensor:
        outputs, state = [], layer.cell.initial(1, states)
        for vectors in states.unbind(1):
            state = layer.step(vectors, state)
            outputs.append(state.output)
        return torch.stack(outputs, 1)

    yield run


def gru(d: int, _: int) -> Iterator[Layer]:
    """A bidirectional GRU with half of the width for each direction."""
    layer = fixed(BidirectionalGru(d, d // 2))
    yield lambda states: layer(states, torch.ones(states.shape[:2], dtype=torch.bool))


FAR: Final = 2**20  # a dilation larger than in any stack
KINDS: Final = {
    "self-attention": Kind("n^2 d", "1", "1", self_attention),
    "restricted self-attention, r = 33": Kind("r n d", "1", "n / r", self_attention, (33, 65)),
    "LSTM": Kind("n d^2", "n", "n", lstm, recurrent=True),
    "bidirectional GRU": Kind("n d^2", "n", "n", gru, recurrent=True),
    "ConvS2S, k = 5": Kind("k n d^2", "1", "n / k", convolution, (5, 3)),
    "ByteNet, k = 3, dilations 1, 2, 4, ...": Kind("k n d^2", "1", "log_k n", dilated(FAR), (3, 5)),
    "ByteNet, k = 3, dilations 1 to 16": Kind("k n d^2", "1", "log_k n", dilated(16), (3, 5)),
}


def inputs_of(n: int, d: int = WIDTH) -> Tensor:
    return torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)


def forward_flops(kind: Kind, n: int, d: int, w: int) -> int:
    """FLOPs of the forward pass of one layer."""
    layer, inputs = next(kind.layers(d, w)), inputs_of(n, d)
    return count_flops(lambda: layer(inputs))


def flop_terms(kind: Kind, lengths: Sequence[int]) -> tuple[list[float], float]:
    """The factors of n^2 d, w n d, n d^2 and w n d^2 by least squares, and the largest relative residual."""
    points = [(n, d, w) for n in lengths for d in WIDTHS for w in kind.spans]
    terms = np.array([(n, w, d, w * d) for n, d, w in points])  # each divided by n d
    counted = np.array([forward_flops(kind, *point) / (point[0] * point[1]) for point in points])
    factors = np.linalg.lstsq(terms, counted, rcond=None)[0]
    return factors.tolist(), float(np.abs(terms @ factors / counted - 1).max())


def chain_length(end: Node, start: Node, choose: Callable[[Iterable[float]], float]) -> float:
    """Nodes on the longest (choose: max) or shortest (min) chain of an autograd graph, excluding `start`."""
    unreachable = -inf if choose is max else inf
    lengths: dict[Node, float] = {start: 0}
    stack = [end]
    while stack:
        before = nodes_before(stack[-1])
        missing = [node for node in before if node not in lengths]
        stack += missing
        if not missing:
            lengths[stack.pop()] = 1 + choose([lengths[node] for node in before] or [unreachable])
    return lengths[end]


def nodes_before(node: Node) -> list[Node]:
    return [before for before, _ in node.next_functions if before is not None]


def state_nodes(output: Node) -> list[Node]:
    """The nodes of the states of all steps, which the closest stack operation in the graph combines."""
    nodes = [output]
    for node in nodes:  # the loop appends to this list
        if node.name().startswith("StackBackward"):
            return nodes_before(node)
        nodes += nodes_before(node)
    raise ValueError("the layer stacks no states")


def sequential_operations(kind: Kind, n: int) -> int:
    """Nodes on the longest chain between the output and input of one layer."""
    inputs = inputs_of(n)
    with recording():  # plain attention for every n; the fused kernel would be one node
        output = next(kind.layers(WIDTH, kind.spans[0]))(inputs)
    return int(chain_length(output.grad_fn, torch.autograd.graph.get_gradient_edge(inputs).node, max))


def path_length(kind: Kind, n: int) -> int:
    """Layers until the last position depends on the first; for a recurrent kind, nodes between its last and first state."""
    layers, inputs = kind.layers(WIDTH, kind.spans[0]), inputs_of(n)
    if kind.recurrent:
        states = state_nodes(next(layers)(inputs).grad_fn)
        return int(chain_length(states[-1], states[0], min))
    outputs = [inputs]

    def depends(states: Tensor) -> bool:
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), inputs, retain_graph=True)
        return bool(gradient[0, 0].any())

    while not depends(outputs[-1]):  # twice as many layers at each try
        for layer in islice(layers, max(1, len(outputs) - 1)):
            outputs.append(layer(outputs[-1]))
    return bisect_left(outputs, True, key=depends)


def law(lengths: Sequence[int], values: Sequence[int]) -> str:
    """The function of n that fits these values exactly, if it is linear or log2 n."""
    points = list(zip(lengths, values, strict=True))
    if all(2**value == n for n, value in points):
        return "log2 n"
    slope = Fraction(values[-1] - values[0], lengths[-1] - lengths[0])
    rest = values[0] - slope * lengths[0]
    if any(slope * n + rest != value for n, value in points):
        return "-"
    if not slope or not rest:
        return f"{slope} n" if slope else f"{rest}"
    return f"{slope} n {'-' if rest < 0 else '+'} {abs(rest)}"


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="at least two n, ascending")
    lengths: list[int] = parser.parse_args().lengths
    torch.manual_seed(1)
    before, n = lengths[-2:]
    d, wide = WIDTHS
    exponents = f"exponent of n, {before} to {n}", f"exponent of d, {d} to {wide}"
    row("layer", "published FLOPs", "n^2 d", "w n d", "n d^2", "w n d^2", "residual", *exponents)
    row(*["---"] * 9)
    for name, kind in KINDS.items():
        factors, residual = flop_terms(kind, lengths)
        last, shorter, wider = (forward_flops(kind, *at, kind.spans[0]) for at in ((n, d), (before, d), (n, wide)))
        of_n, of_d = log(last / shorter, n / before), log(wider / last, wide / d)
        terms = [f"{round(factor, 6) + 0.0:g}" for factor in factors]  # + 0.0 turns -0 into 0
        row(name, kind.flops, *terms, f"{residual:.4f}", f"{of_n:.2f}", f"{of_d:.2f}")
    for title, measure in (("sequential", sequential_operations), ("path", path_length)):
        print()
        row("layer", f"published {title}", *(f"n = {n}" for n in lengths), "law")
        row(*["---"] * (len(lengths) + 3))
        for name, kind in KINDS.items():
            values = [measure(kind, n) for n in lengths]
            row(name, getattr(kind, title), *values, law(lengths, values))


if __name__ == "__main__":
    main()
