"""Two simulated CUDA devices: tensors report "cuda:0" or "cuda:1", are computed on the CPU, and obey the rules of CUDA.

- An operation on tensors of two devices is an error, except with CPU scalars, CPU indices and copies.
- Using a tensor of another stream without waiting for that stream is an error.
- A non-blocking copy to the CPU contains garbage until something waits for the device.
- Memory is counted, and limited by `memory_limit`.
- Each wait for the device is counted in `waits`, and each operation in `operations`.
- A graph computes nothing during capture, and waits and copies from the CPU are errors then. Each replay repeats the
  same operations on the same memory.

Not simulated: speed, compiled code, NCCL. Call `guard.load` before the first import of torch.
"""

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed
from torch._decomp import decomposition_table
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
CHANGES_SHAPE = {"aten::squeeze_", "aten::unsqueeze_", "aten::transpose_", "aten::t_"}
TAKES_CPU_INDICES = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
WAITS = {  # operations with a result, or a result size, that the CPU must know
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::repeat_interleave",
    "aten::bincount",
}
DEVICES = 2
BYTES = 8 << 30


class World:
    """The state of the devices. memory_limit: maximum bytes of the tensors of a device"""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.memory_limit = BYTES
        self.shares: Counter[tuple[int, int]] = Counter()
        self.used: Counter[int] = Counter()
        self.peak: Counter[int] = Counter()
        self.clock = itertools.count()
        self.synchronized = -1
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.lock = threading.RLock()
        self.current = 0  # the device that "cuda" names

    def use(self, device: Any) -> None:
        """`torch.cuda.set_device`."""
        number = device if isinstance(device, int) else number_of(device)
        assert number is not None and number < DEVICES
        self.current = number

    def wait(self, why: str) -> None:
        """Count a wait for the device, and complete pending copies."""
        forbid_while_captured(why)
        self.waits[why] += 1
        self.synchronized = next(self.clock)
        for target, content in self.pending:
            target.copy_(content)
        self.pending.clear()

    def allocate(self, content: torch.Tensor, number: int) -> "Allocation | None":
        """Count the memory of a tensor, which its views share. Beyond the limit it raises CUDA's error."""
        storage = content.untyped_storage()
        if not storage.nbytes():
            return None
        key = number, storage.data_ptr()
        with self.lock:
            if not self.shares[key]:
                if self.used[number] + storage.nbytes() > self.memory_limit:
                    raise torch.OutOfMemoryError(
                        f"CUDA out of memory. Tried to allocate {storage.nbytes()} bytes (simulated)"
                    )
                self.used[number] += storage.nbytes()
                self.peak[number] = max(self.peak[number], self.used[number])
            self.shares[key] += 1
        return Allocation(key, storage.nbytes())


class Allocation:
    """A reference to the memory of a storage, until deleted. key: number of the device, and address"""

    def __init__(self, key: tuple[int, int], size: int) -> None:
        self.key, self.size = key, size

    def __del__(self) -> None:
        with world.lock:
            world.shares[self.key] -= 1
            if not world.shares[self.key]:
                del world.shares[self.key]
                world.used[self.key[0]] -= self.size


world = World()
local = threading.local()
backward = SimpleNamespace()  # stream and graph of autograd's thread: those of the thread that set them last


def state() -> Any:
    """Stream and graph of the current thread."""
    return backward if isinstance(threading.current_thread(), threading._DummyThread) else local


class Stream:
    """A stream of operations that must wait for the results of other streams. waited: the time up to which it did, by stream"""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waited: dict[int, int] = {}

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: "Event") -> None:
        for stream, time in event.done.items():
            self.waited[stream] = max(time, self.waited.get(stream, time))

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        world.wait("stream.synchronize")


class Event:
    """A point in a stream. done: the times up to which it and the streams that it waited for are done, by stream"""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.done: dict[int, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or current_stream()
        self.done = {**stream.waited, id(stream): next(world.clock)}

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        world.wait("event.synchronize")

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: "Event") -> float:
        return 1.0


default_stream = Stream()


def current_stream(*_: Any) -> Stream:
    return getattr(state(), "stream", default_stream)


def set_stream(stream: Stream) -> None:
    local.stream = backward.stream = stream


@contextlib.contextmanager
def use_stream(stream: Stream | None) -> Iterator[None]:
    before = current_stream()
    set_stream(stream or before)
    try:
        yield
    finally:
        set_stream(before)


