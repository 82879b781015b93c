"""Searches against the enumeration of every translation, over small random scorers."""

import itertools
import math

import pytest
import torch
from scorers import RandomScorer, random_sources

from nmt.decoders.base import SearchOptions
from nmt.decoders.beam import Beam, BeamOptions, Beams
from nmt.decoders.filters import leave_only
from nmt.decoders.greedy import Greedy
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions, top_p
from nmt.extensions.searches.decoders.sampling import draw as draw_columns
from nmt.models.base import State
from nmt.symbols import BOS, EOS, UNK

V = 6
WORDS = (UNK, 4, 5)  # all that a translation can hold


def sources(seed, count=7):
    return random_sources(seed, count, V)


def log_prob(scorer, source, tokens):
    """The log-probability of a translation of one row, word for word."""
    state, total = scorer.start(source[None]), 0.0
    for read, said in zip([BOS, *tokens], [*tokens, EOS], strict=True):
        log_probs, state = scorer.step(torch.tensor([read]), state)
        total += float(log_probs[0, said])
    return total


def everything(scorer, source, limit, shortest=1):
    """Every translation of one row: [(tokens, log-probability)]."""
    return [
        (list(tokens), log_prob(scorer, source, tokens))
        for length in range(shortest, limit + 1)
        for tokens in itertools.product(WORDS, repeat=length)
    ]


PENALTIES = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "average": lambda length, alpha: length**alpha,
    "none": lambda length, alpha: 1.0,
}


def beam(**options):
    return Beam(BeamOptions(**options))


@pytest.mark.parametrize(("length", "expected"), [(10, 1.732862), (20, 2.354362), (28, 2.781106)])
def test_the_length_penalty_has_the_values_of_gnmt(length, expected):
    assert BeamOptions(alpha=0.6).divisor(length) == pytest.approx(expected, abs=1e-6)


def test_the_average_penalty_is_a_power_of_the_length_and_no_penalty_is_1():
    assert BeamOptions(length_penalty="average", alpha=1.0).divisor(7) == 7
    assert BeamOptions(length_penalty="none", alpha=1.0).divisor(7) == 1


@pytest.mark.parametrize("penalty", list(PENALTIES))
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_that_holds_everything_finds_the_optimum(penalty, seed):
    scorer, rows, limit = RandomScorer(seed, V), sources(seed, 4), 4
    search = beam(beam_size=3**limit, n_best=10, length_penalty=penalty, alpha=0.9, max_len_a=0, max_len_b=limit)
    for row, found in zip(rows, search.search(scorer, rows), strict=True):
        scored = [
            (total / PENALTIES[penalty](len(tokens) + 1, 0.9), total, tokens)
            for tokens, total in everything(scorer, row, limit)
        ]
        best = sorted(scored, reverse=True)[:10]
        assert [one.tokens for one in found] == [tokens for _, _, tokens in best]
        assert [one.score for one in found] == pytest.approx([score for score, _, _ in best], abs=1e-4)
        assert [one.log_prob for one in found] == pytest.approx([total for _, total, _ in best], abs=1e-4)


def test_a_beam_that_holds_everything_returns_exactly_all_translations():
    scorer, rows = RandomScorer(9, V), sources(9, 3)
    search = beam(beam_size=60, n_best=60, max_len_a=0, max_len_b=3)
    for found in search.search(scorer, rows):
        assert len(found) == len(WORDS) + len(WORDS) ** 2 + len(WORDS) ** 3
        assert len({tuple(one.tokens) for one in found}) == len(found)
        assert all(set(one.tokens) <= set(WORDS) for one in found)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("penalty", ["gnmt", "none"])
