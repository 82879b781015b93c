"""The decoder layers of a search as CUDA graphs: one launch a step in place of hundreds. Not measured on a GPU yet.

A graph reads and writes fixed addresses, and its sizes never change. So the tensors of a search are copied into buffers
whose sizes are rounded up, and hypotheses, positions and entries beyond the real ones are computed and never read.
Dimensions: B sentences, W hypotheses of each, N = B * W rows, H heads, S source positions, C entries of a cache, D width.
"""

import math
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.device import autocast, device_of
from nmt.extensions.fast.search_speedups.options import CapturedSearchOptions
from nmt.mixers.base import Mixer, Past
from nmt.mixers.self_attention import Entries, SelfAttention
from nmt.models.base import State, models_in
from nmt.models.layers import LayerStep
from nmt.models.transformer import Transformer, TransformerSearch
from nmt.nn.linear import Projection
from nmt.search_speedups.base import SearchSpeedup

STEPS_BEFORE_CAPTURE: Final = 8  # of a shape; a capture should take as long as some steps
MAX_GRAPHS: Final = 128
STATE_COPIES: Final = 5  # memory of a search by that of its state: itself, and up to 4 times its size in buffers
SOURCE_MULTIPLE: Final = 16
MIN_CAPACITY: Final = 64
# The dimension of the tensors of a sentence, by the last part of their names, that has rounded sizes.
OF_SOURCE: Final = {"padding_bias": 3, "memory_keys": 3, "memory_values": 2}
OF_ENTRIES: Final = {"keys": 3, "values": 2}


class BufferedEntries(Entries):
    """Entries of a cache of fixed size. used: (W,) int64, those to write"""

    def appended(self, past: Past, key: Tensor, value: Tensor) -> Past:
        """See Entries: in place."""
        past["keys"].index_copy_(3, cast(Any, self.used), key.mT)  # B H K C
        past["values"].index_copy_(2, cast(Any, self.used), value)  # B H C V
        return past


StepShape = tuple[int, int, int, int]
"""The sizes of a graph: B, W, S and C, rounded up but for W."""