class Graph:
    """`torch.cuda.CUDAGraph`. calls: operations on contents, with their results"""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any], dict[str, Any], Any]] = []
        # By memory address, which views share: tensors that it reads and writes, with a copy; and tensors that it makes.
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._made: dict[int, torch.Tensor] = {}

    def pool(self) -> None:
        """The memory pool that graphs share; there is only one."""

    def make(self, function: Any, contents: list[Any], named: dict[str, Any]) -> Any:
        """Run an operation for its shapes, and record it."""
        for tensor in _tensors((contents, named)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._made and address not in self._before:
                whole = tensor.new_empty(0).set_(tensor.untyped_storage())
                self._before[address] = whole, whole.clone()
        result = function(*contents, **named)
        for tensor in _tensors(result):
            if (address := tensor.untyped_storage().data_ptr()) not in self._before:
                self._made[address] = tensor
        self.calls.append((function, contents, named, result))
        return result

    def end(self) -> None:
        """Undo all writes, and overwrite all new tensors with garbage."""
        for value, copy in self._before.values():
            if (value != copy).any():
                value.copy_(copy)
        for tensor in self._made.values():
            if tensor.is_floating_point():
                tensor.fill_(99)

    def replay(self) -> None:
        world.operations["graph replay"] += 1
        for function, contents, named, result in self.calls:
            for old, new in zip(_tensors(result), _tensors(function(*contents, **named)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.view(new.shape).copy_(new)  # an in-place operation may have changed its shape since


def _tensors(values: Any) -> list[torch.Tensor]:
    """The tensors of nested lists, tuples and dicts. torch's `tree_flatten` took most of an operation's time."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in _tensors(value)]


def _mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Nested lists, tuples and dicts with `function` applied to all other values."""
    if isinstance(values, list | tuple):
        mapped = [_mapped(function, value) for value in values]
        return mapped if isinstance(values, list) else tuple(mapped)
    if isinstance(values, dict):
        return {name: _mapped(function, value) for name, value in values.items()}
    return function(values)


def _content_of(value: Any) -> Any:
    return value.content if isinstance(value, SimulatedTensor) else value


@contextlib.contextmanager
def capture(graph: Graph, _: Any = None, stream: Stream | None = None, *__: Any) -> Iterator[None]:
    """`torch.cuda.graph`."""
    world.wait("capture")
    local.graph = backward.graph = graph
    try:
        yield
    finally:
        local.graph = backward.graph = None
    graph.end()


def forbid_while_captured(what: str) -> None:
    if getattr(state(), "graph", None) is not None:
        raise RuntimeError(f"{what}: operation not permitted when stream is capturing (simulated)")


def make(function: Any, contents: list[Any], named: dict[str, Any]) -> Any:
    """Run an operation on contents, and record it in a graph being captured."""
    graph: Graph | None = getattr(state(), "graph", None)
    return function(*contents, **named) if graph is None else graph.make(function, contents, named)


class SimulatedTensor(torch.Tensor):
    """A tensor of a simulated device. content: on the CPU; number: of the device"""

    @staticmethod
    def __new__(cls, content: torch.Tensor, number: int) -> "SimulatedTensor":
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            content.shape,
            strides=content.stride(),
            storage_offset=content.storage_offset(),
            dtype=content.dtype,
            layout=content.layout,
            device=torch.device("cuda", number),
        )

    def __init__(self, content: torch.Tensor, number: int) -> None:
        self.content, self.number = content, number
        self.stream, self.made = current_stream(), next(world.clock)
        self.allocation = world.allocate(content, number)

    __torch_function__ = torch._C._disabled_torch_function_impl

    def untyped_storage(self) -> torch.UntypedStorage:
        """The storage of the content, which FSDP frees and allocates again."""
        return self.content.untyped_storage()

    def tolist(self) -> Any:
        world.wait("tolist")
        return self.content.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "can't convert cuda device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __repr__(self) -> str:
        return f"SimulatedTensor({self.content!r}, {self.number})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(function, args, kwargs or {})


class Simulation(TorchDispatchMode):
    """Intercepts the operations that create tensors on a device without tensor arguments."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor | AsyncCollectiveTensor) for kind in types):
            return NotImplemented  # they call operations themselves
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            return function(*args, **(kwargs or {}))  # only shapes are requested
        return execute(function, args, kwargs or {})


def number_of(device: Any) -> int | None:
    """The number of a CUDA device; None for the CPU."""
    device = torch.device(device)
    if device.type != "cuda":
        return None
    return world.current if device.index is None else device.index


def execute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the device of its arguments."""
    tensors = _tensors((args, kwargs))
    ours = [tensor for tensor in tensors if isinstance(tensor, SimulatedTensor)]
    asked = kwargs.get("device")
    if not ours and (asked is None or number_of(asked) is None):
        return function(*args, **kwargs)
    name = _schema(function).name
    world.operations[name] += 1
    if function is torch.ops.prim.device.default:
        return torch.device("cuda", ours[0].number)
    if function not in COPIES:
        _check_devices(name, tensors, ours)
    _check_streams(name, ours)
    if name in WAITS or (
        name in TAKES_CPU_INDICES and any(t.dtype in (torch.bool, torch.uint8) for t in _indices(args))
    ):
        world.wait(name)
    if name == "aten::is_pinned":
        return False
    contents, named = _mapped(_content_of, [list(args), kwargs])
    if name == "aten::copy_":
        return _copy_into(args, contents, named)
    number = ours[0].number if ours else None
    if asked is not None:
        number, named["device"] = number_of(asked), torch.device("cpu")
    if name == "aten::_to_copy":
        return _converted(function, contents, named, number, bool(ours))
    named.pop("pin_memory", None)
    if name in CHANGES_SHAPE:
        make(function, contents, named)
        with torch._C._DisableTorchDispatch():  # torch knows the shape of the wrapper
            return function(*args, **kwargs)
    return _wrapped(function, args, kwargs, make(_on_the_cpu(function), contents, named), number)


@functools.cache
def _on_the_cpu(function: Any) -> Any:
    """Run the operation; one with only a CUDA kernel (the backward pass of RMSNorm in CUDA builds) is composed of others."""
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key(function.name(), "CPU")
    return function if has_kernel else decomposition_table.get(function, function)


def _indices(args: Any) -> list[torch.Tensor]:
    return [index for index in args[1] if index is not None]


def _check_devices(name: str, tensors: list[torch.Tensor], ours: list[SimulatedTensor]) -> None:
    devices = {tensor.number for tensor in ours}
    others = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor) and tensor.dim() > 0]
    if len(devices) > 1 or (ours and others and name not in TAKES_CPU_INDICES):
        found = sorted({str(tensor.device) for tensor in tensors})
        shapes = [tuple(tensor.shape) for tensor in tensors]
        raise RuntimeError(
            f"{name}: Expected all tensors to be on the same device, but found at least two, {found} of {shapes}"
        )