@pytest.mark.parametrize("prune", [None, 1.5])
def test_a_narrow_beam_follows_the_definition_of_beam_search(size, penalty, prune):
    """Sentence by sentence and hypothesis by hypothesis, in plain Python, to the last step.

    Pruning drops tokens far below the best of their hypothesis, and finished hypotheses with scores far below the best.
    """
    scorer, rows, limit = RandomScorer(21, V), sources(21), 5
    search = beam(beam_size=size, n_best=size, length_penalty=penalty, max_len_a=0, max_len_b=limit, prune=prune)
    margin = math.inf if prune is None else prune
    for row, found in zip(rows, search.search(scorer, rows), strict=True):
        live, finished = [((), 0.0)], []
        for step in range(1, limit + 2):
            candidates = []
            for tokens, total in live:
                state = scorer.start(row[None])
                for read in (BOS, *tokens):
                    log_probs, state = scorer.step(torch.tensor([read]), state)
                allowed = [EOS] if step > limit else [*WORDS, EOS] if step > 1 else WORDS
                least = float(log_probs[0, allowed].max()) - margin
                kept = [word for word in allowed if log_probs[0, word] >= least]
                candidates += [((*tokens, word), total + float(log_probs[0, word])) for word in kept]
            candidates = sorted(candidates, key=lambda one: -one[1])[: 2 * size]
            ended = [one for one in candidates[:size] if one[0][-1] == EOS]
            finished += [(total / PENALTIES[penalty](step, 0.6), list(tokens[:-1])) for tokens, total in ended]
            live = [one for one in candidates if one[0][-1] != EOS][:size]
        best = sorted(finished, reverse=True)[:size]
        best = [(score, tokens) for score, tokens in best if score >= best[0][0] - margin]
        assert [one.tokens for one in found] == [tokens for _, tokens in best]
        assert [one.score for one in found] == pytest.approx([score for score, _ in best], abs=1e-4)


@pytest.mark.parametrize("penalty", list(PENALTIES))
@pytest.mark.parametrize("n_best", [1, 3])
@pytest.mark.parametrize("prune", [None, 2.0])
def test_stopping_once_no_better_hypothesis_is_possible_changes_nothing(monkeypatch, penalty, n_best, prune):
    early_steps = late_steps = 0
    for seed in range(10):
        scorer, rows = RandomScorer(seed, V), sources(seed)
        search = beam(beam_size=3, n_best=n_best, length_penalty=penalty, alpha=1.0, max_len_b=8, prune=prune)
        counted, uncounted = counting(scorer), counting(scorer)
        early = search.search(counted, rows)
        with monkeypatch.context() as patch:
            patch.setattr(Beams, "upper_bound", lambda beams: torch.full(beams.limits.shape, math.inf))
            late = search.search(uncounted, rows)
        for stopped, unstopped in zip(early, late, strict=True):
            assert [one.tokens for one in stopped] == [one.tokens for one in unstopped]
            assert [one.score for one in stopped] == pytest.approx([one.score for one in unstopped], abs=1e-5)
        early_steps, late_steps = early_steps + counted.rows, late_steps + uncounted.rows
    assert early_steps < late_steps


def counting(scorer):
    """The scorer, which also counts the rows it was asked for."""

    class Counting:
        rows = 0

        def start(self, source):
            return scorer.start(source)

        def step(self, tokens, state):
            self.rows += len(tokens)
            return scorer.step(tokens, state)

    return Counting()


def best_path(scorer, row, limit, shortest=1):
    state, tokens = scorer.start(row[None]), [BOS]
    while tokens[-1] != EOS:
        log_probs, state = scorer.step(torch.tensor(tokens[-1:]), state)
        allowed = [EOS] if len(tokens) > limit else [*WORDS, EOS] if len(tokens) > shortest else WORDS
        tokens.append(max(allowed, key=lambda word: log_probs[0, word]))
    return tokens[1:-1]


