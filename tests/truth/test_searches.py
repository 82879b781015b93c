"""Constraints on translations, and searches other than plain beams, against their definitions."""

import itertools
import math
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scorers import RandomScorer, TokenTexts, random_sources, with_texts

from nmt import UserError, registry
from nmt.decoders.beam import Beam, BeamOptions
from nmt.decoders.hypothesis import Constraints
from nmt.extensions.searches.decoders.alternatives import Alternatives, AlternativesOptions
from nmt.extensions.searches.decoders.constrained_beam import (
    ConstrainedBeam,
    ConstrainedBeamOptions,
    PhraseProgress,
    WordParts,
)
from nmt.extensions.searches.decoders.diverse_beam import DiverseBeam, DiverseBeamOptions
from nmt.extensions.searches.decoders.sampling import Sampling, SamplingOptions
from nmt.extensions.searches.filters.avoid import Automaton, Avoid
from nmt.symbols import BOS, EOS, PAD, UNK

V = 7
WORDS = (UNK, 4, 5, 6)
TEXTS = ["", "", "", " ?", " a", "b", " ab"]  # what each token adds to a text
PLAIN = ("beam", "greedy", "sampling", "diverse-beam", "constrained-beam", "mbr", "alternatives")


def sources(seed, count=6):
    return random_sources(seed, count, V)


def step_by_step(scorer, source, tokens):
    """(log-probabilities after each prefix of tokens, attention of each step): [(V,)], [(S,)]"""
    state, found, seen = scorer.start(source[None]), [], []
    state.watched = True
    for read in [BOS, *tokens]:
        log_probs, state = scorer.step(torch.tensor([read]), state)
        found.append(log_probs[0])
        seen.append(state.attention[0])
    return found, seen


def log_prob(scorer, source, tokens):
    found, _ = step_by_step(scorer, source, tokens)
    return sum(float(row[word]) for row, word in zip(found, [*tokens, EOS], strict=True))


def build(name, **options):
    options = {"max_len_a": 0, "max_len_b": 4, **options}
    if name == "mbr":  # what a translation may be is an option of the search for its candidates
        options = {key if key == "n_best" else f"candidates.{key}": value for key, value in options.items()}
    return registry.build(registry.choose("decoder", name, options))


def with_text(decoder):
    return with_texts(decoder, TEXTS)


def avoiding(texts):
    return Constraints(filters={"avoid": texts})


def all_found(name, scorer, rows, constraints, **options):
    if name != "greedy":
        options = {"n_best": 3, **options}
    return with_text(build(name, **options)).search(scorer, rows, constraints)


@pytest.mark.parametrize("name", PLAIN)
def test_every_translation_starts_with_the_forced_prefix_and_its_probability_counts(name):
    scorer, rows = RandomScorer(1, V), sources(1)
    prefixes = [(), (4,), (5, 5), (6, 4, 5), (UNK,), (4, 4, 4, 4)]
    found = all_found(name, scorer, rows, [Constraints(prefix=prefix) for prefix in prefixes])
    for row, prefix, ones in zip(rows, prefixes, found, strict=True):
        for one in ones:
            assert tuple(one.tokens[: len(prefix)]) == prefix
            assert len(one.tokens) <= 4 + len(prefix)  # what is given has room besides
            assert one.log_prob == pytest.approx(log_prob(scorer, row, one.tokens), abs=1e-4)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("n", [1, 2])
def test_no_n_gram_repeats_if_repeats_are_forbidden(name, n):
    repeated = 0
    for seed in range(3):
        scorer, rows = RandomScorer(seed, V), sources(seed)
        for ones in all_found(name, scorer, rows, None, no_repeat_ngram=n, min_length=3):
            for one in ones:
                grams = [tuple(one.tokens[i : i + n]) for i in range(len(one.tokens) - n + 1)]
                assert len(set(grams)) == len(grams)
        for ones in all_found(name, scorer, rows, None, min_length=3):
            repeated += sum(len(set(one.tokens)) < len(one.tokens) for one in ones)
    assert repeated  # they do repeat words when nobody forbids it


