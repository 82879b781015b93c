"""Runs a search's decoder layers as CUDA graphs. One launch per step replaces hundreds. The speed has not been measured yet.

A graph reads and writes fixed addresses, and its sizes never change. So the tensors of a search are copied into buffers with
rounded sizes. Results for hypotheses, positions and entries beyond the real ones are computed but never read.
Dimensions: B sentences, W hypotheses per sentence, N = B * W rows, H heads, S source positions, C entries of a cache, D width.
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

STEPS_BEFORE_CAPTURE: Final = 8  # per shape; a capture is expected to take as long as several steps
MAX_GRAPHS: Final = 128
STATE_COPIES: Final = (
    5  # memory of a search relative to its state: the state itself, and buffers of up to 4 times its size
)
SOURCE_MULTIPLE: Final = 16
MIN_CAPACITY: Final = 64
# The dimension with a rounded size for each tensor of a sentence. The keys are the last parts of the tensors' names.
OF_SOURCE: Final = {"padding_bias": 3, "memory_keys": 3, "memory_values": 2}
OF_ENTRIES: Final = {"keys": 3, "values": 2}


class BufferedEntries(Entries):
    """Entries of a cache with a fixed size. used: (W,) int64, indices of the entries to write"""

    def appended(self, past: Past, key: Tensor, value: Tensor) -> Past:
        """See Entries. The entries are written in place."""
        past["keys"].index_copy_(3, cast(Any, self.used), key.mT)  # B H K C
        past["values"].index_copy_(2, cast(Any, self.used), value)  # B H C V
        return past


StepShape = tuple[int, int, int, int]
"""The sizes of a graph: B, W, S and C. All but W are rounded up."""


@register("search-speedup", "capture", CapturedSearchOptions)
class CapturedSearch(SearchSpeedup):
    """Replays the search steps of a Transformer's layers as CUDA graphs."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        device = device_of(engine.scorer)
        if device.type != "cuda":
            raise UserError(f"--capture needs a GPU for its CUDA graphs, not {device} (drop --capture)")
        if getattr(decoder.options, "coverage_penalty", None):
            raise UserError(
                "--capture and --coverage-penalty cannot be combined: CUDA graphs do not record attention (drop --capture)"
            )
        with autocast(device, engine.precision):
            for model in models_in(engine.scorer):
                if not isinstance(model, Transformer):
                    raise UserError("when translating, --capture supports only Transformers (drop --capture)")
                capture_steps(model)


def rounded_up(number: int) -> int:
    """Round up to the next number in 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., which is at most 1.5 times as large."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if number <= power * 3 // 4 and power > 2 else power


class CapturedLayers:
    """Runs the decoder layers of one search at a time in fixed buffers, with a CUDA graph if the shape has one.

    layers: the search step of each decoder layer of a model that `capture_steps` can capture
    capturing: lock that is held during a capture, when no thread may synchronize with the whole device
    """

    def __init__(self, layers: Sequence[LayerStep], capturing: threading.Lock) -> None:
        self._layers, self._capturing = layers, capturing
        self._stream: Any = None
        self._forget()

    def _forget(self) -> None:
        """Release all memory."""
        self._buffers: dict[str, Tensor] = {}  # flat buffers by name
        self._views: dict[str, Tensor] = {}  # views of the buffers with the shape of the latest step
        self._sentences: dict[str, Tensor] = {}  # tensors that the latest step returned
        self._shape: StepShape | None = None
        self._steps: Counter[StepShape] = Counter()
        self._graphs: dict[StepShape, Any] = {}  # least recently replayed first
        self._pool: Any = None  # memory of the graphs

    def __call__(
        self, states: Tensor, sentences: dict[str, Tensor], ancestors: Tensor, used: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the states (N, D) of the next position. Returns them and the updated tensors of the sentences.

        sentences: tensors returned by a Transformer's `start` or by this function
        ancestors: (N, t), see State
        used: number of entries before this step
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
        except Exception:  # perhaps out of memory; smaller batches may fit afterwards
            self._forget()
            raise
        return views["states"][:N], self._sentences

    def _load(self, shape: StepShape, sentences: dict[str, Tensor], states: Tensor, used: int) -> None:
        """Copy the tensors of the sentences into the buffers for a shape."""
        (B, W, source, capacity), width, before = shape, states.shape[1], self._sentences
        # A larger cache may overlap the smaller one that it is copied from.
        tensors = {name: tensor.clone() if tensor is before.get(name) else tensor for name, tensor in sentences.items()}
        if any(self._is_in_buffer(name, tensor) for name, tensor in tensors.items()):
            raise RuntimeError("two searches use the same prepared scorer at the same time")
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
        """A tensor of zeros at the address of the named buffer. like: a tensor with the same dtype and device"""
        number, buffer = math.prod(sizes), self._buffers.get(name)
        if buffer is None or len(buffer) < number or buffer.dtype != like.dtype:
            self._buffers[name] = buffer = like.new_empty(number if buffer is None else number + number // 2)
            self._graphs.clear()
            self._pool = None  # the pool is deleted with the last graph that uses it
        return buffer[:number].view(sizes).zero_()

    def _run(self, shape: StepShape) -> None:
        """Compute the step on the buffers, with its graph if there is one."""
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
            # Everything that outlives a step is in the buffers, so graphs can share memory for intermediate results.
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
    """The CapturedLayers of a model. Only one search and one thread use each of them at a time.

    layers: the search step of each decoder layer
    """

    def __init__(self, layers: Sequence[LayerStep]) -> None:
        self._layers, self._capturing, self._of_thread = layers, threading.Lock(), threading.local()

    def acquire(self, search: object) -> CapturedLayers:
        """Return layers for one search. They become free again when the object `search` is deleted."""
        free: list[CapturedLayers] = self._of_thread.__dict__.setdefault("free", [])
        layers = free.pop() if free else CapturedLayers(self._layers, self._capturing)
        weakref.finalize(search, free.append, layers)
        return layers


class SearchOfCapturedSteps(TransformerSearch):
    """A search with CUDA graphs, except for steps whose attention is recorded. See `capture_steps`."""

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
    """Replay the search steps of the layers as CUDA graphs, with their current weights.

    Raises UserError if the steps cannot be captured.
    """
    for layer in model.decoder_layers:
        if not (layer.feed_forward.can_be_captured and _reads_entries(layer.self_attention)):
            raise UserError(
                "--capture needs plain self-attention and feed-forward networks without experts (drop --capture)"
            )
    layers = model.search_steps()
    model.new_search, model.state_copies = (
        partial(SearchOfCapturedSteps, layers=layers, steps=CapturedSteps(layers)),
        STATE_COPIES,
    )


def _reads_entries(mixer: Mixer) -> bool:
    """Whether the steps of a mixer need only cache entries that have separate keys for each query head."""
    if not isinstance(mixer, SelfAttention) or mixer.shape.groups < mixer.shape.heads:
        return False
    return type(mixer.before_step(torch.zeros(1, dtype=torch.int64), State(), 1)) is Entries