@register("search-speedup", "capture", CapturedSearchOptions)
class CapturedSearch(SearchSpeedup):
    """The steps of a Transformer's layers, replayed as CUDA graphs."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        device = device_of(engine.scorer)
        if device.type != "cuda":
            raise UserError(f"--capture: CUDA graphs need a GPU, and this is {device} (leave it out)")
        if getattr(decoder.options, "coverage_penalty", None):
            raise UserError("--capture: has no effect with --coverage-penalty, which records attention (leave it out)")
        with autocast(device, engine.precision):
            for model in models_in(engine.scorer):
                if not isinstance(model, Transformer):
                    raise UserError(
                        "--capture: only the layers of a Transformer can be captured for a search (leave it out)"
                    )
                capture_steps(model)


def rounded_up(number: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most half as much again."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if number <= power * 3 // 4 and power > 2 else power


class CapturedLayers:
    """Run the decoder layers of one search at a time in fixed buffers, from CUDA graphs where they exist.

    layers: the search step of each decoder layer of a model that `capture_steps` can capture
    capturing: held while a graph is captured, when no thread may wait for the whole device
    """

    def __init__(self, layers: Sequence[LayerStep], capturing: threading.Lock) -> None:
        self._layers, self._capturing = layers, capturing
        self._stream: Any = None
        self._forget()

    def _forget(self) -> None:
        """Give all memory back."""
        self._buffers: dict[str, Tensor] = {}  # flat, by name
        self._views: dict[str, Tensor] = {}  # of them, for the shape of the newest step
        self._sentences: dict[str, Tensor] = {}  # what the newest step returned
        self._shape: StepShape | None = None
        self._steps: Counter[StepShape] = Counter()
        self._graphs: dict[StepShape, Any] = {}  # the least recently replayed first
        self._pool: Any = None  # of the graphs

    def __call__(
        self, states: Tensor, sentences: dict[str, Tensor], ancestors: Tensor, used: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """states (N, D) of the next position -> (N, D), and the tensors of the sentences after it.

        sentences: what a Transformer's `start` returns, or this function did; ancestors: (N, t), see State
        used: entries before this step
        """
        B, N = len(sentences["padding_bias"]), len(states)
        W, S = N // B, sentences["padding_bias"].shape[3]
        source, capacity = -(-S // SOURCE_MULTIPLE) * SOURCE_MULTIPLE, rounded_up(max(used + W, MIN_CAPACITY))
        shape = rounded_up(B), W, source, capacity
        try:
            if shape != self._shape or sentences["padding_bias"] is not self._sentences.get("padding_bias"):
                self._load(shape, sentences, states, used)
            views = self._views
            views["states"][:N].copy_(states)
            torch.arange(used, used + W, out=views["entries"])
            views["bias"][:B].fill_(-math.inf)
            views["bias"].view(-1, capacity)[:N].scatter_(1, ancestors, 0.0)
            self._run(shape)
        except Exception:  # out of memory, perhaps, which is then needed for smaller batches
            self._forget()
            raise
        return views["states"][:N], self._sentences

    def _load(self, shape: StepShape, sentences: dict[str, Tensor], states: Tensor, used: int) -> None:
        """Copy the tensors of the sentences into buffers of a shape."""
        (B, W, source, capacity), width, before = shape, states.shape[1], self._sentences
        # A larger cache may lie over the smaller one that it is copied from.
        tensors = {name: tensor.clone() if tensor is before.get(name) else tensor for name, tensor in sentences.items()}
        if any(self._is_in_buffer(name, tensor) for name, tensor in tensors.items()):
            raise RuntimeError("two searches at once over one prepared scorer")
        self._views, self._sentences, self._shape = {}, {}, shape
        for name, tensor in tensors.items():
            kind = name.rpartition(".")[2]
            is_cache = kind in OF_ENTRIES
            dim = (OF_ENTRIES if is_cache else OF_SOURCE)[kind]
            sizes = [B, *tensor.shape[1:]]
            sizes[dim] = capacity if is_cache else source
            view = self._buffer(name, sizes, tensor)
            real = view[: len(tensor)]
            if kind == "padding_bias":
                real.fill_(-math.inf)
            filled = used if is_cache else tensor.shape[dim]
            real.narrow(dim, 0, filled).copy_(tensor.narrow(dim, 0, filled))
            self._views[name], self._sentences[name] = view, real
        self._views["states"] = self._buffer("states", [B * W, width], states)
        self._views["bias"] = self._buffer("bias", [B, W, capacity], sentences["padding_bias"])
        self._views["entries"] = self._buffer("entries", [W], states.new_empty(0, dtype=torch.int64))

    def _is_in_buffer(self, name: str, tensor: Tensor) -> bool:
        buffer = self._buffers.get(name)
        return buffer is not None and tensor.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()

    def _buffer(self, name: str, sizes: list[int], like: Tensor) -> Tensor:
        """Zeros of some sizes, at the address that the buffer of this name has. like: a tensor of its type and device"""
        number, buffer = math.prod(sizes), self._buffers.get(name)
        if buffer is None or len(buffer) < number or buffer.dtype != like.dtype:
            self._buffers[name] = buffer = like.new_empty(number if buffer is None else number + number // 2)
            self._graphs.clear()
            self._pool = None  # which is deleted with the last of its graphs
        return buffer[:number].view(sizes).zero_()

    def _run(self, shape: StepShape) -> None:
        """Make the step on the buffers, from its graph if there is one."""
        self._steps[shape] += 1
        graph = self._graphs.pop(shape, None)
        if graph is None:
            if self._steps[shape] <= STEPS_BEFORE_CAPTURE or not self._views["states"].is_cuda:
                self._step()
                return
            if len(self._graphs) == MAX_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            graph = self._captured()
        self._graphs[shape] = graph
        graph.replay()

    def _captured(self) -> Any:
        graph = torch.cuda.CUDAGraph()
        with self._capturing:
            self._stream = self._stream or torch.cuda.Stream(self._views["states"].device)
            # All that outlives a step is in the buffers, so graphs can share the memory of what lies between.
            with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                self._step()
        self._pool = graph.pool()
        return graph

    def _step(self) -> None:
        views, states = self._views, self._views["states"]
        heads = views["padding_bias"].shape[1]
        padding_bias = views["padding_bias"].flatten(0, 1)  # BH 1 S
        bias = views["bias"][:, None].expand(-1, heads, -1, -1).flatten(0, 1)  # BH W C
        result = states
        for i, layer in enumerate(self._layers):
            past = {"keys": views[f"{i}.keys"], "values": views[f"{i}.values"]}
            memory = (views[f"{i}.memory_keys"], views[f"{i}.memory_values"]), padding_bias
            result, _ = layer(result, past, BufferedEntries(cast(Any, views["entries"]), bias), memory)
        states.copy_(result)


class CapturedSteps:
    """The CapturedLayers of a model, each used by one search at a time and by one thread.

    layers: the search step of each decoder layer
    """

    def __init__(self, layers: Sequence[LayerStep]) -> None:
        self._layers, self._capturing, self._of_thread = layers, threading.Lock(), threading.local()

    def acquire(self, search: object) -> CapturedLayers:
        """Return layers for one search, which are taken back when the object `search` is deleted."""
        free: list[CapturedLayers] = self._of_thread.__dict__.setdefault("free", [])
        layers = free.pop() if free else CapturedLayers(self._layers, self._capturing)
        weakref.finalize(search, free.append, layers)
        return layers


class SearchOfCapturedSteps(TransformerSearch):
    """A search from CUDA graphs, but for the steps whose attention is watched. See `capture_steps`"""

    def __init__(
        self, model: Transformer, output: Projection, layers: Sequence[LayerStep], steps: CapturedSteps
    ) -> None:
        super().__init__(model, output, layers)
        self._captured = steps.acquire(self)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer."""
        if state.watched:
            return super().step(tokens, state)
        mixer = cast(SelfAttention, self.model.decoder_layers[0].self_attention)
        states = self.embed(tokens, state)  # N D
        used, visible = state.num_entries, mixer.visible_entries(tokens, state, len(state.sentences["padding_bias"]))
        states, sentences = self._captured(states, state.sentences, visible, used)
        return self.log_probs(states), state.after(sentences, {}, None)


def capture_steps(model: Transformer) -> None:
    """Replay the layers' search steps as CUDA graphs, with the weights that they have now.

    Raises UserError for a model whose steps cannot be captured.
    """
    for layer in model.decoder_layers:
        if not (layer.feed_forward.can_be_captured and _reads_entries(layer.self_attention)):
            raise UserError("--capture: needs plain self-attention, and products of fixed sizes (leave it out)")
    layers = model.search_steps()
    model.new_search, model.state_copies = (
        partial(SearchOfCapturedSteps, layers=layers, steps=CapturedSteps(layers)),
        STATE_COPIES,
    )


def _reads_entries(mixer: Mixer) -> bool:
    """Whether the steps of a mixer need nothing but entries, of which each head of queries has keys of its own."""
    if not isinstance(mixer, SelfAttention) or mixer.shape.groups < mixer.shape.heads:
        return False
    return type(mixer.before_step(torch.zeros(1, dtype=torch.int64), State(), 1)) is Entries
