"""Table 1 of "Attention Is All You Need": how FLOPs, chains of operations and paths of the package's layers grow with n."""

import runpy
from itertools import accumulate, cycle, takewhile
from math import ceil, log2
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

benchmark = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "layers.py")))
ATTENTION, RESTRICTED, LSTM, GRU, CONVOLUTION, DILATED, BYTENET = benchmark.KINDS
GRAPH_LENGTHS = [5, 6, 7, 130]  # the last beyond the lengths of plain attention in training


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


# A product of (n, a) and (a, b) has 2 n a b FLOPs.
FLOPS = {
    ATTENTION: [2 * 2, 0, 2 * 4, 0],  # scores and sums; queries, keys, values and the output
    RESTRICTED: [2 * 2, 0, 2 * 4, 0],  # masked scores are computed
    LSTM: [0, 0, 2 * 4 * 2, 0],  # four gates, of the input and of the state
    GRU: [0, 0, 2 * 2 * 3 * (1 / 2 + 1 / 4), 0],  # two directions of three gates, d by d / 2 and d / 2 by d / 2
    CONVOLUTION: [0, 0, 0, 2 * 2],  # k d by 2 d
    DILATED: [0, 0, 2 * (1 / 2 + 1 / 2), 2 / 4],  # d by d / 2, and back; k d / 2 by d / 2
    BYTENET: [0, 0, 2 * (1 / 2 + 1 / 2), 2 / 4],
}


@pytest.mark.parametrize("name", benchmark.KINDS)
def test_flops_equal_the_sum_over_the_layers_products(name):
    terms, residual = benchmark.flop_terms(benchmark.KINDS[name], [8, 20])
    assert terms == pytest.approx(FLOPS[name])
    assert residual < 1e-12


@pytest.mark.parametrize("name", benchmark.KINDS)
def test_the_longest_chain_grows_per_step_only_if_recurrent(name):
    kind = benchmark.KINDS[name]
    first, second, third, far = (benchmark.sequential_operations(kind, n) for n in GRAPH_LENGTHS)
    of_a_step = second - first
    assert (of_a_step > 0) == kind.recurrent
    assert [third - second, far - third] == [of_a_step, of_a_step * (GRAPH_LENGTHS[3] - GRAPH_LENGTHS[2])]


def layers_to_reach(n, reaches):
    """How many layers span n - 1 positions. reaches: positions to one side of each layer"""
    return 1 + len(list(takewhile(lambda reach: reach < n - 1, accumulate(reaches))))


@pytest.mark.parametrize("n", [17, 18, 40, 65, 66])
def test_a_stack_connects_the_ends_once_its_layers_span_the_sentence(n):
    lengths = {name: benchmark.path_length(kind, n) for name, kind in benchmark.KINDS.items() if not kind.recurrent}
    assert lengths == {
        ATTENTION: 1,
        RESTRICTED: ceil(2 * (n - 1) / (33 - 1)),
        CONVOLUTION: ceil(2 * (n - 1) / (5 - 1)),
        DILATED: ceil(log2(n)),
        BYTENET: layers_to_reach(n, cycle([1, 2, 4, 8, 16])),
    }


def test_the_shortest_chain_between_states_has_one_node_per_step_in_a_gru_and_two_in_an_lstm():
    """The interpolation of a GRU; the product with the forget gate and the sum of an LSTM's cell."""
    assert [benchmark.path_length(benchmark.KINDS[GRU], n) for n in (3, 4, 30)] == [2, 3, 29]
    first, second, third = (benchmark.path_length(benchmark.KINDS[LSTM], n) for n in (3, 4, 30))
    assert [second - first, third - second] == [2, 2 * 26]


def test_the_longest_and_shortest_chains_of_a_graph_are_found():
    x = torch.ones(2, requires_grad=True)
    start = torch.autograd.graph.get_gradient_edge(x).node
    end = (x + x.exp().sin() * torch.ones(2, requires_grad=True)).grad_fn
    assert [benchmark.chain_length(end, start, choose) for choose in (max, min)] == [4, 1]


def test_a_growth_law_is_named_only_if_exact():
    assert benchmark.law([2, 4, 8], [5, 9, 17]) == "2 n + 1"
    assert benchmark.law([2, 4, 8], [0, 1, 3]) == "1/2 n - 1"
    assert benchmark.law([2, 4, 8], [1, 2, 4]) == "1/2 n"
    assert benchmark.law([2, 4, 8], [7, 7, 7]) == "7"
    assert benchmark.law([2, 4, 8], [1, 2, 3]) == "log2 n"
    assert benchmark.law([2, 4, 8], [1, 2, 5]) == "-"
