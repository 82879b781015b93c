"""The memory network against the paper's equations, token by token, its size, its preset and what it can learn."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from nmt import registry
from nmt.batch import Batch
from nmt.errors import UserError
from nmt.models.base import Vocabularies
from nmt.options import make
from nmt.symbols import BOS, EOS, PAD

D, M, HOPS, V = 7, 3, 4, 20
ENTRY = registry.find("model", "memory-network")


def build(**options):
    torch.manual_seed(1)
    sizes = {"hops": HOPS, "memory_size": M, "embedding_size": D, "init_std": 0.7}
    return ENTRY.cls(make(ENTRY.options, sizes | options), Vocabularies(V, V, True))


def by_the_paper(model, sentence, linear):
    """u^K before each next token of a sentence, which starts with BOS: equations of sections 2 and 5 in float64."""
    w = model.state_dict()
    features = []
    for end in range(1, len(sentence) + 1):
        memory = list(enumerate(reversed(sentence[max(end - M, 0) : end])))  # the newest first
        m = [w["keys.weight"][token] + w["key_times"][i] for i, token in memory]
        c = [w["values.weight"][token] + w["value_times"][i] for i, token in memory]
        u = torch.full((D,), 0.1, dtype=torch.float64)
        for _ in range(HOPS):
            p = torch.stack([u @ m_i for m_i in m]).softmax(0)
            o = sum(p_i * c_i for p_i, c_i in zip(p, c, strict=True))
            u = w["transition.weight"] @ u + o
            u = torch.stack([number if i < linear else number.relu() for i, number in enumerate(u)])
        features.append(u)
    return torch.stack(features)


@pytest.mark.parametrize(("linear_size", "linear"), [(None, 3), (0, 0), (5, 5), (7, 7)])
def test_features_follow_the_papers_equations_for_the_last_tokens_of_each_sentence(linear_size, linear):
    model = build(linear_size=linear_size).double()
    long, short = [BOS, 4, 19, 8, 8, 11], [BOS, 17]
    target = torch.tensor([[*long, EOS], [*short, EOS, *[PAD] * 4]])
    features = model(Batch(torch.tensor([[9, EOS]] * 2), target)).features
    torch.testing.assert_close(features[0], by_the_paper(model, long, linear))
    torch.testing.assert_close(features[1, : len(short)], by_the_paper(model, short, linear))


def test_the_papers_size_has_4_552_500_parameters():
    """A, B and W of 10,000 words, T_A and T_B of 100 tokens, and one H; all are 150 wide."""
    assert 3 * 10_000 * 150 + 2 * 100 * 150 + 150 * 150 == 4_552_500
    options = make(ENTRY.options, registry.find_preset("memory-network").values)
    with torch.device("meta"):
        assert ENTRY.cls(options, Vocabularies(10_000, 10_000, True)).num_parameters() == 4_552_500


def test_the_presets_update_equals_the_authors_sum_over_128_predictions():
    values = registry.find_preset("memory-network").values
    gradient = torch.tensor([30.0, 40.0, 120.0])  # a sum, of norm 130
    for scale in (1.0, 0.1):  # clipped, and not
        total = gradient * scale
        authors = 0.01 * total * min(1, 50 / total.norm())
        mean = total / values["batch_tokens"]
        clipped = mean * min(1, values["clip_norm"] / mean.norm())
        torch.testing.assert_close(values["lr"] * clipped, authors)
    assert (values["batch_tokens"], values["plateau_factor"]) == (128, pytest.approx(1 / 1.5))


def test_it_learns_to_copy_the_token_three_positions_back_in_unseen_sentences():
    """Only the time vectors tell which token of the memory that is."""
    model = build(memory_size=5, embedding_size=24, init_std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def batch():
        period = torch.randint(EOS + 1, V, (64, 3))
        return Batch(torch.full((64, 1), EOS), torch.cat([torch.full((64, 1), BOS), period.repeat(1, 3)], 1))

    for _ in range(200):
        pairs = batch()
        logits = model.output(model(pairs).features)[:, 3:]
        loss = cross_entropy(logits.flatten(0, 1), pairs.target_output[:, 3:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pairs = batch()
    best = model.output(model(pairs).features).argmax(-1)
    assert torch.equal(best[:, 3:], pairs.target_output[:, 3:])


def test_a_linear_part_wider_than_the_state_is_refused():
    with pytest.raises(UserError, match="--linear-size 8: must be at most --embedding-size 7"):
        build(linear_size=8)
