"""The largest micro-batch that a device holds, and the memory that is free."""

import numpy as np
import pytest
import torch
from gradients import NO_LIMIT, Counting, TooSmall, objective_of
from plans import plan_of

from nmt.data.batching import micro_batches
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.device import Memory, cgroup_headrooms
from nmt.dist import World
from nmt.train import probe
from nmt.train.probe import find_max_tokens


class Lengths:
    """A corpus that has only lengths."""

    def __init__(self, source, target) -> None:
        self.source_lengths, self.target_lengths, self.columns = source, target, {}

    def __len__(self) -> int:
        return len(self.source_lengths)


def loader(batch_tokens: int) -> Loader:
    chance = np.random.default_rng(1)
    return Loader(plan_of(Lengths(*chance.integers(1, 60, (2, 3000)).astype(np.uint16)), batch_tokens, 1), 1)


@pytest.mark.parametrize("batch_tokens", [100, 5000])
def test_the_largest_micro_batch_equals_the_largest_of_the_plan(batch_tokens):
    made = loader(batch_tokens)
    lengths = made.corpus.source_lengths, made.corpus.target_lengths
    plan = made.plan.part(Position())  # of all pairs, which are one part
    groups = [plan.update(i) for i in range(len(plan))]
    largest = made.largest_micro_batch()
    cut = [indices for update in groups for indices in micro_batches(update, *lengths, largest)]
    cells = [len(indices) * (1 + max(int(side[indices].max()) for side in lengths)) for indices in cut]
    assert largest == max(cells)
    uncut = [indices for update in groups for group in update for indices in micro_batches([group], *lengths, NO_LIMIT)]
    assert len(uncut) == sum(map(len, groups)) and largest == max(
        len(indices) * (1 + max(int(side[indices].max()) for side in lengths)) for indices in uncut
    )
    assert made.longest() == 60


@pytest.mark.parametrize(("max_micro_batch_tokens", "found"), [(10**6, None), (1100, 1024), (600, 512)])
def test_max_tokens_auto_is_the_largest_of_the_plan_or_the_largest_that_fits(max_micro_batch_tokens, found):
    made = loader(5000)
    small = Counting(objective_of(), max_micro_batch_tokens, True)
    wanted = found or made.largest_micro_batch()
    assert find_max_tokens(small, made, made.largest_micro_batch(), "fp32", World()) == wanted
    assert all(parameter.grad is None for parameter in small.parameters()) and small.passes == 0


@pytest.mark.parametrize(("free", "found"), [(1_000_000, 512), (1_900_000, 1024), (4_000_000, 2048)])
def test_the_trial_stops_where_twice_as_many_tokens_would_not_fit(free, found, monkeypatch):
    """A device on which a token takes 1,000 bytes; an optimizer's numbers and a fifth of the memory are left alone."""
    made, objective = loader(20_000), objective_of()
    small = TooSmall(objective, NO_LIMIT, False)
    weights = sum(weight.numel() for weight in objective.parameters())

    class Told(Memory):
        def peak(self) -> int:
            return 10**9 + (1000 * small.tried[-1] if small.tried else 0)

        def free(self) -> int:
            return int((free + 2 * 4 * weights) / 0.8) + 1

    monkeypatch.setattr(probe, "Memory", Told)
    assert find_max_tokens(small, made, made.largest_micro_batch(), "fp32", World()) == pytest.approx(found, rel=0.2)
    assert sum(small.tried) <= 3.1 * free / 1000  # nothing too large was tried


V2, V1 = ("max", "current"), ("limit_in_bytes", "usage_in_bytes")
CACHED = "anon 1\ninactive_file 500\nactive_file 100\n"


@pytest.mark.parametrize(
    ("line", "groups", "left"),
    [
        ("0::/a/b", {"a/b": (V2, "max", "7"), "a": (V2, "1000", "600")}, 400),
        ("0::/a", {"a": (V2, "1000", "900", CACHED)}, 700),
        ("4:memory:/x", {"memory/x": (V1, "1000", "100")}, 900),
        ("4:hugetlb,memory:/x", {"memory/x": (V1, "1000", "100")}, 900),
        ("4:memory:/outside", {"memory": (V1, "1000", "300")}, 700),
        ("0::/", {}, None),
    ],
    ids=["v2, a group above", "v2, cached files", "v1", "v1, with another", "v1, in a container", "none"],
)
def test_the_limit_of_a_control_group_bounds_what_is_free(line, groups, left, tmp_path):
    for name, (names, *texts) in groups.items():
        folder = tmp_path / "mounted" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip((*names, "stat"), texts, strict=False):
            (folder / f"memory.{file}").write_text(text)
    (tmp_path / "cgroup").write_text(f"{line}\n")
    assert min(cgroup_headrooms(tmp_path / "cgroup", tmp_path / "mounted"), default=None) == left


def test_memory_is_watched(monkeypatch):
    memory = Memory(torch.device("cpu"))
    memory.watch()
    before = memory.peak()
    block = torch.ones(50_000_000)
    assert memory.peak() - before > 150_000_000
    del block
    assert 0 < memory.free() < 1 << 50