@pytest.mark.parametrize("shortest", [0, 1, 3])
def test_greedy_search_and_a_beam_of_one_take_the_most_probable_token(shortest):
    for seed in range(6):
        scorer, rows = RandomScorer(seed, V), sources(seed)
        bounds = {"max_len_a": 0.5, "max_len_b": 5, "min_length": shortest}
        limits = [int(0.5 * int((row > EOS).sum()) + 5) for row in rows]
        greedy = Greedy(SearchOptions(**bounds)).search(scorer, rows)
        narrow = beam(beam_size=1, length_penalty="none", **bounds).search(scorer, rows)
        for row, limit, (one,), (other,) in zip(rows, limits, greedy, narrow, strict=True):
            assert one.tokens == other.tokens == best_path(scorer, row, limit, shortest)
            assert one.log_prob == pytest.approx(log_prob(scorer, row, one.tokens), abs=1e-4)
            assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    "search", [Greedy(SearchOptions(max_len_b=3)), beam(max_len_b=3), Sampling(SamplingOptions(max_len_b=3))]
)
def test_a_translation_that_never_ends_is_stopped_at_the_maximum_length_and_its_eos_is_scored(search):
    scorer = RandomScorer(3, V)
    scorer.output[:, EOS] = 0.0
    scorer.output *= 0.0
    scorer.words *= 0.0
    rows = sources(3)

    class Endless:
        def start(self, source):
            return scorer.start(source)

        def step(self, tokens, state):
            log_probs, state = scorer.step(tokens, state)
            log_probs[:, EOS] = -50.0
            return log_probs, state

    for row, found in zip(rows, search.search(Endless(), rows), strict=True):
        length = int((row > EOS).sum()) + 3
        assert len(found[0].tokens) == length
        assert found[0].log_prob == pytest.approx(-50 - length * math.log(V), abs=1e-3)


def test_a_beam_without_live_hypotheses_ends_under_every_stopping_rule(monkeypatch):
    def ends(self, log_probs, prefixes):
        if prefixes.tokens.shape[1] == 2:
            leave_only(log_probs, torch.full_like(prefixes.limits, EOS), prefixes.limits > 0)

    monkeypatch.setattr("nmt.decoders.filters.Filters.__call__", ends)
    scorer, steps = RandomScorer(3, V), []
    step = scorer.step
    monkeypatch.setattr(scorer, "step", lambda *asked: steps.append(1) or step(*asked))
    found = beam(beam_size=30, n_best=9, stop="full", max_len_a=0, max_len_b=40).search(scorer, sources(3, 2))
    assert len(steps) == 3 and all(len(one) == 9 for one in found)


def test_the_empty_translation_is_returned_only_if_allowed():
    class Silent(RandomScorer):
        def step(self, tokens, state):
            log_probs, state = super().step(tokens, state)
            log_probs[:, EOS] = -1e-4
            return log_probs - 9.0 * (torch.arange(V) != EOS), state

    rows = sources(1)
    for search in (beam(n_best=4), Greedy(SearchOptions()), Sampling(SamplingOptions(n_best=4))):
        assert all(len(one.tokens) >= 1 for found in search.search(Silent(1, V), rows) for one in found)
    for search in (beam(min_length=0), Greedy(SearchOptions(min_length=0)), Sampling(SamplingOptions(min_length=0))):
        assert all(found[0].tokens == [] for found in search.search(Silent(1, V), rows))


class Constant:
    """The same distribution at every step. probabilities: by word, from UNK on; EOS has the rest."""

    def __init__(self, probabilities):
        self.log_probs = torch.full((UNK + len(probabilities),), -math.inf)
        self.log_probs[UNK:] = torch.tensor(probabilities).log()
        self.log_probs[EOS] = math.log(max(1 - sum(probabilities), 1e-30))

    def start(self, source):
        return State()

    def step(self, tokens, state):
        return self.log_probs.repeat(len(tokens), 1), State()


