"""The optimizers: each against its formula, and a saved state that resumes bit for bit."""

import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load, save
from small_models import SMALL
from torch import nn

from nmt import registry
from nmt.errors import UserError
from nmt.extensions.methods.starts.lora import adapt
from nmt.models.base import Vocabularies
from nmt.optimizers.base import parameter_groups

TORCH_MUON = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
ALL = registry.names("optimizer")
LR = 0.01


def build(name, parameters, **options):
    optimizer = registry.build(registry.choose("optimizer", name, options), [{"params": parameters}])
    for group in optimizer.param_groups:
        assert type(group["lr"]) is float
        group["lr"] = LR
    return optimizer


def weights(*shapes):
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def set_gradients(parameters, number):
    generator = torch.Generator().manual_seed(number)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def two_steps(name, first, second, **options):
    """The weight 2.0 after gradients `first` and `second`."""
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = build(name, [weight], **options)
    for gradient in (first, second):
        weight.grad = torch.tensor([gradient])
        optimizer.step()
    return weight.item()


def adam_direction(gradients, betas=(0.9, 0.98), eps=1e-9):
    """Kingma and Ba, algorithm 1: the bias-corrected mean over the root of the bias-corrected mean square."""
    mean = square = 0.0
    for gradient in gradients:
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
    count = len(gradients)
    return mean / (1 - betas[0] ** count) / (math.sqrt(square / (1 - betas[1] ** count)) + eps)


def test_adam_follows_the_algorithm_with_the_papers_betas():
    expected = 2.0 - LR * adam_direction([0.5]) - LR * adam_direction([0.5, -0.1])
    assert two_steps("adam", 0.5, -0.1) == pytest.approx(expected, rel=1e-6)


def test_adamw_decays_the_weight_and_adam_adds_the_decay_to_the_gradient():
    apart = 2.0 * (1 - LR * 0.1) - LR * adam_direction([0.5])
    apart = apart * (1 - LR * 0.1) - LR * adam_direction([0.5, -0.1])
    assert two_steps("adamw", 0.5, -0.1, weight_decay=0.1) == pytest.approx(apart, rel=1e-6)
    first = 0.5 + 0.1 * 2.0
    between = 2.0 - LR * adam_direction([first])
    mixed = between - LR * adam_direction([first, -0.1 + 0.1 * between])
    assert two_steps("adam", 0.5, -0.1, weight_decay=0.1) == pytest.approx(mixed, rel=1e-6)


def test_sgd_follows_the_gradient_then_its_momentum_then_nesterovs_look_ahead():
    assert two_steps("sgd", 0.5, -0.1) == pytest.approx(2.0 - LR * (0.5 - 0.1))
    velocity = 0.9 * 0.5 - 0.1
    assert two_steps("sgd", 0.5, -0.1, momentum=0.9) == pytest.approx(2.0 - LR * (0.5 + velocity))
    ahead = (0.5 + 0.9 * 0.5) + (-0.1 + 0.9 * velocity)
    assert two_steps("sgd", 0.5, -0.1, momentum=0.9, nesterov=True) == pytest.approx(2.0 - LR * ahead)


def test_adam_sgd_switches_from_adam_to_sgd_at_a_different_rate():
    options = {"adam_updates": 1, "sgd_lr_factor": 3.0, "adam_betas": (0.9, 0.98), "adam_eps": 1e-9}
    expected = 2.0 - LR * adam_direction([0.5]) - 3 * LR * -0.1
    assert two_steps("adam-sgd", 0.5, -0.1, **options) == pytest.approx(expected, rel=1e-6)
    assert two_steps("adam-sgd", 0.5, -0.1, **options | {"adam_updates": 2}) == two_steps("adam", 0.5, -0.1)


def test_adadelta_steps_by_the_ratio_of_the_root_mean_squares_of_steps_and_gradients():
    weight, square, change = 2.0, 0.0, 0.0  # Zeiler, 2012, algorithm 1
    for gradient in (0.5, -0.1):
        square = 0.95 * square + 0.05 * gradient**2
        step = -math.sqrt(change + 1e-6) / math.sqrt(square + 1e-6) * gradient
        change = 0.95 * change + 0.05 * step**2
        weight += LR * step
    assert two_steps("adadelta", 0.5, -0.1) == pytest.approx(weight, rel=1e-7)


