"""The Transformer against the paper's numbers: parameter counts, sinusoids, scaling, initialisation."""

import math

import pytest
import torch

from nmt import registry
from nmt.batch import Batch
from nmt.models.base import Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.nn.attention import INITIAL_CACHE_STEPS
from nmt.options import make
from nmt.positions.sinusoidal import sinusoids

PRINTED = {  # the paper's Table 3, millions of parameters; rows without a number have the base model's 65
    "transformer-base": 65,
    "table3-a-h1": 65,
    "table3-a-h4": 65,
    "table3-a-h16": 65,
    "table3-a-h32": 65,
    "table3-b-dk16": 58,
    "table3-b-dk32": 60,
    "table3-c-n2": 36,
    "table3-c-n4": 50,
    "table3-c-n8": 80,
    "table3-c-d256": 28,
    "table3-c-d1024": 168,
    "table3-c-ff1024": 53,
    "table3-c-ff4096": 90,
    "table3-d-dropout0": 65,
    "table3-d-dropout2": 65,
    "table3-d-smoothing0": 65,
    "table3-d-smoothing2": 65,
}
AT_37000 = {
    "transformer-base": 63_045_632,
    "table3-b-dk16": 55_967_744,
    "table3-b-dk32": 58_327_040,
    "table3-c-n2": 33_644_544,
    "table3-c-n4": 48_345_088,
    "table3-c-n8": 77_746_176,
    "table3-c-d256": 26_816_512,
    "table3-c-d1024": 163_815_424,
    "table3-c-ff1024": 50_450_432,
    "table3-c-ff4096": 88_236_032,
    "transformer-big": 214_171_648,
    "transformer-big-en-fr": 214_171_648,
}


def options_of(preset: str, **changes: object) -> TransformerOptions:
    return make(TransformerOptions, {**registry.find_preset(preset).values, **changes})


def count(options: TransformerOptions, source: int, target: int | None = None) -> int:
    with torch.device("meta"):
        return Transformer(options, Vocabularies(source, target or source, target is None)).num_parameters()


def formula(o: TransformerOptions, vocabulary: int) -> int:
    """Weights of a post-norm, tied model without biases in attention, counted from the equations of section 3."""
    d, keys, values = o.d_model, o.heads * (o.d_k or o.d_model // o.heads), o.heads * (o.d_v or o.d_model // o.heads)
    attention = 2 * d * keys + 2 * d * values
    feed_forward, norm = 2 * d * o.d_ff + o.d_ff + d, 2 * d
    encoder = o.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = o.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return vocabulary * d + encoder + decoder


@pytest.mark.parametrize("preset", sorted({*PRINTED, *AT_37000}))
def test_every_row_of_table_3_has_the_parameter_count_of_its_formula(preset):
    options = options_of(preset)
    assert count(options, 37000) == formula(options, 37000) == AT_37000.get(preset, 63_045_632)


@pytest.mark.parametrize("preset", PRINTED)
def test_a_table_of_41100_rows_gives_every_printed_count(preset):
    assert round(count(options_of(preset), 41_100) / 1e6) == PRINTED[preset]


def test_the_parser_has_three_tables_besides_the_layers_of_the_formula():
    options = options_of("transformer-parsing")
    assert (options.encoder_layers, options.d_model, options.d_ff, options.heads) == (4, 1024, 2048, 8)
    assert count(options, 16_000, 72) == formula(options, 16_000 + 2 * 72) == 100_483_072


def test_learned_positions_add_one_table_per_side():
    options = options_of("table3-e-learned")
    assert count(options, 37000) == 63_045_632 + 2 * options.max_positions * 512


def test_the_big_model_has_the_papers_213_million_with_36000_rows():
    assert int(count(options_of("transformer-big"), 36_000) / 1e6) == 213


def test_with_biases_the_counts_equal_fairseqs():
    assert count(options_of("transformer-big", attention_bias=True), 32_768) == 209_911_808
    assert count(options_of("transformer-base", attention_bias=True), 32_768) == 60_915_712
    assert count(options_of("transformer-iwslt", attention_bias=True), 8_848, 6_632) == 39_469_056


def test_the_papers_sinusoids_interleave_and_the_reference_codes_are_halves():
    paper, t2t = sinusoids(2, 512, "sinusoidal"), sinusoids(2, 512, "t2t-sinusoidal")
    assert paper[1, 0].item() == pytest.approx(0.841471, abs=1e-6)
    assert paper[1, 1].item() == pytest.approx(0.540302, abs=1e-6)
    assert paper[1, 510].item() == pytest.approx(math.sin(1.03663e-4), rel=1e-5)
    assert t2t[1, 0].item() == pytest.approx(0.841471, abs=1e-6)
    assert t2t[1, 256].item() == pytest.approx(0.540302, abs=1e-6)
    assert t2t[1, 255].item() == pytest.approx(1e-4, rel=1e-5)


def tiny(**changes: object) -> Transformer:
    torch.manual_seed(3)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "heads": 4, "dropout": 0.0}
    return Transformer(make(TransformerOptions, {**sizes, **changes}), Vocabularies(50, 50, True)).eval()


