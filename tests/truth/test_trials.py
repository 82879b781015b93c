"""The trials that a sweep file makes: all combinations, or draws that stay the same."""

import math
from random import Random

import pytest
from pages import DOCUMENTS, code_blocks

from nmt.errors import UserError
from nmt.extensions.sweep.trials import MAX_TRIALS, Range, Sweep, read_sweep

CONSTANT = '[train]\ndata = "d"\nschedule = "constant"\n'


@pytest.fixture
def sweep_of(tmp_path):
    """`sweep_of(text)`: the sweep of a file with this text."""

    def write(text: str) -> Sweep:
        (tmp_path / "sweep.toml").write_text(text)
        return read_sweep(str(tmp_path / "sweep.toml"))

    return write


def test_a_grid_has_each_combination_once_and_its_fixed_settings_in_all(sweep_of):
    sweep = sweep_of('[train]\ndata = "d"\nlr = [0.1, 0.2, 0.1]\nheads = [2, 4]\nadam_betas = [0.9, 0.98]\n')
    trials = sweep.trials(None, 1, 1)
    assert [tuple(trial.tried.values()) for trial in trials] == [(0.1, 2), (0.1, 4), (0.2, 2), (0.2, 4)]
    settings = [trial.settings["train"] for trial in trials]
    assert all((row["data"], row["adam_betas"], row["seed"]) == ("d", [0.9, 0.98], 1) for row in settings)
    assert [(row["lr"], row["heads"]) for row in settings] == [tuple(trial.tried.values()) for trial in trials]


def test_an_option_that_takes_a_list_is_swept_by_a_list_of_lists(sweep_of):
    sweep = sweep_of(
        '[train]\ndata = "d"\nadam_betas = [[0.9, 0.98], [0.9, 0.999]]\nvalid_metrics = ["bleu", "chrf"]\n'
    )
    assert [trial.tried for trial in sweep.trials(None, 1, 1)] == [
        {"adam_betas": [0.9, 0.98]},
        {"adam_betas": [0.9, 0.999]},
    ]


def test_seeds_start_at_the_file_s_seed_and_name_the_folders(sweep_of):
    trials = sweep_of('[train]\ndata = "d"\nlr = [0.1, 0.2]\nseed = 7\n').trials(None, 1, 2)
    assert [trial.name for trial in trials] == ["lr=0.1,seed=7", "lr=0.1,seed=8", "lr=0.2,seed=7", "lr=0.2,seed=8"]
    assert [trial.settings["train"]["seed"] for trial in trials] == [7, 8, 7, 8]
    assert trials == sweep_of('[train]\ndata = "d"\nlr = [0.1, 0.2]\nseed = "7"\n').trials(None, 1, 2)


def test_adding_draws_or_options_changes_no_existing_draw(sweep_of):
    text = CONSTANT + "lr = { low = 1e-4, high = 1e-2, log = true }\ndropout = { low = 0.0, high = 0.5 }\n"
    few, many = (sweep_of(text).trials(count, 1, 1) for count in (5, 20))
    assert many[:5] == few and len({trial.name for trial in many}) == 20
    wider = sweep_of(text + "heads = [2, 4, 8]\n").trials(5, 1, 1)
    assert [trial.tried["lr"] for trial in wider] == [trial.tried["lr"] for trial in few]
    assert sweep_of(text).trials(5, 2, 1) != few


def test_a_logarithmic_range_gives_each_power_of_ten_the_same_share_and_ends_are_kept(sweep_of):
    text = CONSTANT + "lr = { low = 1e-4, high = 1.0, log = true }\nbatch_tokens = { low = 100, high = 102 }\n"
    trials = [trial.tried for trial in sweep_of(text).trials(2000, 1, 1)]
    decades = [math.floor(math.log10(row["lr"])) for row in trials]
    for decade in (-4, -3, -2, -1):
        assert decades.count(decade) == pytest.approx(500, abs=80)  # four standard deviations: sqrt(2000 * 3 / 16) = 19
    assert all(1e-4 <= row["lr"] <= 1 for row in trials)
    assert {type(row["batch_tokens"]) for row in trials} == {int}
    assert {row["batch_tokens"] for row in trials} == {100, 101, 102}


