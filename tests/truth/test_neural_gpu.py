"""The Neural GPU against the paper's equations, written out cell by cell, its size, its cost and a task that it learns."""

import math
from itertools import product

import pytest
import torch
from small_models import assert_search_steps_equal_the_whole, perturb
from torch.nn.functional import cross_entropy, layer_norm

from nmt import registry
from nmt.batch import Batch
from nmt.extensions.zoo.models.neural_gpu import saturating_sigmoid
from nmt.models.base import Vocabularies
from nmt.nn.cost import count_flops
from nmt.options import make
from nmt.symbols import BOS, EOS, PAD

M, H, L, OFFSET = 4, 3, 2, 1
SIZES = {"hidden_size": M, "height": H, "layers": L, "memory_offset": OFFSET}
OUTPUTS = ["extended", "markovian", "baseline"]


def build(**options):
    return registry.build(registry.choose("model", "neural-gpu", SIZES | options), Vocabularies(20, 25, False))


def perturbed(**options):
    torch.manual_seed(1)
    return perturb(build(**options).double().eval(), 0.1)


def test_the_papers_size_has_its_parameters_except_those_that_only_multiply_zeros():
    """facts: input, first, encoder and decoder, and three tables; the authors' `first` has kernels for a state of zeros."""
    m, tables = 512, 3 * 32768 * 512
    cgru, cgru_d = 3 * (9 * m * m + m), 3 * (2 * 9 * m * m + m)
    body = (m * m + m + 2 * m) + cgru_d + 2 * cgru + 2 * cgru_d
    assert (body, body + tables) == (56_894_464, 107_226_112)
    options = make(registry.find("model", "neural-gpu").options, registry.find_preset("neural-gpu").values)
    with torch.device("meta"):
        model = registry.find("model", "neural-gpu").cls(options, Vocabularies(32768, 32768, True))
    assert model.num_parameters() == body + tables - 3 * 9 * m * m == 100_148_224
    for layers, size in ((model.encoder, 14_158_848), (model.decoder, 28_314_624)):
        assert sum(parameter.numel() for parameter in layers.parameters()) == size


def test_the_saturating_sigmoid_reaches_0_and_1():
    edge = math.log(11)  # 1.2 sigmoid(log 11) - 0.1 = 1.2 * 11 / 12 - 0.1 = 1
    values = saturating_sigmoid(torch.tensor([-9.0, -edge - 1e-3, -edge + 0.1, 0.0, edge - 0.1, edge + 1e-3, 9.0]))
    assert values[[0, 1]].tolist() == [0, 0] and values[[5, 6]].tolist() == [1, 1]
    assert 0 < values[2] < values[3] < values[4] < 1
    assert values[3].item() == pytest.approx(0.5)


def by_the_paper(model, source, target):
    """Sections 2 and 3 for one sentence in float64: the features of each position of target, which starts with BOS."""
    weights, outputs = model.state_dict(), model.options.outputs
    zeros = torch.zeros(M).double()

    def convolved(weight, bias, cells):
        """The sum over three positions and three rows; cells: vectors by position and row"""
        result = {}
        for position, row in cells:
            taps = [
                weight[:, :, i + 1, j + 1] @ cells[position + i, row + j]
                for i, j in product((-1, 0, 1), repeat=2)
                if (position + i, row + j) in cells
            ]
            result[position, row] = sum(taps, bias)
        return result

    def joined(cells, tokens):
        return cells if tokens is None else {at: torch.cat([cells[at], tokens[at]]) for at in cells}

    def cgru(name, s, tokens=None):
        gates, biases = weights[f"{name}.gates.weight"], weights[f"{name}.gates.bias"]
        u, r = (
            {at: (1.2 * torch.sigmoid(x) - 0.1).clamp(0, 1) for at, x in convolved(w, b, joined(s, tokens)).items()}
            for w, b in ((gates[:M], biases[:M]), (gates[M:], biases[M:]))
        )
        reset = {at: r[at] * s[at] for at in s}
        weight, bias = weights[f"{name}.candidate.weight"], weights[f"{name}.candidate.bias"]
        candidate = convolved(weight, bias, joined(reset, tokens))
        return {at: u[at] * s[at] + (1 - u[at]) * candidate[at].tanh() for at in s}

    n = len(source) + OFFSET
    words = [weights["source_embedding.weight"][word] for word in [*source, *[PAD] * OFFSET]]
    memory = {}
    for position, row in product(range(n), range(H)):
        x = weights["input.weight"] @ (words[position] if row == 0 else zeros) + weights["input.bias"]
        memory[position, row] = layer_norm(x, (M,), weights["norm.weight"], weights["norm.bias"])
    memory = cgru("first", memory)
    for _ in range(n):
        for i in range(L):
            memory = cgru(f"encoder.{i}", memory)
    features = []
    for k in range(len(target)):
        memory = memory if k < n else memory | {(k, row): zeros for row in range(H)}
        if outputs == "extended":
            table = weights["target_embedding.weight"]
            tokens = {at: table[target[at[0] + 1]] if at[0] < k else zeros for at in memory}
            for i in range(L):
                memory = cgru(f"decoder.{i}", memory, tokens)
        own = [weights["target_embedding.weight"][target[k]]] if outputs == "markovian" else []
        features.append(torch.cat([memory[k, 0], *own]))
    return torch.stack(features)


