"""GLEU by its definition: one pool of n-grams of 1 to 4 tokens, clipped matches, the smaller of precision and recall."""

import random

import pytest

from nmt.extensions.scores.metrics.gleu import Gleu
from nmt.metrics.bleu import BleuOptions

GIVEN = BleuOptions(tokenize="none")


def ngrams(line):
    """All n-grams of a line, those that occur twice listed twice."""
    tokens = line.split()
    return [tokens[i:j] for i in range(len(tokens)) for j in range(i + 1, min(i + 4, len(tokens)) + 1)]


def matches(hypothesis, reference):
    """How many n-grams of the hypothesis can be crossed out in the reference, each once."""
    left, crossed = ngrams(reference), 0
    for ngram in ngrams(hypothesis):
        if ngram in left:
            left.remove(ngram)
            crossed += 1
    return crossed


@pytest.fixture
def lines():
    """60 pairs of lines of 0 to 9 words, of few words, so that n-grams are repeated."""
    chance = random.Random(4)
    return [[" ".join(chance.choices("abc", k=chance.randint(0, 9))) for _ in range(60)] for _ in range(2)]


def test_sentence_gleu_is_the_smaller_of_pooled_ngram_precision_and_recall(lines):
    assert Gleu(GIVEN).sentence_scores(["a a b"], [["a b"]]) == [pytest.approx(100 * 3 / 6)]  # a, b, a b of 6
    expected = [
        100 * matches(*pair) / most if (most := max(map(len, map(ngrams, pair)))) else 0
        for pair in zip(*lines, strict=True)
    ]
    assert len({*expected}) > 20 and Gleu(GIVEN).sentence_scores(lines[0], [lines[1]]) == pytest.approx(expected)


def corpus_gleu(hypotheses, *references):
    """NLTK's definition: the sum of the matches over the sum of the larger sides; of equal references the first."""
    common = most = 0
    for hypothesis, *of_line in zip(hypotheses, *references, strict=True):
        sides = [
            (matches(hypothesis, reference), max(len(ngrams(hypothesis)), len(ngrams(reference))))
            for reference in of_line
        ]
        best = max([side for side in sides if side[1]] or [(0, 0)], key=lambda side: side[0] / max(side[1], 1))
        common, most = common + best[0], most + best[1]
    return 100 * common / most


def test_corpus_gleu_is_total_matches_over_the_total_of_the_larger_sides(lines):
    # NLTK 3.10: corpus_gleu([["a b c d".split()], ["a".split()]], ["a b".split(), "a b c".split()])
    assert Gleu(GIVEN)(["a b", "a b c"], [["a b c d", "a"]]).value == 100 * (3 + 1) / (10 + 6)
    assert Gleu(GIVEN)(lines[0], [lines[1]]).value == pytest.approx(corpus_gleu(*lines), abs=1e-12)
    second = ["a b c" if i % 3 else "c" for i in range(len(lines[0]))]
    assert Gleu(GIVEN)(lines[0], [lines[1], second]).value == pytest.approx(corpus_gleu(*lines, second), abs=1e-12)


def test_swapping_translation_and_reference_does_not_change_the_value(lines):
    assert Gleu(GIVEN).sentence_scores(*lines[:1], lines[1:]) == Gleu(GIVEN).sentence_scores(lines[1], lines[:1])


def test_the_signature_names_tokenizer_and_case():
    raw, other = ["Ja, so."], ["ja , so ."]
    assert Gleu(BleuOptions(lowercase=True))(raw, [other]).value == 100
    assert Gleu(BleuOptions())(raw, [other]).value == pytest.approx(100 * 6 / 10)  # 3 tokens match, 2 pairs, 1 of three
    assert Gleu(GIVEN)(raw, [other]).value == 0
    assert "|case:lc|tok:none|ngrams:1-4|" in Gleu(BleuOptions(lowercase=True, tokenize="none"))(raw, [other]).signature
    assert "|case:mixed|tok:13a|" in Gleu(BleuOptions())(raw, [other]).signature


def test_the_best_matching_of_several_references_is_used(lines):
    metric, (hypotheses, first) = Gleu(GIVEN), [[line or "a" for line in side] for side in lines]
    second = first[::-1]
    alone = [metric.sentence_scores(hypotheses, [references]) for references in (first, second)]
    assert metric.sentence_scores(hypotheses, [first, second]) == list(map(max, *alone))
    assert metric(hypotheses, [first, hypotheses]).value == 100
