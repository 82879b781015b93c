"""RMS norms, gated linear units, rotary positions and shared heads of keys and values, each against its definition."""

import math

import pytest
import torch
from small_models import SMALL, assert_search_steps_equal_the_whole, perturb
from torch.nn.functional import gelu, silu

from nmt import registry
from nmt.batch import flatten, make_batch
from nmt.errors import UserError
from nmt.extensions.fast.search_speedups.capture import capture_steps
from nmt.extensions.variants.feed_forwards.glu import GatedFeedForward
from nmt.extensions.variants.mixers.attention_variants import VariedSelfAttention
from nmt.extensions.variants.nn.rotary import rotated, rotations
from nmt.feed_forwards.base import FeedForwardShape
from nmt.models.base import Vocabularies
from nmt.models.layers import RMSNorm
from nmt.models.options import TransformerOptions
from nmt.nn.attention import MAX_PLAIN_SCORES, AttentionShape, CrossAttention, attention, recording
from nmt.nn.cost import count_flops

CPU = torch.device("cpu")
ROTARY = TransformerOptions(positions="rotary")
V = 20
ALL = {"norm": "rms", "ffn": "glu", "activation": "swish", "positions": "rotary", "kv_heads": 2}


def build(**options):
    torch.manual_seed(1)
    made = registry.choose("model", "transformer", SMALL["transformer"] | {"dropout": 0.0} | options)
    return registry.build(made, Vocabularies(V, V, True))


