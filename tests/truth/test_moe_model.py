"""The translator of Shazeer et al. (2017) against its equations word by word, and against its published sizes."""

from pathlib import Path

import pytest
import torch
from small_models import perturb

from nmt import registry
from nmt.batch import Batch
from nmt.errors import UserError
from nmt.models.base import Vocabularies
from nmt.nn.extra_losses import add_losses
from nmt.symbols import BOS, EOS, PAD

D, H, A = 8, 12, 6


def small(**options):
    torch.manual_seed(1)
    sizes = {"d_model": D, "hidden_size": H, "attention_size": A, "expert_size": 10, "experts": 4, "active_experts": 2}
    model = registry.build(registry.choose("model", "moe", sizes | options), Vocabularies(20, 25, False))
    return perturb(model, 0.2).double().eval()


def lstm(d, h):
    """4 gates of [x; h] with biases, and the projection (facts: systems.md 2.9)."""
    return 4 * (d + 512) * h + 4 * h + h * 512


SIZES = {"moe-32": (32, None), "moe-512": (512, 32), "moe-2048": (2048, 32)}


@pytest.mark.parametrize("name", SIZES)
def test_models_of_the_papers_sizes_have_its_total_and_active_parameter_counts(name):
    experts, groups = SIZES[name]
    V, d = 32_000, 512
    values = registry.find_preset(name).values
    with torch.device("meta"):
        model = registry.build(registry.choose("model", "moe", values), Vocabularies(V, V, True))
    lstms = 4 * lstm(d, 2048) + lstm(2 * d, 2048)
    gates = d * experts if groups is None else d * groups + d * experts
    thresholds = experts if groups is None else groups + experts
    attention = 2 * d * d + d
    published = 2 * experts * 2 * d * 2048 + 2 * gates + lstms + 3 * V * d
    assert model.num_parameters() == published + attention + 2 * thresholds
    if name == "moe-2048":
        assert round(published / 1e9, 3) == round(model.num_parameters() / 1e9, 3) == 8.693
    page = Path(__file__).parents[2] / "docs/explanation/systems/moe.md"
    assert f"| {model.num_parameters() / 1e9:.3f}B |" in next(
        row for row in page.read_text().splitlines() if f"`{name}`" in row
    )
    active = lstms + V * d + 2 * 4 * 2 * d * 2048
    assert round(active / 1e6, 1) == 84.6
    # The formula leaves out what the model has besides: gates, attention's matrices, and sums over the source.
    scored = gates if groups is None else d * groups + 2 * d * experts // groups
    pair = 2 * (d + 4 * 2048)
    cost = int(model.flops(torch.tensor([1]), torch.tensor([1])))
    biases = 5 * 4 * 2048
    assert cost == 2 * (active - biases + 2 * scored + 2 * d * d) + pair


def cell(weights, name, x, h, c):
    """One step: gates in the order output, input, forget, candidate."""
    gates = weights[f"{name}.inputs.weight"] @ x + weights[f"{name}.inputs.bias"]
    return after(weights, name, gates, h, c)


def after(weights, name, gates, h, c):
    o, i, f, candidate = (gates + weights[f"{name}.cell.recurrent.weight"] @ h).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate)
    return weights[f"{name}.cell.projection.weight"] @ (torch.sigmoid(o) * torch.tanh(c)), c


def run(weights, name, inputs):
    h, c, outputs = torch.zeros(D).double(), torch.zeros(H).double(), []
    for x in inputs:
        h, c = cell(weights, name, x, h, c)
        outputs.append(h)
    return outputs


def mixture(weights, side, x):
    """Equation 16 with thresholds, then equation 1."""
    scores = torch.softmax(weights[f"experts.{side}.gate.weight"][0] @ x, 0)
    kept = scores * (scores > weights[f"experts.{side}.gate.thresholds"][0])
    inner, outer = weights[f"experts.{side}.inner"], weights[f"experts.{side}.outer"]
    chosen = kept.nonzero().flatten().tolist()
    return sum((kept[i] / kept.sum() * (outer[i] @ torch.relu(inner[i] @ x)) for i in chosen), torch.zeros(D).double())