def test_adafactor_steps_by_the_factored_second_moment_scaled_by_the_size_of_the_matrix():
    (matrix,) = weights((3, 4))
    before = matrix.detach().clone()
    optimizer = build("adafactor", [matrix])
    set_gradients([matrix], 7)
    square = matrix.grad**2  # the first update's decay is 1 - 1^c = 0: the moment is this gradient's alone
    moment = torch.outer(square.sum(1), square.sum(0)) / square.sum()  # Shazeer and Stern, algorithm 1
    direction = matrix.grad / moment.sqrt()
    direction /= direction.pow(2).mean().sqrt().clamp(min=1.0)  # clipped at d = 1
    optimizer.step()
    expected = before - LR * before.pow(2).mean().sqrt() * direction
    torch.testing.assert_close(matrix.detach(), expected)


def random(shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("fast_bfloat16", "tolerance"), [(True, 0.05), (False, 1e-5)])
@pytest.mark.parametrize("shape", [(6, 4), (4, 9)])
def test_muon_steps_matrices_by_their_orthogonalised_momentum_and_vectors_by_adamw(
    shape, fast_bfloat16, tolerance, monkeypatch
):
    monkeypatch.setattr("nmt.extensions.methods.optimizers.muon.has_bfloat16", lambda device: fast_bfloat16)
    matrix, vector, table = (nn.Parameter(random(size, 1)) for size in (shape, (5,), (8, 3)))
    options = {"momentum": 0.9, "weight_decay": 0.1}
    groups = [{"params": [table, matrix, vector], "matrices": [False, True, False]}]
    optimizer = registry.build(registry.choose("optimizer", "muon", options), groups)
    others = [nn.Parameter(parameter.detach().clone()) for parameter in (table, vector)]
    adamw = build("adamw", others, weight_decay=0.1)
    expected, mean = matrix.detach().clone(), torch.zeros(shape, dtype=torch.float64)
    for number in range(3):
        for group in optimizer.param_groups:
            group["lr"] = LR
        gradient = random(shape, 10 + number)
        matrix.grad, vector.grad, table.grad = gradient, random((5,), 20 + number), random((8, 3), 30 + number)
        others[0].grad, others[1].grad = table.grad, vector.grad
        optimizer.step()
        adamw.step()
        mean = 0.9 * mean + 0.1 * gradient
        ahead = 0.1 * gradient + 0.9 * mean  # Nesterov's
        left, sizes, right = torch.linalg.svd(ahead, full_matrices=False)
        sizes = sizes / ahead.norm()
        for _ in range(5):  # Jordan et al.: a quintic Newton-Schulz iteration, which acts on the singular values alone
            sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
        scale = 0.2 * max(shape) ** 0.5
        expected = expected * (1 - LR * 0.1) - LR * scale * (left * sizes) @ right
        torch.testing.assert_close(matrix.detach(), expected, rtol=0, atol=LR * scale * tolerance)
        expected = matrix.detach().clone()
    assert torch.equal(table, others[0]) and torch.equal(vector, others[1])


def test_muon_takes_the_linear_layers_inside_a_model_and_neither_embeddings_nor_the_output():
    options = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 12, "heads": 2, "tie": "none"}
    model = registry.build(registry.choose("model", "transformer", options), Vocabularies(9, 9, True))
    optimizer = registry.build(registry.choose("optimizer", "muon"), parameter_groups(model))
    names = {parameter: name for name, parameter in model.named_parameters()}
    matrices, others = ({names[parameter] for parameter in group["params"]} for group in optimizer.param_groups)
    assert all(name.startswith(("encoder.", "decoder.")) and name.endswith(".weight") for name in matrices)
    assert {"source_embedding.weight", "target_embedding.weight", "output.weight"} < others
    assert all(names[parameter] in others for parameter in names if parameter.ndim != 2)
    assert sum(parameter.ndim == 2 for parameter in names) == len(matrices) + 3


