"""COMET as the utility of mbr, with a stand-in for its library that is called as the library is."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scorers import RandomScorer, random_sources

from nmt import UserError
from nmt.decoders.base import Target
from nmt.decoders.mbr import Mbr, MbrOptions
from nmt.decoders.sampling import Sampling, SamplingOptions
from nmt.symbols import EOS

V = 9
SHARED = {"max_len_a": 0, "max_len_b": 4, "sampling_seed": 3}


def text(tokens):
    return " ".join(str(token) for token in tokens if token > EOS)


def likeness(pair):
    """A made-up score, of all three texts and of no two the same."""
    src, mt, ref = (set(pair[key].split()) for key in ("src", "mt", "ref"))
    return (len(mt & ref) + 0.3 * len(src & mt) - 0.1 * len(mt)) / 10


@pytest.fixture
def library(monkeypatch):
    """A module `comet`; `loaded` has the files that it was asked for."""
    module, loaded = ModuleType("comet"), []

    def load_from_checkpoint(checkpoint_path):
        loaded.append(checkpoint_path)

        def predict(samples, batch_size=16, gpus=1, progress_bar=True):
            assert gpus in (0, 1) and not progress_bar
            return SimpleNamespace(scores=[likeness(pair) for pair in samples], system_score=0.0)

        return SimpleNamespace(predict=predict)

    module.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    return loaded


def test_the_best_is_what_comet_expects_most_of(library, tmp_path):
    model = tmp_path / "model.ckpt"
    model.touch()
    scorer, rows = RandomScorer(12, V), random_sources(12, 5, V)
    decoder = Mbr(MbrOptions(utility="comet", comet_model=str(model), num_candidates=16, n_best=16, **SHARED))
    decoder.target, decoder.source_text = Target(text, list), text
    drawn = Sampling(SamplingOptions(n_best=16, **SHARED)).search(scorer, rows)
    for row, samples, found in zip(rows.tolist(), drawn, decoder.search(scorer, rows), strict=True):
        texts = [text(one.tokens) for one in samples]
        expected = {
            one: 100 * np.mean([likeness({"src": text(row), "mt": one, "ref": other}) for other in texts])
            for one in texts
        }
        assert {text(one.tokens): one.score for one in found} == pytest.approx(expected, abs=1e-6)
        assert found[0].score == pytest.approx(max(expected.values()), abs=1e-6)
    assert library == [str(model)]


def test_a_library_or_a_model_that_is_not_there_is_told_with_what_to_do(monkeypatch, tmp_path, library):
    options = MbrOptions(utility="comet", comet_model=str(tmp_path / "none.ckpt"))
    with pytest.raises(UserError, match=r"none\.ckpt: no COMET model"):
        Mbr(options)
    monkeypatch.setitem(sys.modules, "comet", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"pip install 'nmt-toolkit\[comet\]'"):
        Mbr(options)


@pytest.mark.parametrize("given", [{"utility": "comet"}, {"comet_model": "m.ckpt"}])
def test_comet_and_its_model_are_wanted_together(given):
    with pytest.raises(ValueError, match="comet needs a comet_model"):
        MbrOptions(**given)
