"""Processes that work together: their ranks, sums over ranks, and messages about missing ranks.

Only this module reads torchrun's environment variables, which `--devices` also sets. Without them, a process is a world of one
rank, which never waits.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

from nmt.errors import Interrupted, RankFailed, ResourceError, UserError, one_line, quoted
from nmt.signals import signal_at_end_of_parent

MAX_WAIT_MINUTES: Final = 10_000_000  # 19 years
MIN_START_MINUTES: Final = 2.0  # ranks get at least this much time to start
PARENT_SECONDS: Final = 0.5  # time between checks that the launcher is alive
ANSWER_SECONDS: Final = 5  # time for each rank to report that it is also waiting
LAUNCHER: Final = "NMT_LAUNCHER"  # environment variable with the process id of the launcher of `--devices`
LISTENER: Final = "NMT_LISTENER"  # environment variable: descriptor of the store's socket, opened by the launcher
WAITED: Final = "waited"
SLICE_SECONDS: Final = 1.0  # a long wait consists of slices; at most one runs out while the process is stopped
UNREACHABLE: Final = "rank 0, which coordinates all ranks, cannot be reached"
# Words in messages about a lost connection. A connection is reset if a peer ends before it has read all data.
CONNECTION_LOST: Final = ("closed", "reset", "broken pipe")
NETWORK_ERRORS: Final = ("gloo", "nccl", "process group", "pair closure", "connection closed", "connection reset")

_Result = TypeVar("_Result")


class World:
    """All ranks of a job, as seen from this process.

    rank: index of this process; size: number of ranks; local_rank, local_size: the same, counting only the ranks on this machine
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, local_size: int = 1) -> None:
        self.rank, self.size, self.local_rank, self.local_size = rank, size, local_rank, local_size
        self.leads = rank == 0  # the leader writes files and logs
        self._store: Any = None
        self._seconds = 0.0  # maximum time to wait for the store
        self._store_is_silent = False  # whether the store has failed to answer in time

    @classmethod
    def from_environment(cls) -> "World":
        """The world that torchrun's variables describe; without them, this process alone. Raises UserError for invalid values."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if not os.environ.keys() >= set(names):
            return cls()
        rank, size, local_rank = map(_number_of, names)
        return cls(rank, size, local_rank, _number_of("LOCAL_WORLD_SIZE", "1"))

    @contextmanager
    def joined(self, device: str, minutes: float) -> Iterator[None]:
        """Connect to the other ranks. device: cpu or cuda; minutes: maximum time to wait for a rank"""
        if self.size == 1:
            yield
            return
        import torch.distributed as dist

        self._seconds, meeting = max(60 * minutes, ANSWER_SECONDS), timedelta(minutes=max(minutes, MIN_START_MINUTES))

        def join() -> None:
            self._store = _store(self, meeting)
            self._store.set(f"here/{self.rank}", "")
            self._store.wait([f"here/{rank}" for rank in range(self.size)], meeting)
            backend, timeout = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timedelta(minutes=minutes)
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=timeout)

        try:
            self._call_store(join, 2 * meeting.total_seconds())
            yield
        except Exception as error:
            raise self._ended(error) from error
        dist.destroy_process_group()

    def _ended(self, error: Exception) -> Exception:
        """The error to raise: one that names the missing rank, or RankFailed if the leader reports why all ranks end."""
        if _is_of_waiting(error):
            error = self._missing(str(error).partition("\n")[0])
        elif not isinstance(error, Interrupted | RankFailed) and not self._store_is_silent:
            code = error.code if isinstance(error, UserError) else 1
            self._leave(f"{code} {type(error).__name__}: {one_line(str(error))}")
        if isinstance(error, RankFailed) or (isinstance(error, UserError) and not self.leads):
            _let_others_end_first()  # an error that occurs on all ranks is reported only once, by the leader
        return error

    def _missing(self, message: str) -> Exception:
        """The error after a time-out. It lists ranks that ended, with their reasons, and ranks that do not answer."""
        self._leave(WAITED)
        try:
            notes = _within(2 * ANSWER_SECONDS, self._notes)
        except (TimeoutError, RuntimeError, AttributeError):  # the store does not answer, has ended, or never existed
            if any(words in message.lower() for words in CONNECTION_LOST):
                return RankFailed(ResourceError.code)  # the leader ended; it or its launcher reports why
            return ResourceError(f"rank {self.rank} timed out: {UNREACHABLE} ({quoted(message)})")
        code, _, _ = notes.get(0, WAITED).partition(" ")
        if code not in (WAITED, "1"):
            return RankFailed(int(code))
        ended = [f"rank {rank} ended ({note.partition(' ')[2]})" for rank, note in notes.items() if note != WAITED]
        if ended:
            _let_others_end_first()
        absent = [f"rank {rank} does not answer" for rank in range(self.size) if rank not in notes]
        found = "; ".join([*ended, *absent]) or "the connection was lost"
        return ResourceError(f"rank {self.rank} timed out waiting for the other ranks: {found} ({quoted(message)})")

    def _leave(self, note: str) -> None:
        """Tell the other ranks why this one ends. note: WAITED, or an exit status and an error"""
        with suppress(RuntimeError, AttributeError, TimeoutError):
            _within(ANSWER_SECONDS, lambda: self._store.set(f"left/{self.rank}", note))

    def _notes(self) -> dict[int, str]:
        """Collect, for a few seconds, the reasons that ranks give for ending."""
        keys = {rank: f"left/{rank}" for rank in range(self.size)}
        end = time.monotonic() + ANSWER_SECONDS + self.leads  # the leader waits longer, because others read its store
        while not self._store.check(list(keys.values())) and time.monotonic() < end:
            time.sleep(0.05)
        return {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}

    def post(self, key: str, content: bytes) -> None:
        """Store content for another rank to fetch."""
        self._call_store(lambda: self._store.set(key, content))

    def posted(self, key: str) -> bool:
        """Whether a rank posted content that has not been fetched."""
        return self._call_store(lambda: bool(self._store.check([key])))

    def fetch(self, key: str, seconds: float) -> bytes | None:
        """Take the content that a rank posted; None if nothing arrives within `seconds`."""

        def take() -> bytes | None:
            try:
                self._store.wait([key], timedelta(seconds=seconds))
            except RuntimeError as error:
                if "time" in str(error).lower():
                    return None
                raise
            content: bytes = self._store.get(key)
            self._store.delete_key(key)
            return content

        return self._call_store(take, seconds)

    def _call_store(self, call: Callable[[], _Result], seconds: float = 0.0) -> _Result:
        """Call the store. seconds: maximum time that the call itself waits

        Raises RuntimeError if the store is gone, and ResourceError if it does not answer.
        """
        try:
            return _within(self._seconds + seconds, call)
        except TimeoutError:
            self._store_is_silent = True
            raise ResourceError(f"rank {self.rank} timed out: {UNREACHABLE}") from None

    def sum(self, tensor: Any) -> None:
        """Sum a tensor over all ranks, in place. The results on all ranks are bit-identical."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)

    def maximum(self, *numbers: float) -> list[float]:
        """The maximum of each number over all ranks."""
        if self.size == 1:
            return list(numbers)
        import torch

        largest = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        return largest.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return self.maximum(flag) != [0.0]

    def minimum(self, number: int) -> int:
        """The minimum over all ranks."""
        return -int(self.maximum(-number)[0])

    def gather(self, content: bytes) -> list[bytes]:
        """The contents from all ranks, in rank order, on every rank."""
        if self.size == 1:
            return [content]
        import torch
        import torch.distributed as dist

        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(content)
        self.sum(sizes)
        longest = max(int(sizes.max()), 1)
        own = torch.frombuffer(bytearray(content.ljust(longest, b"\0")), dtype=torch.uint8)
        rows = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(rows, own)
        return [row[:size].numpy().tobytes() for row, size in zip(rows, sizes.tolist(), strict=True)]

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """This rank's share: every size-th item. `merge_shares` is the inverse."""
        return items[self.rank :: self.size]