@pytest.mark.parametrize("name", ["gnmt", "deep-att"])
def test_muon_leaves_recurrences_to_adamw(name):
    model = registry.build(registry.choose("model", name, SMALL[name]), Vocabularies(9, 9, True))
    optimizer = registry.build(registry.choose("optimizer", "muon"), parameter_groups(model))
    names = {parameter: name for name, parameter in model.named_parameters()}
    chosen = {names[p] for group in optimizer.param_groups if all(group["matrices"]) for p in group["params"]}
    recurrent = {name for name in names.values() if name.endswith("cell.recurrent.weight")}
    assert recurrent and chosen and not recurrent & chosen


def test_muon_takes_the_matrices_of_adapters_and_refuses_a_model_without_matrices():
    options = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 12, "heads": 2}
    model = registry.build(registry.choose("model", "transformer", options), Vocabularies(9, 9, True))
    adapt(model, 2, 1.0, ())
    optimizer = registry.build(registry.choose("optimizer", "muon"), parameter_groups(model))
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    assert trained == {
        matrix for group in optimizer.param_groups for matrix in group["params"] if all(group["matrices"])
    }
    convolutions = registry.build(registry.choose("model", "convs2s", {}), Vocabularies(9, 9, True))
    with pytest.raises(UserError, match="needs trainable inner linear layers"):
        registry.build(registry.choose("optimizer", "muon"), parameter_groups(convolutions))


