"""An update is the same whatever it is cut into, recomputed, scaled or multiplied by; and what a device holds is found."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from gradients import NO_LIMIT, OPTIONS, VOCABULARIES, Recorder, assert_close, data_of, gradient, sentences, transformer
from torch import nn
from torch.nn import functional

from nmt.batch import Batch
from nmt.criteria.base import CriterionContext, Loss, Term
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.data.batching import micro_batches
from nmt.data.loader import Loader
from nmt.device import Memory, cgroup_headrooms
from nmt.dist import World
from nmt.errors import ResourceError, UserError
from nmt.models.rnnsearch import RnnSearch, RnnSearchOptions
from nmt.models.transformer import TransformerOptions
from nmt.nn import linear, matmul
from nmt.train import probe
from nmt.train.layer_wrapping import recompute
from nmt.train.parallel import Objective
from nmt.train.probe import find_max_tokens
from nmt.train.update import SCALE_GROWTH_UPDATES, LossScale, Updater


def objective_of(options: TransformerOptions = OPTIONS) -> Objective:
    model = transformer(options)
    return Objective(model, CrossEntropy(CrossEntropyOptions(), CriterionContext(None, model))).train()


class TooSmall(nn.Module):
    """A device that holds so many tokens: memory runs out before or behind the work, as it does in real ones."""

    def __init__(self, inner: Objective, tokens: int, behind: bool) -> None:
        super().__init__()
        self.inner, self.tokens, self.behind, self.tried = inner, tokens, behind, []

    def forward(self, batch: Batch) -> Loss:
        self.tried.append(batch.cells)
        fits = batch.cells <= self.tokens
        if not fits and not self.behind:
            raise torch.OutOfMemoryError("CUDA out of memory")
        trained, reported = self.inner(batch)
        term = trained["loss"]
        return Loss({"loss": Term(term.total if fits else _RunsOut.apply(term.total), term.count)}, reported)


class _RunsOut(torch.autograd.Function):
    """The identity, whose gradient does not fit."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")


def test_a_cut_keeps_the_rows_in_their_order_and_no_more_padding_than_they_need():
    whole = sentences(13, 9)
    parts = whole.split(20)
    assert all(part.cells <= 20 or len(part) == 1 for part in parts)
    rows = [row[row != 0].tolist() for part in parts for row in part.target]
    assert rows == [row[row != 0].tolist() for row in whole.target]
    assert all(bool((side != 0).any(0).all()) for part in parts for side in (part.source, part.target))


@pytest.mark.parametrize("behind", [False, True], ids=["forward", "backward"])
def test_where_memory_runs_out_the_update_is_made_of_smaller_batches_with_the_same_gradient(behind):
    data = data_of(sentences(12, 9), sentences(4, 5))
    whole, wanted = gradient(objective_of(), data)
    small = TooSmall(objective_of(), 40, behind)
    stats, found = gradient(small, data)
    assert_close(found, wanted, 1e-5)
    assert (
        stats.max_micro_batch_tokens == max(batch.cells for batch in data.batches) // 4
        and stats.losses.loss == pytest.approx(whole.losses.loss, rel=1e-6)
        and stats.tokens == whole.tokens
    )
    assert max(small.tried[-4:]) <= 40 < small.tried[0]
    small.tried.clear()
    gradient(small, data, stats.max_micro_batch_tokens)
    assert max(small.tried) <= 40  # what is known is not tried again


def test_what_is_drawn_depends_on_the_cut_and_not_on_what_was_tried_before():
    data = data_of(sentences(12, 9))
    wet = replace(OPTIONS, dropout=0.3)
    stats, tried = gradient(TooSmall(objective_of(wet), 40, True), data)
    _, told = gradient(objective_of(wet), data, stats.max_micro_batch_tokens)
    assert all(map(torch.equal, tried, told))


def test_a_small_batch_that_fails_does_not_make_all_smaller_than_it():
    """Others have taken the memory for a moment: half of the largest that was tried is enough."""

    class Unlucky(TooSmall):
        def forward(self, batch):
            fails = batch.cells < 30 and len(self.tried) < 3
            self.tokens = 0 if fails else 1000
            return super().forward(batch)

    stats, _ = gradient(Unlucky(objective_of(), 1000, False), data_of(sentences(12, 9), sentences(4, 5)))
    assert stats.max_micro_batch_tokens == 12 * 10 // 2


