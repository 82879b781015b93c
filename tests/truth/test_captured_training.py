"""Batches padded to the sizes of graphs give the same losses and gradients; tests/whole/test_simulated_gpu.py replays graphs."""

import pytest
import torch
from gradients import OPTIONS, PIPELINE, assert_close, data_of, gradient, sentences, transformer
from refusals import assert_refused

from nmt.batch import Batch, Column
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy
from nmt.criteria.options import CrossEntropyOptions
from nmt.extensions.fast.training_speedups.capture import LENGTH_MULTIPLE, padded, rounded_rows, sizes
from nmt.extensions.methods.columns.links import NO_LINK
from nmt.extensions.methods.criteria.options import RDropOptions
from nmt.extensions.methods.criteria.r_drop import RDrop
from nmt.train.parallel import Objective


def objective(criterion, options):
    model = transformer(OPTIONS)
    return Objective(model, criterion(options, CriterionContext(PIPELINE, model))).train()


@pytest.mark.parametrize(
    ("criterion", "options"),
    [(CrossEntropy, CrossEntropyOptions(loss_weights="weight")), (RDrop, RDropOptions(loss_weights="token"))],
)
def test_a_padded_batch_has_the_same_gradient(criterion, options):
    batch = sentences(5, 9)
    tokens = (torch.rand(batch.target_output.shape) + 0.5) * (batch.target_output != 0)
    columns = {"weight": Column(torch.rand(5), "pair"), "token": Column(tokens, "target")}
    batch = Batch(batch.source, batch.target, columns, batch.target_input.clone())
    larger = padded(batch)
    assert sizes(larger) != sizes(batch) and larger.num_target_tokens == batch.num_target_tokens
    (plain, wanted), (ours, found) = (
        gradient(objective(criterion, options), data_of(each)) for each in (batch, larger)
    )
    assert ours.losses.totals == pytest.approx(plain.losses.totals, rel=1e-6)
    assert_close(found, wanted, 1e-5)


def test_padding_a_batch_moves_no_link():
    links = torch.tensor([[[0, 0], [2, 1]], [[1, 1], [NO_LINK, NO_LINK]]])
    batch = sentences(2, 3)
    larger = padded(Batch(batch.source, batch.target, {"links": Column(links, "links")}))
    found = larger["links"]
    assert found[:2, :2].tolist() == links.tolist() and len(found) == len(larger)
    assert (found[:2, 2:] == NO_LINK).all() and (found[2:] == NO_LINK).all()


@pytest.mark.parametrize("rows", [1, 8, 9, 130, 301, 4000])
def test_sizes_are_rounded_up_to_the_grid(rows):
    more = rounded_rows(rows)
    assert rows <= more <= max(rows + 7, rows * 9 / 8) and rounded_rows(more) == more
    batch = padded(sentences(3, 10))
    assert sizes(padded(batch)) == sizes(batch)
    assert batch.source.shape[1] % LENGTH_MULTIPLE == (batch.target.shape[1] - 1) % LENGTH_MULTIPLE == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--capture needs a GPU for its CUDA graphs, not cpu (drop --capture)"),
        (["--compile"], "--capture and --compile cannot be combined"),
    ],
)
def test_models_that_cannot_be_captured_are_reported(flags, message, data, tmp_path, call):
    told = call(
        "train", f"--data={data}", f"--output={tmp_path / 'run'}", "--device=cpu", "--d-model=16", "--capture", *flags
    )
    assert_refused(told, 2, message)