@pytest.mark.parametrize("name", PLAIN)
def test_the_unknown_token_is_never_produced_if_forbidden(name):
    scorer, rows = RandomScorer(2, V), sources(2)
    assert any(UNK in one.tokens for ones in all_found(name, scorer, rows, None) for one in ones)
    assert not any(UNK in one.tokens for ones in all_found(name, scorer, rows, None, no_unk=True) for one in ones)


@pytest.mark.parametrize("name", PLAIN)
def test_texts_to_avoid_never_occur_whatever_their_tokenization(name):
    """ " ab" is one token, and two: " a" and "b"."""
    scorer, rows = RandomScorer(3, V), sources(3)
    constraints = [
        Constraints(filters={"avoid": avoid}) for avoid in [(), ("ab",), ("a", "ab"), ("ab ab",), ("?",), ("a ab", "b")]
    ]
    found = all_found(name, scorer, rows, constraints)
    assert sum(math.isfinite(one.score) for ones in found for one in ones) > len(rows) / 2
    for constraint, ones in zip(constraints, found, strict=True):
        for one in filter(lambda one: math.isfinite(one.score), ones):  # one that came to a dead end has probability 0
            text = "".join(TEXTS[token] for token in one.tokens)
            assert not any(re.search(rf"(?<!\S){re.escape(bad)}(?!\S)", text) for bad in constraint.filters["avoid"])


def test_texts_to_avoid_are_compiled_once_and_not_per_batch(monkeypatch):
    made, decoder = [], with_text(build("beam"))
    monkeypatch.setattr(
        "nmt.extensions.searches.filters.avoid.Automaton", lambda *given: made.append(given[0]) or Automaton(*given)
    )
    for _ in range(2):
        decoder.search(
            RandomScorer(3, V),
            sources(3, 2),
            [avoiding(("ab",)), avoiding(("a", "b"))],
        )
    assert made == [("ab",), ("a", "b")]


def test_avoiding_texts_keeps_the_order_of_the_other_hypotheses():
    """A beam that holds every translation gives those none of whose tokens ends with the text, in the order they had."""
    scorer, rows = RandomScorer(3, V), sources(3, 2)
    options = {"beam_size": 400, "n_best": 400, "max_len_b": 3}
    free = with_text(build("beam", **options)).search(scorer, rows)
    kept = with_text(build("beam", **options)).search(scorer, rows, [avoiding(("ab",))] * 2)
    for all_of, without in zip(free, kept, strict=True):
        allowed = [
            one.tokens
            for one in all_of
            if not any(
                f" {''.join(TEXTS[t] for t in one.tokens[: n + 1])}".endswith(" ab") for n in range(len(one.tokens))
            )
        ]
        assert [one.tokens for one in without] == allowed
        assert len(without) < len(all_of)


def test_the_automaton_finds_what_a_regular_expression_finds():
    chance = np.random.default_rng(4)
    forbidden = ["ab a", "aba", "? ?", "bb"]
    automaton = Automaton(forbidden, Avoid(TokenTexts(TEXTS)).spelling)
    met = 0
    for _ in range(500):
        tokens = [*chance.integers(UNK, V, 6).tolist(), EOS]
        state, caught = automaton.start, False
        for token in tokens:
            state = int(automaton.after(state)[token])
            caught |= state == automaton.matched
        text = "".join(TEXTS[token] for token in tokens[:-1])
        wanted = any(re.search(rf"(?<!\S){re.escape(bad)}(?!\S)", text) for bad in forbidden)
        assert caught == wanted, text
        met += wanted
    assert 20 < met < 480


def test_a_character_that_is_spelled_in_bytes_is_avoided_too():
    spelled = [b"", b"", b"", b" ?", b" ", *(bytes([byte]) for byte in "☃".encode()), b" cat"]
    automaton = Automaton(["☃"], Avoid(TokenTexts(spelled)).spelling)
    state = automaton.start
    for token in (4, 5, 6):
        assert not automaton.forbidden(state)[token]
        state = automaton.after(state)[token]
    assert np.flatnonzero(automaton.forbidden(state)).tolist() == [7]


