"""The cost of models against torch's counter and the paper's equations; the costs of Table 2 against their hardware."""

from math import log10

import pytest
import small_models
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nmt import registry
from nmt.batch import Batch
from nmt.extensions.watch.table2 import TABLE_2, estimate
from nmt.models.base import Model, Output, State, Vocabularies
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.options import make
from nmt.symbols import BOS, EOS

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [(1, 1), (7, 3), (2, 11)]
TINY = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 32, "d_ff": 56, "heads": 4}
SMALL = small_models.SMALL | {
    "transformer": TINY,
    # measured without rounding of lengths
    "bytenet": small_models.SMALL["bytenet"] | {"unfold_factor": 1.0, "bucket": 1},
    "neural-gpu": {"hidden_size": 6, "height": 2, "layers": 1, "memory_offset": 50},  # no target is longer than n
    # thresholds of balanced gates may choose more or fewer experts than are counted
    "moe": {**small_models.SMALL["moe"], "gates": "noisy-top-k"},
}


def pairs_of(source, target, pairs=1):
    """`pairs` equal pairs of these lengths."""
    rows = [5] * (source - 1) + [EOS], [BOS] + [5] * (target - 1) + [EOS]
    return Batch(*(torch.tensor([row] * pairs) for row in rows))


def counted(model, source, target, pairs=1):
    """What torch's counter sees of the forward pass, attention as plain products."""
    batch = pairs_of(source, target, pairs)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.output(model(batch).features)
    return counter.get_total_flops()


def flops(model, source, target):
    return int(model.flops(torch.tensor([source]), torch.tensor([target])))


