"""Print how the simulated devices react to each fault that they must detect: a JSON object by fault, on stdout."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
import guard

guard.load()

import torch  # noqa: E402 - after the guard
from device import simulated, world  # noqa: E402


def outcome(work: Callable[[], Any]) -> Any:
    """The result of a function, and how often it waited for the device; or its error."""
    before = world.waits.total()
    try:
        result = work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    waits = world.waits.total() - before
    return [result.content.tolist() if hasattr(result, "content") else result, waits]


def of_another_stream(is_waited_for: bool) -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        made = torch.ones(2, device="cuda") + 1
    if is_waited_for:
        torch.cuda.current_stream().wait_stream(stream)
    return made + 1


def copy_to_host(is_waited_for: bool) -> list[float]:
    copied = torch.ones(2, device="cuda").to("cpu", non_blocking=True)
    if is_waited_for:
        torch.cuda.synchronize()
    return [float(number) for number in copied.numpy()]


def captured(work: Callable[[Any], Any]) -> Any:
    """The results of a captured function of two numbers: during capture, and replayed for two more pairs of numbers."""
    numbers, graph = torch.tensor([1.0, 2.0], device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work(numbers)
    found = [result.tolist()]
    for number in (3.0, 5.0):
        numbers.fill_(number)
        graph.replay()
        found.append(result.tolist())
    return found


def fill(num_bytes: int) -> str:
    world.memory_limit = 1000
    try:
        torch.zeros(num_bytes, dtype=torch.uint8, device="cuda")
        return "fits"
    finally:
        world.memory_limit = 1 << 30


def main() -> None:
    with simulated():
        numbers, mask = torch.tensor([1.0, 2.0], device="cuda"), torch.tensor([True, False], device="cuda")
        other, host = torch.ones(2, device="cuda:1"), torch.ones(2)
        cases: dict[str, Callable[[], Any]] = {
            "sum of two devices": lambda: numbers + other,
            "sum with the CPU": lambda: numbers + host,
            "sum with a number of the CPU": lambda: numbers + torch.tensor(1.0),
            "indices of the CPU": lambda: numbers[torch.tensor([1])],
            "copy between devices": lambda: numbers.to("cuda:1") + other,
            "numpy": lambda: numbers.numpy(),
            "stream not waited for": lambda: of_another_stream(False),
            "stream waited for": lambda: of_another_stream(True),
            "copy not waited for": lambda: copy_to_host(False),
            "copy waited for": lambda: copy_to_host(True),
            "product": lambda: numbers @ numbers,
            "item": lambda: numbers.sum().item(),
            "tolist": lambda: numbers.tolist(),
            "truth": lambda: bool(mask.any()),
            "mask": lambda: numbers[mask],
            "nonzero": lambda: mask.nonzero(),
            "cpu": lambda: numbers.cpu().tolist(),
            "captured": lambda: captured(lambda x: (x * 2).add_(1)),
            "captured writes": lambda: captured(lambda x: x.mul_(2)),
            "captured wait": lambda: captured(lambda x: x * x.sum().item()),
            "captured copy": lambda: captured(lambda x: x + torch.ones(2).to("cuda")),
            "memory that is there": lambda: fill(900),
            "memory that was freed": lambda: [fill(900), fill(900)],
            "memory that is not there": lambda: fill(2000),
        }
        print(json.dumps({name: outcome(work) for name, work in cases.items()}))


if __name__ == "__main__":
    main()