def test_texts_per_line_share_one_table_of_the_vocabulary():
    """A batch has an automaton for each line that has texts of its own."""
    spelling = Avoid(TokenTexts([f" word{number}" for number in range(5000)])).spelling
    automaton = Automaton(("word17", "another"), spelling)
    arrays = [value for value in vars(automaton).values() if isinstance(value, np.ndarray)]
    assert any(array is spelling for array in arrays)
    assert sum(array.nbytes for array in arrays if array is not spelling) < 5000
    after = automaton.after(automaton.start)
    assert automaton.is_forbidden(int(after[17])) and not automaton.is_forbidden(int(after[170]))


def test_phrases_are_met_if_contained_even_if_they_share_tokens():
    chance, met = random.Random(5), 0
    for _ in range(500):
        phrases = [tuple(chance.choices((4, 5, 6), k=chance.randint(1, 4))) for _ in range(3)]
        tokens = tuple(chance.choices((4, 5, 6), k=10))
        progress = begin = PhraseProgress.towards(phrases)
        for token in tokens:
            progress = progress.after(token)
        contained = {p for p in begin.unmet if any(tokens[i : i + len(p)] == p for i in range(len(tokens)))}
        assert progress.unmet == begin.unmet - contained
        assert not progress.started or tokens[-len(progress.started) :] == progress.started
        met += len(contained)
    assert met > 300


PHRASES = [((4, 5),), ((6,), (4, 4)), ((5, 6, 4), (5, 6)), ((UNK, 6), (6, UNK)), ((4, 5), (4, 6)), ()]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_constrained_output_always_contains_its_phrases(size):
    for seed in range(4):
        scorer, rows = RandomScorer(seed, V), sources(seed)
        constraints = [Constraints(phrases=phrases) for phrases in PHRASES]
        search = ConstrainedBeam(ConstrainedBeamOptions(beam_size=size, n_best=size, max_len_a=0, max_len_b=3))
        for row, constraint, ones in zip(rows, constraints, search.search(scorer, rows, constraints), strict=True):
            assert ones
            for one in ones:
                text = " ".join(map(str, one.tokens))
                assert all(f" {' '.join(map(str, phrase))} " in f" {text} " for phrase in constraint.phrases)
                assert one.log_prob == pytest.approx(log_prob(scorer, row, one.tokens), abs=1e-4)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_phrase_is_met_by_whole_words_and_not_by_the_start_of_one(size):
    parts, glued = WordParts(continuing=frozenset({5}), ending=frozenset({4, 5, 6})), 0
    all_phrases = [((4,),), ((4, 5),), ((6,), (4,)), ((4, 5), (4,)), ((UNK,),), ((6, 4), (4, 4))]
    for seed in range(6):
        scorer, rows = RandomScorer(seed, V), sources(seed)
        constraints = [Constraints(phrases=phrases) for phrases in all_phrases]
        search = ConstrainedBeam(ConstrainedBeamOptions(beam_size=size, n_best=size, max_len_a=0, max_len_b=2))
        for is_whole in (False, True):
            search.parts = parts if is_whole else WordParts()
            for constraint, ones in zip(constraints, search.search(scorer, rows, constraints), strict=True):
                for tokens in (tuple(one.tokens) for one in ones):
                    for phrase in constraint.phrases:
                        ends = [i + len(phrase) for i in range(len(tokens)) if tokens[i : i + len(phrase)] == phrase]
                        whole = any(tokens[end : end + 1] != (5,) or phrase == (UNK,) for end in ends)
                        assert ends and (whole or not is_whole)
                        glued += not whole
    assert glued > 3  # where words are not known


def test_tokens_inside_words_are_recognised_by_their_spelling():
    side = SimpleNamespace(
        settings=SimpleNamespace(right_to_left=False, language="de"), size=V, surface=TEXTS.__getitem__
    )
    parts = WordParts.of(side)
    assert parts.continuing == {5} and parts.ending == {4, 5, 6}
    for language, right_to_left in (("zh_TW", False), ("ko", False), ("de", True)):
        side.settings = SimpleNamespace(right_to_left=right_to_left, language=language)
        assert WordParts.of(side) == WordParts()