@pytest.mark.parametrize(("others_have_it", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_muon_multiplies_in_float32_on_all_ranks_if_one_has_no_fast_bfloat16(others_have_it, expected, monkeypatch):
    monkeypatch.setattr("nmt.extensions.methods.optimizers.muon.has_bfloat16", lambda device: True)
    optimizer = build("muon", [nn.Parameter(random((4, 4), 1).float())])
    line = optimizer.agree(SimpleNamespace(any=lambda flag: flag or not others_have_it))
    assert optimizer.product_type == expected and f"products in {str(expected).removeprefix('torch.')}" in line


@TORCH_MUON
@pytest.mark.parametrize("limit", [1, 1000, 1 << 18])
def test_muon_on_stacked_matrices_equals_torchs_on_single_ones(monkeypatch, limit):
    monkeypatch.setattr("nmt.extensions.methods.optimizers.muon.MAX_CPU_STACK", limit)
    # The device has bfloat16 for torch's optimizer, whichever it is.
    monkeypatch.setattr(
        "nmt.extensions.methods.optimizers.muon.has_bfloat16", lambda device: True
    )  # which torch's takes on any device
    shapes = [(16, 16), (16, 40), (16, 16), (40, 16), (16, 16)] * 3
    ours, theirs = ([nn.Parameter(random(shape, n).float()) for n, shape in enumerate(shapes)] for _ in range(2))
    optimizer = build("muon", ours, momentum=0.9, weight_decay=0.1)
    reference = torch.optim.Muon(theirs, LR, 0.1, 0.9, adjust_lr_fn="match_rms_adamw")
    for update in range(3):
        for n, (parameter, other) in enumerate(zip(ours, theirs, strict=True)):
            other.grad = random(parameter.shape, 100 * update + n).float()
            parameter.grad = other.grad.clone() if n != 2 or update else None  # one starts later
            other.grad = parameter.grad
        optimizer.step()
        reference.step()
    for parameter, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=LR * 0.02)  # products in bfloat16


def test_schedule_free_follows_the_papers_recursion_over_three_sequences():
    beta1, beta2, eps, decay = 0.8, 0.95, 1e-6, 0.1  # Defazio et al., 2024, algorithm 1
    weight = nn.Parameter(random((4, 3), 1))
    options = {"adam_betas": (beta1, beta2), "adam_eps": eps, "weight_decay": decay}
    optimizer = build("schedule-free", [weight], **options)
    z = x = weight.detach().clone()
    second, squares = torch.zeros_like(z), 0.0
    for number, rate in enumerate((0.01, 0.02, 0.0, 0.02, 0.015), start=1):
        y = (1 - beta1) * z + beta1 * x
        torch.testing.assert_close(weight.detach(), y)
        gradient = weight.grad = random((4, 3), 10 + number)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        second = beta2 * second + (1 - beta2) * gradient**2
        z = z - rate * gradient / ((second / (1 - beta2**number)).sqrt() + eps) - rate * decay * y
        squares += rate**2
        x = (1 - rate**2 / squares) * x + rate**2 / squares * z
        torch.testing.assert_close(optimizer.averaged[weight], x)


def test_schedule_free_with_a_constant_rate_averages_all_iterates_equally():
    weight = nn.Parameter(random((3,), 1))
    optimizer = build("schedule-free", [weight])
    iterates = []
    for number in range(6):
        weight.grad = random((3,), number)
        optimizer.step()
        iterates.append(optimizer.state[weight]["z"].clone())
    torch.testing.assert_close(optimizer.averaged[weight], torch.stack(iterates).mean(0))


@pytest.mark.parametrize("name", ALL)
def test_a_row_without_a_gradient_and_very_small_gradients_leave_all_weights_finite(name):
    (table,) = weights((5, 4))
    optimizer = build(name, [table])
    for scale in (0.0, 1e-12, 1e-30):
        table.grad = torch.full_like(table, scale)
        table.grad[2] = 0.0
        optimizer.step()
    assert table.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_no_weight_moves_before_a_schedule_gives_a_learning_rate(name):
    parameters = weights((3, 4), (4,))
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer = registry.build(registry.choose("optimizer", name), [{"params": parameters}])
    set_gradients(parameters, 3)
    optimizer.step()
    assert all(torch.equal(parameter, old) for parameter, old in zip(parameters, before, strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ALL),
        ("sgd", {"momentum": 0.9}),
        ("adamw", {"weight_decay": 0.1}),
        ("adam-sgd", {"adam_updates": 4}),
    ],
)
def test_an_optimizer_resumed_from_its_saved_tensors_gives_identical_results(name, options):
    shapes = [(5, 4), (4,), (2, 3)]
    whole, stopped, resumed = weights(*shapes), weights(*shapes), weights(*shapes)
    uninterrupted, first = build(name, whole, **options), build(name, stopped, **options)
    for number in range(3):
        for parameters, optimizer in ((whole, uninterrupted), (stopped, first)):
            set_gradients(parameters, number)
            optimizer.step()
    flat = {f"{i}/{key}": t for i, state in first.state_dict()["state"].items() for key, t in state.items()}
    second = build(name, resumed, **options)
    averages = getattr(first, "averaged", {}).values()  # in checkpoints as the weights of the model
    for new, old in zip(getattr(second, "averaged", {}).values(), averages, strict=True):
        new.copy_(old)
    nested: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in load(save(flat)).items():
        nested.setdefault(int(key.split("/")[0]), {})[key.split("/")[1]] = tensor
    second.load_state_dict({"state": nested, "param_groups": second.state_dict()["param_groups"]})
    with torch.no_grad():
        for new, old in zip(resumed, stopped, strict=True):
            new.copy_(old)
    for number in range(3, 6):
        for parameters, optimizer in ((whole, uninterrupted), (resumed, second)):
            set_gradients(parameters, number)
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adam", {"adam_betas": (0.9, 1.0)}),
        ("adamw", {"adam_eps": 0.0}),
        ("muon", {"momentum": 1.0}),
        ("schedule-free", {"adam_betas": (1.0, 0.9)}),
        ("sgd", {"momentum": 1.0}),
        ("sgd", {"nesterov": True}),
        ("adam-sgd", {"adam_updates": -1}),
        ("adadelta", {"adadelta_rho": 1.0}),
        ("adafactor", {"adafactor_eps": (1e-30, 1e-3)}),
        *((name, {"weight_decay": -0.1}) for name in ALL),
    ],
)
def test_an_invalid_setting_is_refused_by_name(name, options):
    with pytest.raises(UserError, match=next(iter(options)).replace("_", "-")):
        build(name, weights((2, 2)), **options)
