"""ConvS2S against the paper's equations, written out position by position, and against its numbers of parameters."""

import math

import pytest
import torch
from small_models import perturb

from nmt import registry
from nmt.batch import Batch
from nmt.criteria.base import CriterionContext
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.errors import UserError
from nmt.extensions.zoo.models.convs2s import HALF_VARIANCE, ConvolutionLayer
from nmt.extensions.zoo.models.options import convolution_shapes
from nmt.models.base import Vocabularies
from nmt.nn.linear import remove_weight_norm
from nmt.options import make
from nmt.symbols import BOS, EOS, PAD

E, D = 6, 5
SIZES = {
    "encoder_layers": "2x8k3,10k3,6k1",
    "decoder_layers": "8k3,2x10k3,6k1",
    "embedding_size": E,
    "output_size": D,
    "max_positions": 20,
}


def small(**options):
    return registry.build(registry.choose("model", "convs2s", SIZES | options), Vocabularies(20, 25, False))


def parameters_by_formula(encoder, decoder, e, out, source, target):
    """facts: with weight norm a linear layer has i o + 2 o numbers, a convolution to 2 o channels 2 i o k + 4 o."""

    def linear(i, o):
        return i * o + 2 * o

    def stack(shapes):
        width, total = shapes[0].width, linear(e, shapes[0].width)
        for o, k in shapes:
            total += (linear(width, o) if width != o else 0) + 2 * width * o * k + 4 * o
            width = o
        return total

    attention = sum(linear(o, e) + linear(e, o) for o, _ in decoder)
    ends = linear(encoder[-1].width, e) + linear(decoder[-1].width, out) + linear(out, target)
    return stack(encoder) + stack(decoder) + attention + ends + (source + target) * e + 2 * 1024 * e


@pytest.mark.parametrize(
    ("preset", "vocabularies", "millions", "published"),
    [
        ("convs2s-en-de", (42_200, 43_700), 216.0, 216_002_920),
        ("convs2s-en-de-paper", (42_200, 43_700), 159.4, 159_387_496),
        ("convs2s-en-fr", (44_409, 44_666), 267.5, 267_479_540),
    ],
)
def test_models_of_the_papers_sizes_have_its_parameter_counts(preset, vocabularies, millions, published):
    options = make(registry.find("model", "convs2s").options, registry.find_preset(preset).values)
    plans = convolution_shapes(options.encoder_layers), convolution_shapes(options.decoder_layers)
    assert parameters_by_formula(*plans, options.embedding_size, options.output_size, *vocabularies) == published
    with torch.device("meta"):
        model = registry.find("model", "convs2s").cls(options, Vocabularies(*vocabularies, False))
    assert model.num_parameters() == published
    assert round(published / 1e6, 1) == millions


def weights_of_norm(model):
    """Each weight as gain * direction / |direction|, one gain for an output (section 3.5)."""
    raw = {key: value.double() for key, value in model.state_dict().items()}
    weights = {key: value for key, value in raw.items() if "parametrizations" not in key}
    for key in [key for key in raw if key.endswith("parametrizations.weight.original1")]:
        name = key.removesuffix("parametrizations.weight.original1")
        direction, gain = raw[key], raw[f"{name}parametrizations.weight.original0"]
        weights[f"{name}weight"] = gain * direction / direction.pow(2).sum(1, keepdim=True).sqrt()
    return weights


