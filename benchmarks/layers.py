"""Measure Table 1 of "Attention Is All You Need": FLOPs, sequential operations and path length of a layer as n grows.

    python benchmarks/layers.py [--lengths 32 64 128 256 512] [--time]

The layers are the package's own, with random weights in float64. Prints three tables, each with the published
complexity next to the measured one:
- FLOPs of the forward pass, as torch counts them, fitted by a n^2 d + b w n d + c n d^2 + e w n d^2 with w = r or k;
- sequential operations: nodes on the longest chain of the autograd graph between output and input;
- path length: layers until the last output position has a gradient with respect to the first input position. For a
  recurrent layer: nodes on the shortest chain of the autograd graph from its last state to its first.
Nothing is timed, so the tables are the same on every machine.

--time prints only one table, of times on this CPU with one thread: each kind of layer with the base model's width, in
training and in search, for each n (16, 64, 256, 1024), next to the counted FLOPs and the published complexity. Training is
a forward and a backward pass over batches with equal numbers of tokens. A search runs a decoder's layer one position at a
time, for several sentences, and each step reads the state of the earlier ones. Times are CPU time per token: the fastest
of several rounds, in which all kinds alternate.
"""

import argparse
import time
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
from torch.nn.functional import glu

from nmt import registry
from nmt.extensions.zoo.models.bytenet import ResidualBlock
from nmt.extensions.zoo.models.convs2s import HALF_VARIANCE, ConvolutionLayer
from nmt.extensions.zoo.models.options import ConvolutionShape
from nmt.extensions.zoo.nn.convolution import Taps
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm
from nmt.extensions.zoo.nn.recurrent import BidirectionalGru
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape, recording
from nmt.nn.cost import count_flops
from nmt.nn.search_state import State

Layer = Callable[[Tensor], Tensor]
"""A layer of a stack: (1, n, d) -> (1, n, d)."""

Ready = Callable[[nn.Module], Any]
"""Prepares a new module, see `fixed`."""

WIDTH: Final = 32  # d for the graphs
WIDTHS: Final = (64, 128)  # d for the counted FLOPs
LENGTHS: Final = (32, 64, 128, 256, 512)
TIMED_WIDTH: Final = 512  # d of the base model
TIMED_LENGTHS: Final = (16, 64, 256, 1024)
BATCH_TOKENS: Final = 2048  # in training
SENTENCES: Final = 8  # in search


class Kind(NamedTuple):
    """A kind of layer. flops, sequential, path: as published; layers: the layers of a stack, from d and w

    spans: values of w, which is r or k; the first is used for the path length; 0 for none
    search: a function, from d and w, that computes all positions of (B, n, d) one after the other; None for an encoder's layer
    trained: the layers to time in training, if these differ from `layers`
    """

    flops: str
    sequential: str
    path: str
    layers: Callable[[int, int, Ready], Iterator[Layer]]
    spans: tuple[int, ...] = (0,)
    recurrent: bool = False
    search: Callable[[int, int], Callable[[Tensor], None]] | None = None
    trained: Callable[[int, int, Ready], Iterator[Layer]] | None = None


def fixed(module: nn.Module) -> Any:
    """A module with frozen weights, so that every chain of the graph ends at the input."""
    return module.double().eval().requires_grad_(False)


def trainable(module: nn.Module) -> Any:
    """A module as in training."""
    return module.train()


def searching(module: nn.Module) -> Any:
    """A module as in a search."""
    return module.eval().requires_grad_(False)


