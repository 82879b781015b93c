"""Minimum Bayes risk against its definition, with the metrics of sacreBLEU as utilities."""

import numpy as np
import pytest
import sacrebleu
from scorers import RandomScorer, random_sources, with_texts

from nmt import UserError, registry
from nmt.decoders.beam import Beam, BeamOptions
from nmt.decoders.hypothesis import Constraints
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions
from nmt.extensions.searches.utilities import pairwise
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.metrics.chrf import Chrf, ChrfOptions

V = 7
TOKEN_TEXTS = ["", "", "", " ?", " a", "b", " ab"]
TEXTS = ["Das Haus ist groß .", "Das Haus ist klein .", "Häuser sind groß", "", "a", "das haus IST groß ."]


def text(tokens):
    return "".join(TOKEN_TEXTS[token] for token in tokens)


def build(**values):
    decoder = registry.build(registry.choose("decoder", "mbr", values))
    return with_texts(decoder, TOKEN_TEXTS)


@pytest.mark.parametrize("lowercase", [False, True])
def test_pairwise_chrf_equals_sacrebleus(lowercase):
    chrf, texts = sacrebleu.CHRF(lowercase=lowercase), [*TEXTS, TEXTS[0]]
    expected = [[chrf.sentence_score(own, [other]).score for other in texts] for own in texts]
    scores = pairwise(Chrf(ChrfOptions(lowercase=lowercase)), "", texts)
    assert scores == pytest.approx(np.array(expected), abs=1e-9)


def test_bleu_of_a_text_against_itself_is_100():
    texts = ["Das Haus ist groß .", "ein kleines Haus am See"]
    assert np.diag(pairwise(Bleu(BleuOptions()), "", texts)) == pytest.approx(100)


@pytest.mark.parametrize(
    ("utility", "of_pair"),
    [
        ("chrf", lambda own, other: sacrebleu.sentence_chrf(own, [other]).score),
        ("bleu", lambda own, other: sacrebleu.sentence_bleu(own, [other]).score),
    ],
)
def test_the_translation_of_least_risk_is_the_one_most_like_the_others(utility, of_pair):
    """Of the samples themselves: the expected utility of each, weighted by the number of times it was drawn."""
    scorer, rows = RandomScorer(12, V), random_sources(12, 6, V)
    shared = {"max_len_a": 0, "max_len_b": 4, "sampling_seed": 3, "temperature": 0.8}
    drawn = Sampling(SamplingOptions(n_best=16, **shared)).search(scorer, rows)
    mbr = build(num_candidates=16, n_best=2, utility=utility, **{f"candidates.{k}": v for k, v in shared.items()})
    ranked = mbr.search(scorer, rows)
    for samples, hypotheses in zip(drawn, ranked, strict=True):
        texts = [text(sample.tokens) for sample in samples]
        expected = {own: sum(of_pair(own, other) for other in texts) / 16 for own in texts}
        best = max(expected.values())
        assert hypotheses[0].score == pytest.approx(best, abs=1e-6)
        assert expected[text(hypotheses[0].tokens)] == pytest.approx(best, abs=1e-6)


def test_risk_over_a_beam_weighs_hypotheses_by_their_probability():
    scorer, rows = RandomScorer(13, V), random_sources(13, 6, V)
    options = {"max_len_a": 0, "max_len_b": 3}
    beams = Beam(BeamOptions(beam_size=8, n_best=8, length_penalty="none", **options)).search(scorer, rows)
    mbr = build(candidates="beam", num_candidates=8, **{f"candidates.{key}": value for key, value in options.items()})
    ranked = mbr.search(scorer, rows)
    for candidates, hypotheses in zip(beams, ranked, strict=True):
        weights = np.exp([candidate.log_prob for candidate in candidates])
        utilities = pairwise(Chrf(ChrfOptions()), "", [text(candidate.tokens) for candidate in candidates])
        expected = utilities @ (weights / weights.sum())
        assert hypotheses[0].score == pytest.approx(expected.max(), abs=1e-6)


def test_a_lower_is_better_utility_reverses_the_ranking():
    scorer, rows = RandomScorer(14, V), random_sources(14, 6, V)
    bounds = {"candidates.max_len_a": 0, "candidates.max_len_b": 3, "candidates.min_length": 2}
    ranked = build(utility="ter", num_candidates=12, n_best=12, **bounds).search(scorer, rows)
    drawn = Sampling(SamplingOptions(n_best=12, max_len_a=0, max_len_b=3, min_length=2)).search(scorer, rows)
    for samples, hypotheses in zip(drawn, ranked, strict=True):
        texts = [text(sample.tokens) for sample in samples]
        for hypothesis in hypotheses:
            edits = [sacrebleu.TER().sentence_score(text(hypothesis.tokens), [other]).score for other in texts]
            assert hypothesis.score == pytest.approx(-sum(edits) / 12)
        assert [hypothesis.score for hypothesis in hypotheses] == sorted(
            (hypothesis.score for hypothesis in hypotheses), reverse=True
        )


def test_candidates_of_a_constrained_beam_contain_their_phrases():
    scorer, rows = RandomScorer(15, V), random_sources(15, 6, V)
    mbr = build(candidates="constrained-beam", num_candidates=4, n_best=4, **{"candidates.max_len_a": 0})
    for hypotheses in mbr.search(scorer, rows, [Constraints(phrases=((4, 5),))] * len(rows)):
        assert all((4, 5) in zip(best.tokens, best.tokens[1:], strict=False) for best in hypotheses)


@pytest.mark.parametrize("candidates", ["sampling", "beam"])
def test_a_row_with_every_continuation_avoided_has_one_hypothesis_of_probability_0(candidates):
    scorer, rows = RandomScorer(16, V), random_sources(16, 2, V)
    nothing = Constraints(filters={"avoid": ("?", "a", "b", "ab")})
    mbr = build(candidates=candidates, num_candidates=4, n_best=4, **{"candidates.min_length": 1})
    for hypotheses, least in zip(mbr.search(scorer, rows, [nothing, Constraints()]), [1, 2], strict=True):
        assert len(hypotheses) >= least and (hypotheses[0].score == -np.inf) == (least == 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"candidates.n_best": 3}, r"--candidates.n-best 3: mbr always uses --num-candidates \(32\)"),
        (
            {"candidates": "beam", "candidates.beam_size": 8},
            r"--candidates.beam-size 8: mbr always uses --num-candidates \(32\)",
        ),
        ({"n_best": 33}, r"--n-best 33: must be at most --num-candidates \(32\)"),
    ],
)
def test_the_number_of_candidates_is_set_in_one_place(values, message):
    with pytest.raises(UserError, match=message):
        registry.choose("decoder", "mbr", values)
