"""The decoder layers of a search as CUDA graphs: one launch a step in place of hundreds.

A graph reads and writes fixed addresses, and its sizes never change. So the tensors of a search are copied into buffers
whose sizes are rounded up, and hypotheses, positions and entries beyond the real ones are computed and never read.
Dimensions: B sentences, W hypotheses of each, N = B * W rows, H heads, S source positions, C entries of a cache, D width.
"""

import math
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.nn.layers import LayerStep

STEPS_BEFORE_CAPTURE: Final = 8  # of a shape; a capture takes as long as some steps
MAX_GRAPHS: Final = 128
SOURCE_MULTIPLE: Final = 16
MIN_CAPACITY: Final = 64
# The dimension of the tensors of a sentence, by the last part of their names, that has rounded sizes.
OF_SOURCE: Final = {"padding_bias": 3, "memory_keys": 3, "memory_values": 2}
OF_ENTRIES: Final = {"keys": 3, "values": 2}


class StepShape(NamedTuple):
    """The sizes of a graph. sentences, hypotheses, source, capacity: B, W, S and C, rounded up but for W"""

    sentences: int
    hypotheses: int
    source: int
    capacity: int


def rounded_up(number: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most half as much again."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if number <= power * 3 // 4 and power > 2 else power


class CapturedLayers:
    """The steps of all decoder layers of one search at a time.

    layers: their steps; they know neither relative positions nor experts, whose sizes depend on the text
    """

    def __init__(self, layers: Sequence[LayerStep]) -> None:
        self._layers = layers
        self._memory: dict[str, Tensor] = {}  # flat, by name
        self._views: dict[str, Tensor] = {}  # of it, for the shape of the newest step
        self._given: dict[str, Tensor] = {}  # what the newest step returned
        self._shape: StepShape | None = None
        self._steps: Counter[StepShape] = Counter()
        self._graphs: dict[StepShape, Any] = {}
        self._pool: Any = None
        self._stream: Any = None

    def __call__(
        self, states: Tensor, sentences: dict[str, Tensor], ancestors: Tensor, used: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """states (N, D) of the next position -> (N, D), and the tensors of the sentences after it.

        sentences: what a Transformer's `start` returns, or this function did; ancestors: (N, t), see State
        used: entries before this step
        """
        B, N = len(sentences["padding_bias"]), len(states)
        W, S = N // B, sentences["padding_bias"].shape[3]
        source = -(-S // SOURCE_MULTIPLE) * SOURCE_MULTIPLE
        shape = StepShape(rounded_up(B), W, source, rounded_up(max(used + W, MIN_CAPACITY)))
        if shape != self._shape or sentences["padding_bias"] is not self._given.get("padding_bias"):
            self._load(shape, sentences, states, used)
        views = self._views
        views["states"][:N].copy_(states)
        torch.add(views["offsets"], used, out=views["entries"])
        views["bias"][:B].fill_(-math.inf)
        views["bias"].view(-1, shape.capacity)[:N].scatter_(1, ancestors, 0.0)
        self._run(shape)
        return views["states"][:N], self._given

    def _load(self, shape: StepShape, sentences: dict[str, Tensor], states: Tensor, used: int) -> None:
        """Copy the tensors of the sentences into buffers of a shape."""
        (B, W, source, capacity), width = shape, states.shape[1]
        # A larger cache may lie over the smaller one that it is copied from.
        tensors = {
            name: tensor.clone() if tensor is self._given.get(name) else tensor for name, tensor in sentences.items()
        }
        self._views, self._given, self._shape = {}, {}, shape
        for name, tensor in tensors.items():
            kind = name.rpartition(".")[2]
            is_cache = kind in OF_ENTRIES
            dim = (OF_ENTRIES if is_cache else OF_SOURCE)[kind]
            sizes = [B, *tensor.shape[1:]]
            sizes[dim] = capacity if is_cache else source
            view = self._buffer(name, sizes, tensor)
            own = view[: len(tensor)]
            if kind == "padding_bias":
                own.fill_(-math.inf)
            filled = used if is_cache else tensor.shape[dim]
            own.narrow(dim, 0, filled).copy_(tensor.narrow(dim, 0, filled))
            self._views[name], self._given[name] = view, own
        self._views["states"] = self._buffer("states", [B * W, width], states)
        self._views["bias"] = self._buffer("bias", [B, W, capacity], sentences["padding_bias"])
        positions = torch.arange(W, device=states.device)
        self._views["offsets"], self._views["entries"] = (
            self._buffer(name, [W], positions) for name in ("offsets", "entries")
        )
        self._views["offsets"].copy_(positions)

    def _buffer(self, name: str, sizes: list[int], like: Tensor) -> Tensor:
        """Zeros of some sizes, at the address that the buffer of this name has. like: a tensor of its type and device"""
        number, memory = math.prod(sizes), self._memory.get(name)
        if memory is None or len(memory) < number or memory.dtype != like.dtype:
            self._memory[name] = memory = like.new_empty(number + number // 2)
            self._graphs.clear()
        return memory[:number].view(sizes).zero_()

    def _run(self, shape: StepShape) -> None:
        """Make the step on the buffers, from its graph if there is one."""
        self._steps[shape] += 1
        if shape not in self._graphs and (
            self._steps[shape] <= STEPS_BEFORE_CAPTURE
            or len(self._graphs) == MAX_GRAPHS
            or not torch.cuda.is_available()
        ):
            self._step(shape)
            return
        if shape not in self._graphs:
            self._graphs[shape] = self._captured(shape)
        self._graphs[shape].replay()

    def _captured(self, shape: StepShape) -> Any:
        graph = torch.cuda.CUDAGraph()
        self._stream = self._stream or torch.cuda.Stream(self._views["states"].device)  # other threads may capture too
        # All that outlives a step is in the buffers, so graphs can share the memory of what lies between.
        with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
            self._step(shape)
        self._pool = graph.pool()
        return graph

    def _step(self, shape: StepShape) -> None:
        views, states = self._views, self._views["states"]
        heads = views["padding_bias"].shape[1]
        padding_bias = views["padding_bias"].flatten(0, 1)  # BH 1 S
        bias = views["bias"][:, None].expand(-1, heads, -1, -1).flatten(0, 1)  # BH W C
        result = states
        for i, layer in enumerate(self._layers):
            cache = views[f"{i}.keys"], views[f"{i}.values"]
            memory = views[f"{i}.memory_keys"], views[f"{i}.memory_values"]
            result, _ = layer(result, cache, views["entries"], bias, None, memory, padding_bias)
        states.copy_(result)


class CapturedSteps:
    """The CapturedLayers of a model, each lent to one search at a time and used by one thread.

    make: a function that makes the steps of the layers
    """

    def __init__(self, layers: Sequence[LayerStep]) -> None:
        self._layers, self._of_thread = layers, threading.local()

    def lent_to(self, search: object) -> CapturedLayers:
        """Some that no other search uses, until the object `search` is deleted."""
        free: list[CapturedLayers] = self._of_thread.__dict__.setdefault("free", [])
        lent = free.pop() if free else CapturedLayers(self._layers)
        weakref.finalize(search, free.append, lent)
        return lent