SOURCES = [[7, 5, 9, 13, EOS], [4, EOS]]
TARGETS = [[BOS, 4, 24, 8, 9], [BOS, 17, 6, 5, 5]]  # the second is longer than its memory
BATCH = Batch(torch.tensor([SOURCES[0], [*SOURCES[1], *[PAD] * 3]]), torch.tensor([[*row, EOS] for row in TARGETS]))


@pytest.mark.parametrize("outputs", OUTPUTS)
@torch.no_grad()
def test_features_follow_the_papers_equations_cell_by_cell(outputs):
    model = perturbed(outputs=outputs)
    features = model(BATCH).features
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        torch.testing.assert_close(features[i], by_the_paper(model, source, target))


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_a_search_step_equals_the_whole_sentence_within_1e_5(outputs):
    assert_search_steps_equal_the_whole(perturbed(outputs=outputs).float(), BATCH)


@pytest.mark.parametrize(("outputs", "reads"), [("extended", [0, 1, 2]), ("markovian", [2]), ("baseline", [])])
@torch.no_grad()
def test_the_cutoff_decides_which_tokens_an_output_reads(outputs, reads):
    """Which of the first five tokens change what is predicted after three of them."""
    model = perturbed(outputs=outputs)
    before = model(BATCH).features[:, 3]
    changed = []
    for position in range(1, 6):
        target = BATCH.target.clone()
        target[:, position] = 20
        if not torch.equal(model(Batch(BATCH.source, target)).features[:, 3], before):
            changed.append(position - 1)
    assert changed == reads


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_its_cost_formula_equals_the_counted_flops_even_for_targets_longer_than_memory(outputs):
    model = build(outputs=outputs).eval()
    for source, target in [(1, 1), (3, 4), (2, 9)]:
        batch = Batch(torch.tensor([[5] * (source - 1) + [EOS]]), torch.tensor([[BOS] + [5] * (target - 1) + [EOS]]))
        formula = int(model.flops(torch.tensor([source]), torch.tensor([target])))
        assert formula == count_flops(lambda batch=batch: model.output(model(batch).features))


def test_a_search_step_costs_one_pass_of_the_decoders_layers_over_the_memory():
    model, source = build(), torch.tensor([SOURCES[0]])
    _, state = model.step(torch.tensor([BOS]), model.start(source))
    n, cgru_d = len(SOURCES[0]) + OFFSET, 3 * 2 * 9 * 2 * M * M
    assert count_flops(lambda: model.step(torch.tensor([5]), state)) == n * H * L * cgru_d + 2 * M * 25


@pytest.mark.parametrize("outputs", OUTPUTS)
@torch.no_grad()
def test_the_search_state_has_the_stated_bytes_before_and_after_it_outgrows_the_memory(outputs):
    model, state = build(outputs=outputs), None
    state = model.start(torch.tensor([SOURCES[0]]))
    for length in range(1, 10):
        _, state = model.step(torch.tensor([5]), state)
        tensors = [*state.sentences.values(), *state.hypotheses.values()]
        assert sum(tensor.nbytes for tensor in tensors) == model.state_bytes(len(SOURCES[0]), length)


def test_it_learns_to_reverse_unseen_sentences():
    torch.manual_seed(4)
    model = build(hidden_size=24, height=1, layers=1, memory_offset=0, dropout=0.0)
    words = torch.cartesian_prod(*[torch.arange(4, 12)] * 3)[torch.randperm(512)]
    end, begin = torch.full((512, 1), EOS), torch.full((512, 1), BOS)
    source, target = torch.cat([words, end], 1), torch.cat([begin, words.flip(1), end], 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for start in range(0, 100 * 32, 32):
        rows = torch.arange(start, start + 32) % 400
        batch = Batch(source[rows], target[rows])
        loss = cross_entropy(model.output(model(batch).features).flatten(0, 1), batch.target_output.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    unseen = Batch(source[400:], target[400:])
    with torch.no_grad():
        right = (model.output(model(unseen).features).argmax(-1) == unseen.target_output).all(1)
    assert right.float().mean() > 0.9