def draw(probabilities, count, **options):
    """The first words of `count` samples of one sentence."""
    search = Sampling(SamplingOptions(n_best=count, max_len_a=0, max_len_b=1, **options))
    found = search.search(Constant(probabilities), torch.tensor([[7, 8, EOS]]))
    return torch.tensor([one.tokens[0] - UNK for one in found[0]])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_drawn_in_proportion_to_their_probability(temperature):
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.07, 0.03])
    wanted = probabilities ** (1 / temperature)
    wanted = wanted / wanted.sum()
    count = 20_000
    drawn = draw(probabilities.tolist(), count, temperature=temperature).bincount(minlength=5)
    chi_square = float(((drawn - count * wanted) ** 2 / (count * wanted)).sum())
    assert chi_square < 18.47  # 4 degrees of freedom: one seed in a thousand would be above


def test_a_column_is_the_first_whose_cumulative_probability_exceeds_the_uniform_number():
    torch.manual_seed(3)
    log_probs = torch.randn(200, 30, dtype=torch.float64)
    log_probs[torch.rand(200, 30) < 0.3] = -math.inf
    log_probs[:, 0] = log_probs[:, -1] = -math.inf
    bits = torch.randint(1 << 32, (200,))
    bits[:50], bits[50:100] = 0, (1 << 32) - 1
    for row, number, found in zip(log_probs, bits.tolist(), draw_columns(log_probs, bits).tolist(), strict=True):
        probabilities = [math.exp(value) for value in row.tolist()]
        left = (number + 0.5) / 2**32 * math.fsum(probabilities)
        wanted = next(i for i in range(30) if math.fsum(probabilities[: i + 1]) > left)
        assert found == wanted and probabilities[found] > 0
    assert draw_columns(torch.full((1, 3), math.nan), bits[:1]).tolist() == [2]


def test_draws_of_successive_steps_are_independent():
    """Words that follow each other come together as often as the product of their probabilities says."""
    probabilities = [0.5, 0.25, 0.25]
    sentences = torch.tensor([[number, EOS] for number in range(10, 5010)])
    search = Sampling(SamplingOptions(max_len_a=0, max_len_b=2, min_length=2))
    pairs = [tuple(found[0].tokens) for found in search.search(Constant(probabilities), sentences)]
    for pair in itertools.product(range(3), repeat=2):
        wanted = probabilities[pair[0]] * probabilities[pair[1]]
        share = sum(found == (pair[0] + UNK, pair[1] + UNK) for found in pairs) / len(pairs)
        assert abs(share - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / len(pairs))


def test_top_k_draws_each_of_the_k_most_probable_tokens_and_no_other():
    probabilities = [0.05, 0.3, 0.1, 0.35, 0.2]
    assert set(draw(probabilities, 2000, top_k=3).tolist()) == {1, 3, 4}


@pytest.mark.parametrize(("p", "words"), [(0.3, {3}), (0.36, {1, 3}), (0.66, {1, 3, 4}), (1.0, {0, 1, 2, 3, 4})])
def test_top_p_draws_each_of_the_fewest_tokens_that_reach_p_and_no_other(p, words):
    probabilities = [0.05, 0.3, 0.1, 0.35, 0.2]
    assert set(draw(probabilities, 2000, top_p=p).tolist()) == words


def test_top_p_after_top_k_uses_the_remaining_probability():
    """Of 0.35, 0.3 and 0.2 the first two have 0.76 of the probability, though 0.65 of the whole."""
    assert set(draw([0.05, 0.3, 0.1, 0.35, 0.2], 2000, top_k=3, top_p=0.7).tolist()) == {1, 3}


def test_every_top_p_keeps_the_most_probable_token():
    kept = top_p(torch.tensor([[0.0, -1.0, -2.0]]), 1e-9)
    assert kept.tolist() == [[0.0, -math.inf, -math.inf]]


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 0},
        {"n_best": 5},
        {"n_best": 0},
        {"alpha": -0.1},
        {"alpha": math.nan},
        {"max_len_b": -1},
        {"min_length": -1},
        {"prune": 0.0},
    ],
)
def test_invalid_options_are_refused_by_name(options):
    with pytest.raises(ValueError, match=f"--{next(iter(options))} ".replace("_", "-")):
        BeamOptions(**options)
