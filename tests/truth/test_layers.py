"""Code rewritten for speed equals what it replaces: dropout its definition, attention torch's own."""

import math

import pytest
import torch
from torch.nn import functional

from nmt.nn import attention as nn_attention
from nmt.nn.attention import MAX_PLAIN_SCORES, attention
from nmt.nn.dropout import DRAW_VALUES, dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_dropout_zeroes_its_share_of_numbers_and_keeps_the_mean(probability):
    torch.manual_seed(1)
    states = torch.full((301, 333), 3.0)  # not a multiple of the four draws of a random number
    dropped = dropout(states, probability, True)
    chance = round(probability * DRAW_VALUES) / DRAW_VALUES
    assert chance == pytest.approx(probability, abs=1 / DRAW_VALUES)
    assert dropped.unique().tolist() == pytest.approx([0.0, 3 / (1 - chance)])
    deviation = (chance * (1 - chance) / states.numel()) ** 0.5
    assert (dropped == 0).double().mean().item() == pytest.approx(chance, abs=4 * deviation)
    for other in (dropped.roll(1, 0), dropped.roll(1, 1), dropped.roll(4, 1)):  # neighbours know nothing of each other
        both = ((dropped == 0) & (other == 0)).double().mean().item()
        assert both == pytest.approx(chance**2, abs=4 * deviation)


def test_dropout_draws_a_new_mask_from_torchs_generator_and_its_gradient_is_that_mask():
    states = torch.randn(40, 50, requires_grad=True)
    torch.manual_seed(3)
    first, second = dropout(states, 0.2, True), dropout(states, 0.2, True)
    torch.manual_seed(3)
    assert torch.equal(dropout(states, 0.2, True), first) and not torch.equal(first, second)
    (gradient,) = torch.autograd.grad(first.sum(), states)
    assert torch.equal(gradient * states, first)
    assert dropout(states.bfloat16(), 0.2, True).dtype == torch.bfloat16
    assert dropout(states, 0.2, False) is states and dropout(states, 0.0, True) is states


def test_dropout_close_to_1_never_divides_by_zero_and_1_is_refused():
    assert dropout(torch.ones(100, 1000), 1 - 1e-9, True).isfinite().all()
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            dropout(torch.ones(2), wrong, True)


def heads(rows: int, columns: int, values: int = 6) -> list[torch.Tensor]:
    """Queries, keys and values as the layers make them: (B, H, T, K), its heads side by side in memory."""
    shapes = [(3, rows, 4, 8), (3, columns, 4, 8), (3, columns, 4, values)]
    return [torch.randn(*shape).transpose(1, 2).requires_grad_() for shape in shapes]


@pytest.mark.parametrize(
    ("rows", "columns", "masked", "causal"),
    [(5, 7, True, False), (6, 6, False, True), (5, 7, False, False), (1, 1, True, False)],
)
def test_plain_attention_and_its_gradient_equal_torchs(rows, columns, masked, causal):
    torch.manual_seed(1)
    given, upstream = heads(rows, columns), torch.randn(3, 4, rows, 6)
    lengths = torch.tensor([columns, max(columns - 2, 1), 1])
    mask = (torch.arange(columns) < lengths[:, None])[:, None, None, :] if masked else None
    ours = attention(*given, mask, causal, 0.0)
    torchs = functional.scaled_dot_product_attention(*given, mask, 0.0, causal)
    pairs = zip(
        [ours, *torch.autograd.grad(ours, given, upstream)],
        [torchs, *torch.autograd.grad(torchs, given, upstream)],
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_plain_attention_drops_weights_and_keeps_their_mean():
    torch.manual_seed(1)
    queries, keys, _ = heads(30, 40)
    found = attention(queries, keys, torch.ones(3, 4, 40, 1), None, False, 0.25)  # the sum of what is left
    assert found.std() > 0.01 and found.mean().item() == pytest.approx(1, abs=0.02)


def test_short_sentences_use_plain_attention_when_gradients_are_needed(monkeypatch):
    calls = []
    by_torch = functional.scaled_dot_product_attention
    monkeypatch.setattr(
        nn_attention,
        "scaled_dot_product_attention",
        lambda *given, **named: calls.append(1) or by_torch(*given, **named),
    )

    def plainly(rows: int, columns: int) -> bool:
        calls.clear()
        attention(*heads(rows, columns), None, False, 0.0)
        return not calls

    side = math.isqrt(MAX_PLAIN_SCORES)
    assert plainly(side, side) and plainly(1, side**2) and not plainly(side, side + 1)
    with torch.no_grad():
        assert not plainly(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert plainly(4, 4)
        of_bfloat16 = [states.bfloat16() for states in heads(4, 4)]  # from a layer of a plug-in
        attention(*of_bfloat16, None, False, 0.0)
        assert calls