def test_a_constrained_beam_that_holds_everything_finds_the_best_that_contains_the_phrase():
    phrase = (4, 5)
    search = ConstrainedBeam(
        ConstrainedBeamOptions(beam_size=1500, n_best=5, length_penalty="none", max_len_a=0, max_len_b=2)
    )
    for seed in range(2):
        scorer, rows = RandomScorer(seed, V), sources(seed, 1)
        ones = search.search(scorer, rows, [Constraints(phrases=(phrase,))])[0]
        every = [
            tokens
            for length in range(2, 5)
            for tokens in itertools.product(WORDS, repeat=length)
            if any(tokens[i : i + 2] == phrase for i in range(length - 1))
        ]
        best = sorted(((log_prob(scorer, rows[0], tokens), tokens) for tokens in every), reverse=True)[:5]
        assert [tuple(one.tokens) for one in ones] == [tokens for _, tokens in best]


def test_without_phrases_a_constrained_beam_is_a_beam():
    scorer, rows = RandomScorer(5, V), sources(5)
    options = {"beam_size": 3, "n_best": 3}
    plain, constrained = (build(name, **options).search(scorer, rows) for name in ("beam", "constrained-beam"))
    for one, other in zip(plain, constrained, strict=True):
        assert one[0].tokens == other[0].tokens


@pytest.mark.parametrize("name", sorted({*PLAIN} - {"constrained-beam"}))
def test_a_search_without_phrase_support_names_those_with_it(name):
    with pytest.raises(UserError, match="constrained-beam"):
        all_found(name, RandomScorer(0, V), sources(0), [Constraints(phrases=((4,),))] * 6)


def test_progress_handles_phrases_with_common_prefixes_and_overlaps():
    for tokens, left in [((4, 6, 4, 5), 0), ((4, 4, 5), 2), ((4, 5, 6), 2), ((4, 6), 2)]:
        progress = PhraseProgress.towards([(4, 5), (4, 6)])
        for token in tokens:
            progress = progress.after(token)
        assert progress.remaining == left, tokens
    assert PhraseProgress.towards([(4, 5, 6), (5, 6)]).remaining == 3  # the one is a part of the other


def test_diverse_beams_follow_their_definition():
    """Group by group, in plain Python: rank = log-probability - strength * how many of the groups before say the word."""
    strength, groups, each, limit = 0.7, 3, 2, 4
    search = DiverseBeam(
        DiverseBeamOptions(
            beam_size=6,
            n_best=6,
            groups=3,
            diversity_strength=strength,
            length_penalty="none",
            max_len_a=0,
            max_len_b=limit,
        )
    )
    scorer, rows = RandomScorer(8, V), sources(8)
    for row, ones in zip(rows, search.search(scorer, rows), strict=True):
        live, finished = [[((), 0.0)] for _ in range(groups)], [[] for _ in range(groups)]
        for step in range(1, limit + 2):
            said = []
            for group in range(groups):
                candidates = []
                for tokens, total in live[group]:
                    log_probs = step_by_step(scorer, row, tokens)[0][-1]
                    allowed = [EOS] if step > limit else [*WORDS, EOS] if step > 1 else WORDS
                    for word in allowed:
                        own = float(log_probs[word])
                        candidates.append((total + own - strength * said.count(word), total + own, (*tokens, word)))
                best = sorted(candidates, reverse=True)[: 2 * each]
                finished[group] += [(total, tokens[:-1]) for _, total, tokens in best[:each] if tokens[-1] == EOS]
                live[group] = [(tokens, total) for _, total, tokens in best if tokens[-1] != EOS][:each]
                said += [tokens[-1] for tokens, _ in live[group]]
        best = sorted((one for group in finished for one in sorted(group, reverse=True)[:each]), reverse=True)[:6]
        assert [one.score for one in ones] == pytest.approx([total for total, _ in best], abs=1e-4)
        assert sorted(tuple(one.tokens) for one in ones) == sorted(tokens for _, tokens in best)


