"""GNMT against the paper's equations, written out step by step, and against its number of parameters."""

import math

import pytest
import torch

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.models.base import Vocabularies
from nmt.nn.linear import ClippedLinear, Linear
from nmt.symbols import BOS, EOS, PAD

D, A = 10, 7


def small(**options):
    sizes = {"hidden_size": D, "attention_size": A, "encoder_layers": 4, "decoder_layers": 4, "init_range": 0.5}
    return registry.build(registry.choose("model", "gnmt", sizes | options), Vocabularies(20, 25, False))


def parameters_by_formula(V, d, layers, biases):
    """facts: embeddings, encoder, decoder, attention and output."""

    def lstm(inputs, hidden):
        return 4 * (inputs + hidden) * hidden + (4 * hidden if biases else 0)

    encoder = 2 * lstm(d, d) + lstm(2 * d, d) + (layers - 2) * lstm(d, d)
    return encoder + layers * lstm(2 * d, d) + (2 * d * d + d) + 2 * V * d + V * d + V


@pytest.mark.parametrize(("cell", "millions"), [("standard", 280.9), ("gnmt", 280.8)])
def test_the_papers_size_has_the_parameter_count_of_the_formula(cell, millions):
    entry = registry.find("model", "gnmt")
    with torch.device("meta"):
        model = entry.cls(entry.options(cell=cell), Vocabularies(32_000, 32_000, True))
    assert model.num_parameters() == parameters_by_formula(32_000, 1024, 8, cell == "standard")
    assert model.num_parameters() / 1e6 == pytest.approx(millions, abs=0.05)


def lstm(W, U, x, state, delta):
    """Equations 10 and 11 for one vector: no bias, c clipped, h = o * c. The gates are output, input, forget, candidate."""
    h, c = state
    o, i, f, g = (W @ x + U @ h).split(D)
    c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(-delta, delta)
    return o.sigmoid() * c, c


def run(W, U, vectors, delta):
    state, outputs = (torch.zeros(D).double(), torch.zeros(D).double()), []
    for x in vectors:
        state = lstm(W, U, x, state, delta)
        outputs.append(state[0])
    return outputs


def by_the_paper(model, source, target, delta, scale):
    """Section 3 for one sentence: the features before each word of target, which starts with BOS. scale: of embeddings"""
    w = {key: value.double() for key, value in model.state_dict().items()}

    def matrices(name):
        return w[f"{name}.inputs.weight"], w[f"{name}.cell.recurrent.weight"]

    x = [w["source_embedding.weight"][word] * scale for word in source]
    forwards = run(*matrices("bidirectional.0"), x, delta)
    backwards = run(*matrices("bidirectional.1"), x[::-1], delta)[::-1]
    x = [torch.cat(both) for both in zip(forwards, backwards, strict=True)]
    for layer in range(3):
        m = run(*matrices(f"encoder.{layer}"), x, delta)
        # the third layer of the stack is the first whose output is added to its input
        x = m if layer == 0 else [(a + b).clamp(-delta, delta) for a, b in zip(m, x, strict=True)]
    memory, features = x, []
    states = [(torch.zeros(D).double(), torch.zeros(D).double())] * 4
    W_first = torch.cat([w["first.inputs.weight"], w["first.context.weight"]], 1)
    for word in target:
        y = states[0][0]  # the bottom decoder layer's output of the step before
        energies = [
            w["first.attention.direction"]
            @ torch.tanh(w["first.attention.query.weight"] @ y + w["first.attention.keys.weight"] @ h)
            for h in memory
        ]
        weights = torch.stack(energies).softmax(0)
        a = sum(weight * h for weight, h in zip(weights, memory, strict=True))
        x = torch.cat([w["target_embedding.weight"][word] * scale, a])
        states[0] = lstm(W_first, w["first.cell.recurrent.weight"], x, states[0], delta)
        x = states[0][0]
        for layer in range(3):
            states[layer + 1] = lstm(*matrices(f"decoder.{layer}"), torch.cat([x, a]), states[layer + 1], delta)
            m = states[layer + 1][0]
            x = m if layer == 0 else (m + x).clamp(-delta, delta)
        features.append(x)
        if "read_out_context.weight" in w:
            features[-1] = x + w["read_out_context.weight"] @ a
        if "read_out_word.weight" in w:
            features[-1] = features[-1] + w["read_out_word.weight"] @ w["target_embedding.weight"][word] * scale
    return torch.stack(features)


@pytest.mark.parametrize(
    "reads_out", [{}, {"read_out_context": True}, {"read_out_context": True, "read_out_word": True}]
)
@pytest.mark.parametrize(("training", "scale"), [(False, 1.0), (True, 1.0), (True, math.sqrt(D))])
def test_features_follow_the_papers_equations_step_by_step(training, scale, reads_out):
    torch.manual_seed(1)
    options = {"dropout": 0.0, "clip_start": 0.5, "clip_end": 0.15, "init_range": 1.5, "scale_embeddings": scale != 1.0}
    model = small(**options, **reads_out).double().train(training)
    sources, targets = [[7, 5, 9, 13, EOS], [4, 19, EOS]], [[BOS, 4, 24, 8], [BOS, 17, 6]]
    batch = Batch(
        torch.tensor([sources[0], [*sources[1], PAD, PAD]]),
        torch.tensor([[*targets[0], EOS], [*targets[1], EOS, PAD]]),
    )
    features = model(batch).features
    assert model.clip == (0.5 if training else 0.15)
    assert reads_out or (features.abs() == model.clip).any()
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        torch.testing.assert_close(features[i, : len(target)], by_the_paper(model, source, target, model.clip, scale))


def test_clipping_is_annealed_linearly_in_training_and_at_its_final_value_in_translation():
    model = small(clip_updates=7)
    found = []
    for update in range(1, 10):
        model.begin_update(update)
        found.append(model.clip)
    assert found == pytest.approx([8, 7, 6, 5, 4, 3, 2, 1, 1])
    assert model.eval().clip == 1.0
    assert small(clip_end=None).clip == math.inf


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_gradient_of_clipped_logits_equal_those_of_clamp(smoothing):
    torch.manual_seed(3)
    criterion = CrossEntropy(CrossEntropyOptions(label_smoothing=smoothing), CriterionContext(None, None))
    features, targets = torch.randn(30, D), torch.randint(1, 25, (30,))
    linear = Linear(D, 25)
    output = ClippedLinear(linear, 0.4)
    parameters = [linear.weight, linear.bias]
    total, _ = criterion.of_logits(linear(features).clamp(-0.4, 0.4), targets)
    assert (output(features).abs() == 0.4).any()
    model = torch.nn.Module()
    model.forward = lambda batch: type("Output", (), {"features": features[None]})
    model.output = output
    batch = Batch(torch.ones(1, 1), torch.cat([torch.tensor([BOS]), targets])[None])
    term = criterion(model, batch).trained["loss"]
    torch.testing.assert_close(term.total, total)
    for one, other in zip(
        torch.autograd.grad(term.total, parameters), torch.autograd.grad(total, parameters), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_weights_are_initialised_uniformly_in_the_papers_range():
    with torch.no_grad():
        for parameter in small(init_range=0.04, hidden_size=64).parameters():
            assert parameter.abs().amax() <= 0.04
            if parameter.numel() > 1000:
                assert parameter.std() == pytest.approx(0.04 / math.sqrt(3), rel=0.05)