def by_the_paper(model, source, target):
    """Appendices E and G for one sentence: the features before each word of target, and the attention weights."""
    weights = model.state_dict()
    words = [weights["source_embedding.weight"][word] for word in source]
    forwards = run(weights, "first_lstm", words)
    if model.options.bidirectional:
        backwards = run(weights, "second_lstm", words[::-1])[::-1]
    else:
        backwards = run(weights, "second_lstm", [x + h for x, h in zip(words, forwards, strict=True)])
    states = [sum(all_three) for all_three in zip(words, forwards, backwards, strict=True)]
    states = [x + torch.sigmoid(mixture(weights, 0, x)) for x in states]
    memory = [x + h for x, h in zip(states, run(weights, "third_lstm", states), strict=True)]
    query, keys, V = (
        weights[f"attentive_lstm.attention.{key}"] for key in ("query.weight", "keys.weight", "direction")
    )
    h, c = torch.zeros(D).double(), torch.zeros(H).double()
    features, attention, contexts = [], [], []
    for word in target:
        y = weights["target_embedding.weight"][word]
        energies = [(V * torch.tanh(keys @ x) * torch.tanh(query @ h)).sum() for x in memory]  # appendix G
        alpha = torch.softmax(torch.stack(energies), 0)
        attention.append(alpha)
        context = sum(a * x for a, x in zip(alpha, memory, strict=True))
        contexts.append(context)
        gates = weights["attentive_lstm.inputs.weight"] @ y + weights["attentive_lstm.inputs.bias"]
        h, c = after(weights, "attentive_lstm", gates + weights["attentive_lstm.context.weight"] @ context, h, c)
        features.append(y + h)
    features = [x + torch.sigmoid(mixture(weights, 1, x)) for x in features]
    features = [x + h for x, h in zip(features, run(weights, "decoder_lstm", features), strict=True)]
    if model.options.read_out_context:
        features = [x + weights["read_out_context.weight"] @ c for x, c in zip(features, contexts, strict=True)]
    return torch.stack(features), torch.stack(attention)


@pytest.mark.parametrize(("bidirectional", "read_out_context"), [(True, False), (False, False), (True, True)])
@torch.no_grad()
def test_features_and_attention_follow_the_papers_equations_word_by_word(bidirectional, read_out_context):
    model = small(bidirectional=bidirectional, read_out_context=read_out_context)
    sources, targets = [[7, 5, 9, 13, EOS], [4, 19, EOS]], [[BOS, 4, 24, 8], [BOS, 17, 6]]
    batch = Batch(
        torch.tensor([sources[0], [*sources[1], PAD, PAD]]),
        torch.tensor([[*targets[0], EOS], [*targets[1], EOS, PAD]]),
    )
    features, attention = model(batch).features, model.attentions(batch)["cross"][0, :, 0]
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        expected, weights = by_the_paper(model, source, target)
        torch.testing.assert_close(features[i, : len(target)], expected)
        torch.testing.assert_close(attention[i, : len(target), : len(source)], weights, check_dtype=False)


def test_expert_losses_are_sums_over_both_mixtures_per_target_token(monkeypatch):
    model = small().train()
    batch = Batch(torch.tensor([[5, 6, 7, EOS], [8, EOS, PAD, PAD]]), torch.tensor([[BOS, 7, EOS], [BOS, 8, EOS]]))
    balances = []

    def note(losses):
        balances.append(losses)
        add_losses(losses)

    monkeypatch.setattr("nmt.extensions.variants.nn.moe.add_losses", note)
    output = model(batch)
    assert set(output.extra_losses) == {"importance_loss", "threshold_loss"}
    assert set(output.reported) == {"importance_cv", "load_cv", "max_load"}
    for name, (total, count) in output.extra_losses.items():
        assert count == 4  # two words and two ends
        torch.testing.assert_close(total, 4 * sum(balance.losses[name] for balance in balances))
    for name, (total, count) in output.reported.items():
        torch.testing.assert_close(total / count, sum(balance.statistics[name] for balance in balances) / 2)
        assert not total.requires_grad


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"dropout": 1.0}, "--dropout"),
        ({"experts": 6, "expert_groups": 4}, "--experts 6: must be a multiple of --expert-groups 4"),
        ({"experts": 8, "expert_groups": 4, "active_experts": 3}, "--active-experts 3: must be at most 2"),
        ({"active_experts": 5}, "--active-experts 5: must be at most 4"),
        ({"gates": "soft"}, "--gates"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(options, flag):
    with pytest.raises(UserError, match=flag):
        small(**options)
