"""Word-level distillation against its definition in float64, and its faults."""

import math
from dataclasses import replace
from functools import partial
from weakref import ref

import numpy as np
import pytest
import torch
from gradients import PIPELINE, save_teacher, sentences
from noises import word_dropout

from nmt import UserError
from nmt.batch import Column
from nmt.checkpoint import load_model
from nmt.criteria.base import CriterionContext
from nmt.criteria.chunks import sums_of_logits
from nmt.extensions.methods.criteria import distillation
from nmt.extensions.methods.criteria.distillation import Distillation
from nmt.extensions.methods.criteria.options import DistillationOptions
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import PAD
from nmt.text.pipeline import Pipeline, Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

N, D, V = 9, 6, 20


def criterion(*teachers, **options):
    given = DistillationOptions(teacher=tuple(map(str, teachers)), **options)
    return Distillation(given, CriterionContext(PIPELINE, None))


def test_an_8_bit_teacher_works_only_on_a_cpu(tmp_path, monkeypatch):
    teacher = tmp_path / "teacher"
    save_teacher(teacher)
    monkeypatch.setattr(distillation, "load_model", lambda *given: of_8_bits(load_model(*given)))
    criterion(teacher)
    given = DistillationOptions(teacher=(str(teacher),))
    with pytest.raises(UserError, match="8-bit weights work only on CPUs"):
        Distillation(given, CriterionContext(PIPELINE, torch.nn.Linear(1, 1, device="meta")))


def test_the_teacher_reads_the_batch_without_noise(tmp_path):
    save_teacher(tmp_path / "teacher")
    loss, plain = criterion(tmp_path / "teacher"), sentences(4, 6)
    noisy = word_dropout(0.5, 0.5).read(plain, np.arange(4), 1)
    assert not torch.equal(noisy.source, plain.source) and not torch.equal(noisy.target_input, plain.target_input)
    rows = slice(0, plain.target_output.numel())
    torch.testing.assert_close(loss._teacher(noisy)(rows), loss._teacher(plain)(rows), rtol=0, atol=0)


def of_8_bits(loaded):
    return replace(loaded, facts=replace(loaded.facts, weights="int8"))


def by_definition(logits, targets, wanted, eps, weight, temperature):
    """(1 - w) cross entropy + w T^2 sum_k q_k log(q_k / p_k) over logits (N, V)."""
    total = 0.0
    for row, gold, q in zip(logits.double(), targets.tolist(), wanted.double(), strict=True):
        if gold == PAD:
            continue
        smoothed = torch.full((len(row),), eps / (len(row) - 1), dtype=torch.float64)
        smoothed[gold] = 1 - eps
        p = (row / temperature).softmax(0)
        divergence = (q * (q / p).log()).sum()
        total = total - (1 - weight) * (smoothed * row.log_softmax(0)).sum() + weight * temperature**2 * divergence
    return total


