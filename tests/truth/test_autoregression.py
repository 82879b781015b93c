"""Replacements for a decoder's self-attention against their equations, and Transformers with such decoders."""

import pytest
import torch
from conftest import small_model

from nmt.batch import flatten, make_batch
from nmt.checkpoint import load_model
from nmt.extensions.variants.mixers.average_attention import AverageAttention
from nmt.extensions.variants.mixers.ssru import SimplerRecurrence
from nmt.models.base import scorer_for_search
from nmt.models.options import TransformerOptions
from nmt.nn.attention import AttentionShape
from nmt.nn.cost import count_flops
from nmt.symbols import BOS, EOS

CPU = torch.device("cpu")
SIZES = {"d_model": 16, "d_ff": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
BOTH = pytest.mark.parametrize("autoregression", ["ssru", "average-attention"])


def average_attention(width, inner):
    layer = AverageAttention(TransformerOptions(d_ff=inner), AttentionShape(width, 1, width, width)).double()
    for bias in (layer.gates.bias, layer.feed_forward.inner.bias, layer.feed_forward.outer.bias):
        torch.nn.init.normal_(bias)
    return layer


def test_ssru_follows_the_recursion_of_its_paper():
    torch.manual_seed(1)
    layer, states = (
        SimplerRecurrence(None, AttentionShape(6, 1, 6, 6)).double(),
        torch.randn(3, 5, 6, dtype=torch.float64),
    )
    torch.nn.init.normal_(layer.forget.bias)
    found = layer(states)
    for sentence in range(3):
        cell = torch.zeros(6, dtype=torch.float64)
        for position in range(5):
            x = states[sentence, position]
            forget = 1 / (1 + torch.exp(-(layer.forget.weight @ x + layer.forget.bias)))
            cell = forget * cell + (1 - forget) * (layer.values.weight @ x)
            torch.testing.assert_close(found[sentence, position], cell.clamp(min=0))


def test_average_attention_follows_the_equations_of_its_paper():
    torch.manual_seed(1)
    layer, states = average_attention(6, 9), torch.randn(3, 5, 6, dtype=torch.float64)
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    found = layer(states)
    for sentence in range(3):
        for position in range(5):
            y = states[sentence, position]
            mean = sum(states[sentence, i] for i in range(position + 1)) / (position + 1)
            g = outer.weight @ (inner.weight @ mean + inner.bias).clamp(min=0) + outer.bias
            gates = 1 / (1 + torch.exp(-(layer.gates.weight @ torch.cat([y, g]) + layer.gates.bias)))
            torch.testing.assert_close(found[sentence, position], gates[:6] * y + gates[6:] * g)


@pytest.mark.parametrize(
    "layer", [SimplerRecurrence(None, AttentionShape(3, 1, 3, 3)).double(), average_attention(3, 4)]
)
def test_its_gradient_equals_finite_differences(layer):
    torch.manual_seed(2)
    states = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (states,))


@BOTH
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_its_decoder_gives_the_same_step_by_step_and_keeps_one_vector_per_hypothesis(
    norm_position, autoregression, tmp_path
):
    options = SIZES | {"norm_position": norm_position, "decoder_autoregression": autoregression}
    folder = small_model(tmp_path / "model", **options)
    model = load_model(folder, CPU).model
    source, target = [[5, 6, 7], [8, 9, 5, 6]], [[5, 6, 5, 8], [9, 9, 7]]
    batch = make_batch(*map(flatten, (source, target)))
    whole = model.output(model(batch).features).log_softmax(-1)
    scorer = scorer_for_search(model)
    with torch.inference_mode():
        state, tokens = scorer.start(batch.source), torch.full((2,), BOS)
        for position in range(4):
            log_probs, state = scorer.step(tokens, state)
            torch.testing.assert_close(log_probs, whole[:, position])
            tokens = batch.target_input[:, position + 1] if position < 3 else tokens
    assert state.hypotheses["1.cell"].shape == (2, 16) and state.ancestors is None
    kept = {name for name in state.sentences if name.endswith((".keys", ".values"))}
    assert not kept


@BOTH
def test_its_flops_equal_those_of_torchs_counter(autoregression, tmp_path):
    folder = small_model(tmp_path / "model", **SIZES, decoder_autoregression=autoregression)
    model = load_model(folder, CPU).model
    batch = make_batch(flatten([[5, 6, 7]]), flatten([[5, 6, 5, 8, 9]]))
    assert count_flops(lambda: model.output(model(batch).features)) == int(
        model.flops(torch.tensor([batch.source.shape[1]]), torch.tensor([batch.target_input.shape[1]]))
    )


@BOTH
@pytest.mark.parametrize("decoder", ["beam", "greedy", "sampling"])
def test_it_translates_the_same_alone_in_a_batch_and_with_8_bit_weights(decoder, autoregression, tmp_path, call):
    folder = small_model(tmp_path / "model", **SIZES, decoder_autoregression=autoregression)
    lines = ["a b c", "c b", "a a b b c c a"]
    flags = ["--model", folder, f"--decoder={decoder}", "--alignment=hard" if decoder == "beam" else "--quiet"]
    (tmp_path / "all").write_text("".join(f"{line}\n" for line in lines))
    together = call("translate", *flags, "--input", tmp_path / "all")
    assert together.code == 0, together.err
    for line, expected in zip(lines, together.out.splitlines(), strict=True):
        (tmp_path / "one").write_text(f"{line}\n")
        assert call("translate", *flags, "--input", tmp_path / "one").out == f"{expected}\n"
    assert call("export", "--format=int8", "--model", folder, "--output", tmp_path / "int8").code == 0
    assert call("translate", "--model", tmp_path / "int8", "--input", tmp_path / "all").code == 0


def test_without_eos_in_the_source_nothing_depends_on_it(tmp_path):
    model = load_model(
        small_model(tmp_path / "model", **SIZES, decoder_autoregression="ssru", source_eos=False), CPU
    ).model
    batch = make_batch(flatten([[5, 6, 7], [8]]), flatten([[5, 6], [9, 5]]))
    before = model(batch).features[:, :3]
    with torch.no_grad():
        model.source_embedding.weight[2] += 1  # EOS
    torch.testing.assert_close(model(batch).features[:, :3], before)
    with torch.no_grad():
        model.source_embedding.weight[7] += 1
    assert not torch.allclose(model(batch).features[:, :3], before)
    with torch.inference_mode():  # a source without words still has a position to look at
        log_probs, _ = model.step(torch.tensor([BOS]), model.start(torch.tensor([[EOS]])))
    assert log_probs.isfinite().all()