def test_groups_that_need_not_differ_are_all_the_same_beam():
    scorer, rows = RandomScorer(8, V), sources(8)
    same = build("diverse-beam", beam_size=4, groups=2, n_best=4, diversity_strength=0.0).search(scorer, rows)
    plain = build("beam", beam_size=2, n_best=2).search(scorer, rows)
    for ones, others in zip(same, plain, strict=True):
        assert [one.tokens for one in ones] == [one.tokens for one in others for _ in range(2)]


def test_the_coverage_penalty_equals_gnmts():
    """Of everything a beam can hold, the best by log P / lp + beta * sum of log(min(attention of a source word, 1))."""
    beta, limit = 0.4, 3
    search = Beam(BeamOptions(beam_size=300, n_best=8, coverage_penalty=beta, alpha=0.6, max_len_a=0, max_len_b=limit))
    for seed in range(3):
        scorer, rows = RandomScorer(seed, V), sources(seed, 3)
        for row, ones in zip(rows, search.search(scorer, rows), strict=True):
            scored = []
            for length in range(1, limit + 1):
                for tokens in itertools.product(WORDS, repeat=length):
                    seen = torch.stack(step_by_step(scorer, row, tokens)[1]).sum(0)[row > EOS]
                    penalty = beta * float(seen.clamp(max=1).log().sum())
                    scored.append((log_prob(scorer, row, tokens) / ((6 + length) / 6) ** 0.6 + penalty, tokens))
            best = sorted(scored, reverse=True)[:8]
            assert [one.score for one in ones] == pytest.approx([score for score, _ in best], abs=1e-4)
            assert [tuple(one.tokens) for one in ones] == [tokens for _, tokens in best]


def test_an_unattended_source_word_costs_much_but_stays_finite():
    class Peaked(RandomScorer):
        def step(self, tokens, state):
            log_probs, after = super().step(tokens, state)
            after.attention = (after.attention == after.attention.amax(1, keepdim=True)).float()
            return log_probs, after

    found = build("beam", coverage_penalty=0.2, min_length=1, max_len_b=2).search(Peaked(1, V), sources(1))
    assert all(math.isfinite(ones[0].score) for ones in found)


def test_requested_phrases_win_over_forbidden_texts():
    scorer, rows = RandomScorer(1, V), sources(1, 1)
    constraint, options = (
        Constraints(prefix=(UNK, 4, 4), filters={"avoid": ("a",)}),
        {"no_unk": True, "no_repeat_ngram": 1},
    )
    for name in ("beam", "greedy"):
        one = all_found(name, scorer, rows, [constraint], **options)[0][0]
        assert one.tokens[:3] == [UNK, 4, 4] and math.isfinite(one.score)
        assert UNK not in one.tokens[3:] and 4 not in one.tokens[3:]


def test_samples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    scorer, rows = RandomScorer(4, V), sources(4)
    together = build("sampling", n_best=40).search(scorer, rows)
    monkeypatch.setattr("nmt.extensions.searches.decoders.sampling.MAX_SAMPLES_AT_ONCE", 7)
    for ones, others in zip(together, build("sampling", n_best=40).search(scorer, rows), strict=True):
        assert [one.tokens for one in ones] == [one.tokens for one in others]


def test_a_model_without_attention_has_no_coverage():
    class Blind(RandomScorer):
        def step(self, tokens, state):
            log_probs, after = super().step(tokens, state)
            after.attention = None
            return log_probs, after

    with pytest.raises(UserError, match="model with attention"):
        build("beam", coverage_penalty=0.2).search(Blind(1, V), sources(1))


def test_a_beam_that_stops_when_full_stops_earlier_with_as_many_hypotheses():
    steps = {"best": 0, "full": 0}
    for seed, stop in itertools.product(range(6), steps):
        inner = RandomScorer(seed, V)

        class Counting:
            def start(self, source, inner=inner):
                return inner.start(source)

            def step(self, tokens, state, inner=inner, stop=stop):
                steps[stop] += len(tokens)
                return inner.step(tokens, state)

        found = build("beam", stop=stop, n_best=3, beam_size=3, max_len_b=9, alpha=1.0).search(
            Counting(), sources(seed)
        )
        assert all(len(ones) == 3 for ones in found)
    assert steps["full"] < steps["best"]