@pytest.mark.parametrize(("bias", "limit"), [(True, math.inf), (False, math.inf), (True, 0.8)])
@pytest.mark.parametrize(("weight", "temperature"), [(0.0, 1.0), (0.3, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize(("rows", "z_loss"), [(2, 0.0), (100, 0.1)])
def test_loss_and_gradient_follow_the_definition(bias, limit, weight, temperature, rows, z_loss, tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.criteria.chunks.chunk_rows", lambda *_: rows)
    save_teacher(tmp_path / "teacher")
    torch.manual_seed(1)
    linear, features = Linear(D, V, bias=bias), torch.randn(N, D, requires_grad=True)
    output = ClippedLinear(linear, limit)
    targets = torch.randint(4, V, (N,))
    targets[3] = PAD
    wanted = torch.randn(N, V).softmax(-1)
    options = {"label_smoothing": 0.1, "teacher_weight": weight, "temperature": temperature, "z_loss": z_loss}
    loss = criterion(tmp_path / "teacher", **options)
    tensors = [features, *output.parameters()]
    expected = by_definition(output(features), targets, wanted, 0.1, weight, temperature)
    squares = output(features).double().logsumexp(-1) ** 2
    expected = expected + (1 - weight) * z_loss * squares[targets != PAD].sum()
    given = targets, (targets != PAD).float(), torch.arange(N)
    sums = sums_of_logits(partial(loss.of_taught, wanted.__getitem__), output, [features], *given)
    assert sums[0].item() == pytest.approx(expected.item(), rel=1e-5)
    gradients = [torch.autograd.grad(total, tensors) for total in (sums[0], expected)]
    for found, right in zip(*gradients, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrapped", [False, True])
def test_weights_scale_the_loss_of_each_pair(wrapped, tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.criteria.chunks.chunk_rows", lambda *_: 4)
    model, batch = save_teacher(tmp_path / "teacher", 3), sentences(3, 6)
    torch.nn.init.normal_(model.output.weight)  # another than the teacher
    wanted = criterion(tmp_path / "teacher")._teacher(batch)(slice(None)).unflatten(0, batch.target_output.shape)
    logits, pairs = model.output(model(batch).features), torch.tensor([0.5, 0.0, 3.0])
    of_pairs = [by_definition(*of, 0.1, 0.3, 1.0) for of in zip(logits, batch.target_output, wanted, strict=True)]
    expected = sum(weight * of for weight, of in zip(pairs.double(), of_pairs, strict=True))
    gradient = torch.autograd.grad(expected, model.output.weight)[0]
    if wrapped:
        model.output = torch.nn.Sequential(model.output)
    weighted = replace(batch, columns={"quality": Column(pairs, "pair")})
    loss = criterion(tmp_path / "teacher", teacher_weight=0.3, loss_weights="quality")(model.train(), weighted)
    total, count = loss.trained["loss"]
    assert total.item() == pytest.approx(expected.item(), rel=1e-5) and count == batch.num_target_tokens
    torch.testing.assert_close(torch.autograd.grad(total, next(model.output.parameters()))[0], gradient)


def test_the_teacher_s_probabilities_are_not_kept_for_the_backward_pass(tmp_path, monkeypatch):
    model, batch = save_teacher(tmp_path / "teacher"), sentences(3, 6)
    loss, made = criterion(tmp_path / "teacher"), []

    def watched(teacher):
        return lambda rows: made.append(ref(asked := teacher(rows))) or asked

    monkeypatch.setattr(loss, "_teacher", lambda batch, plain=loss._teacher: watched(plain(batch)))
    parts = loss(model.train(), batch)
    assert parts.trained["loss"].total.requires_grad and made and not [each for each in made if each() is not None]


def test_several_teachers_are_averaged_by_probability(tmp_path):
    models = [save_teacher(tmp_path / str(seed), seed) for seed in (3, 4)]
    batch = sentences(4, 6)
    loss = criterion(tmp_path / "3", tmp_path / "4", temperature=2.0)
    logits = [model.output(model(batch).features).flatten(0, 1) for model in models]
    wanted = sum((of / 2).softmax(-1) for of in logits) / 2
    torch.testing.assert_close(loss._teacher(batch)(slice(2, 9)), wanted[2:9])


def test_distilling_from_itself_has_zero_divergence_and_validation_uses_cross_entropy(tmp_path):
    model, batch = save_teacher(tmp_path / "teacher"), sentences(4, 6)
    loss = criterion(tmp_path / "teacher")
    found = loss(model.train(), batch)  # without dropout
    assert found.reported["divergence"].total.item() == pytest.approx(0, abs=1e-3)
    assert set(loss(model.eval(), batch).reported) == {"nll"}


def test_a_missing_teacher_or_one_with_a_different_vocabulary_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"needs a teacher \(add --teacher MODEL\)"):
        criterion()
    side = Side(SideSettings("en", "nfc", False, False, "none", "none"), WordVocabulary([f"v{i}" for i in range(26)]))
    save_teacher(tmp_path / "other", pipeline=Pipeline(side, side, True))
    with pytest.raises(UserError, match="vocabulary differs from that of the data"):
        criterion(tmp_path / "other")
    with pytest.raises(UserError, match="no such"):
        criterion(tmp_path / "none")