def random(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_an_rms_norm_divides_by_the_root_of_the_mean_square():
    norm, states = RMSNorm(5, eps=0.1).double(), random(3, 5)
    torch.nn.init.normal_(norm.weight)
    for row, found in zip(states, norm(states), strict=True):
        root = math.sqrt(sum(float(x) ** 2 for x in row) / 5 + 0.1)
        torch.testing.assert_close(found, row / root * norm.weight)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_every_norm_of_a_model_uses_the_configured_epsilon(norm):
    modules = build(norm=norm, norm_position="pre", norm_epsilon=0.1).modules()
    assert {module.eps for module in modules if hasattr(module, "eps")} == {0.1}


@pytest.mark.parametrize(("activation", "function"), [("swish", silu), ("gelu", gelu), ("relu", torch.relu)])
def test_a_gated_unit_is_the_product_of_two_projections_without_biases(activation, function):
    layer, states = GatedFeedForward(None, FeedForwardShape(4, 6, 0.0, activation)).double(), random(3, 4)
    gate, value = layer.inner.weight[:6], layer.inner.weight[6:]
    expected = (function(states @ gate.T) * (states @ value.T)) @ layer.outer.weight.T
    torch.testing.assert_close(layer(states), expected)
    torch.testing.assert_close(layer.search_step()(states), expected)
    assert {name for name, _ in layer.named_parameters()} == {"inner.weight", "outer.weight"}


def test_rotary_positions_are_the_papers_rotations_and_products_depend_on_the_distance_alone():
    K, T = 6, 7
    vectors = random(T, K)
    found = rotated(vectors, rotations(0, T, K, CPU).double())
    for position in range(T):
        for pair in range(K // 2):  # equation 15: the pair turns by m * theta_i, theta_i = 10000^(-2i/K)
            angle = position * 10000 ** (-2 * pair / K)
            x, y = vectors[position, pair], vectors[position, pair + K // 2]
            turned = torch.stack([x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)])
            torch.testing.assert_close(found[position, [pair, pair + K // 2]], turned, atol=1e-6, rtol=0)
    query, key = random(1, K, seed=2), random(1, K, seed=3)

    def product(of_query, of_key):
        places = (rotations(place, 1, K, CPU).double() for place in (of_query, of_key))
        return (rotated(query, next(places)) * rotated(key, next(places))).sum()

    torch.testing.assert_close(product(9, 4), product(25, 20), atol=1e-6, rtol=0)
    assert (product(9, 4) - product(9, 5)).abs() > 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_with_rotary_positions_is_attention_over_rotated_queries_and_keys(causal):
    layer, states = VariedSelfAttention(ROTARY, AttentionShape(8, 2, 4, 4)).double(), random(2, 5, 8)
    with recording() as weights:
        layer(states, causal=causal)
    queries, keys, _ = layer.queries_keys_values(states).split(8, -1)
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        turn = rotations(0, 5, 4, CPU).double()
        scores = rotated(queries[..., part], turn) @ rotated(keys[..., part], turn).mT / 2
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf) if causal else scores
        torch.testing.assert_close(weights[0][:, head], scores.softmax(-1))


def test_sinusoidal_rotary_positions_are_both_in_the_embeddings_and_in_self_attention():
    both, paper, rotary = (build(positions=name) for name in ("sinusoidal-rotary", "sinusoidal", "rotary"))
    both.load_state_dict(paper.state_dict())
    rotary.load_state_dict(paper.state_dict())
    torch.testing.assert_close(both.source_positions(3, 5), paper.source_positions(3, 5))
    one, _ = embedded_and_attended(both)
    torch.testing.assert_close(one, embedded_and_attended(paper)[0])
    torch.testing.assert_close(embedded_and_attended(both)[1], embedded_and_attended(rotary)[1])
    assert (embedded_and_attended(both)[1] - embedded_and_attended(paper)[1]).abs().max() > 1e-3


def embedded_and_attended(model):
    """The embedding of a sentence, and the first self-attention of fixed states."""
    vectors, states = random(1, 5, model.width).float(), random(1, 5, model.width, seed=3).float()
    embedded = model.eval().embed(vectors, model.source_positions(0, 5))
    return embedded, model.encoder_layers[0].self_attention(states)


def repeated(weight, heads, groups, width):
    """The rows of a projection to G heads, each repeated for the heads that share it."""
    return weight.unflatten(0, (groups, width)).repeat_interleave(heads // groups, 0).flatten(0, 1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("fused", [False, True])
def test_shared_heads_equal_attention_with_repeated_keys_and_values(groups, fused):
    H, K, values = 4, 3, 5
    length = int(MAX_PLAIN_SCORES**0.5) + 1 if fused else 6
    grouped = CrossAttention(AttentionShape(8, H, K, values, kv_heads=groups)).double()
    full = CrossAttention(AttentionShape(8, H, K, values)).double()
    keys, memory_values = grouped.keys_values.weight.split([groups * K, groups * values])
    weight = torch.cat([repeated(keys, H, groups, K), repeated(memory_values, H, groups, values)])
    full.load_state_dict(grouped.state_dict() | {"keys_values.weight": weight})
    states, memory = random(2, length, 8), random(2, length, 8, seed=4)
    mask = torch.ones(2, 1, 1, length, dtype=torch.bool)
    mask[1, ..., 4:] = False
    found, expected = (layer(states, layer.project_memory(memory), mask) for layer in (grouped, full))
    torch.testing.assert_close(found, expected)
    with recording() as weights:
        found, expected = (layer(states, layer.project_memory(memory), mask) for layer in (grouped, full))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(weights[0], weights[1])


def test_causal_attention_of_shared_heads_with_gradients_equals_the_fused_kernels():
    queries, keys, values = random(2, 4, 5, 3), random(2, 2, 5, 3, seed=2), random(2, 2, 5, 3, seed=3)
    found = attention(queries.requires_grad_(), keys, values, None, True, 0.0)
    with torch.no_grad():
        torch.testing.assert_close(found, attention(queries, keys, values, None, True, 0.0))


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for name, value in ALL.items() if name != "activation"),
        ALL,
        ALL | {"norm_position": "pre", "tie_layers": "all", "attention_window": 2, "d_k": 6, "d_v": 10},
        ALL | {"decoder_autoregression": "average-attention", "norm_position": "pre"},
        ALL | {"decoder_autoregression": "ssru", "kv_heads": 1},
        {"positions": "relative", "relative_distance": 2, "kv_heads": 2, "tie_layers": "decoder"},
    ],
    ids=str,
)
def test_a_transformer_steps_as_it_reads_and_costs_what_torch_counts(options):
    model = perturb(build(**options), 0.2).eval()
    batch = make_batch(flatten([[5, 6, 7], [8, 9, 5, 6]]), flatten([[5, 6, 5, 8, 9], [9, 9, 7]]))
    assert_search_steps_equal_the_whole(model, batch)
    pair = make_batch(flatten([[5, 6, 7]]), flatten([[5, 6, 5, 8]]))
    counted = count_flops(lambda: model.output(model(pair).features))
    assert counted == int(model.flops(torch.tensor([4]), torch.tensor([5])))


def test_parameter_counts_match_the_formulas():
    D, F, H, G, K = 32, 64, 4, 2, 8
    norm_weights = lambda model: sum(p.numel() for name, p in model.named_parameters() if "norm" in name)  # noqa: E731
    assert norm_weights(build(norm="rms")) * 2 == norm_weights(build())
    dense, glu = build(), build(ffn="glu")
    assert glu.num_parameters() - dense.num_parameters() == 4 * (D * F - F - D)  # of four layers, W more, biases less
    shared = build(kv_heads=G)
    assert dense.num_parameters() - shared.num_parameters() == 2 * 2 * 2 * D * (H - G) * K  # of the decoder's layers
    assert shared.encoder[0].state_dict().keys() == dense.encoder[0].state_dict().keys()
    assert build(positions="rotary").num_parameters() == dense.num_parameters()
    assert shared.state_bytes(10, 16) * H == dense.state_bytes(10, 16) * G


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kv_heads": 3}, "--kv-heads 3: must divide --heads 4"),
        ({"kv_heads": 8}, "--kv-heads 8: must divide --heads 4"),
        ({"positions": "rotary", "d_k": 5}, "--positions rotary: heads must have an even width, not 5"),
        ({"ffn": "moe", "activation": "swish"}, "--activation swish: experts support only relu"),
        ({"ffn": "moe", "tie_layers": "all"}, "--tie-layers all and --ffn moe cannot be combined"),
    ],
)
def test_incompatible_settings_are_refused(options, told):
    with pytest.raises(UserError, match=told):
        build(**options)


@pytest.mark.parametrize("options", [{"positions": "rotary"}, {"kv_heads": 1}, {"decoder_autoregression": "ssru"}])
def test_cuda_graphs_are_refused_if_sizes_or_inputs_differ(options):
    with pytest.raises(UserError, match="--capture needs plain self-attention"):
        capture_steps(build(**options))
