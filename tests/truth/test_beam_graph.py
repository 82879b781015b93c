"""The graph of a beam search against the search's definition: at each step the best continuations of those that live."""

import json
import math
from itertools import groupby

import pytest
import torch
from scorers import RandomScorer, random_sources

from nmt import UserError, registry
from nmt.decoders.hypothesis import Constraints
from nmt.extensions.watch.pictures.beam_graph import beam_graph, graphs_json, graphs_page
from nmt.symbols import BOS, EOS, PAD

V, W = 9, 3
CPU = torch.device("cpu")


def decoder(name, **given):
    return registry.build(registry.choose("decoder", name, {"beam_size": W, "n_best": W, "max_len_b": 5, **given}))


def graph_of(searched, seed, row, given=()):
    source = [token for token in row.tolist() if token not in (EOS, PAD)]
    return beam_graph(searched, RandomScorer(seed, V), CPU, source, Constraints(), given, (str, str))


def said(graph, number):
    """The tokens of a node."""
    node = graph.nodes[number]
    return [] if node.parent is None else [*said(graph, node.parent), int(node.token)]


def next_words(seed, row, tokens):
    """Nats of each word after some, as the model has them; no PAD and no BOS, and a translation is not empty."""
    scorer = RandomScorer(seed, V)
    state = scorer.start(row[row != PAD][None])
    for token in [BOS, *tokens]:
        log_probs, state = scorer.step(torch.tensor([token]), state)
    found = log_probs[0]
    found[[PAD, BOS] if tokens else [PAD, BOS, EOS]] = -math.inf
    return found


@pytest.mark.parametrize("seed", range(5))
def test_each_step_has_the_best_continuations_of_the_step_before_and_those_that_ended(seed):
    searched, row = decoder("beam"), random_sources(seed, 3, V)[seed % 3]
    graph = graph_of(searched, seed, row)
    numbers = range(1, len(graph.nodes))
    live = [0]
    for step, group in groupby(numbers, key=lambda number: graph.nodes[number].step):
        group = list(group)
        possible = {}
        for parent in live:
            log_probs = next_words(seed, row, said(graph, parent)) + graph.nodes[parent].log_prob
            possible |= {(parent, word): float(nats) for word, nats in enumerate(log_probs) if nats > -math.inf}
        ranked = sorted(possible, key=lambda pair: -possible[pair])
        if step <= len(row[row > EOS]) + 5:  # one that is as long as it may be can only end
            expected = [pair for pair in ranked if pair[1] != EOS][:W]
            assert [(graph.nodes[n].parent, int(graph.nodes[n].token)) for n in group[: len(expected)]] == expected
            ended = {pair for pair in ranked[:W] if pair[1] == EOS}
            assert {(graph.nodes[n].parent, int(graph.nodes[n].token)) for n in group[len(expected) :]} == ended
        for number in group:
            node = graph.nodes[number]
            assert node.log_prob == pytest.approx(possible[node.parent, int(node.token)], abs=1e-4)
        live = [number for number in group if int(graph.nodes[number].token) != EOS]
    parents = {node.parent for node in graph.nodes}
    for number, node in enumerate(graph.nodes):
        assert node.state == ("ended" if node.token == str(EOS) else "kept" if number in parents else "dropped")


@pytest.mark.parametrize("name", ["beam", "diverse-beam", "constrained-beam"])
def test_results_are_finished_nodes_of_the_graph_and_recording_it_changes_nothing(name):
    searched = decoder(name, **({"groups": 3} if name == "diverse-beam" else {}))
    for seed in range(3):
        row = random_sources(seed, 3, V)[seed]
        row = row[row != PAD]
        [found] = searched.search(RandomScorer(seed, V), row[None])
        graph = graph_of(searched, seed, row, found[0].tokens)
        ended = {tuple(said(graph, n)): node for n, node in enumerate(graph.nodes) if node.state == "ended"}
        for one in found:
            node = ended[*one.tokens, EOS]
            assert (node.log_prob, node.score) == pytest.approx((one.log_prob, one.score), abs=1e-4)
        best = [n for n, node in enumerate(graph.nodes) if node.best]
        assert max((said(graph, n) for n in best), key=len) == [*found[0].tokens, EOS]
        assert len(best) == len(found[0].tokens) + 2  # with the beginning and the end
        assert searched.search(RandomScorer(seed, V), row[None]) == [found]


def test_a_program_reads_the_graph_and_a_page_shows_every_hypothesis():
    row = random_sources(0, 3, V)[0]
    source = [token for token in row.tolist() if token > EOS]
    show = "<{}&>".format
    graph = beam_graph(decoder("beam"), RandomScorer(0, V), CPU, source, Constraints(), [], (str, show))
    [read] = json.loads(graphs_json([graph]))
    assert read["source"] == [str(token) for token in source]
    assert [node["token"] for node in read["nodes"]] == [node.token for node in graph.nodes]
    page = graphs_page([graph, graph])
    assert page.count("<text ") == 2 * len(graph.nodes) and page.count("<path ") == 2 * (len(graph.nodes) - 1)
    assert f">&lt;{EOS}&amp;&gt;" in page and f"<{EOS}&>" not in page


def test_a_search_without_a_beam_has_no_graph():
    with pytest.raises(UserError, match="--beam-graph needs a beam"):
        graph_of(registry.build(registry.choose("decoder", "sampling")), 0, random_sources(0, 3, V)[0])