def _check_streams(name: str, ours: list[SimulatedTensor]) -> None:
    stream = current_stream()
    for tensor in ours:
        known = (
            tensor.stream is stream or max(stream.waited.get(id(tensor.stream), -1), world.synchronized) > tensor.made
        )
        if not known:
            raise RuntimeError(f"{name}: reads a tensor {tuple(tensor.shape)} of a stream that has not been waited for")


def _copy_into(args: Any, contents: list[Any], named: dict[str, Any]) -> torch.Tensor:
    target, source = args[0], args[1]
    from_device = isinstance(source, SimulatedTensor)
    if from_device and not isinstance(target, SimulatedTensor):
        if named.get("non_blocking") or (len(contents) > 2 and contents[2]):
            world.pending.append((target, contents[1].clone()))
            return target.fill_(99)
        world.wait("copy to the CPU")
    if not from_device:
        forbid_while_captured("copy from the CPU")
    make(aten.copy_.default, contents[:2], {})
    if isinstance(target, SimulatedTensor):
        target.stream, target.made = current_stream(), next(world.clock)
    return target


def _converted(function: Any, contents: list[Any], named: dict[str, Any], number: int | None, from_device: bool) -> Any:
    non_blocking = named.pop("non_blocking", False)
    named.pop("pin_memory", None)
    if not from_device:
        forbid_while_captured("copy from the CPU")
    content = make(function, contents, named)
    if number is not None:
        return SimulatedTensor(content, number)
    if from_device and non_blocking:
        world.pending.append((content, content.clone()))
        return content.fill_(99)
    if from_device:
        world.wait("copy to the CPU")
        content = function(*contents, **named)
    return content


@dataclasses.dataclass(frozen=True)
class Schema:
    """The name of an operation, the arguments that it writes to, and its results.

    written: number and name of each argument written to, with the names of its alias set
    returned: for each result, the names of the alias set of the argument that it equals; none for a new tensor
    """

    name: str
    written: list[tuple[int, str, set[str]]]
    returned: list[set[str]]


