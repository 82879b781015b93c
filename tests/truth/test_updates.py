"""An update is the same however it is split, recomputed or scaled."""

from dataclasses import replace

import pytest
import torch
from gradients import (
    NO_LIMIT,
    OPTIONS,
    VOCABULARIES,
    Counting,
    Recorder,
    TooSmall,
    assert_close,
    data_of,
    gradient,
    objective_of,
    sentences,
)
from torch import nn

from nmt.batch import Batch
from nmt.criteria.base import Loss, Term
from nmt.dist import World
from nmt.errors import ResourceError, UserError
from nmt.extensions.fast.training_speedups.compile import compile_layers
from nmt.extensions.fast.training_speedups.recompute import recompute
from nmt.extensions.zoo.models.rnnsearch import RnnSearch, RnnSearchOptions
from nmt.train.parallel import layers_of
from nmt.train.update import SCALE_GROWTH_UPDATES, LossScale, Updater, flattened


def test_splitting_keeps_the_order_of_rows_and_only_the_padding_they_need():
    whole = sentences(13, 9)
    parts = whole.split(20)
    assert all(part.cells <= 20 or len(part) == 1 for part in parts)
    rows = [row[row != 0].tolist() for part in parts for row in part.target]
    assert rows == [row[row != 0].tolist() for row in whole.target]
    assert all(bool((side != 0).any(0).all()) for part in parts for side in (part.source, part.target))


@pytest.mark.parametrize("behind", [False, True], ids=["forward", "backward"])
def test_when_memory_runs_out_smaller_batches_give_the_same_gradient(behind):
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
    assert max(small.tried) <= 40  # known sizes are not tried again


def test_the_tokens_of_both_sides_are_counted_without_and_with_padding():
    stats, _ = gradient(objective_of(), data_of(sentences(12, 9), sentences(4, 5)))
    words = sum(max(1, longest * (rows - i) // rows) for rows, longest in ((12, 9), (4, 5)) for i in range(rows))
    assert stats.real == 2 * (words + 12 + 4)  # EOS is read and predicted
    assert stats.cells == 2 * (12 * 10 + 4 * 6)


@pytest.mark.parametrize("behind", [False, True])
def test_repeated_passes_leave_nothing_in_the_buffers(behind):
    data, counting = data_of(sentences(12, 9), sentences(4, 5)), Counting(objective_of(), 40, behind)
    stats, _ = gradient(counting, data)
    passes = sum(len(batch.split(stats.max_micro_batch_tokens)) for batch in data.batches)
    assert counting.passes == passes < len(counting.tried)


def test_random_draws_depend_on_the_split_and_not_on_failed_attempts():
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


def test_a_long_pair_that_fits_does_not_keep_smaller_batches_whole():
    """Half of a pair that cannot be cut would be more than the batch that fails, over and over."""

    class Taken(TooSmall):
        def forward(self, batch):
            assert len(self.tried) < 40
            self.tokens = 0 if len(batch) > 1 and self.tried else 1000
            return super().forward(batch)

    objective = Taken(objective_of(), 1000, False)
    stats, _ = gradient(objective, data_of(sentences(1, 40), sentences(2, 9)))
    assert stats.max_micro_batch_tokens == 10 and objective.tried == [41, 20, 41, 10, 5]  # the second is shorter


def test_graphs_are_abandoned_once_per_update():
    """Passes captured again at each try would free memory each time, and no batch would be split."""

    class Captured:
        def __init__(self, objective):
            self.objective, self.tried = objective, []

        def __call__(self, batch, factors):
            self.tried.append(batch.cells)
            assert len(self.tried) < 40
            if batch.cells > 60:
                raise torch.OutOfMemoryError("CUDA out of memory")
            loss = self.objective(batch)
            loss.trained["loss"].total.backward()
            return flattened(loss)

        def gave_memory_back(self):
            return True

    objective = objective_of()
    captured = Captured(objective)
    updater = replace(Updater(objective, Recorder(objective), World(0, 1), "fp32", 0.0), passes=captured)
    _, _, limit = updater._gradient(data_of(sentences(4, 9), sentences(12, 9)), 1, NO_LIMIT, {"loss": 1.0})
    assert limit == 60 and captured.tried == [40, 120, 40, 120, 40, 60, 30]


def test_a_pair_that_does_not_fit_alone_is_reported():
    with pytest.raises(ResourceError, match="single pair"):
        gradient(TooSmall(objective_of(), 4, False), data_of(sentences(3, 9)))


@pytest.mark.parametrize("behind", [False, True], ids=["forward", "backward"])
def test_a_rank_may_retry_until_the_others_wait_for_its_gradient(behind):
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


@pytest.mark.parametrize("groups", [1, 2])
def test_without_noise_any_split_gives_the_same_update_and_importance_loss_only_grows(groups):
    """Evaluation mode has no noise; the importance loss is a convex function of the means of a micro-batch."""
    options = replace(OPTIONS, ffn="moe", expert_every=1, expert_groups=groups, importance_weight=0.0, load_weight=0.0)
    batch = sentences(12, 9)

    def updated(weight, *batches):
        objective = objective_of(replace(options, importance_weight=weight, active_experts=1 if groups == 1 else 2))
        generator = torch.Generator().manual_seed(3)
        for name, parameter in objective.named_parameters():
            if "gate.weight" in name:
                parameter.data.normal_(generator=generator)
        return gradient(objective.eval(), data_of(*batches))

    whole, wanted = updated(0.0, batch)
    cut, found = updated(0.0, *batch.split(20))
    assert_close(found, wanted, 1e-5)
    assert cut.losses.loss == pytest.approx(whole.losses.loss, rel=1e-6)
    (whole, _), (cut, _) = updated(1.0, batch), updated(1.0, *batch.split(20))
    assert cut.losses.mean("loss") == pytest.approx(whole.losses.mean("loss"), rel=1e-6)
    assert 0 < whole.losses.mean("importance_loss") < cut.losses.mean("importance_loss")


def test_recomputed_layers_have_bit_identical_gradients_and_keep_less():
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


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own compiler looks at it
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # slower, but right
def test_recomputed_layers_can_be_compiled():
    data = data_of(sentences(12, 9))
    plain, compiled = objective_of(OPTIONS), objective_of(OPTIONS)
    recompute(compiled.model)
    for layer in layers_of(compiled.model):
        layer.compile(backend="aot_eager")
    assert_close(gradient(compiled, data)[1], gradient(plain, data)[1], 1e-5)


def test_a_recurrence_is_not_compiled():
    with pytest.raises(UserError, match="--compile does not support recurrent"):
        compile_layers(objective_of(replace(OPTIONS, decoder_autoregression="ssru")).model)


def test_a_model_without_layers_cannot_be_recomputed():
    options = RnnSearchOptions(embedding_size=4, hidden_size=4, attention_size=4, maxout_size=4)
    with pytest.raises(UserError, match="--activation-checkpointing"):
        recompute(RnnSearch(options, VOCABULARIES))


def test_a_loss_scale_changes_no_bit_and_learns_from_overflow():
    data, scale = data_of(sentences(12, 9)), LossScale()
    _, plain = gradient(objective_of(), data)
    stats, scaled = gradient(objective_of(), data, scale=scale)
    assert all(map(torch.equal, plain, scaled)) and stats.applied and scale.good == 1
    assert stats.gradient_norm == gradient(objective_of(), data)[0].gradient_norm
    clipped, scaled = (gradient(objective_of(), data, scale=one, clip_norm=0.01)[1] for one in (None, LossScale()))
    assert all(map(torch.equal, clipped, scaled)) and not torch.equal(clipped[0], plain[0])
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
