"""ByteNet against the paper's blocks, written out position by position, its receptive field and its size."""

import math

import pytest
import torch
from small_models import assert_search_steps_equal_the_whole, perturb
from torch.nn.functional import layer_norm

from nmt import registry
from nmt.batch import Batch
from nmt.errors import UserError
from nmt.models.base import Vocabularies
from nmt.options import make
from nmt.symbols import BOS, EOS, PAD

D = 4
SIZES = {"hidden_size": D, "encoder_layers": 4, "decoder_layers": 3, "max_dilation": 2, "bucket": 3}


def build(**options):
    return registry.build(registry.choose("model", "bytenet", SIZES | options), Vocabularies(20, 25, False))


def perturbed(**options):
    torch.manual_seed(1)
    return perturb(build(**options).double().eval(), 0.3)


def parameters_by_formula(source, target, d, k, blocks):
    """facts: blocks of width 2 d with norms, embeddings of 2 d, and a head of one hidden layer."""
    block = (2 * d * d + d) + (k * d * d + d) + (d * 2 * d + 2 * d) + 2 * (2 * d + d + d)
    return blocks * block + (source + target) * 2 * d + (2 * d * d + d) + (d * target + target)


def test_the_papers_size_has_271_905_923_parameters():
    assert parameters_by_formula(296, 323, 800, 3, 60) == 271_905_923
    options = make(registry.find("model", "bytenet").options, registry.find_preset("bytenet").values)
    with torch.device("meta"):
        model = registry.find("model", "bytenet").cls(options, Vocabularies(296, 323, False))
    assert model.num_parameters() == 271_905_923
    assert sum(parameter.numel() for parameter in model.decoder[0].parameters()) == 4_489_600


def reached(blocks, length, position, causal):
    """The inputs that an output position of a stack of blocks depends on."""
    states = torch.zeros(1, length, 2 * D, dtype=torch.float64)
    torch.manual_seed(2)
    states.normal_().requires_grad_()
    result = states
    mask = None if causal else torch.ones(1, length, 1, dtype=torch.bool)
    for block in blocks:
        result = block(result, mask)
    (gradient,) = torch.autograd.grad(result[0, position].sum(), states)
    return gradient[0].abs().amax(-1).nonzero().flatten().tolist()


def test_the_receptive_field_of_the_papers_layers_is_373_characters():
    """1 + 2 (1 + 2 + 4 + 8 + 16) of each of six sets; the paper's text has 315, which no reading of it gives."""
    assert 1 + 2 * 31 * 6 == 373
    model = perturbed(encoder_layers=30, decoder_layers=30, max_dilation=16)
    assert reached(model.decoder, 400, 390, causal=True) == list(range(390 - 372, 391))
    assert reached(model.encoder, 400, 200, causal=False) == list(range(200 - 186, 200 + 187))


def by_the_paper(model, source, target, a=1.2, b=0):
    """Sections 3.1 to 3.6 for one sentence in float64: the features of each position of target, which starts with BOS."""
    weights = model.state_dict()

    def affine(name, x):
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def normed(name, x):
        return layer_norm(x, x.shape, weights[f"{name}.weight"], weights[f"{name}.bias"]).relu()

    def block(name, states, offsets):
        inner = [
            normed(f"{name}.convolution_norm", affine(f"{name}.reduce", normed(f"{name}.reduce_norm", x)))
            for x in states
        ]
        zeros, following = torch.zeros_like(inner[0]), []
        for i, x in enumerate(states):
            taps = [inner[i + o] if 0 <= i + o < len(inner) else zeros for o in offsets]
            convolved = affine(f"{name}.convolution.linear", torch.cat(taps))
            following.append(x + affine(f"{name}.expand", normed(f"{name}.expand_norm", convolved)))
        return following

    unfolded = math.ceil(a * 3 * math.ceil(len(source) / 3) + b - 1e-9)
    nothing = torch.zeros(2 * D).double()
    padded = [*source, *[PAD] * (unfolded - len(source))]
    states = [weights["source_embedding.weight"][word] for word in padded]
    for i in range(SIZES["encoder_layers"]):
        states = block(f"encoder.{i}", states, [-(2 ** (i % 2)), 0, 2 ** (i % 2)])
    memory = [states[i] if i < unfolded else nothing for i in range(len(target))]
    embedded = [weights["target_embedding.weight"][word] for word in target]
    if model.options.combine == "add":
        states = [e + m for e, m in zip(embedded, memory, strict=True)]
    else:
        states = [affine("combine", torch.cat([e, m])) for e, m in zip(embedded, memory, strict=True)]
    for i in range(SIZES["decoder_layers"]):
        states = block(f"decoder.{i}", states, [-2 * 2 ** (i % 2), -(2 ** (i % 2)), 0])
    return torch.stack([affine("head", x).relu() for x in states])


