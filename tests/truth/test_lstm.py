"""LSTM layers: against torch's own, the equations of papers, and the gradient that torch derives step by step."""

import math

import pytest
import torch
from torch import nn

from nmt.extensions.fast.nn.quantized import quantize
from nmt.extensions.zoo.nn.additive import AdditiveAttention
from nmt.extensions.zoo.nn.attentive import AttentiveLstm
from nmt.extensions.zoo.nn.lstm import Lstm, LstmForm

T, B, M, H, R = 7, 3, 5, 6, 4
FORMS = {
    "standard": LstmForm(),
    "no tanh of the cell": LstmForm(output_tanh=False),
    "peepholes": LstmForm(peepholes=True),
    "projection": LstmForm(projection=R),
    "all": LstmForm(output_tanh=False, peepholes=True, projection=R),
}


def layer(form, bias=True):
    torch.manual_seed(1)
    lstm = Lstm(M, H, form, bias).double()
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=0.7)
    return lstm


def torchs_order(weight):
    """Gates in the order output, input, forget, candidate -> torch's: input, forget, candidate, output."""
    o, i, f, g = weight.chunk(4)
    return torch.cat([i, f, g, o])


@pytest.mark.parametrize("projection", [None, R])
def test_a_layer_and_its_gradients_equal_torchs_lstm(projection):
    lstm = layer(LstmForm(projection=projection))
    theirs = nn.LSTM(M, H, proj_size=projection or 0).double()
    own = dict(lstm.named_parameters())
    pairs = {
        "weight_ih_l0": own["inputs.weight"],
        "weight_hh_l0": own["cell.recurrent.weight"],
        "bias_ih_l0": own["inputs.bias"],
    }
    with torch.no_grad():
        for name, weight in pairs.items():
            getattr(theirs, name).copy_(torchs_order(weight))
        theirs.bias_hh_l0.zero_()
        if projection:
            theirs.weight_hr_l0.copy_(own["cell.projection.weight"])
    vectors, weighting = torch.randn(T, B, M).double(), torch.randn(T, B, projection or H).double()
    expected, _ = theirs(vectors)
    outputs = lstm(vectors)
    torch.testing.assert_close(outputs, expected)
    (outputs * weighting).sum().backward()
    (expected * weighting).sum().backward()
    for name, weight in pairs.items():
        torch.testing.assert_close(torchs_order(weight.grad), getattr(theirs, name).grad)
    if projection:
        torch.testing.assert_close(own["cell.projection.weight"].grad, theirs.weight_hr_l0.grad)


def test_a_step_follows_the_equations_of_the_papers():
    """Zhou et al., 2016, equation 1, with peepholes; GNMT's c is clipped and its output is not squashed (equation 11)."""
    vector, h, s = torch.randn(1, M).double(), torch.randn(1, H).double(), torch.randn(1, H).double()
    for tanh, clip in ((True, math.inf), (False, 0.3)):
        lstm = layer(LstmForm(output_tanh=tanh, peepholes=True))
        recurrent, theta = lstm.cell.recurrent.weight, lstm.cell.peepholes
        p_o, p_i, p_f, z = (lstm.inputs(vector) + h @ recurrent.T).chunk(4, dim=-1)
        after = torch.tanh(z) * torch.sigmoid(p_i + theta[1] * s) + torch.sigmoid(p_f + theta[2] * s) * s
        after = after.clamp(-clip, clip)
        output = (torch.tanh(after) if tanh else after) * torch.sigmoid(p_o + theta[0] * after)
        state = lstm.step(vector, lstm.cell.initial(1, vector)._replace(output=h, cell=s), clip)
        torch.testing.assert_close(state.output, output)
        torch.testing.assert_close(state.cell, after)


def step_by_step(lstm, vectors, clip, reverse):
    state = lstm.cell.initial(vectors.shape[1], vectors)
    outputs = []
    for vector in vectors.flip(0) if reverse else vectors:
        state = lstm.step(vector, state, clip)
        outputs.append(state.output)
    return torch.stack(outputs[::-1] if reverse else outputs)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("clip", [math.inf, 0.6])
@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_and_its_gradients_equal_those_of_single_steps(form, clip, reverse):
    lstm = layer(FORMS[form], bias=form != "all")
    vectors = torch.randn(T, B, M, dtype=torch.float64, requires_grad=True)
    weighting = torch.randn(T, B, lstm.cell.width).double()
    expected, outputs = step_by_step(lstm, vectors, clip, reverse), lstm(vectors, clip=clip, reverse=reverse)
    torch.testing.assert_close(outputs, expected)
    wanted = [vectors, *lstm.parameters()]
    by_torch = torch.autograd.grad((expected * weighting).sum(), wanted)
    by_tape = torch.autograd.grad((outputs * weighting).sum(), wanted)
    for one, other in zip(by_tape, by_torch, strict=True):
        assert other.abs().amax() > 0
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(lstm(vectors, clip=clip, reverse=reverse), expected)


def test_a_backward_layer_starts_at_the_last_token_of_each_sentence():
    lstm, lengths = layer(LstmForm()), [7, 4, 1]
    vectors = torch.randn(T, B, M).double()
    padding = torch.arange(T)[:, None] >= torch.tensor(lengths)
    outputs = lstm(vectors, padding, reverse=True)
    for i, length in enumerate(lengths):
        alone = lstm(vectors[:length, i : i + 1], reverse=True)
        torch.testing.assert_close(outputs[:length, i : i + 1], alone)
        assert outputs[length:, i].count_nonzero() == 0
    outputs.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in lstm.parameters())


