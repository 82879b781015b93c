"""Estimate the share of an update that many devices spend on communication, from message sizes and link speeds.

    python benchmarks/scaling.py [--tflops 300] [--batch-tokens 25000]

An update of B tokens over n devices computes B / n tokens on each: t = FLOPs / (n x sustained FLOP/s). Then all
gradients are summed (DDP): 4 bytes per weight; in a ring, 2 (n - 1) / n of them pass each link, in 2 (n - 1) steps of
one latency each. With more than one machine of 8 devices there are 8 rings, each over a separate network card, with
an eighth of the bytes. DDP sends during the backward pass, two thirds of t, except for the last bucket (25 MB): the
update waits for the rest. --check compares the formula with this machine: it measures one process, the rate of a sum
over two, and then two processes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import torch

from nmt import registry
from nmt.models.base import Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.options import make

NMT = [sys.executable, "-m", "nmt"]
SYSTEMS: Final = ("transformer-base", "transformer-big")
VOCABULARY: Final = 37_000
LENGTH: Final = 28  # tokens on each side of a pair, including EOS
BUCKET: Final = 25e6  # bytes per DDP message
MACHINE: Final = 8  # devices per machine, connected by the fast link


class Link(NamedTuple):
    """A connection. rate: bytes per second of one device; latency: seconds per step"""

    rate: float
    latency: float


def system(preset: str) -> tuple[int, float]:
    """(weights, training FLOPs per target token) of a preset."""
    options = make(TransformerOptions, registry.find_preset(preset).values)
    with torch.device("meta"):
        model = Transformer(options, Vocabularies(VOCABULARY, VOCABULARY, True))
    return model.num_parameters(), model.training_flops(torch.tensor([LENGTH]), torch.tensor([LENGTH])) / LENGTH


def sum_seconds(size: float, devices: int, link: Link) -> float:
    """Seconds for summing `size` bytes in a ring."""
    return 0.0 if devices == 1 else 2 * (devices - 1) * (size / devices / link.rate + link.latency)


def update_seconds(compute: float, size: float, devices: int, link: Link) -> tuple[float, float]:
    """(seconds per update, seconds of waiting in it). compute: seconds of one device's share; size: bytes of gradients"""
    talk = sum_seconds(size, devices, link)
    hidden = min(talk * (1 - min(BUCKET / size, 1.0)), compute * 2 / 3)
    return compute + talk - hidden, talk - hidden


def table(given: argparse.Namespace) -> None:
    inside = Link(given.nvlink * 1e9, given.latency * 1e-6)
    between = Link(min(given.nvlink, MACHINE * given.network) * 1e9, given.latency * 1e-6)
    print(
        f"{given.batch_tokens:,} tokens an update, {given.tflops:g} TFLOP/s sustained, {given.nvlink:g} GB/s inside a machine of "
        f"{MACHINE}, {given.network:g} GB/s a device between machines, {given.latency:g} us a step\n"
    )
    print(
        "| system | devices | compute, ms | sum of gradients, ms | waited for, ms | share | times one device |\n"
        + "|---" * 7
        + "|"
    )
    for name in SYSTEMS:
        weights, flops = system(name)
        alone = given.batch_tokens * flops / (given.tflops * 1e12)
        for devices in (1, 2, 4, 8, 16, 32, 64):
            link = inside if devices <= MACHINE else between
            took, waited = update_seconds(alone / devices, 4.0 * weights, devices, link)
            talk = sum_seconds(4.0 * weights, devices, link)
            milliseconds = " | ".join(f"{1e3 * seconds:.2f}" for seconds in (alone / devices, talk, waited))
            print(f"| {name} | {devices} | {milliseconds} | {waited / took:.0%} | {alone / took:.1f} |")


RATE = """
import sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
numbers, best = torch.zeros(int(sys.argv[3])), float("inf")
for _ in range(7):
    began = time.perf_counter()
    dist.all_reduce(numbers)
    best = min(best, time.perf_counter() - began)
if sys.argv[2] == "0":
    print(best)
"""


def check(given: argparse.Namespace) -> None:
    """Compare the formula with two processes on this machine, with one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [*NMT, "train", f"--data={given.check}", f"--output={folder}/run", "--dry-run", "--json", "--quiet"]
        asked += [f"--batch-tokens={given.batch_tokens}", "--threads=1", *given.flags]
        told = [json.loads(subprocess.check_output([*asked, f"--devices={n}"])) for n in (1, 2) * given.rounds]
        weights = told[0]["parameters"]
        sides = [
            subprocess.Popen(
                [sys.executable, "-c", RATE, f"{folder}/meet", str(rank), str(weights)], stdout=subprocess.PIPE
            )
            for rank in range(2)
        ]
        seconds = float(sides[0].communicate()[0])
        sides[1].wait()
    one, two = (min(row["seconds"] for row in told if row["ranks"] == n) for n in (1, 2))
    # a ring of two devices sends 2 x (2 - 1) / 2 of the bytes
    took, waited = update_seconds(one / 2, 4.0 * weights, 2, Link(4.0 * weights / seconds, 0.0))
    print(f"\none process {one:.3f} s per update, a sum of {4e-6 * weights:.0f} MB over two {seconds:.3f} s")
    print(
        f"two processes: foreseen {took:.3f} s ({waited:.3f} waited for), measured {two:.3f} s: {two / took:.2f} times"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch-tokens", type=int, default=25_000)
    parser.add_argument("--tflops", type=float, default=300.0, help="sustained TFLOP/s of one device (%(default)s)")
    parser.add_argument("--nvlink", type=float, default=450.0, help="GB/s per device within a machine (%(default)s)")
    parser.add_argument(
        "--network", type=float, default=50.0, help="GB/s per device between machines (%(default)s: 400 Gbit/s)"
    )
    parser.add_argument("--latency", type=float, default=10.0, help="microseconds per step (%(default)s)")
    parser.add_argument(
        "--check", type=Path, metavar="DATA", help="compare the formula with this machine on prepared data"
    )
    parser.add_argument("--rounds", type=int, default=2)
    given, given.flags = parser.parse_known_args()
    if given.check:
        check(given)
    else:
        table(given)


if __name__ == "__main__":
    main()
