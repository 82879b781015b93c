"""Minimum Bayes risk against its definition, with the metrics of sacreBLEU as utilities."""

import numpy as np
import pytest
import sacrebleu
from scorers import RandomScorer, random_sources

from nmt.decoders.base import Target
from nmt.decoders.beam import Beam, BeamOptions
from nmt.decoders.mbr import Mbr, MbrOptions
from nmt.decoders.sampling import Sampling, SamplingOptions
from nmt.metrics.bleu import Bleu, BleuOptions
from nmt.metrics.chrf import Chrf, ChrfOptions

V = 7
TOKEN_TEXTS = ["", "", "", " ?", " a", "b", " ab"]
TEXTS = ["Das Haus ist groß .", "Das Haus ist klein .", "Häuser sind groß", "", "a", "das haus IST groß ."]


def text(tokens):
    return "".join(TOKEN_TEXTS[token] for token in tokens)


def with_text(decoder):
    decoder.target = Target(text, lambda: TOKEN_TEXTS)
    return decoder


@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf_between_all_texts_is_that_of_sacrebleu(lowercase):
    chrf, texts = sacrebleu.CHRF(lowercase=lowercase), [*TEXTS, TEXTS[0]]
    expected = [[chrf.sentence_score(own, [other]).score for other in texts] for own in texts]
    scores = Chrf(ChrfOptions(lowercase=lowercase)).pairwise("", texts)
    assert scores == pytest.approx(np.array(expected), abs=1e-9)


def test_bleu_of_a_text_against_itself_is_100():
    texts = ["Das Haus ist groß .", "ein kleines Haus am See"]
    assert np.diag(Bleu(BleuOptions()).pairwise("", texts)) == pytest.approx(100)


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
    shared = {"max_len_a": 0, "max_len_b": 4, "sampling_seed": 3}
    drawn = Sampling(SamplingOptions(n_best=16, **shared)).search(scorer, rows)
    ranked = with_text(Mbr(MbrOptions(num_candidates=16, n_best=2, utility=utility, **shared))).search(scorer, rows)
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
    ranked = with_text(Mbr(MbrOptions(candidates="beam", num_candidates=8, **options))).search(scorer, rows)
    for candidates, hypotheses in zip(beams, ranked, strict=True):
        weights = np.exp([candidate.log_prob for candidate in candidates])
        utilities = Chrf(ChrfOptions()).pairwise("", [text(candidate.tokens) for candidate in candidates])
        expected = utilities @ (weights / weights.sum())
        assert hypotheses[0].score == pytest.approx(expected.max(), abs=1e-6)