@functools.cache
def _schema(function: Any) -> Schema:
    """torch makes new objects for a schema's parts at each access, so they are read once."""
    schema = function._schema
    infos = [(i, argument.name, argument.alias_info) for i, argument in enumerate(schema.arguments)]
    written = [(i, name, info.before_set) for i, name, info in infos if info is not None and info.is_write]
    results = [result.alias_info for result in schema.returns]
    returned = [info.before_set if info is not None and info.is_write else set() for info in results]
    return Schema(schema.name, written, returned)


def _wrapped(function: Any, args: Any, kwargs: dict[str, Any], result: Any, number: int | None) -> Any:
    """The result with its tensors on the device; the result of an in-place change is the argument itself."""
    schema = _schema(function)
    changed: dict[str, Any] = {}  # arguments that the operation writes to, by the name of their alias set
    for i, argument, names in schema.written:
        value = args[i] if i < len(args) else kwargs.get(argument)
        changed |= dict.fromkeys(names, value)
        for tensor in _tensors(value):
            if isinstance(tensor, SimulatedTensor):
                tensor.stream, tensor.made = current_stream(), next(world.clock)

    def wrap(value: Any) -> Any:
        if isinstance(value, AsyncCollectiveTensor):
            value = value.wait()
        if isinstance(value, torch.Tensor) and not isinstance(value, SimulatedTensor) and number is not None:
            return SimulatedTensor(value, number)
        return value

    values = list(result) if len(schema.returned) > 1 else [result] * len(schema.returned)
    found = []
    for value, names in zip(values, schema.returned, strict=True):
        argument = next((changed[name] for name in names if name in changed), None)
        found.append(_mapped(wrap, value) if argument is None else argument)
    return tuple(found) if len(found) > 1 else next(iter(found), None)


init_process_group = torch.distributed.init_process_group


def join_by_gloo(_backend: str, **named: Any) -> None:
    """`init_process_group` for a group that sums the contents of tensors by gloo in place of NCCL."""
    init_process_group("gloo", **named)


class _Properties:
    name, total_memory, major, minor, multi_processor_count = "simulated", BYTES, 9, 0, 100


@contextlib.contextmanager
def simulated() -> Iterator[World]:
    """A context in which torch finds the simulated devices, in all threads started within it."""
    run = threading.Thread.run

    def run_simulated(thread: threading.Thread) -> None:
        torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device=)`; each thread has its own mode
        with Simulation():
            run(thread)

    functions = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: DEVICES,
        "current_device": lambda: world.current,
        "set_device": world.use,
        "_lazy_init": lambda: None,
        "synchronize": lambda *_: world.wait("synchronize"),
        "get_device_name": lambda *_: "simulated",
        "get_device_properties": lambda *_: _Properties(),
        "get_device_capability": lambda *_: (9, 0),
        "is_bf16_supported": lambda *_, **__: True,
        "mem_get_info": lambda device=0: (
            world.memory_limit - world.used[number_of(device) if not isinstance(device, int) else device],
            BYTES,
        ),
        "memory_allocated": lambda *_: world.used[0],
        "memory_reserved": lambda *_: world.used[0],
        "max_memory_allocated": lambda *_: world.peak[0],
        "reset_peak_memory_stats": lambda *_: world.peak.clear(),
        "empty_cache": lambda: None,
        "CUDAGraph": Graph,
        "graph": capture,
        "Stream": Stream,
        "Event": Event,
        "current_stream": current_stream,
        "default_stream": lambda *_: default_stream,
        "set_stream": set_stream,
        "stream": use_stream,
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda *_, **__: None,
    }
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        stack.enter_context(mock.patch.object(threading.Thread, "run", run_simulated))
        stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, *_: tensor))
        stack.enter_context(mock.patch.object(torch, "inference_mode", lambda *_, **__: torch.no_grad()))
        stack.enter_context(mock.patch.object(torch.distributed, "init_process_group", join_by_gloo))
        torch.__future__.set_swap_module_params_on_conversion(True)  # a weight shared by two modules stays shared
        torch._C._set_only_lift_cpu_tensors(True)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the others query the real device for its properties
        stack.enter_context(Simulation())
        try:
            yield world
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swapped)
            torch._C._set_only_lift_cpu_tensors(False)