def test_a_name_is_safe_for_a_folder_and_differs_where_values_do(sweep_of):
    trials = sweep_of('[train]\ndata = ["a/b", "a b", "/a/b"]\n').trials(None, 1, 1)
    names = [trial.name for trial in trials]
    assert len({*names}) == 3 and not any("/" in name or " " in name for name in names)
    assert all(name.startswith("data=") for name in names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = 0.1", "unknown table 'lr' (known: train, translate)"),
        ("[trian]\nlr = 0.1", "unknown table 'trian' (did you mean 'train'?)"),
        ("", "has no settings"),
        ('[train]\ndata = "d"\nlr = [0.1', "not valid TOML"),
        ('[train]\ndata = "d"\nlr = []', "'lr' has no values to try"),
        ('[train]\ndata = "d"\nlr = { low = 0.1 }', "'lr': low or high is missing"),
        (
            '[train]\ndata = "d"\nlr = { low = 0.2, high = 0.1 }',
            "'lr': low and high must be numbers, with low less than high",
        ),
        ('[train]\ndata = "d"\nlr = { low = 0.0, high = 0.1, log = true }', "low must be positive"),
        ('[train]\ndata = "d"\nlr = 1\n"lr.low" = 0.1', "'lr' has both a value and a range"),
        ('[train]\ndata = "d"\noutput = "o"', "'output' is set by nmt sweep"),
        ('[train]\ndata = "d"\nplugin = "p"', "'plugin' cannot be set in a file"),
        ('[train]\ndata = "d"\n[translate]\nalpha = [0, 1]', "[translate]: 'alpha' cannot have several values"),
        ('[train]\ndata = "d"\n[translate]\nmodel = "m"', "[train] already provides the model (drop 'model')"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_position(text, message, sweep_of):
    with pytest.raises(UserError) as error:
        sweep_of(text)
    assert message in str(error.value) and "sweep.toml" in str(error.value)


@pytest.mark.parametrize(
    ("settings", "seeds", "message"),
    [
        ("lrr = [0.1, 0.2]", 1, "unknown setting 'lrr' (did you mean 'lr'?)"),
        ("dropout = [0.1, 1.5]", 1, "--dropout 1.5: must be at least 0 and below 1 (set by "),
        (
            "d_model = 128\nheads = [4, 3]",
            1,
            "sweep.toml [train]: heads=3,seed=1: --d-model 128: must be a multiple of",
        ),
        ('model = ["transformer", "rnnsearh"]', 1, "unknown model 'rnnsearh' (did you mean 'rnnsearch'?)"),
        ("lr = { low = 0.1, high = 0.2 }", 1, "'lr' is a range, which needs --trials N"),
        ("seed = [1, 2]", 3, "--seeds 3 needs a [train] table whose seed is a number"),
        ("seed = 1.5", 1, "--seed '1.5': must be a whole number (set by "),
        (
            f"lr = {list(range(1, 102))}\nheads = {list(range(1, 11))}",
            1,
            f"1,010 combinations exceed the limit of {MAX_TRIALS:,}",
        ),
    ],
)
def test_settings_that_the_command_refuses_are_refused_before_any_run(settings, seeds, message, sweep_of):
    with pytest.raises(UserError) as error:
        sweep = sweep_of(f'[train]\ndata = "d"\nencoder_layers = 2\n{settings}\n')
        for trial in sweep.trials(None, 1, seeds):
            sweep.options(trial)
    assert message in str(error.value)


@pytest.mark.parametrize("order", [1, -1])
def test_a_setting_applies_only_to_the_components_that_have_it(order, sweep_of):
    criteria, optimizers = ["cross-entropy", "r-drop"][::order], ["adam", "muon"][::order]
    text = f"criterion = {criteria}\ndivergence_weight = [1.0, 5.0]\noptimizer = {optimizers}\nmomentum = 0.9\n"
    sweep = sweep_of(
        f"[train]\ndata = 'd'\nencoder_layers = 2\nadam_betas = [0.9, 0.98]\n{text}label_smoothing = 0.2\n"
    )
    trials = sweep.trials(None, 1, 1)
    rows = [trial.settings["train"] for trial in trials]
    found = {(row["criterion"], row.get("divergence_weight"), row["optimizer"], row.get("momentum")) for row in rows}
    wanted = {(*criterion, *optimizer)
        for criterion in (("cross-entropy", None), ("r-drop", 1.0), ("r-drop", 5.0))
        for optimizer in (("adam", None), ("muon", 0.9))}  # fmt: skip
    assert found == wanted and len(rows) == 6 and {row["label_smoothing"] for row in rows} == {0.2}
    assert len({trial.name for trial in trials}) == 6 and all(sweep.options(trial) for trial in trials)
    assert len(sweep.trials(100, 1, 1)) == 6
    with pytest.raises(UserError, match="unknown setting 'divergence'"):
        sweep = sweep_of(f"[train]\ndata = 'd'\ncriterion = {criteria}\ndivergence = 1.0\n")
        sweep.options(sweep.trials(None, 1, 1)[0])


@pytest.mark.parametrize("order", [1, -1])
def test_an_inner_component_is_swept_where_it_applies(order, sweep_of):
    criteria, decoders = ["reward", "cross-entropy"][::order], ["sampling", "beam"][::order]
    inner = f'"criterion.decoder" = {decoders}\n"criterion.decoder.beam_size" = [2, 3]\n'
    sweep = sweep_of(f"[train]\ndata = 'd'\n{inner}criterion = {criteria}\n")
    rows = [trial.settings["train"] for trial in sweep.trials(None, 1, 1)]
    keys = "criterion", "criterion.decoder", "criterion.decoder.beam_size"
    found = {tuple(row.get(key) for key in keys) for row in rows}
    assert found == {
        ("cross-entropy", None, None),
        ("reward", "sampling", None),
        *(("reward", "beam", n) for n in (2, 3)),
    }
    assert len(rows) == 4 and len(sweep.trials(50, 1, 1)) == 4


def test_a_range_of_whole_numbers_draws_both_ends():
    drawn = {Range(1, 8, log=True).draw(Random(number)) for number in range(500)}
    assert drawn == set(range(1, 9))


def test_the_files_in_the_documentation_make_the_documented_number_of_trials(sweep_of):
    blocks = code_blocks((DOCUMENTS / "how-to/sweeps.md").read_text(), "toml")
    numbers = []
    for text, draws in zip(blocks, (None, 20, None), strict=True):
        sweep = sweep_of(text)
        trials = sweep.trials(draws, 1, 1)
        assert [sweep.options(trial) for trial in trials]
        numbers.append(len(trials))
    assert numbers == [6, 20, 20]
