"""Several models asked together, against the definition of both means."""

import math

import pytest
import torch

from nmt import registry
from nmt.batch import Batch
from nmt.decoders.beam import Beam, BeamOptions
from nmt.models.base import SearchScorer, Vocabularies
from nmt.models.transformer import Transformer
from nmt.symbols import BOS, EOS, PAD, UNK
from nmt.translate.ensemble import Ensemble

V = 20
SMALL = {
    "transformer": {"encoder_layers": 1, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 2},
    "rnnsearch": {"embedding_size": 12, "hidden_size": 16, "attention_size": 8, "maxout_size": 10},
}


def model(name, seed):
    torch.manual_seed(seed)
    built = registry.build(registry.choose("model", name, SMALL[name]), Vocabularies(V, V, True)).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.3)
    return built


MODELS = [("transformer", 1), ("rnnsearch", 2), ("transformer", 3)]
SOURCE = torch.tensor([[5, 6, 7, EOS], [8, EOS, PAD, PAD], [9, 5, EOS, PAD]])


def told(scorer, tokens):
    """Log-probabilities after each of some words, and where each step looked."""
    with torch.inference_mode():
        state, found, seen = scorer.start(SOURCE), [], []
        state.watched = True
        for token in (BOS, *tokens):
            log_probs, state = scorer.step(torch.full((len(SOURCE),), token), state)
            found.append(log_probs)
            seen.append(state.attention)
    return torch.stack(found), torch.stack(seen)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0], [0.0, 1.0, 1.0]])
def test_an_ensemble_averages_probabilities_or_normalised_log_probabilities(weights):
    models = [model(*which) for which in MODELS]
    alone = [told(one, [5, 9]) for one in models]
    shares = [weight / sum(weights or [1, 1, 1]) for weight in weights or [1, 1, 1]]
    linear = sum(share * found.double().exp() for share, (found, _) in zip(shares, alone, strict=True)).log()
    geometric = sum(share * found.double() for share, (found, _) in zip(shares, alone, strict=True)).log_softmax(-1)
    looked = sum(share * seen for share, (_, seen) in zip(shares, alone, strict=True))
    for mean, expected in (("probabilities", linear), ("log-probabilities", geometric)):
        found, seen = told(Ensemble(models, weights, mean), [5, 9])
        assert torch.allclose(found.double(), expected, atol=1e-5)
        assert torch.allclose(found.exp().sum(-1), torch.ones(()), atol=1e-5)
        assert torch.allclose(seen, looked, atol=1e-5)
        rows = torch.tensor([[BOS, 5, 9, EOS]]).expand(len(SOURCE), -1)
        together = Ensemble(models, weights, mean)
        cross = together.attentions(Batch(SOURCE, rows))["cross"][together.alignment_layer].mean(1)  # B T S
        assert torch.allclose(cross.transpose(0, 1), looked, atol=1e-5)


def test_an_ensemble_of_a_model_with_itself_equals_the_model():
    one, search = model("transformer", 1), Beam(BeamOptions(n_best=4, max_len_b=5))
    for mean in ("probabilities", "log-probabilities"):
        for ones, others in zip(
            search.search(one, SOURCE), search.search(Ensemble([one, one], None, mean), SOURCE), strict=True
        ):
            assert [each.tokens for each in ones] == [each.tokens for each in others]
            assert [each.score for each in ones] == pytest.approx([each.score for each in others], abs=1e-5)


def test_an_ensemble_translates_the_same_alone_and_in_a_batch():
    together = Ensemble([model(*which) for which in MODELS])
    search = Beam(BeamOptions(n_best=3, max_len_b=6))
    for row, ones in zip(SOURCE, search.search(together, SOURCE), strict=True):
        alone = search.search(together, row[None, : int((row != PAD).sum())])[0]
        assert [each.tokens for each in ones] == [each.tokens for each in alone]
        assert [each.score for each in ones] == pytest.approx([each.score for each in alone], abs=1e-4)
        assert all(token >= UNK for each in ones for token in each.tokens)


def test_what_a_search_stores_in_the_state_of_an_ensemble_follows_the_hypotheses():
    together = Ensemble([model(*which) for which in MODELS])

    def start(source):
        state = together.start(source)
        state.hypotheses["read"] = torch.zeros(len(source), V, dtype=torch.bool)
        return state

    def step(tokens, state):
        read = state.hypotheses.pop("read").scatter(1, tokens[:, None], True)
        log_probs, state = together.step(tokens, state)
        state.hypotheses["read"] = read
        return log_probs.masked_fill(read, -math.inf), state

    search = Beam(BeamOptions(n_best=4, beam_size=4, max_len_a=0, max_len_b=12))
    for hypotheses in search.search(SearchScorer(start, step), SOURCE.repeat(4, 1)):
        assert all(len(set(each.tokens)) == len(each.tokens) for each in hypotheses)


def test_a_model_is_prepared_once_for_a_search_and_not_for_each_step(monkeypatch):
    ready, made = [], Transformer.search_steps
    monkeypatch.setattr(Transformer, "search_steps", lambda one: ready.append(one) or made(one))
    together = Ensemble([model(*which) for which in MODELS])
    Beam(BeamOptions(max_len_b=3)).search(together, SOURCE)
    assert ready == [together.models[0], together.models[2]]


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [1.0, math.nan, 1.0], [1e308] * 3])
def test_invalid_weights_are_refused(weights):
    with pytest.raises(ValueError, match="must be 3 non-negative numbers"):
        Ensemble([model(*which) for which in MODELS], weights)