def new_attention(d: int, r: int, heads: int) -> nn.Module:
    options = TransformerOptions(attention_window=r or None)
    attention = registry.selected("mixer", "self-attention", options).cls
    module: nn.Module = attention(options, AttentionShape(d, heads, keys=d // heads, values=d // heads))
    return module


def self_attention(d: int, r: int, ready: Ready) -> Iterator[Layer]:
    while True:
        yield ready(new_attention(d, r, heads=2 if d < TIMED_WIDTH else 8))


def convolution(d: int, k: int, ready: Ready) -> Iterator[Layer]:
    while True:
        layer = ready(ConvolutionLayer(d, ConvolutionShape(d, k), 0.0, causal=False))
        yield lambda states, layer=layer: layer(states, torch.ones_like(states[..., :1], dtype=torch.bool))


def dilated(max_dilation: int) -> Callable[[int, int, Ready], Iterator[Layer]]:
    """The blocks of ByteNet's encoder, with inner width d / 2."""
    dilations = [2**i for i in range(max_dilation.bit_length())]

    def layers(d: int, k: int, ready: Ready) -> Iterator[Layer]:
        return (ready(ResidualBlock(d // 2, k, dilation, 0.0, causal=False)) for dilation in cycle(dilations))

    return layers


def lstm(d: int, _: int, ready: Ready) -> Iterator[Layer]:
    """An LSTM run step by step, as in a search."""
    layer: Lstm = ready(Lstm(d, d, LstmForm()))

    def run(states: Tensor) -> Tensor:
        outputs, state = [], layer.cell.initial(1, states)
        for vectors in states.unbind(1):
            state = layer.step(vectors, state)
            outputs.append(state.output)
        return torch.stack(outputs, 1)

    yield run


def trained_lstm(d: int, _: int, ready: Ready) -> Iterator[Layer]:
    """An LSTM over all positions, as in training."""
    layer = ready(Lstm(d, d, LstmForm()))
    yield lambda states: layer(states.transpose(0, 1)).transpose(0, 1)


def gru(d: int, _: int, ready: Ready) -> Iterator[Layer]:
    """A bidirectional GRU with half of the width for each direction."""
    layer = ready(BidirectionalGru(d, d // 2))
    yield lambda states: layer(states, torch.ones(states.shape[:2], dtype=torch.bool))


def search_attention(d: int, r: int) -> Callable[[Tensor], None]:
    attention = searching(new_attention(d, r, heads=8))
    step = attention.search_step()

    def run(vectors: Tensor) -> None:
        first, state = attention.begin(vectors[:, :1], vectors.dtype), State()
        past, tokens = {**first.sentences, **first.hypotheses}, torch.zeros(len(vectors), dtype=torch.long)
        for states in vectors.unbind(1):
            _, past = step(states, past, attention.before_step(tokens, state, len(vectors)))
            state = state.after({}, {}, None)

    return run


def search_lstm(d: int, _: int) -> Callable[[Tensor], None]:
    layer: Lstm = searching(Lstm(d, d, LstmForm()))

    def run(vectors: Tensor) -> None:
        state = layer.cell.initial(len(vectors), vectors)
        for states in vectors.unbind(1):
            state = layer.step(states, state)

    return run


def search_taps(step: Callable[..., Any], history: Tensor, vectors: Tensor) -> None:
    """Run a convolution's step at all positions."""
    state, tokens = State(), torch.zeros(len(vectors), dtype=torch.long)
    for states in vectors.unbind(1):
        taps = Taps(state.append_entries(tokens, len(vectors)), state.num_entries, len(vectors))
        _, history = step(states, history, taps)
        state = state.after({}, {}, None)


def search_convolution(d: int, k: int) -> Callable[[Tensor], None]:
    layer = searching(ConvolutionLayer(d, ConvolutionShape(d, k), 0.0, causal=True))
    convolve = layer.convolution.search_step()

    def step(states: Tensor, history: Tensor, taps: Taps) -> tuple[Tensor, Tensor]:
        convolved, history = convolve(states, history, taps)
        return (glu(convolved) + states) * HALF_VARIANCE, history

    return lambda vectors: search_taps(step, layer.convolution.history(vectors), vectors)


def search_dilated(d: int, k: int) -> Callable[[Tensor], None]:
    block = searching(ResidualBlock(d // 2, k, 1, 0.0, causal=True))
    step = block.search_step()
    return lambda vectors: search_taps(step, block.convolution.history(vectors), vectors)


FAR: Final = 2**20  # a dilation larger than in any stack
KINDS: Final = {
    "self-attention": Kind("n^2 d", "1", "1", self_attention, search=search_attention),
    "restricted self-attention, r = 33": Kind("r n d", "1", "n / r", self_attention, (33, 65), search=search_attention),
    "LSTM": Kind("n d^2", "n", "n", lstm, recurrent=True, search=search_lstm, trained=trained_lstm),
    "bidirectional GRU": Kind("n d^2", "n", "n", gru, recurrent=True),
    "ConvS2S, k = 5": Kind("k n d^2", "1", "n / k", convolution, (5, 3), search=search_convolution),
    "ByteNet, k = 3, dilations 1, 2, 4, ...": Kind(
        "k n d^2", "1", "log_k n", dilated(FAR), (3, 5), search=search_dilated
    ),
    "ByteNet, k = 3, dilations 1 to 16": Kind("k n d^2", "1", "log_k n", dilated(16), (3, 5), search=search_dilated),
}


def inputs_of(n: int, d: int = WIDTH) -> Tensor:
    return torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)


def forward_flops(kind: Kind, n: int, d: int, w: int) -> int:
    """FLOPs of the forward pass of one layer."""
    layer, inputs = next(kind.layers(d, w, fixed)), inputs_of(n, d)
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
        output = next(kind.layers(WIDTH, kind.spans[0], fixed))(inputs)
    return int(chain_length(output.grad_fn, torch.autograd.graph.get_gradient_edge(inputs).node, max))


def path_length(kind: Kind, n: int) -> int:
    """Layers until the last position depends on the first; for a recurrent kind, nodes between its last and first state."""
    layers, inputs = kind.layers(WIDTH, kind.spans[0], fixed), inputs_of(n)
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


def training_of(kind: Kind, n: int) -> Callable[[], None]:
    """A forward and a backward pass of one layer with random inputs, which have a gradient too."""
    layer = next((kind.trained or kind.layers)(TIMED_WIDTH, kind.spans[0], trainable))
    inputs = torch.randn(BATCH_TOKENS // n, n, TIMED_WIDTH, requires_grad=True)
    gradient = torch.randn_like(inputs)

    def run() -> None:
        inputs.grad = None
        layer(inputs).backward(gradient)

    return run


def search_of(kind: Kind, n: int) -> Callable[[], None]:
    """A search of n steps through one layer. For an encoder's layer it does nothing."""
    if kind.search is None:
        return lambda: None
    search, vectors = kind.search(TIMED_WIDTH, kind.spans[0]), torch.randn(SENTENCES, n, TIMED_WIDTH)
    return torch.inference_mode()(lambda: search(vectors))


def fastest(calls: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The minimum CPU seconds of each call, in alternating rounds after a first one that is not counted."""
    seconds = [inf] * len(calls)
    for number in range(rounds + 1):
        for i, call in enumerate(calls):
            began = time.process_time()
            call()
            seconds[i] = min(seconds[i], time.process_time() - began) if number else inf
    return seconds


def print_times(lengths: Sequence[int], rounds: int) -> None:
    """The table of times, with a row for each kind and n."""
    torch.set_num_threads(1)
    names = [name for name, kind in KINDS.items() if kind is not KINDS["ByteNet, k = 3, dilations 1 to 16"]]
    kinds = [KINDS[name] for name in names]
    head = (
        "layer",
        "published FLOPs",
        "published sequential",
        "n",
        "counted MFLOPs per token",
        "training, us per token",
    )
    row(*head, "GFLOP/s", "time / self-attention", "search, us per token", "time / self-attention")
    row(*["---"] * 10)
    for n in lengths:
        flops = [forward_flops(kind, n, TIMED_WIDTH, kind.spans[0]) / n for kind in kinds]
        training = [1e6 * best / BATCH_TOKENS for best in fastest([training_of(kind, n) for kind in kinds], rounds)]
        search = [1e6 * best / (SENTENCES * n) for best in fastest([search_of(kind, n) for kind in kinds], rounds)]
        for name, kind, counted, trained, searched in zip(names, kinds, flops, training, search, strict=True):
            speed = f"{3e-3 * counted / trained:.1f}"  # the backward pass has twice the FLOPs of the forward pass
            cells = [f"{searched:.1f}", f"{searched / search[0]:.2f}"] if kind.search else ["-", "-"]
            ratio = f"{trained / training[0]:.2f}"
            row(name, kind.flops, kind.sequential, n, f"{counted / 1e6:.2f}", f"{trained:.1f}", speed, ratio, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[], help="at least two n, ascending")
    parser.add_argument("--time", action="store_true", help="print the table of times instead")
    parser.add_argument("--rounds", type=int, default=5, help="of the times")
    given = parser.parse_args()
    torch.manual_seed(1)
    if given.time:
        print_times(given.lengths or TIMED_LENGTHS, given.rounds)
    else:
        print_counts(given.lengths or LENGTHS)


def print_counts(lengths: Sequence[int]) -> None:
    """The three tables that are the same on every machine."""
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
