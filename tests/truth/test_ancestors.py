"""The ancestors that a search state records, against a model that copies the past of each hypothesis."""

import pytest
import torch
from scorers import random_sources

from nmt.decoders.beam import Beam, BeamOptions
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions
from nmt.models.base import State
from nmt.symbols import BOS
from nmt.translate.ensemble import Ensemble

V, D = 9, 8


class Copying(torch.nn.Module):
    """The next token depends on all earlier vectors by their positions. State: the past of each hypothesis, (N, t, D)"""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(V, D, generator=generator)
        self.output = torch.randn(D, V, generator=generator)

    def start(self, source):
        return State({"bias": self.vectors[source % V].sum(1)}, {"past": torch.empty(len(source), 0, D)})

    def step(self, tokens, state):
        past = torch.cat([state.hypotheses["past"], self.vectors[tokens][:, None]], 1)  # N t D
        return self.log_probs(past, state), state.after(state.sentences, {"past": past}, None)

    def log_probs(self, past, state):
        bias = state.sentences["bias"]
        weights = torch.arange(1.0, past.shape[1] + 1).cos()[:, None]
        features = (past * weights).sum(1) + bias.repeat_interleave(len(past) // len(bias), 0)
        return (features @ self.output).log_softmax(-1)


class Gathering(Copying):
    """The same model, with a vector per entry of a sentence, (B, E, D), of which each hypothesis gathers its past."""

    def start(self, source):
        return State({"bias": self.vectors[source % V].sum(1), "entries": torch.empty(len(source), 0, D)})

    def step(self, tokens, state):
        entries = state.sentences["entries"]
        B = len(entries)
        ancestors = state.append_entries(tokens, B)  # N t
        entries = torch.cat([entries, self.vectors[tokens].view(B, -1, D)], 1)  # B E D
        assert entries.shape[1] == state.num_entries
        index = ancestors.view(B, -1, 1).expand(-1, -1, D)  # B Wt D
        past = entries.gather(1, index).view(len(tokens), -1, D)  # N t D
        return self.log_probs(past, state), state.after(state.sentences | {"entries": entries}, {}, None)


DECODERS = {
    "beam": Beam(BeamOptions(beam_size=5, n_best=5, max_len_b=7, alpha=1.0)),
    "sampling": Sampling(SamplingOptions(n_best=6, max_len_b=7)),
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_model_that_gathers_by_ancestors_equals_one_that_copies_its_past(name, seed):
    source = random_sources(seed, 12, V)
    assert DECODERS[name].search(Gathering(seed), source) == DECODERS[name].search(Copying(seed), source)


def test_each_model_of_an_ensemble_has_its_own_record_of_ancestors():
    source = random_sources(1, 12, V)
    kinds = [(Copying, Copying), (Copying, Gathering), (Gathering, Gathering)]
    found = [DECODERS["beam"].search(Ensemble([one(1), other(2)]), source) for one, other in kinds]
    assert found[0] == found[1] == found[2]


def test_ancestors_follow_hypotheses_that_change_places_and_sentences_that_leave():
    state = State({"memory": torch.zeros(2, 1)})
    state.append_entries(torch.tensor([BOS, BOS]), 2)
    state = state.after(state.sentences, {}, None)
    state.reorder(torch.tensor([0, 0, 1, 1]))
    assert state.append_entries(torch.tensor([4, 5, 6, 7]), 2).tolist() == [[0, 1], [0, 2], [0, 1], [0, 2]]
    state = state.after(state.sentences, {}, None)
    state.reorder(torch.tensor([1, 0, 3, 3]))
    assert state.append_entries(torch.tensor([4, 5, 6, 7]), 2).tolist() == [[0, 2, 3], [0, 1, 4], [0, 2, 3], [0, 2, 4]]
    state.keep(torch.tensor([1]), torch.tensor([3, 2]))
    assert state.ancestors.tolist() == [[0, 2, 4], [0, 2, 3]]
    assert (state.num_entries, len(state.sentences["memory"])) == (5, 1)