def test_a_pair_that_does_not_fit_alone_is_told():
    with pytest.raises(ResourceError, match="single pair"):
        gradient(TooSmall(objective_of(), 4, False), data_of(sentences(3, 9)))


@pytest.mark.parametrize("behind", [False, True], ids=["forward", "backward"])
def test_of_several_ranks_one_may_try_again_until_others_wait_for_its_gradient(behind):
    """With one pass left, its backward is where ranks meet; before that, memory that runs out is a rank's own affair."""
    objective = TooSmall(objective_of(), 40, behind)
    updater = Updater(objective, Recorder(objective), World(0, 2), "fp32", 0.0)
    data = data_of(sentences(12, 9))
    if behind:
        with pytest.raises(ResourceError, match="while other ranks waited"):
            updater._gradient(data, 1, NO_LIMIT, {"loss": 1.0})
    else:
        _, _, max_micro_batch_tokens = updater._gradient(data, 1, NO_LIMIT, {"loss": 1.0})
        assert max_micro_batch_tokens == 30


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    class Broken(nn.Module):
        def forward(self, batch):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    broken = Broken()
    broken.weight = nn.Parameter(torch.zeros(1))
    with pytest.raises(RuntimeError, match="mat1"):
        gradient(broken, data_of(sentences(3, 4)))


def test_layers_that_are_computed_anew_have_the_same_gradient_to_the_last_bit_and_keep_less():
    wet, data = replace(OPTIONS, dropout=0.2, attention_dropout=0.1), data_of(sentences(12, 9))
    plain, anew = objective_of(wet), objective_of(wet)
    recompute(anew.model)
    kept = {}
    for name, objective in {"plain": plain, "anew": anew}.items():
        sizes: list[int] = []

        def keep(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            objective(data.batches[0])
        kept[name] = sum(sizes)
    assert all(map(torch.equal, gradient(plain, data)[1], gradient(anew, data)[1]))
    assert kept["anew"] < kept["plain"] / 2


def test_a_model_without_layers_cannot_be_computed_anew():
    options = RnnSearchOptions(embedding_size=4, hidden_size=4, attention_size=4, maxout_size=4)
    with pytest.raises(UserError, match="--activation-checkpointing"):
        recompute(RnnSearch(options, VOCABULARIES))


def test_a_loss_scale_changes_no_bit_and_learns_from_overflow():
    data, scale = data_of(sentences(12, 9)), LossScale()
    _, plain = gradient(objective_of(), data)
    stats, scaled = gradient(objective_of(), data, scale=scale)
    assert all(map(torch.equal, plain, scaled)) and stats.applied and scale.good == 1
    scale = LossScale(factor=2.0**24)
    stats, none = gradient(objective_of(), data_of(sentences(1, 1)), scale=scale, precision="fp16")
    assert not stats.applied and none == [] and scale == LossScale(2.0**23, 0)


def test_a_loss_scale_grows_after_many_updates_and_never_stalls():
    scale = LossScale(factor=4.0)
    for _ in range(SCALE_GROWTH_UPDATES):
        scale.see(True)
    assert scale == LossScale(8.0, 0)
    for _ in range(50):
        scale.see(False)
    assert scale.factor == 1.0


def test_fp16_gradients_that_would_vanish_are_kept_by_the_scale():
    """Gradients of 2^-26 are below fp16's smallest number, 2^-24; times 2^15 they are exact."""
    weight = nn.Linear(1, 1, bias=False)

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, batch):
            output = self.weight(torch.ones(1, 1)).sum() * 2.0**-26
            return Loss({"loss": Term(output.float(), batch.num_target_tokens)})

    data = data_of(Batch(torch.tensor([[2]]), torch.tensor([[1, 2]])))
    _, lost = gradient(Tiny(), data, precision="fp16")
    _, kept = gradient(Tiny(), data, scale=LossScale(), precision="fp16")
    assert lost[0].item() == 0.0 and kept[0].item() == 2.0**-26