def by_the_paper(model, source, target):
    """Sections 3.1 to 3.4 for one sentence in float64: the features of each position of target, which starts with BOS."""
    weights, half = weights_of_norm(model), math.sqrt(0.5)

    def affine(name, x):
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def embed(side, tokens):
        table, positions = weights[f"{side}_embedding.weight"], weights[f"{side}_positions.weight"]
        return [table[token] + positions[i] for i, token in enumerate(tokens)]

    def gated(name, states, kernel, i, before):
        """v([A B]) = A * sigmoid(B), of the kernel's positions from i - before on; zeros outside the sentence."""
        zeros = torch.zeros_like(states[0])
        window = [states[j] if 0 <= j < len(states) else zeros for j in range(i - before, i - before + kernel)]
        a, b = affine(f"{name}.convolution.linear", torch.cat(window)).chunk(2)
        return a * torch.sigmoid(b)

    def residual(name, state):
        return affine(f"{name}.projection", state) if f"{name}.projection.weight" in weights else state

    e = embed("source", source)
    states = [affine("encoder_input", x) for x in e]
    for number, (_, k) in enumerate(convolution_shapes(SIZES["encoder_layers"])):
        name = f"encoder.{number}"
        convolved = [gated(name, states, k, i, (k - 1) // 2) for i in range(len(states))]
        states = [(v + residual(name, x)) * half for v, x in zip(convolved, states, strict=True)]
    z = [affine("encoder_output", x) for x in states]
    g = embed("target", target)
    states = [affine("decoder_input", x) for x in g]
    for number, (_, k) in enumerate(convolution_shapes(SIZES["decoder_layers"])):
        name, following = f"decoder.{number}", []
        for i, state in enumerate(states):
            h = gated(name, states, k, i, k - 1)
            d = (affine(f"{name}.query", h) + g[i]) * half  # equation 1
            a = torch.softmax(torch.stack([d @ z_j for z_j in z]), 0)
            c = sum(a_j * (z_j + e_j) * half for a_j, z_j, e_j in zip(a, z, e, strict=True))  # equation 2
            c = c * len(source) * math.sqrt(1 / len(source))  # section 3.4
            following.append(((affine(f"{name}.context", c) + h) * half + residual(name, state)) * half)
        states = following
    return torch.stack([affine("decoder_output", x) for x in states])


def pair():
    sources, targets = [[7, 5, 9, 13, 11, EOS], [4, 19, EOS]], [[BOS, 4, 24, 8, 9], [BOS, 17, 6]]
    batch = Batch(
        torch.tensor([sources[0], [*sources[1], *[PAD] * 3]]),
        torch.tensor([[*targets[0], EOS], [*targets[1], EOS, PAD, PAD]]),
    )
    return sources, targets, batch


def perturbed():
    torch.manual_seed(1)
    return perturb(small().double().eval(), 0.2)


@torch.no_grad()
def test_features_follow_the_papers_equations_position_by_position():
    model = perturbed()
    sources, targets, batch = pair()
    features = model(batch).features
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        expected = by_the_paper(model, source, target)
        torch.testing.assert_close(features[i, : len(target)], expected, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_removing_the_weight_norm_changes_no_feature():
    model, (_, _, batch) = perturbed(), pair()
    expected = model.output(model(batch).features)
    numbers = model.num_parameters()
    remove_weight_norm(model)
    assert model.num_parameters() < numbers and not any("parametrizations" in key for key in model.state_dict())
    torch.testing.assert_close(model.output(model(batch).features), expected)


def test_the_gradient_of_the_encoders_output_is_divided_by_twice_the_number_of_attentions():
    """The memory's keys are z, and its values (z + e) * sqrt(0.5): e gets its gradient whole, z a share of its own."""
    model, (_, _, batch) = perturbed(), pair()
    layers = len(model.decoder)
    memory = model._encode(batch.source)
    bias, embedding = model.encoder_output.bias, model.source_embedding.weight
    of_keys = torch.autograd.grad(memory.keys.sum(), bias, retain_graph=True)[0]
    of_values = torch.autograd.grad(memory.values.sum(), bias, retain_graph=True)[0]
    positions = batch.source.numel()
    torch.testing.assert_close(of_keys, torch.full_like(bias, positions / (2 * layers)))
    torch.testing.assert_close(of_values, torch.full_like(bias, positions / (2 * layers) * HALF_VARIANCE))
    by_both = torch.autograd.grad(memory.values.sum(), embedding, retain_graph=True)[0]
    by_z = torch.autograd.grad(memory.keys.sum(), embedding)[0] * HALF_VARIANCE
    counts = torch.zeros(20).double().scatter_add_(0, batch.source.flatten(), torch.ones(positions).double())
    counts[PAD] = 0  # padding's row has no gradient
    torch.testing.assert_close(by_both - by_z, (counts[:, None] * HALF_VARIANCE).expand(-1, E))


@torch.no_grad()
def test_a_layer_preserves_variance_apart_from_what_its_gates_add():
    """Sections 3.4 and 3.5: var(a sigmoid(b)) is 4 E[sigmoid(b)^2] for b of variance 4; the paper takes 1/4 for it."""
    torch.manual_seed(3)
    layer = ConvolutionLayer(256, convolution_shapes("256k3")[0], 0.0, causal=False)
    states = layer(torch.randn(4, 60, 256), torch.ones(4, 60, 1, dtype=torch.bool))
    gated = 4 * torch.sigmoid(2 * torch.randn(100_000)).pow(2).mean()
    assert float(states[:, 1:-1].var()) == pytest.approx(float(gated + 1) / 2, rel=0.05)


def test_initialisation_follows_section_3_5():
    torch.manual_seed(2)
    options = {"encoder_layers": "100k3,120k1", "decoder_layers": "100k3,120k1", "embedding_size": 110}
    model = small(**options, output_size=90, dropout=0.2)
    weights = weights_of_norm(model)
    for key in [key for key in weights if "embedding" in key or "positions" in key]:
        assert weights[key][PAD + 1 :].std() == pytest.approx(0.1, rel=0.06), key
    after_dropout = {"encoder_input", "decoder_input", "output"}
    for key in [key for key in weights if key.endswith("weight") and "embedding" not in key and "positions" not in key]:
        name, inputs = key.removesuffix(".weight"), weights[key].shape[1]
        factor = 4 * 0.8 if name.endswith("convolution.linear") else 0.8 if name in after_dropout else 1.0
        assert weights[key].std() == pytest.approx(math.sqrt(factor / inputs), rel=0.06), key
        assert weights[f"{name}.bias"].count_nonzero() == 0


def test_the_loss_and_gradient_of_a_weight_normed_output_equal_those_of_its_logits():
    model, (_, _, batch) = perturbed().float(), pair()
    criterion = CrossEntropy(CrossEntropyOptions(), CriterionContext(None, model))
    found = criterion(model, batch).trained["loss"].total
    logits = model.output(model(batch).features)
    expected, _ = criterion.of_logits(logits.flatten(0, 1), batch.target_output.flatten())
    torch.testing.assert_close(found, expected)
    parameters = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_layers": "512"}, "--encoder-layers '512': not a description of layers"),
        ({"decoder_layers": "2x8k3,0x4k1"}, "--decoder-layers '0x4k1': not a description of layers"),
        ({"decoder_layers": ""}, "--decoder-layers '': not a description of layers"),
        ({"dropout": 1.0}, "--dropout"),
        ({"output_size": 0}, "--output-size"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(options, message):
    with pytest.raises(UserError, match=message):
        small(**options)