@pytest.mark.parametrize("name", ["beam", "constrained-beam", "diverse-beam"])
@pytest.mark.parametrize("more", [{"beam_size": 1}, {"stop": "full"}, {"stop": "full", "prune": 3.0}])
def test_a_full_beam_takes_no_more_hypotheses_while_others_of_its_batch_are_searched(name, more):
    one_group = {"groups": 1} if name == "diverse-beam" else {}
    decoder = build(name, length_penalty="average", alpha=1.0, max_len_b=9, **one_group, **more)
    for seed in range(6):
        scorer, rows = RandomScorer(seed, V, sharpness=1.0), sources(seed, 30)
        together = decoder.search(scorer, rows)
        alone = [decoder.search(scorer, row[None])[0] for row in rows]
        assert [found[0].tokens for found in together] == [found[0].tokens for found in alone]


def test_the_number_of_alternatives_is_limited_by_the_vocabulary():
    found = build("alternatives", n_best=50).search(RandomScorer(6, V), sources(6), [Constraints(prefix=(4,))] * 6)
    for ones in found:
        assert len({tuple(one.tokens[1:2]) for one in ones}) == len(ones) == len(WORDS) + 1  # and the end


def test_alternatives_are_the_most_probable_next_words_each_with_its_best_translation():
    scorer, rows = RandomScorer(6, V), sources(6)
    prefixes = [(), (4,), (5, 6), (6,), (4, 4), (5,)]
    options = {"max_len_a": 0, "max_len_b": 3, "beam_size": 200, "length_penalty": "none"}
    search = Alternatives(AlternativesOptions(n_best=3, **options))
    found = search.search(scorer, rows, [Constraints(prefix=prefix) for prefix in prefixes])
    for row, prefix, ones in zip(rows, prefixes, found, strict=True):
        following = step_by_step(scorer, row, prefix)[0][-1].clone()
        following[[PAD, BOS, *([EOS] if not prefix else [])]] = -math.inf
        words = following.topk(3).indices.tolist()
        best = []
        for word in words:
            if word == EOS:
                best.append((log_prob(scorer, row, prefix), list(prefix)))
                continue
            constraint = Constraints(prefix=(*prefix, word))
            one = Beam(BeamOptions(**{**options, "max_len_b": 2})).search(scorer, row[None], [constraint])[0][
                0
            ]  # as long in all
            best.append((one.score, one.tokens))
        assert sorted(one.tokens[len(prefix) : len(prefix) + 1] for one in ones) == sorted(
            [[word] if word != EOS else [] for word in words]
        )
        assert [one.score for one in ones] == pytest.approx(
            sorted((score for score, _ in best), reverse=True), abs=1e-4
        )


def test_tokens_below_epsilon_are_never_drawn_but_the_most_probable_stays():
    rows = sources(7)
    for epsilon in (0.15, 0.999):
        for seed in range(4):
            scorer = RandomScorer(seed, V)
            found = Sampling(SamplingOptions(n_best=40, epsilon=epsilon, min_length=0, max_len_a=0, max_len_b=3))
            for row, ones in zip(rows, found.search(scorer, rows), strict=True):
                for one in ones:
                    for place, word in enumerate(one.tokens):
                        log_probs = step_by_step(scorer, row, one.tokens[:place])[0][-1].clone()
                        log_probs[[PAD, BOS]] = -math.inf
                        log_probs = log_probs.log_softmax(0)
                        assert log_probs[word] >= math.log(epsilon) - 1e-5 or word == int(log_probs.argmax())


def test_pruning_never_drops_the_tokens_of_a_required_phrase():
    scorer, rows = RandomScorer(3, V, sharpness=6.0), sources(3)
    constraints = [Constraints(phrases=((4, 5),))] * len(rows)
    for ones in build("constrained-beam", prune=0.1).search(scorer, rows, constraints):
        assert any(tuple(ones[0].tokens[i : i + 2]) == (4, 5) for i in range(len(ones[0].tokens)))
