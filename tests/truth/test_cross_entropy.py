"""Cross entropy and label smoothing against their definitions, and the chunked forms against the plain one."""

import math

import pytest
import torch
from torch import nn

from nmt.batch import Batch, Column, MissingColumnError
from nmt.criteria import chunks
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.errors import UserError
from nmt.models.base import Model, Output
from nmt.symbols import PAD


class Given(Model):
    """A model whose features are given."""

    def __init__(self, features: torch.Tensor, output: nn.Module) -> None:
        super().__init__()
        self.features, self.output, self.width = nn.Parameter(features), output, features.shape[-1]

    def forward(self, batch: Batch) -> Output:
        return Output(self.features, {})

    def start(self, source):
        raise NotImplementedError

    def step(self, tokens, state):
        raise NotImplementedError


def smoothed(eps: float, over: str = "others", z_loss: float = 0.0) -> CrossEntropy:
    options = CrossEntropyOptions(label_smoothing=eps, smoothing_over=over, z_loss=z_loss)
    return CrossEntropy(options, CriterionContext(None, None))


def sums_of(criterion: CrossEntropy, model: Model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of the smoothed loss and of the negative log-likelihood."""
    trained, reported = criterion(model, batch)
    return trained["loss"].total, reported["nll"].total


def case(output: nn.Module) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    target = torch.randint(4, 11, (3, 6))
    target[1, 4:] = PAD
    return Given(torch.randn(3, 5, 8), output), Batch(torch.ones(3, 2, dtype=torch.long), target)


@pytest.mark.parametrize("over", ["others", "all"])
def test_smoothing_spreads_the_mass_taken_from_the_reference(over):
    torch.manual_seed(1)
    logits, targets, eps = torch.randn(4, 9), torch.tensor([4, 5, 6, 8]), 0.1
    others = 8 if over == "others" else 9
    wanted = torch.full((4, 9), eps / others)
    wanted[range(4), targets] = 1 - eps if over == "others" else 1 - eps + eps / 9
    expected = -(wanted * torch.log_softmax(logits, -1)).sum()
    total, nll = smoothed(eps, over).of_logits(logits, targets)
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert nll.item() == pytest.approx(nn.functional.cross_entropy(logits, targets, reduction="sum").item(), rel=1e-6)


def test_pytorchs_smoothing_covers_all_tokens_and_matches_ours_at_a_different_epsilon():
    logits, targets, size = torch.randn(4, 9), torch.tensor([4, 5, 6, 8]), 9
    torchs = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    assert smoothed(0.1, "all").of_logits(logits, targets)[0].item() == pytest.approx(torchs.item(), rel=1e-6)
    converted = smoothed(0.1 * (size - 1) / size).of_logits(logits, targets)[0]
    assert converted.item() == pytest.approx(torchs.item(), rel=1e-6)


@pytest.mark.parametrize(("over", "floor"), [("others", 1.376948), ("all", 1.376913)])
def test_no_loss_is_below_the_floor_set_by_smoothing(over, floor):
    size, eps = 37000, 0.1
    gold = 1 - eps if over == "others" else 1 - eps + eps / size
    rest = (1 - gold) / (size - 1)
    logits = torch.full((1, size), math.log(rest), dtype=torch.float64)
    logits[0, 7] = math.log(gold)
    total, _ = smoothed(eps, over).of_logits(logits.float(), torch.tensor([7]))
    assert total.item() == pytest.approx(floor, abs=2e-4)


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["linear", "other"])
def test_computing_in_chunks_gives_the_same_loss_and_gradients(kind, bias, z_loss, monkeypatch):
    monkeypatch.setattr(chunks, "chunk_rows", lambda features, size: 4)
    linear = nn.Linear(8, 11, bias=bias)
    model, batch = case(linear if kind == "linear" else nn.Sequential(linear, nn.Identity()))
    criterion = smoothed(0.1, z_loss=z_loss)
    loss, nll_sum = sums_of(criterion, model, batch)
    assert not loss._is_view()  # of which FSDP warns
    (3.0 * loss).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    total, nll = criterion.of_logits(model.output(model.features.flatten(0, 1)), batch.target_output.flatten())
    (3.0 * total).backward()
    torch.testing.assert_close(loss, total)
    torch.testing.assert_close(nll_sum, nll.detach())
    for found, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, atol=1e-5, rtol=1e-5)


def test_z_loss_is_the_squared_log_of_the_normalizer():
    logits, targets = torch.randn(4, 9), torch.tensor([4, 5, 6, PAD])
    with_z, without = (smoothed(0.1, z_loss=z).of_logits(logits, targets)[0] for z in (0.3, 0.0))
    squares = logits.double().exp().sum(-1).log() ** 2
    assert (with_z - without).item() == pytest.approx(0.3 * squares[:3].sum().item(), rel=1e-5)


def test_the_logits_of_a_whole_batch_are_never_held_at_once(monkeypatch):
    monkeypatch.setattr(chunks, "chunk_rows", lambda features, size: 4)
    model, batch = case(nn.Linear(8, 11, bias=False))
    rows = []
    model.output.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    smoothed(0.1)(model, batch)
    assert max(rows) <= 4
    assert sum(rows) == 15 + 1  # the first row tells the size of the vocabulary


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("bias", [False, True])
def test_no_gradient_is_computed_without_grad_mode(context, bias, monkeypatch):
    """As in a validation: a function is told of weights that need a gradient all the same."""
    model, batch = case(nn.Linear(8, 11, bias=bias))
    wanted = sums_of(smoothed(0.1), model, batch)
    monkeypatch.setattr(torch.autograd, "grad", None)
    with context():
        found = sums_of(smoothed(0.1), model, batch)
    torch.testing.assert_close(found, tuple(each.detach() for each in wanted))


def test_tokens_are_counted_without_padding():
    model, batch = case(nn.Linear(8, 11))
    criterion = smoothed(0.0)
    trained, reported = criterion(model, batch)
    assert trained["loss"].count == reported["nll"].count == criterion.counts(batch)["loss"] == 3 * 5 - 2


def test_under_autocast_the_products_are_rounded_and_the_sums_are_not():
    model, batch = case(nn.Linear(8, 11))
    targets = batch.target_output.flatten()
    with torch.autocast("cpu", torch.bfloat16):
        total, nll = sums_of(smoothed(0.1), model, batch)
        plain = smoothed(0.1).of_logits(model.output(model.features.flatten(0, 1)), targets)
    assert total.item() == pytest.approx(plain[0].item(), rel=1e-6)
    assert nll.item() == pytest.approx(plain[1].item(), rel=1e-6)


@pytest.mark.parametrize("kind", ["pair", "target"])
@pytest.mark.parametrize("output", ["linear", "other"])
def test_weights_scale_the_loss_of_each_pair_or_token_but_not_the_count(kind, output, monkeypatch):
    """By hand in float64: sum of w_i * loss_i, over all target tokens, as by Marian's --data-weighting."""
    monkeypatch.setattr(chunks, "chunk_rows", lambda features, size: 4)
    linear = nn.Linear(8, 11)
    model, batch = case(linear if output == "linear" else nn.Sequential(linear, nn.Identity()))
    values = torch.tensor([0.5, 0.0, 3.0]) if kind == "pair" else torch.rand(3, 5)
    weighted = Batch(batch.source, batch.target, {"w": Column(values, kind)})
    criterion = CrossEntropy(CrossEntropyOptions(label_smoothing=0.1, loss_weights="w"), CriterionContext(None, None))
    trained, reported = criterion(model, weighted)
    trained["loss"].total.backward()

    weight, bias = (tensor.detach().double().requires_grad_() for tensor in (linear.weight, linear.bias))
    features = model.features.detach().double().requires_grad_()
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(3):
        for place in range(5):
            gold = int(batch.target_output[row, place])
            if gold == PAD:
                continue
            log_probs = torch.log_softmax(weight @ features[row, place] + bias, 0)
            loss = -0.9 * log_probs[gold] - 0.1 / 10 * sum(log_probs[k] for k in range(11) if k != gold)
            expected = expected + float(values[row] if kind == "pair" else values[row, place]) * loss
    expected.backward()
    assert trained["loss"].total.item() == pytest.approx(expected.item(), rel=1e-6)
    for found, wanted in ((model.features, features), (linear.weight, weight), (linear.bias, bias)):
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-5, atol=1e-5)
    assert trained["loss"].count == 13
    plain = sums_of(smoothed(0.1), model, batch)
    assert reported["nll"].total.item() == plain[1].item()
    model.eval()
    assert sums_of(criterion, model, weighted)[0].item() == plain[0].item()


def test_weights_need_a_column_of_numbers():
    model, batch = case(nn.Linear(8, 11))
    criterion = CrossEntropy(CrossEntropyOptions(loss_weights="w"), CriterionContext(None, None))
    with pytest.raises(MissingColumnError, match=r"no column 'w' \(`nmt prepare --column w=FILE"):
        criterion(model, batch)
    links = {"w": Column(torch.zeros(3, 1, 2, dtype=torch.long), "links")}
    with pytest.raises(UserError, match="a column of kind links cannot contain weights"):
        criterion(model, Batch(batch.source, batch.target, links))
