"""The processes that work together: ranks, sums over them, and which one is missing. torchrun's variables are read here alone.

A process that nobody launched is a world of its own, in which every sum is what it was and nothing is waited for.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from nmt.errors import Interrupted, RankFailed, ResourceError, UserError, one_line, quoted

MAX_WAIT_MINUTES: Final = 10_000_000  # that a wait may be bounded by: 19 years
MEETING_MINUTES: Final = 2.0  # that ranks have at least to start
ANSWER_SECONDS: Final = 5  # that a rank has to say that it waits too
WAITED: Final = "waited"
UNREACHABLE: Final = "rank 0, where all ranks meet, cannot be reached"
OF_NETWORK: Final = ("gloo", "nccl", "process group", "pair closure", "connection closed", "connection reset")


class World:
    """rank: of this process; size: ranks in all; local_rank, local_size: the same among those of its machine."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, local_size: int = 1) -> None:
        self.rank, self.size, self.local_rank, self.local_size = rank, size, local_rank, local_size
        self._store: Any = None

    @classmethod
    def from_environment(cls) -> "World":
        """As torchrun says; alone where it did not start this process."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if any(name not in os.environ for name in names):
            return cls()
        rank, size, local_rank = (int(os.environ[name]) for name in names)
        return cls(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", 1)))

    @property
    def leads(self) -> bool:
        """Whether this rank is the one that writes and tells."""
        return self.rank == 0

    @contextmanager
    def joined(self, device: str, minutes: float) -> Iterator[None]:
        """Meet the other ranks. device: cpu or cuda; minutes: that any of them may be waited for."""
        if self.size == 1:
            yield
            return
        import torch.distributed as dist

        timeout = timedelta(minutes=minutes)
        try:
            meeting = timedelta(minutes=max(minutes, MEETING_MINUTES))
            self._store = _store(self, meeting)
            self._store.set(f"here/{self.rank}", "")
            self._store.wait([f"here/{rank}" for rank in range(self.size)], meeting)
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=timeout)
            yield
        except Exception as error:
            raise self._ended(error) from error
        dist.destroy_process_group()

    def _ended(self, error: Exception) -> Exception:
        """What an error is told as: the wait for a rank that is missing names it, and what all ranks know only one tells."""
        if isinstance(error, RuntimeError) and _is_of_network(error):
            return self._missing(str(error).partition("\n")[0])
        if not isinstance(error, Interrupted):
            code = error.code if isinstance(error, UserError) else 1
            self._leave(f"{code} {type(error).__name__}: {one_line(str(error))}")
            if isinstance(error, UserError) and not self.leads and self._leader_left():
                return RankFailed(error.code)
        return error

    def _leave(self, reason: str) -> None:
        """Note why this rank goes away, for those that are left to read."""
        with suppress(RuntimeError, AttributeError):
            self._store.set(f"left/{self.rank}", reason)

    def _leader_left(self) -> bool:
        """Whether the leader ends too, and says why; its store may be gone with it already."""
        try:
            self._store.wait(["left/0"], timedelta(seconds=1))
            return True
        except (RuntimeError, AttributeError) as error:
            return "time" not in str(error).lower()

    def _missing(self, told: str) -> Exception:
        """Who is missing; asked for by a thread, for a store that cannot be reached may never answer."""
        found: list[str | RankFailed] = []
        asking = threading.Thread(target=lambda: found.append(self._ask()), daemon=True)
        asking.start()
        asking.join(2 * ANSWER_SECONDS)
        answer = found[0] if found else UNREACHABLE
        if isinstance(answer, RankFailed):
            return answer
        if answer == UNREACHABLE and "closed" in told:  # it ended by itself, which is told by it or who started it
            return RankFailed(ResourceError.code)
        return ResourceError(f"rank {self.rank} waited in vain: {answer} ({quoted(told)})")

    def _ask(self) -> str | RankFailed:
        """Which ranks do not say that they wait too, and what those said that went away for a reason of their own."""
        keys = {rank: f"left/{rank}" for rank in range(self.size)}
        end = time.monotonic() + ANSWER_SECONDS + self.leads  # whose store the others still have to read
        try:
            self._leave(WAITED)
            while not self._store.check(list(keys.values())) and time.monotonic() < end:
                time.sleep(0.05)
            left = {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}
        except (RuntimeError, AttributeError):
            return UNREACHABLE
        if left.get(0, WAITED) != WAITED and not left[0].startswith("1 "):
            return RankFailed(int(left[0].partition(" ")[0]))
        ended = [f"rank {rank} ended ({why.partition(' ')[2]})" for rank, why in left.items() if why != WAITED]
        absent = [f"rank {rank} does not answer" for rank in keys if rank not in left]
        return "; ".join([*ended, *absent]) or "the connection was lost"

    def post(self, key: str, content: bytes) -> None:
        """Leave something where the ranks met, for one of them to fetch. RuntimeError when that place is gone."""
        self._store.set(key, content)

    def fetch(self, key: str, seconds: float) -> bytes | None:
        """Take away what a rank posts; None when nothing has come within so many seconds."""
        try:
            if seconds:
                self._store.wait([key], timedelta(seconds=seconds))
            elif not self._store.check([key]):
                return None
        except RuntimeError as error:
            if "time" in str(error).lower():
                return None
            raise
        content: bytes = self._store.get(key)
        self._store.delete_key(key)
        return content

    def sum(self, tensor: Any) -> None:
        """Make a tensor the sum of those of all ranks, the same bits on each."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)

    def agree(self, seconds: float, signal: int | None, tokens: int) -> tuple[float, int | None, int]:
        """The leader's clock, the signal that any rank received, and the tokens that each holds: what none decides alone."""
        if self.size == 1:
            return seconds, signal, tokens
        import torch

        told = torch.tensor([seconds if self.leads else 0.0, signal or 0, -tokens], dtype=torch.float64)
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        return float(told[0]), int(told[1]) or None, -int(told[2])

    def gather(self, content: bytes) -> list[bytes]:
        """What each rank gives, by rank, on every rank."""
        if self.size == 1:
            return [content]
        import torch
        import torch.distributed as dist

        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(content)
        self.sum(sizes)
        longest = max(int(sizes.max()), 1)
        own = torch.frombuffer(bytearray(content.ljust(longest, b"\0")), dtype=torch.uint8)
        found = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, own)
        return [row[:size].numpy().tobytes() for row, size in zip(found, sizes.tolist(), strict=True)]

    def minimum(self, number: int) -> int:
        """The smallest of what the ranks have."""
        return min(int(told) for told in self.gather(str(number).encode()))

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """This rank's of some items that are dealt out in turn; `merge_shares` undoes it."""
        return items[self.rank :: self.size]