needs_onednn = pytest.mark.skipif(not matmul.onednn_available(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "rows"), [(24, 40, 15), (40, 24, 15), (3, 40, 60)])
def test_a_product_and_its_gradient_are_the_same_by_either_path(inputs, outputs, rows, bias):
    torch.manual_seed(1)
    layer, states = linear.Linear(inputs, outputs, bias=bias), torch.randn(3, rows // 3, inputs, requires_grad=True)
    upstream = torch.randn(3, outputs, rows // 3).transpose(1, 2)  # not contiguous
    found = {}
    for path in ("torch", "onednn"):
        with matmul.using(path):
            output = layer(states)
        leaves = [states, *layer.parameters()]
        found[path] = [output.detach(), *torch.autograd.grad(output, leaves, upstream)]
    assert_close(found["onednn"], found["torch"], 2e-6)
    assert all(gradient.is_contiguous() for gradient in found["onednn"][2:])
    assert matmul.current() == "torch"


@needs_onednn
def test_a_product_of_nothing_is_nothing_by_either_path():
    layer = linear.Linear(4, 6)
    for path in ("torch", "onednn"):
        with matmul.using(path):
            layer(torch.zeros(0, 4, requires_grad=True)).sum().backward()
        assert not layer.weight.grad.any() and not layer.bias.grad.any()


@needs_onednn
def test_a_whole_update_is_the_same_by_either_path_and_takes_the_one_asked_for(monkeypatch):
    calls, product = [], matmul._onednn
    monkeypatch.setattr(matmul, "_onednn", lambda *given: calls.append(1) or product(*given))
    data = data_of(sentences(12, 9))
    _, plain = gradient(objective_of(), data)
    assert not calls
    with matmul.using("onednn"):
        _, other = gradient(objective_of(), data)
        asked = len(calls)
        gradient(objective_of(), data, precision="bf16")  # which has products of its own
    # 3 products of each of 22 linear layers, 3 of the logits
    assert asked == len(calls) == 3 * (2 * 4 + 2 * 7) + 3
    assert_close(other, plain, 1e-5)


@needs_onednn
def test_the_faster_path_is_taken_and_never_one_of_another_precision(monkeypatch):
    def slow(*given):
        time.sleep(0.002)
        return functional.linear(*given)

    product = matmul._onednn
    monkeypatch.setattr(matmul, "linear", slow)
    path, ratio = matmul.measured(8, 16, 16)
    assert path == "onednn" and ratio > 2
    monkeypatch.setattr(matmul, "linear", functional.linear)
    monkeypatch.setattr(matmul, "_onednn", slow)
    assert matmul.measured(8, 16, 16)[0] == "torch"
    monkeypatch.setattr(matmul, "linear", slow)
    monkeypatch.setattr(matmul, "_onednn", lambda *given: product(*given).bfloat16().float())
    assert matmul.measured(8, 16, 16) == ("torch", 0.0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("path", ["torch", "onednn", "numpy"])
@pytest.mark.parametrize("rows", [3, matmul.MIN_ROWS, 2 * matmul.MIN_ROWS + 1])
def test_a_product_of_a_search_is_the_same_by_every_path_however_its_weights_lie(path, bias, rows):
    if path == "onednn" and not matmul.onednn_available():
        pytest.skip("this torch has no oneDNN")
    layer, states = linear.Linear(24, 40, bias=bias), torch.randn(rows, 24)
    plain = (states.double() @ layer.weight.double().t() + (layer.bias if bias else 0)).float()
    for transposed in (False, True):
        if transposed:
            linear.transpose_weights(layer)
            assert layer.weight.is_contiguous()  # it is trained
            linear.transpose_weights(layer.requires_grad_(False))
            assert layer.weight.t().is_contiguous()
        with torch.inference_mode(), matmul.using(path):
            for found in (layer(states), layer.prepared()(states), layer(states[None])[0]):
                assert_close([found], [plain], 2e-6)


def test_each_shape_is_multiplied_by_the_path_that_was_quickest_with_it(monkeypatch):
    def slow(*given):
        time.sleep(0.002)
        return functional.linear(*given)

    asked = []
    quick = {"torch": slow, "numpy": lambda *given: asked.append("numpy") or functional.linear(*given)}
    monkeypatch.setattr(matmul, "_IMPLEMENTATIONS", quick)
    monkeypatch.setattr(matmul, "_fastest", {})
    model, other = torch.nn.Sequential(linear.Linear(8, 16), linear.Linear(16, 16, bias=False)), linear.Linear(16, 24)
    with torch.inference_mode(), matmul.using("auto"):
        linear.choose_matmuls(model)
        assert set(matmul._fastest.values()) == {"numpy"} and len(matmul._fastest) == 2
        asked.clear()
        model(torch.randn(matmul.MIN_ROWS, 8))
        assert asked == ["numpy", "numpy"]
        model(torch.randn(matmul.MIN_ROWS - 1, 8))  # too few rows
        other(torch.randn(matmul.MIN_ROWS, 16))  # a shape that was not measured
        assert asked == ["numpy", "numpy"]
    monkeypatch.setattr(matmul, "_fastest", {})
    monkeypatch.setitem(quick, "numpy", lambda *given: functional.linear(*given).bfloat16().float())
    with matmul.using("auto"):
        linear.choose_matmuls(model)
    assert set(matmul._fastest.values()) == {"torch"}  # slower, but float32


class Lengths:
    """A corpus of which only the lengths are asked."""

    def __init__(self, source, target) -> None:
        self.source_lengths, self.target_lengths = source, target

    def __len__(self) -> int:
        return len(self.source_lengths)


def loader(batch_tokens: int) -> Loader:
    chance = np.random.default_rng(1)
    return Loader(Lengths(*chance.integers(1, 60, (2, 3000)).astype(np.uint16)), batch_tokens, 1, seed=1)


@pytest.mark.parametrize("batch_tokens", [100, 5000])
def test_the_largest_micro_batch_is_that_of_the_plan(batch_tokens):
    made = loader(batch_tokens)
    lengths = made.corpus.source_lengths, made.corpus.target_lengths
    groups = [plan.update(i) for plan in made._plans(1, 0) for i in range(len(plan))]
    uncut = [indices for update in groups for indices in micro_batches(update, *lengths, NO_LIMIT)]
    cells = [len(indices) * (1 + max(int(side[indices].max()) for side in lengths)) for indices in uncut]
    assert made.largest_micro_batch() == max(cells)
    assert made.longest() == 60


@pytest.mark.parametrize(("max_micro_batch_tokens", "found"), [(10**6, None), (1100, 1024), (600, 512)])
def test_max_tokens_auto_is_the_largest_of_the_plan_or_the_largest_that_fits(max_micro_batch_tokens, found):
    made = loader(5000)
    small = TooSmall(objective_of(), max_micro_batch_tokens, True)
    wanted = found or made.largest_micro_batch()
    assert find_max_tokens(small, made.longest(), made.largest_micro_batch(), "fp32", World()) == wanted
    assert all(parameter.grad is None for parameter in small.parameters())


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
    assert find_max_tokens(small, made.longest(), made.largest_micro_batch(), "fp32", World()) == pytest.approx(
        found, rel=0.2
    )
    assert sum(small.tried) <= 3.1 * free / 1000  # nothing was tried that does not fit


V2, V1 = ("max", "current"), ("limit_in_bytes", "usage_in_bytes")
CACHED = "anon 1\ninactive_file 500\nactive_file 100\n"


@pytest.mark.parametrize(
    ("line", "groups", "left"),
    [
        ("0::/a/b", {"a/b": (V2, "max", "7"), "a": (V2, "1000", "600")}, 400),
        ("0::/a", {"a": (V2, "1000", "900", CACHED)}, 700),
        ("4:memory:/x", {"memory/x": (V1, "1000", "100")}, 900),
        ("4:memory:/outside", {"memory": (V1, "1000", "300")}, 700),
        ("0::/", {}, None),
    ],
    ids=["v2, a group above", "v2, cached files", "v1", "v1, in a container", "none"],
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