@torch.no_grad()
def test_an_8_bit_layer_gives_the_same_step_by_step():
    lstm = Lstm(32, 64, LstmForm(projection=48))
    quantize(lstm)
    vectors = torch.randn(T, B, 32)
    outputs = lstm(vectors)
    torch.testing.assert_close(outputs, step_by_step(lstm, vectors, math.inf, False))
    with torch.enable_grad():
        torch.testing.assert_close(lstm(vectors), outputs)


def test_bfloat16_is_close_to_float32():
    lstm = Lstm(M, H, LstmForm(peepholes=True, projection=R))
    vectors = torch.randn(T, B, M)
    exact = lstm(vectors)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = lstm(vectors, clip=8.0)
    assert outputs.dtype == torch.float32  # on a CPU; on a GPU the steps are bfloat16 too
    torch.testing.assert_close(outputs, exact, atol=0.02, rtol=0.02)
    outputs.sum().backward()
    near = [parameter.grad.clone() for parameter in lstm.parameters()]
    lstm.zero_grad()
    exact.sum().backward()
    for parameter, gradient in zip(lstm.parameters(), near, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=0.1, rtol=0.1)


S, A = 4, 8
FORMS_OF_ATTENTION = {"GNMT's": "sum", "Shazeer's": "product"}


def attentive(form, variant):
    torch.manual_seed(2)
    width = form.projection or H
    layer = AttentiveLstm(M, M, H, form, AdditiveAttention(width, M, A, FORMS_OF_ATTENTION[variant])).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    memory = torch.randn(B, S, M, dtype=torch.float64, requires_grad=True)
    return layer, memory, torch.tensor([[True] * S, [True, True, False, False], [True, True, True, False]])


def attend_step_by_step(layer, vectors, memory, mask, clip):
    """All steps of the layer, each by torch's operations: outputs (T, B, R) and weights (B, T, S)."""
    keys, values = layer.project_memory(memory)
    state, outputs, weights = layer.cell.initial(B, vectors), [], []
    for vector in vectors:
        state, step_weights = layer.step(layer.inputs(vector), state, keys, values, mask, clip)
        outputs.append(state.output)
        weights.append(step_weights)
    return torch.stack(outputs), torch.cat(weights, 1)


@pytest.mark.parametrize("variant", FORMS_OF_ATTENTION)
@pytest.mark.parametrize("form", FORMS)
def test_an_attentive_layer_and_its_gradients_equal_those_of_single_steps(form, variant):
    (layer, memory, mask), clip = attentive(FORMS[form], variant), 0.6
    vectors = torch.randn(T, B, M, dtype=torch.float64, requires_grad=True)
    weightings = torch.randn(T, B, layer.cell.width).double(), torch.randn(B, T, S).double()
    results = [
        attend_step_by_step(layer, vectors, memory, mask, clip),
        layer(layer.inputs(vectors), *layer.project_memory(memory), mask, clip),
    ]
    wanted = [vectors, memory, *layer.parameters()]
    sums = [sum((one * other).sum() for one, other in zip(result, weightings, strict=True)) for result in results]
    expected, found = (torch.autograd.grad(total, wanted) for total in sums)
    for one, other in zip([*results[1], *found], [*results[0], *expected], strict=True):
        assert other.abs().amax() > 0
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        outputs, weights = layer(layer.inputs(vectors), *layer.project_memory(memory), mask, clip)
    torch.testing.assert_close(outputs, results[0][0])
    torch.testing.assert_close(weights, results[0][1])


@torch.no_grad()
@pytest.mark.parametrize("variant", FORMS_OF_ATTENTION)
def test_additive_attention_weights_follow_the_equation(variant):
    layer, memory, mask = attentive(LstmForm(), variant)
    attention, queries = layer.attention, torch.randn(B, H).double()
    weights = attention(queries, attention.project_memory(memory), mask)
    for b in range(B):
        q = attention.query.weight @ queries[b]
        energies = []
        for x in memory[b][mask[b]]:
            k = attention.keys.weight @ x
            energies.append(attention.direction @ (q.tanh() * k.tanh() if variant == "Shazeer's" else (q + k).tanh()))
        expected = torch.stack(energies).softmax(0)
        torch.testing.assert_close(weights[b, 0, : len(expected)], expected)
        assert weights[b, 0, len(expected) :].count_nonzero() == 0


def test_an_attentive_layer_in_bfloat16_is_close_to_float32():
    layer, memory, mask = attentive(LstmForm(output_tanh=False), "GNMT's")
    layer, memory, vectors = layer.float(), memory.float(), torch.randn(T, B, M)
    exact, weights = layer(layer.inputs(vectors), *layer.project_memory(memory), mask)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, near = layer(layer.inputs(vectors), *layer.project_memory(memory), mask)
    torch.testing.assert_close(outputs.float(), exact, atol=0.05, rtol=0.05)
    torch.testing.assert_close(near, weights, atol=0.05, rtol=0.05)
    (outputs.float().sum() + near[:, :, 0].sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
