"""The numbers behind `nmt plot --figure`, against definitions: entropy, equation 3, section 3.5, Table 1, and scores of runs."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_models import SMALL

from nmt import registry
from nmt.extensions.watch.figures.attention import entropies, focus, uniform_entropies
from nmt.extensions.watch.figures.cost import growth
from nmt.extensions.watch.figures.positions import similarities
from nmt.models.base import Vocabularies
from nmt.options import make

pytestmark = pytest.mark.usefixtures("one_thread")


def rows_of(name, runs, **options):
    """The numbers of a figure."""
    entry = registry.find("figure", name)
    return entry.cls(make(entry.options, options)).rows([str(run) for run in runs])


def causal(weights):
    """Weights of which each query sees only its own and earlier keys, each row summing to 1."""
    seen = np.tril(weights)
    return seen / seen.sum(-1, keepdims=True)


def test_the_entropy_of_a_uniform_head_is_log_n_and_that_of_a_head_that_sees_one_token_is_0():
    T, S = 3, 7
    uniform, pointing = np.full((1, 2, T, S), 1 / S, np.float32), np.zeros((1, 2, T, S), np.float32)
    pointing[..., 4] = 1
    assert entropies(uniform) == pytest.approx(math.log(S), rel=1e-6)
    assert entropies(pointing) == pytest.approx(0)
    assert uniform_entropies(uniform) == pytest.approx(math.log(S))


def test_the_entropy_of_a_decoder_s_uniform_head_is_the_log_of_the_visible_tokens():
    uniform = causal(np.ones((1, 1, 5, 5), np.float32))
    logs = [math.log(i) for i in range(1, 6)]
    assert entropies(uniform)[0, 0] == pytest.approx(logs) and uniform_entropies(uniform)[0, 0] == pytest.approx(logs)


def test_the_entropy_of_two_keys_is_the_binary_entropy():
    p = 0.2
    expected = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert entropies(np.array([[[[p, 0, 1 - p]]]], np.float32))[0, 0, 0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name, offset", [("the token before", -1), ("the token itself", 0), ("the token after", 1)])
def test_a_head_that_looks_at_a_neighbour_gives_it_all_its_weight(name, offset):
    n = 6
    weights = np.zeros((1, 1, n, n), np.float32)
    inside = [i for i in range(n) if 0 <= i + offset < n]
    for i in inside:
        weights[0, 0, i, i + offset] = 1
    shares = focus("encoder", weights)
    assert shares[name][0, 0] == len(inside) and sum(share[0, 0] for share in shares.values()) == len(inside)


def test_the_weight_of_the_last_key_of_an_encoder_belongs_to_the_end_symbol_unless_it_is_a_neighbour():
    n = 6
    weights = np.zeros((1, 1, n, n), np.float32)
    weights[..., -1] = 1
    shares = focus("encoder", weights)
    assert (shares["the end symbol"], shares["the token itself"], shares["the token after"]) == (n - 2, 1, 1)


def test_a_cross_attention_head_on_the_diagonal_looks_at_the_same_place_in_sentences_of_any_length():
    for T, S in ((4, 8), (8, 4)):
        weights = np.zeros((1, 1, T, S), np.float32)
        for i in range(T):
            weights[0, 0, i, int(i * S / T)] = 1
        shares = focus("cross", weights)
        assert shares["the same place"] + shares["the end symbol"] == T and shares["the same place"] >= T - 2


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_shares_of_a_head_add_up_to_all_its_weight(kind):
    weights = np.random.default_rng(1).random((2, 3, 5, 5)).astype(np.float32)
    weights = causal(weights) if kind == "decoder" else weights / weights.sum(-1, keepdims=True)
    assert sum(focus(kind, weights).values()) == pytest.approx(np.full((2, 3), 5.0), rel=1e-5)


def test_the_paper_s_schedule_is_equation_3_with_its_peak_at_the_end_of_the_warm_up():
    rows = rows_of("lr-schedule", ["transformer-base"])
    assert [rows[0]["update"], rows[-1]["update"]] == [1, 100_000]
    for row in rows:
        step = row["update"]
        assert row["lr"] == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-12)
    assert max(rows, key=lambda row: row["lr"])["update"] == 4000


def test_a_run_s_schedule_equals_the_learning_rates_that_it_recorded(trained):
    rows = rows_of("lr-schedule", [trained])
    assert [row["update"] for row in rows] == list(range(1, 41))
    assert [row["recorded_lr"] for row in rows] == pytest.approx([row["lr"] for row in rows], rel=1e-12)
    assert [rows_of("lr-schedule", [trained], updates=80)[-1][name] for name in ("update", "recorded_lr")] == [80, None]


def test_the_encodings_of_the_paper_s_model_are_those_of_section_3_5():
    rows = rows_of("position-encodings", ["transformer-base"], positions=20)
    assert len(rows) == 20 * 512 and {row["side"] for row in rows} == {"source and target"}
    for row in rows[::37]:
        pos, (i, is_odd) = row["position"], divmod(row["dimension"], 2)
        angle = pos / 10_000 ** (2 * i / 512)
        assert row["value"] == pytest.approx((math.cos if is_odd else math.sin)(angle), abs=1e-6)


def test_the_similarity_of_sinusoids_depends_only_on_the_distance_and_is_the_mean_cosine_of_its_angles():
    rows = rows_of("position-encodings", ["transformer-base"], positions=40)
    table = np.array([row["value"] for row in rows]).reshape(40, 512)
    found = similarities(table)
    for k in range(len(found)):
        assert found[k] == pytest.approx(np.mean([math.cos(k / 10_000 ** (2 * i / 512)) for i in range(256)]), abs=1e-5)


D, H, FF, V, N = 32, 4, 64, 50, 10


def test_the_cost_of_each_layer_of_a_transformer_is_that_of_table_1():
    """Self-attention: 4 n^2 d for scores and sums, and 8 n d^2 for projections (Table 1 counts the former as n^2 d)."""
    options = {"encoder_layers": 2, "decoder_layers": 2, "d_model": D, "heads": H, "d_ff": FF}
    model = registry.build(registry.choose("model", "transformer", options), Vocabularies(V, V, True)).eval()
    attention, network = (4 * D, 8 * D * D, 0), (0, 4 * D * FF, 0)
    encoder, decoder = {"self-attention": attention}, {"self-attention": attention, "cross-attention": attention}
    expected = {
        (f"{side} {number}", part): cost
        for side, parts in (("encoder", encoder), ("decoder", decoder))
        for number in (1, 2)
        for part, cost in (parts | {"feed-forward": network}).items()
    }
    assert growth(model) == expected | {("output", "output"): (0, 2 * D * V, 0)}


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "gnmt", "convs2s", "deep-att"])
def test_the_costs_of_the_parts_add_up_to_the_model_s_cost(name):
    model = registry.build(registry.choose("model", name, SMALL[name]), Vocabularies(V, V, True)).eval()
    for n in (5, 30):
        total = sum(a * n * n + b * n + c for a, b, c in growth(model).values())
        assert total == pytest.approx(int(model.flops(torch.tensor([n]), torch.tensor([n]))))


def test_the_cost_of_a_preset_counts_its_vocabulary_and_length():
    rows = rows_of("layer-costs", ["transformer-base"], length=28, entries=37_000)
    assert sum(row["mflop"] for row in rows) == pytest.approx(3.56e3, rel=2e-3)  # docs/explanation/cost.md
    assert {row["layer"]: row["mflop"] for row in rows}["output"] == pytest.approx(2 * 28 * 512 * 37_000 / 1e6)


@pytest.fixture
def swept(trained, tmp_path):
    """Makes a run with given settings and validations: (label smoothing, seed, [(perplexity, BLEU)])."""

    def make_run(smoothing, seed, validations, **settings):
        run = tmp_path / f"run-{smoothing}-{seed}"
        run.mkdir()
        values = {"label_smoothing": smoothing, "seed": seed, "dropout": 0.1, **settings}
        (run / "settings.toml").write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
        records = [
            {"update": 10 * i, "valid_ppl": ppl, "valid_bleu": bleu} for i, (ppl, bleu) in enumerate(validations, 1)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return run

    return SimpleNamespace(folder=tmp_path, make=make_run)


def test_the_effect_of_a_setting_is_read_from_each_run_s_best_validation(swept):
    swept.make(0.1, 1, [(6.0, 20.0), (5.0, 25.0), (4.5, 24.0)])
    swept.make(0.0, 1, [(4.0, 22.0)])
    swept.make(0.0, 2, [(9.0, 1.0), (4.2, 23.0)])
    rows = rows_of("setting-effect", [swept.folder])
    assert [
        (row["label_smoothing"], row["seed"], row["update"], row["valid_ppl"], row["valid_bleu"]) for row in rows
    ] == [
        (0.0, 1, 10, 4.0, 22.0),
        (0.0, 2, 20, 4.2, 23.0),
        (0.1, 1, 20, 5.0, 25.0),
    ]


def test_runs_of_different_lengths_are_reported(swept, capsys):
    runs = [swept.make(0.1, 1, [(6.0, 20.0), (5.0, 19.0)]), swept.make(0.0, 1, [(6.0, 20.0), (5.0, 21.0)])]
    assert {row["update"] for row in rows_of("setting-effect", runs)} == {10, 20} and capsys.readouterr().err == ""
    rows_of("setting-effect", [*runs, swept.make(0.2, 1, [(6.0, 20.0)])])
    assert "numbers of updates" in capsys.readouterr().err


def test_runs_that_also_differ_in_another_setting_are_reported(swept, capsys):
    runs = [swept.make(0.1, 1, [(6.0, 20.0)]), swept.make(0.0, 2, [(6.0, 20.0)], dropout=0.3)]
    rows_of("setting-effect", runs)
    assert "also differ in dropout" in capsys.readouterr().err
    (runs[1] / "settings.toml").write_text("label_smoothing = 0.0\nseed = 2\ndropout = 0.1\n")
    rows_of("setting-effect", runs)
    assert capsys.readouterr().err == ""