def _is_of_waiting(error: Exception) -> bool:
    """Whether an error comes from waiting for another rank rather than from the work itself."""
    from torch.distributed import DistError

    is_of_network = isinstance(error, DistError) or any(text in str(error).lower() for text in NETWORK_ERRORS)
    return isinstance(error, RuntimeError) and is_of_network


def _number_of(name: str, default: str = "") -> int:
    """The number in one of torchrun's variables."""
    value = os.environ.get(name, default)
    if not value.isdecimal():
        raise UserError(
            f"the environment variable {name} is '{quoted(value)}', not a number (torchrun sets it; for one process, unset RANK)"
        )
    return int(value)


def is_launched() -> bool:
    """Whether torchrun or `--devices` started this process."""
    return LAUNCHER in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def end_with_launcher() -> None:
    """Make a rank receive SIGTERM when its launcher ends, or now if it has already ended. Does nothing in other processes.

    A stopped rank is resumed first, because otherwise it could not end.
    """
    if is_launched():
        signal_at_end_of_parent(signal.SIGCONT)
        parent = os.getppid()
        if os.environ.get(LAUNCHER, str(parent)) != str(parent):
            os._exit(128 + signal.SIGTERM)
        threading.Thread(target=_terminate_after, args=(parent,), name="launcher", daemon=True).start()


def _terminate_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Run a call in a thread with a time limit, because torch waits forever for a store that has become unreachable.

    Raises TimeoutError after the limit, and any error that the call raises.
    """
    future: Future[_Result] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="store", daemon=True).start()
    left = seconds
    while left > 0 and not future.done():
        wait([future], min(left, SLICE_SECONDS))
        left -= SLICE_SECONDS
    return future.result(0)


def _let_others_end_first() -> None:
    """Wait for the launcher to end this process, so that the failed rank's error and exit status are the ones that count."""
    if is_launched():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(ANSWER_SECONDS)


def merge_shares(shares: Sequence[Sequence[Any]]) -> list[Any]:
    """Merge the shares of all ranks, restoring the order before `World.share`."""
    items: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        items[rank :: len(shares)] = share
    return items


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is sharded over the ranks by FSDP."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Any) -> Any:
    """The full tensor, on each rank. All ranks must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local_tensor(tensor: Any) -> Any:
    """This rank's shard of a tensor, sharing memory. A tensor that is not sharded is returned unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard_like(tensor: Any, own: Any) -> Any:
    """Shard a full tensor in the same way as `own`."""
    if not is_sharded(own):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(own.to_local().device), own.device_mesh, own.placements)


def _store(world: World, timeout: timedelta) -> Any:
    """The store that all ranks share: torchrun's, or one that rank 0 serves on its launcher's socket or else on MASTER_ADDR."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    address, port = os.environ.get("MASTER_ADDR", "localhost"), _number_of("MASTER_PORT")
    if world.local_size == world.size:  # all ranks are on one machine, so listen only inside it
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    of_agent = (
        os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    )  # the agent's store survives a restart of the ranks
    hosts = world.leads and not of_agent
    listener = None
    if hosts:
        listener = int(os.environ.get(LISTENER) or socket.create_server((address, port)).detach())
    store = TCPStore(address, port, world.size, hosts, timeout, wait_for_workers=False, master_listen_fd=listener)
    return PrefixStore(f"nmt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store) if of_agent else store
