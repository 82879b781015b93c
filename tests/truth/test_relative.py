"""Relative positions (Shaw et al., 2018) and restricted self-attention against their equations, pair by pair."""

import math

import pytest
import torch

from nmt import registry
from nmt.extensions.variants.mixers.attention_variants import PlacedEntries, VariedSelfAttention, window_mask
from nmt.mixers.self_attention import Entries
from nmt.models.base import Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.nn.attention import AttentionShape, recording
from nmt.options import make

B, H, K, V, D = 2, 3, 5, 4, 12


def self_attention(distance, separate=False, values=True):
    torch.manual_seed(3)
    options = TransformerOptions(
        positions="relative",
        relative_distance=distance,
        relative_heads="separate" if separate else "shared",
        relative_values=values,
    )
    attention = VariedSelfAttention(options, AttentionShape(D, H, K, V)).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention


def by_pairs(attention, states, visible):
    """Equations 3 and 4 for each sentence, head and pair of positions. visible: (B, T, T)"""
    k, relative = attention.relative.distance, attention.relative

    def vector(table, head, i, j):
        rows = table[head] if table.dim() == 3 else table
        return rows[max(-k, min(j - i, k)) + k]

    projected = attention.queries_keys_values(states).split([H * K, H * K, H * V], dim=-1)
    queries, keys, values = (part.unflatten(-1, (H, -1)) for part in projected)  # B T H K
    sums = torch.zeros(*states.shape[:2], H, V, dtype=states.dtype)
    T = states.shape[1]
    for b in range(len(states)):
        for head in range(H):
            for i in range(T):
                seen = [j for j in range(T) if visible[b, i, j]]
                scores = [
                    queries[b, i, head] @ (keys[b, j, head] + vector(relative.keys, head, i, j)) / math.sqrt(K)
                    for j in seen
                ]
                for weight, j in zip(torch.stack(scores).softmax(0), seen, strict=True):
                    value = values[b, j, head]
                    if relative.values is not None:
                        value = value + vector(relative.values, head, i, j)
                    sums[b, i, head] += weight * value
    return attention.output(sums.flatten(2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("distance", [1, 3, 6, 9])
@pytest.mark.parametrize(("separate", "values"), [(False, True), (True, True), (True, False)])
def test_attention_with_relative_positions_follows_equations_3_and_4(distance, separate, values, causal):
    attention, T = self_attention(distance, separate, values), 6
    states = torch.randn(B, T, D, dtype=torch.float64)
    mask = torch.arange(T) < torch.tensor([T, 4])[:, None]  # B T
    visible = torch.ones(B, T, T).tril().bool() if causal else mask[:, None].expand(B, T, T)
    given = None if causal else mask[:, None, None]
    expected = by_pairs(attention, states, visible)
    found = attention(states, given, causal)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    gradients, wanted = (
        torch.autograd.grad((output * weights).sum(), list(attention.parameters())) for output in (found, expected)
    )
    torch.testing.assert_close(gradients, wanted)


def test_a_search_in_bfloat16_on_a_cpu_scores_relative_positions_in_float32_as_training_does():
    attention, T = self_attention(3).float(), 7
    states = torch.randn(B, T, D)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole = attention(states, causal=True)
        step, past = attention.search_step(), attention.begin(states, torch.float32).sentences
        for t in range(T):
            ages = torch.arange(t, -1, -1)
            entries = PlacedEntries(Entries(t, torch.zeros(B * H, 1, t + 1)), ages, None)
            found, past = step(states[:, t], past, entries)
            torch.testing.assert_close(found, whole[:, t], atol=1e-5, rtol=1e-5)


def test_a_sentence_of_one_word_has_the_vector_of_distance_0():
    attention, states = self_attention(2), torch.randn(B, 1, D, dtype=torch.float64)
    torch.testing.assert_close(attention(states), by_pairs(attention, states, torch.ones(B, 1, 1)))


@pytest.mark.parametrize(
    ("preset", "changes", "k", "tables", "more"),
    [
        ("transformer-base-relative", {}, 16, 8, 405_504),
        ("transformer-base-relative", {"relative_heads": "shared"}, 16, 1, 50_688),
        ("transformer-big-relative", {}, 8, 1, 26_112),
    ],
)
def test_the_preset_has_only_2k_plus_1_more_vectors_than_the_papers_model(preset, changes, k, tables, more):
    def parameters(name, **changes):
        with torch.device("meta"):
            options = make(TransformerOptions, {**registry.find_preset(name).values, **changes})
            return Transformer(options, Vocabularies(37000, 37000, True)).num_parameters()

    without = parameters(preset.removesuffix("-relative"))
    assert parameters(preset, **changes) - without == more == 12 * 2 * tables * (2 * k + 1) * 64  # in 12 layers
    assert parameters(preset, **changes, relative_values=False) - without == more // 2


def test_relative_positions_replace_those_that_are_added_to_embeddings():
    options = make(TransformerOptions, {"positions": "relative", "encoder_layers": 1, "decoder_layers": 1})
    model = Transformer(options, Vocabularies(50, 50, True)).eval()
    vectors = model.source_embedding(torch.tensor([[7, 9]]))
    assert torch.equal(model.embed(vectors, model.source_positions(0, 2)), vectors * math.sqrt(512))
    assert model.decoder[0].cross_attention.state_dict().keys() == {
        "output.weight",
        "queries.weight",
        "keys_values.weight",
    }


@pytest.mark.parametrize("window", [1, 2, 3, 5, 20])
def test_a_window_shows_the_positions_of_section_4(window):
    T = 7
    mask = torch.arange(T) < torch.tensor([T, 4])[:, None]  # B T
    encoder, decoder = (
        window_mask(T, window, mask[:, None, None], causal, mask.device).expand(B, 1, T, T) for causal in (False, True)
    )
    for b in range(B):
        for i in range(T):
            around = [abs(i - j) <= (window - 1) // 2 and bool(mask[b, j]) for j in range(T)]
            if mask[b, i]:
                assert encoder[b, 0, i].tolist() == around
            assert encoder[b, 0, i].any() and not encoder[b, 0, i][~mask[b]].any()
            assert decoder[b, 0, i].tolist() == [0 <= i - j < window for j in range(T)]


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_windowed_attention_weighs_only_visible_positions_with_every_kernel(causal):
    attention = VariedSelfAttention(TransformerOptions(attention_window=3), AttentionShape(D, H, K, V))
    states = torch.randn(B, 6, D)
    with recording() as recorded:  # plainly
        plain = attention(states, None, causal)
    visible = window_mask(6, 3, None, causal, states.device).expand(B, H, 6, 6)
    assert torch.equal(recorded[0] > 0, visible)
    torch.testing.assert_close(attention(states, None, causal), plain)
