"""Mixtures of experts against the equations of Shazeer et al. (2017), written out token by token in float64."""

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from nmt.extensions.variants.nn import moe
from nmt.extensions.variants.nn.moe import ExpertShape, MixtureOfExperts, grouped_product, squared_variation
from nmt.nn.extra_losses import at_tokens, collecting

D, F, E, N = 6, 10, 8, 24
FLAT = ExpertShape(D, F, E, 2, 1, "noisy-top-k", 0.01, 0.02, 0.0)
SHAPES = {
    "flat": FLAT,
    "hierarchical": replace(FLAT, groups=4, active=1),
    "two groups of two": replace(FLAT, experts=12, groups=4, active=2),
    "balanced": replace(FLAT, gates="balanced"),
    "balanced hierarchical": replace(FLAT, experts=16, groups=4, active=2, gates="balanced"),
}
BALANCED = [name for name, shape in SHAPES.items() if shape.gates == "balanced"]


def passed(layer, states, tokens=None):
    """The output of a layer, and the losses that it adds."""
    with collecting() as found, at_tokens(tokens):
        output = layer(states)
    [losses] = found
    return output, losses


def build(shape):
    torch.manual_seed(1)
    layer = MixtureOfExperts(shape).double()
    for parameter in layer.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return layer


def inputs(rows=N):
    return torch.randn(rows, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def expert(layer, number, x):
    return layer.outer[number] @ torch.relu(layer.inner[number] @ x)


def cv_squared(values):
    values = torch.stack(list(values))
    return ((values - values.mean()) ** 2).mean() / values.mean() ** 2


def noisy_gates(clean, deviations, noise, k):
    """Equations 3 to 5 and 8 to 9 of one token: the gates, and the probabilities that an expert stays among the highest."""
    noisy = [c + n * d for c, d, n in zip(clean, deviations, noise, strict=True)]
    best = sorted(range(len(noisy)), key=lambda i: -noisy[i])[:k]
    total = sum(math.exp(noisy[i]) for i in best)
    gates = [math.exp(noisy[i]) / total if i in best else 0.0 for i in range(len(noisy))]
    chances = []
    for i in range(len(noisy)):
        others = sorted((noisy[j] for j in range(len(noisy)) if j != i), reverse=True)
        rival = others[k - 1] if k <= len(others) else -math.inf
        chances.append(NormalDist().cdf(float((clean[i] - rival) / deviations[i])))
    return gates, chances


def level(gate, group, x, noise):
    clean = (gate.weight[group] @ x).tolist()
    deviations = [math.log1p(math.exp(value)) for value in (gate.noise[group] @ x).tolist()]
    return noisy_gates(clean, deviations, noise, gate.active)


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_flat_noisy_gates_and_their_losses_follow_the_paper(training):
    layer, x = build(FLAT).train(training), inputs()
    torch.manual_seed(5)
    noise = torch.randn(N, E, dtype=torch.float64).tolist() if training else [[0.0] * E] * N
    torch.manual_seed(5)
    output, (losses, statistics) = passed(layer, x)
    gates, chances = zip(*(level(layer.gate, 0, x[n], noise[n]) for n in range(N)), strict=True)
    for n in range(N):
        expected = sum(gates[n][i] * expert(layer, i, x[n]) for i in range(E))  # equation 1
        torch.testing.assert_close(output[n], expected)
    importance = cv_squared(torch.tensor(gates, dtype=torch.float64).sum(0))  # equations 6 and 7
    load = cv_squared(torch.tensor(chances, dtype=torch.float64).sum(0))  # equations 10 and 11
    assert losses["importance_loss"].item() == pytest.approx(0.01 * float(importance))
    assert losses["load_loss"].item() == pytest.approx(0.02 * float(load))
    tokens = [sum(gates[n][i] > 0 for n in range(N)) for i in range(E)]
    assert statistics["importance_cv"].item() == pytest.approx(math.sqrt(importance))
    assert statistics["load_cv"].item() == pytest.approx(math.sqrt(cv_squared(torch.tensor(tokens).double())))
    assert statistics["max_load"].item() == pytest.approx(max(tokens) / (2 * N / E))


@pytest.mark.parametrize("name", ["hierarchical", "two groups of two"])
@torch.no_grad()
def test_hierarchical_gates_and_their_losses_follow_appendix_b(name):
    layer, x = build(SHAPES[name]).eval(), inputs()
    groups, inner = layer.shape.groups, layer.shape.experts // layer.shape.groups
    output, (losses, _) = passed(layer, x)
    first, first_chances = zip(*(level(layer.gate, 0, x[n], [0.0] * groups) for n in range(N)), strict=True)
    second = [[level(layer.group_gate, i, x[n], [0.0] * inner) for i in range(groups)] for n in range(N)]
    pairs = [(i, j) for i in range(groups) for j in range(inner)]
    for n in range(N):
        expected = sum(first[n][i] * second[n][i][0][j] * expert(layer, i * inner + j, x[n]) for i, j in pairs)
        torch.testing.assert_close(output[n], expected)  # equation 12
    importance = [sum(first[n][i] * second[n][i][0][j] for n in range(N)) for i, j in pairs]  # equation 13
    load = []  # equation 14
    for i, j in pairs:
        reached = [n for n in range(N) if first[n][i] > 0]
        inner_load = sum(second[n][i][1][j] for n in reached) / len(reached)
        load.append(sum(first_chances[n][i] for n in range(N)) * inner_load)
    importance, load = (cv_squared(torch.tensor(values, dtype=torch.float64)) for values in (importance, load))
    assert losses["importance_loss"].item() == pytest.approx(0.01 * float(importance))
    assert losses["load_loss"].item() == pytest.approx(0.02 * float(load))


def highest(scores, rows, quota):
    """Equation 18 over some rows: the rows that each expert takes."""
    return [set(sorted(rows, key=lambda n: -float(scores[n][i]))[:quota]) for i in range(len(scores[rows[0]]))]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", BALANCED)
@torch.no_grad()
def test_balanced_gates_and_their_thresholds_follow_appendix_f(name, training):
    layer, x = build(SHAPES[name]).train(training), inputs()
    for gate in filter(None, (layer.gate, layer.group_gate)):
        gate.thresholds.data.clamp_(0.05, 0.4)
    output, (losses, _) = passed(layer, x)

    def masked(gate, group, rows):
        """Gates of rows, and equation 20 over them: {row: gates}, sum."""
        scores = {n: torch.softmax(gate.weight[group] @ x[n], 0) for n in rows}
        T = gate.thresholds[group]
        taken = highest(scores, rows, max(1, round(gate.active * len(rows) / len(T))))
        batchwise = {n: torch.tensor([float(n in taken[i]) for i in range(len(T))]).double() for n in rows}
        above = {n: (scores[n] > T).double() for n in rows}
        loss = sum(((above[n] - batchwise[n]) * (scores[n] - T)).sum() for n in rows)
        mask = batchwise if training else above
        kept = {n: scores[n] * mask[n] for n in rows}
        return {n: kept[n] / kept[n].sum() if kept[n].sum() else kept[n] for n in rows}, loss  # equation 16

    first, loss = masked(layer.gate, 0, list(range(N)))
    loss = loss / N
    final = {n: {i: float(gate) for i, gate in enumerate(gates) if gate} for n, gates in first.items()}
    if layer.group_gate is not None:
        inner = layer.shape.experts // layer.shape.groups
        deeper, sums, reached = {n: {} for n in range(N)}, 0, 0
        for i in range(layer.shape.groups):
            rows = [n for n in range(N) if i in final[n]]
            if rows:
                second, of_group = masked(layer.group_gate, i, rows)
                sums, reached = sums + of_group, reached + len(rows)
                for n in rows:
                    deeper[n] |= {i * inner + j: final[n][i] * float(g) for j, g in enumerate(second[n]) if g}
        final, loss = deeper, loss + sums / reached
    for n in range(N):
        expected = sum((gate * expert(layer, i, x[n]) for i, gate in final[n].items()), torch.zeros(D).double())
        torch.testing.assert_close(output[n], expected)
    assert losses["threshold_loss"].item() == pytest.approx(float(loss))
    if training:
        tokens = [sum(i in final[n] for n in range(N)) for i in range(layer.shape.experts)]
        assert set(tokens) == {N * layer.shape.active_experts // layer.shape.experts}  # m, of each


def test_learned_thresholds_send_as_many_tokens_to_an_expert_as_the_batch_would():
    layer, x = build(SHAPES["balanced"]).train(), inputs(400)
    optimizer = torch.optim.SGD([layer.gate.thresholds], lr=0.02)
    for _ in range(400):
        optimizer.zero_grad()
        passed(layer, x)[1].losses["threshold_loss"].backward()
        optimizer.step()
    with torch.no_grad():
        assert passed(layer, x)[1].losses["threshold_loss"].item() < 1e-3
        counts = layer.eval().route(x, with_losses=False).counts
    assert counts.tolist() == pytest.approx([100] * E, abs=4)


@pytest.mark.parametrize("name", SHAPES)
def test_positions_without_a_token_reach_no_expert_and_change_no_loss(name):
    layer, x = build(SHAPES[name]).eval(), inputs(10)
    tokens = torch.tensor([0, 1, 2, 4, 5, 8])
    output, balance = passed(layer, x.index_fill(0, torch.tensor([3, 6, 7, 9]), math.nan).view(2, 5, D), tokens)
    expected, expected_balance = passed(layer, x[tokens])
    output = output.view(10, D)
    torch.testing.assert_close(output[tokens], expected)
    assert output[[3, 6, 7, 9]].count_nonzero() == 0
    assert balance == expected_balance


@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_in_evaluation_a_token_gives_the_same_alone_in_a_batch_and_in_a_search(name):
    layer, x = build(SHAPES[name]).eval(), inputs()
    output = layer(x)
    torch.testing.assert_close(layer.search_step()(x), output)
    torch.testing.assert_close(torch.cat([layer(row) for row in x.split(1)]), output)


@pytest.mark.parametrize("name", SHAPES)
def test_every_weight_gets_a_gradient(name):
    layer = build(SHAPES[name]).train()
    output, balance = passed(layer, inputs(64))
    (output.square().sum() + sum(balance.losses.values())).backward()
    assert [key for key, value in layer.named_parameters() if not value.grad.abs().sum() > 0] == []


def test_noisy_gates_start_at_zero_and_others_random_to_avoid_ties():
    layer = MixtureOfExperts(FLAT)
    assert layer.gate.weight.count_nonzero() == layer.gate.noise.count_nonzero() == 0
    layer = MixtureOfExperts(SHAPES["balanced"])
    assert layer.gate.weight.count_nonzero() == layer.gate.weight.numel()


def test_with_all_experts_active_the_output_is_their_weighted_sum():
    layer, x = build(replace(FLAT, active=E)).eval(), inputs()
    gates = torch.softmax(x @ layer.gate.weight[0].T, -1)
    expected = torch.stack([sum(gates[n, i] * expert(layer, i, x[n]) for i in range(E)) for n in range(N)])
    output, (losses, _) = passed(layer, x)
    torch.testing.assert_close(output, expected)
    assert losses["load_loss"].item() == 0


@pytest.mark.parametrize("sizes", [[3, 0, 2, 0, 4], [0, 0, 0, 0, 9], [0, 0, 0, 0, 0]])
def test_grouped_products_and_gradients_equal_those_of_single_groups(sizes):
    torch.manual_seed(3)
    rows = torch.randn(sum(sizes), 8, requires_grad=True)
    weight, counts = torch.randn(5, 4, 8, requires_grad=True), torch.tensor(sizes)
    output = grouped_product(rows, weight, counts)
    expected = torch.cat([part @ weight[i].T for i, part in enumerate(rows.split(sizes))])
    torch.testing.assert_close(output, expected)
    upstream = torch.randn_like(output)
    if not sum(sizes):
        return
    for found, wanted in zip(
        torch.autograd.grad(output, (rows, weight), upstream),
        torch.autograd.grad(expected, (rows, weight), upstream),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted)
    torchs = functional.grouped_mm(rows, weight.transpose(1, 2), offs=counts.cumsum(0).to(torch.int32))
    torch.testing.assert_close(torchs, output)  # what a GPU calls


def test_experts_that_no_token_reaches_are_not_multiplied(monkeypatch):
    calls = []
    monkeypatch.setattr(moe, "product", lambda *given: calls.append(1) or functional.linear(*given))
    layer = build(replace(FLAT, experts=512)).eval()
    calls.clear()
    layer.search_step()(inputs(3))
    assert len(calls) <= 1 + 2 * 3 * 2  # the gate, and both products of at most two experts a token


@pytest.mark.parametrize("name", SHAPES)
def test_its_cost_formula_equals_the_counted_flops(name):
    layer = build(SHAPES[name]).train(name in BALANCED)  # thresholds may choose more or fewer, a batch in training not
    tokens = 4 * layer.shape.experts
    with FlopCounterMode(display=False) as counter:
        layer(inputs(tokens))
    assert counter.get_total_flops() == tokens * layer.token_flops()


def test_the_coefficient_of_variation_is_the_deviation_over_the_mean():
    values = [3.0, 1.0, 0.0, 4.0]
    assert float(squared_variation(torch.tensor(values))) == pytest.approx(float(cv_squared(map(torch.tensor, values))))
    assert float(squared_variation(torch.zeros(4))) == 0
