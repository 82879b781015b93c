"""What every criterion promises: a registered criterion is tested here without being named."""

from dataclasses import replace
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from gradients import PIPELINE, assert_close, data_of, gradient, save_teacher, sentences, transformer
from torch.nn import functional

from nmt import registry
from nmt.batch import Batch, Column
from nmt.columns.base import column_kind
from nmt.criteria.base import CriterionContext
from nmt.dist import World
from nmt.rows import Rows
from nmt.symbols import PAD
from nmt.train.parallel import Objective

ALL = registry.names("criterion")
SMALL = {"reward": {"decoder.n_best": 5, "decoder.max_len_b": 4}}  # a quicker choice of options


@pytest.fixture(scope="module", autouse=True)
def teacher(tmp_path_factory):
    """A model for criteria that learn from one."""
    save_teacher(folder := tmp_path_factory.mktemp("teacher") / "model")
    SMALL["distillation"] = {"teacher": (str(folder),)}


def objective_of(name: str) -> Objective:
    """A criterion with its default options, but for `SMALL`, over a small model."""
    model = transformer()
    part = registry.choose("criterion", name, SMALL.get(name, {}))
    return Objective(model, registry.build(part, CriterionContext(PIPELINE, model))).train()


def numbers(terms) -> dict[str, float]:
    totals = {f"{name}.total": term.total.item() for name, term in terms.items()}
    return totals | {f"{name}.count": term.count.item() for name, term in terms.items()}


@pytest.fixture
def batch() -> Batch:
    """Rows of different lengths, with links of most target tokens for criteria that read them."""
    torch.manual_seed(5)
    rows = sentences(12, 9)
    lengths = [(source != PAD).sum().item() for source in rows.source]
    links = [[[i * 7 % length, i] for i in range(length) if i % 4 != 2] for length in lengths]
    arrays = [np.array(row, np.int64).reshape(-1, 2) for row in links]
    flat = np.concatenate(arrays), np.array([len(row) for row in arrays])
    return replace(
        rows, columns={"alignment": Column(torch.from_numpy(column_kind("links").of_batch(Rows(*flat))), "links")}
    )


@pytest.mark.parametrize("name", ALL)
def test_padding_changes_no_part_of_the_loss(name, batch):
    objective = objective_of(name)
    sides = (functional.pad(side, (0, 3), value=PAD) for side in (batch.source, batch.target))
    padded = Batch(*sides, batch.columns)
    for one, other in zip(objective(batch), objective(padded), strict=True):
        assert numbers(one) == pytest.approx(numbers(other), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_the_parts_of_a_batch_are_the_sums_of_those_of_its_rows(name, batch):
    objective = objective_of(name)
    rows = [objective(batch.rows(slice(i, i + 1))) for i in range(len(batch))]
    for i, whole in enumerate(objective(batch)):
        sums = {key: sum(numbers(row[i])[key] for row in rows) for key in numbers(whole)}
        assert numbers(whole) == pytest.approx(sums, rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_the_counts_of_a_batch_are_those_of_its_trained_parts(name, batch):
    objective = objective_of(name)
    counts = {name: float(count) for name, count in objective.criterion.counts(batch).items()}
    assert counts == {name: float(term.count) for name, term in objective(batch).trained.items()}


@pytest.mark.parametrize("max_tokens", [90, 40, 1])
@pytest.mark.parametrize("name", ALL)
def test_any_split_into_micro_batches_gives_the_same_gradient(name, max_tokens, batch):
    whole, wanted = gradient(objective_of(name), data_of(batch))
    assert wanted and any(bool(tensor.any()) for tensor in wanted)
    parts = batch.split(max_tokens)
    assert len(parts) > 1
    cut, found = gradient(objective_of(name), data_of(*parts))
    assert_close(found, wanted, 1e-5)
    assert cut.losses.means() == pytest.approx(whole.losses.means(), rel=1e-5)


class Rank(World):
    """One of two ranks that are threads of this process, without an engine that averages their gradients."""

    def __init__(self, rank: int, sums: list[torch.Tensor | None], barrier: Barrier) -> None:
        super().__init__(rank, 2)
        self.sums, self.barrier = sums, barrier

    def sum(self, tensor: torch.Tensor) -> None:
        self.sums[self.rank] = tensor.clone()
        self.barrier.wait(60)
        tensor.copy_(self.sums[0] + self.sums[1])
        self.barrier.wait(60)


@pytest.mark.parametrize("name", ALL)
def test_two_ranks_with_unequal_shares_make_the_same_update_as_one(name, batch):
    whole, wanted = gradient(objective_of(name), data_of(batch))
    first, second = batch.rows(slice(0, 3)), batch.rows(slice(3, 12))
    shares = [
        data_of(first, first.rows(slice(0, 1)), idle=1, tokens=whole.tokens),
        data_of(*second.split(second.cells // 2), tokens=whole.tokens),
    ]
    sums, barrier, found = [None, None], Barrier(2), {}
    objectives = [objective_of(name) for _ in range(2)]  # not in the threads, which share one generator

    def update(rank: int) -> None:
        found[rank] = gradient(objectives[rank], shares[rank], world=Rank(rank, sums, barrier))

    ranks = [Thread(target=update, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    mean = [(one + other) / 2 for one, other in zip(found[0][1], found[1][1], strict=True)]
    assert_close(mean, wanted, 1e-5)
    for stats, _ in found.values():
        assert stats.losses.means() == pytest.approx(whole.losses.means(), rel=1e-5)