SOURCES = [[7, 5, 9, 13, 11, EOS], [4, 19, EOS]]
TARGETS = [[BOS, 4, 24, 8, 9, 12], [BOS, 17, 6, 5, 5, 7]]  # the second is longer than its unfolded source
BATCH = Batch(torch.tensor([SOURCES[0], [*SOURCES[1], *[PAD] * 3]]), torch.tensor([[*row, EOS] for row in TARGETS]))


@pytest.mark.parametrize("options", [{}, {"combine": "concat"}, {"unfold_factor": 1.0, "unfold_offset": 1}])
@torch.no_grad()
def test_features_follow_the_papers_equations_position_by_position(options):
    model = perturbed(**options)
    features = model(BATCH).features
    unfolding = options.get("unfold_factor", 1.2), options.get("unfold_offset", 0)
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        torch.testing.assert_close(features[i], by_the_paper(model, source, target, *unfolding))


@pytest.mark.parametrize("combine", ["add", "concat"])
def test_a_search_step_equals_the_whole_sentence_within_1e_5(combine):
    assert_search_steps_equal_the_whole(perturbed(combine=combine).float(), BATCH)


def test_a_source_is_padded_to_the_next_multiple_of_fifty_and_unfolded_by_a_fifth():
    lengths = torch.tensor([1, 49, 50, 51, 100, 250])
    assert build(bucket=50).unfolded(lengths).tolist() == [60, 60, 60, 120, 120, 300]
    assert build(bucket=1, unfold_factor=1.5, unfold_offset=2).unfolded(lengths).tolist() == [4, 76, 77, 79, 152, 377]


@torch.no_grad()
def test_the_state_of_a_search_stops_growing_with_the_target():
    model, source = perturbed().float(), torch.tensor([SOURCES[0]])
    assert model.state_bytes(6, 10) == model.state_bytes(6, 1000)
    state = model.start(source)
    size = sum(tensor.numel() for tensor in state.sentences.values())
    for _ in range(30):
        _, state = model.step(torch.tensor([5]), state)
    assert sum(tensor.numel() for tensor in state.sentences.values()) == size and not state.hypotheses


@pytest.mark.parametrize(
    "options", [{"max_dilation": 3}, {"hidden_size": 0}, {"unfold_factor": 0.9}, {"bucket": 0}, {"dropout": 1.0}]
)
def test_an_invalid_setting_is_refused_by_name(options):
    with pytest.raises(UserError, match=f"--{next(iter(options))}".replace("_", "-")):
        build(**options)


@torch.no_grad()
def test_an_untrained_model_predicts_nearly_evenly():
    """Thirty blocks keep the variance: the loss before training is near log V."""
    torch.manual_seed(3)
    model = build(hidden_size=64, encoder_layers=30, decoder_layers=30, max_dilation=16).eval()
    logits = model.output(model(BATCH).features)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), BATCH.target_output.flatten())
    assert float(loss) < math.log(25) + 1.5