def merge_shares(shares: Sequence[Sequence[Any]]) -> list[Any]:
    """The items of all ranks' shares in the order they had."""
    found: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        found[rank :: len(shares)] = share
    return found


def is_sharded(tensor: Any) -> bool:
    """Whether FSDP has shared it out over the ranks."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Any) -> Any:
    """All of a tensor, on each rank. Every rank must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def shard_like(tensor: Any, own: Any) -> Any:
    """A whole tensor, sharded as `own` is."""
    if not is_sharded(own):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(own.to_local().device), own.device_mesh, own.placements)


def _store(world: World, timeout: timedelta) -> Any:
    """Where the ranks meet: torchrun's own store, else one of rank 0, which listens at the address of MASTER_ADDR alone."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if world.local_size == world.size:  # one machine: nothing is to be heard outside
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # which outlives a restart of the ranks
    hosts = world.leads and not of_agent
    listener = socket.create_server((address, port)).detach() if hosts else None
    store = TCPStore(address, port, world.size, hosts, timeout, wait_for_workers=False, master_listen_fd=listener)
    return PrefixStore(f"nmt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store) if of_agent else store


def _is_of_network(error: RuntimeError) -> bool:
    """Whether an error comes from the wait for another rank and not from the work itself."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or any(word in str(error).lower() for word in OF_NETWORK)