def test_embeddings_are_scaled_by_the_root_of_the_width():
    model = tiny()
    tokens = torch.tensor([[7, 9]])
    embedded = model.embed(model.source_embedding(tokens), model.source_positions(0, 2))
    expected = model.source_embedding.weight[tokens] * math.sqrt(32) + sinusoids(2, 32, "sinusoidal")
    torch.testing.assert_close(embedded, expected)


def test_queries_keys_and_values_are_drawn_as_separate_glorot_matrices():
    weight = tiny(d_model=256, heads=4).encoder[0].self_attention.queries_keys_values.weight
    limit = math.sqrt(6 / (256 + 256))
    for part in weight.split(256):
        assert part.abs().max() <= limit
        assert part.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def test_embeddings_start_with_the_variance_of_the_reference_code():
    table = Transformer(TransformerOptions(), Vocabularies(5000, 5000, True)).source_embedding.weight
    assert table[1:].std().item() == pytest.approx(512**-0.5, rel=0.02)
    assert table[0].abs().sum() == 0


def test_post_norm_leaves_each_layer_normalised_and_pre_norm_only_the_end():
    source = torch.randint(4, 50, (2, 5))
    post, pre = tiny(), tiny(norm_position="pre")
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    embedded = post.embed(post.source_embedding(source), post.source_positions(0, 5))
    after_layer = post.encoder[0](embedded, mask)
    torch.testing.assert_close(after_layer.mean(-1), torch.zeros(2, 5), atol=1e-5, rtol=0)
    assert pre.encoder[0](embedded, mask).mean(-1).abs().max() > 1e-3
    torch.testing.assert_close(pre.encode(source, mask).mean(-1), torch.zeros(2, 5), atol=1e-5, rtol=0)
    assert count(pre.options, 50) == count(post.options, 50) + 2 * 2 * 32


def test_a_head_follows_equation_1():
    attention = tiny().encoder[0].self_attention
    states = torch.randn(2, 5, 32)
    queries, keys, values = attention.split(attention.queries_keys_values(states), *[(4, 8)] * 3)
    weights = torch.softmax(queries @ keys.transpose(2, 3) / math.sqrt(32 // 4), dim=-1)
    expected = attention.output((weights @ values).transpose(1, 2).reshape(2, 5, 32))
    torch.testing.assert_close(attention(states), expected, atol=1e-5, rtol=1e-5)


def test_word_by_word_equals_the_whole_sentence_while_the_caches_grow():
    model = tiny(decoder_layers=2)
    source, target = torch.randint(4, 50, (3, 6)), torch.randint(4, 50, (3, 3 * INITIAL_CACHE_STEPS + 1))
    state, found = model.start(source), []
    with torch.no_grad():
        for position in range(3 * INITIAL_CACHE_STEPS):
            log_probs, state = model.step(target[:, position], state)
            found.append(log_probs)
        expected = model.log_probs(model(Batch(source, target)).features)
    torch.testing.assert_close(torch.stack(found, 1), expected, atol=1e-5, rtol=1e-5)


def test_a_sentence_longer_than_any_table_has_positions():
    model = tiny()
    state = model.start(torch.randint(4, 50, (1, 700)))
    assert state.sentences["0.memory_keys"].shape[3] == 700
    learned = tiny(positions="learned", max_positions=8)
    assert learned.start(torch.randint(4, 50, (1, 20))).sentences["0.memory_keys"].isfinite().all()