VARIANTS = {
    "the paper's": {},
    "pre-norm": {"norm_position": "pre"},
    "biases": {"attention_bias": True, "output_bias": True},
    "untied": {"tie": "none"},
    "partly tied": {"tie": "target"},
    "keys and values of their own widths": {"d_k": 5, "d_v": 9},
    "learned positions": {"positions": "learned"},
    "relative positions": {"positions": "relative", "relative_distance": 2, "d_k": 5, "d_v": 9},
    "relative positions of keys, by head": {
        "positions": "relative",
        "relative_heads": "separate",
        "relative_values": False,
    },
    "restricted self-attention": {"attention_window": 3},
    "experts": {"ffn": "moe", "experts": 6, "active_experts": 3},
    "a hierarchy of experts": {"ffn": "moe", "experts": 6, "expert_groups": 3, "expert_every": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_transformers_formula_equals_the_counted_flops(variant):
    joint = "tie" not in VARIANTS[variant]
    model = Transformer(
        make(TransformerOptions, {**TINY, **VARIANTS[variant]}), Vocabularies(50 if joint else 40, 50, joint)
    ).eval()
    for source, target in LENGTHS:
        assert flops(model, source, target) == counted(model, source, target)
        assert 3 * flops(model, source, target) == counted(model, source, target, pairs=3)


PAPERS = sorted(
    name for name in registry.presets() if name.startswith(("table3-", "transformer-base", "transformer-big"))
)


@pytest.mark.parametrize("name", PAPERS)
def test_the_cost_of_every_row_of_table_3_equals_the_counted_flops(name):
    values = dict(registry.find_preset(name).values)
    if name != "table3-c-n2":  # one layer a side is quick, and the others are like it
        values |= {"encoder_layers": 1, "decoder_layers": 1}
    with torch.device("meta"):
        model = Transformer(make(TransformerOptions, values), Vocabularies(37000, 37000, True))
        seen = counted(model, 28, 21)
    assert flops(model, 28, 21) == seen


MORE_READ = {"read_out_context": True, "read_out_word": True}
OTHERS = {  # models, with options and with the width of the energies, a matrix times a vector: no operator that torch counts
    "rnnsearch": [({}, 28), ({"output_rank": 11}, 28)],
    "gnmt": [
        (dict(zip(("encoder_layers", "decoder_layers"), layers, strict=True)) | more, 28)
        for layers in ((1, 1), (2, 3), (4, 2))
        for more in ({}, MORE_READ)
    ],
    "deep-att": [({}, 12), (MORE_READ, 12), ({"interface": "summary"}, 0)],
    "memory-network": [({"embedding_size": 7, "memory_size": size}, 0) for size in (2, 5, 100)],
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_formulas_of_other_models_equal_the_counted_flops_plus_attention_energies(name):
    for options, width in OTHERS[name]:
        chosen = registry.choose("model", name, SMALL[name] | options)
        model = registry.build(chosen, Vocabularies(40, 50, False)).eval()
        for source, target in LENGTHS:
            energies = 2 * source * target * width
            assert flops(model, source, target) == counted(model, source, target) + energies, options


def test_the_moe_s_context_projection_costs_a_product_per_source_position_and_a_sum_per_pair():
    V = Vocabularies(40, 40, True)
    plain, more = (
        registry.build(registry.choose("model", "moe", {**SMALL["moe"], "read_out_context": given}), V).eval()
        for given in (False, True)
    )
    D = SMALL["moe"]["d_model"]
    for source, target in LENGTHS:
        added = flops(more, source, target) - flops(plain, source, target)
        assert added == 2 * source * D * D + 2 * source * target * D
        assert added == counted(more, source, target) - counted(plain, source, target)


@pytest.mark.parametrize("name", registry.names("model"))
def test_a_measured_cost_is_exact_at_unmeasured_lengths(name):
    model = registry.build(registry.choose("model", name, SMALL.get(name, {})), Vocabularies(40, 40, True))
    for source, target in [(1, 1), (3, 50), (41, 2), (100, 100)]:
        measured = Model.flops(model, torch.tensor([source]), torch.tensor([target]))
        assert int(measured) == flops(model, source, target)


class Lstm(Model):
    """A model of torch's own recurrent layer that says nothing of its cost."""

    def __init__(self, width, vocabulary):
        super().__init__()
        self.width, self.source = width, nn.Embedding(vocabulary, width)
        self.drop, self.lstm = nn.Dropout(0.5), nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, batch):
        self.lstm.flatten_parameters()
        memory = self.drop(self.lstm(self.source(batch.source))[0][:, -1:])
        return Output(memory.expand(-1, batch.target_input.shape[1], -1), {})

    def start(self, source):
        return State()

    def step(self, tokens, state):
        return self.log_probs(torch.zeros(len(tokens), self.width)), state


def test_measuring_a_model_without_a_cost_formula_does_not_affect_its_training():
    model = Lstm(16, 30).train()
    assert model.cost_is_measured
    before = torch.get_rng_state()
    assert flops(model, 9, 4) == 9 * 2 * 2 * 16 * 64 + 4 * 2 * 16 * 30  # four gates of inputs and of states; logits
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training and model.drop.training


def test_the_cost_of_the_papers_models_follows_its_equations():
    """Section 3: projections of 4 d^2 and d_ff of 2 d d_ff weights a position, and scores and sums of n m d each."""
    for name, d, d_ff, printed in (("transformer-base", 512, 2048, 3.56e9), ("transformer-big", 1024, 4096, 1.20e10)):
        with torch.device("meta"):
            options = make(TransformerOptions, registry.find_preset(name).values)
            model = Transformer(options, Vocabularies(37000, 37000, True))
        n = m = 28
        encoder = 6 * (n * 2 * (4 * d * d + 2 * d * d_ff) + 2 * 2 * n * n * d)
        decoder = 6 * (m * 2 * (6 * d * d + 2 * d * d_ff) + n * 2 * 2 * d * d + 2 * 2 * m * (m + n) * d)
        found = flops(model, n, m)
        assert found == encoder + decoder + m * 2 * d * 37000
        assert round(found, 2 - int(log10(found))) == printed
        row = next(row for row in TABLE_2 if row.counted and ("big" in row.system) == ("big" in name))
        updates = {"transformer-base": 100_000, "transformer-big": 300_000}[name]
        assert 3 * found * 25_000 / m * updates == pytest.approx(row.counted, rel=0.006)


def test_the_cost_of_an_update_is_three_times_that_of_its_pairs():
    model = Transformer(make(TransformerOptions, TINY), Vocabularies(50, 50, True))
    pairs = [*LENGTHS[:2], (9, 7)]
    source, target = torch.tensor(pairs).T
    assert model.training_flops(source, target) == 3 * sum(flops(model, *lengths) for lengths in pairs)


CELLS = [(row.system, pair) for row in TABLE_2 for pair, cell in row.cells.items() if cell.cost is not None]


@pytest.mark.parametrize(("system", "pair"), CELLS)
def test_a_published_cost_is_its_devices_times_their_tflops_times_seconds(system, pair):
    cell = next(row.cells[pair] for row in TABLE_2 if row.system == system)
    assert cell.training is not None
    assert cell.training.flops() == pytest.approx(cell.cost, rel=0.035)


def test_table_2_has_all_its_cells():
    assert len(TABLE_2) == 10
    assert len(CELLS) == 16 and sum(len(row.cells) for row in TABLE_2) == 17  # ByteNet has no cost
    assert estimate(8, 9.5, 12 * 3600) == pytest.approx(3.2832e18)
