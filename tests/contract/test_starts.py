"""Starts as a training uses them: one in a single plug-in file, and which are in use."""

import pytest
import torch
from conftest import records_of, train_arguments
from refusals import assert_refused

from nmt import registry
from nmt.checkpoint import load_model
from nmt.options import make
from nmt.train.options import TrainOptions

PLUGIN = '''
"""A start in one file: the output layer is multiplied by a number, and embeddings are not trained."""
from nmt import opt, options_class, register
from nmt.starts.base import Start


@options_class
class ScaledOptions:
    scaled: float = opt(1.0, "factor of all weights", above=0, must_stay=True)


@register("start", "scaled", ScaledOptions)
class Scaled(Start):
    """All weights are multiplied by a number, and the embeddings are not trained."""

    def change(self, model):
        for name, parameter in model.named_parameters():
            parameter.data *= self.options.scaled
            if "embedding" in name:
                parameter.requires_grad_(False)

    def begin(self, run):
        run.report.line(f"all weights are multiplied by {self.options.scaled:g}")
'''
GIVEN = {
    "init-from": {"init_from": "model"},
    "freeze": {"freeze": "encoder.*"},
    "lora": {"lora_rank": 2, "init_from": "model"},
    "moving-average": {"ema": 0.9},
    "deepen": {"deepen": True, "init_from": "model"},
}


def weights(folder, name):
    model = load_model(folder, torch.device("cpu")).model
    return dict(model.named_parameters(remove_duplicate=False))[name].data


def test_a_start_from_one_file_changes_the_trained_model_by_its_own_flag(data, tmp_path, call):
    (tmp_path / "scaled.py").write_text(PLUGIN)
    plugin = f"--plugin={tmp_path / 'scaled.py'}"
    plain, arguments = (train_arguments(data, tmp_path / name, 10, plugin) for name in ("plain", "run"))
    assert call(*plain).code == 0
    assert call(*arguments, "--scaled=0.5").code == 0
    log = (tmp_path / "run/train.log").read_text()
    assert log.count("all weights are multiplied by 0.5") == 1
    assert records_of(tmp_path / "plain")[0]["loss"] != records_of(tmp_path / "run")[0]["loss"]
    frozen = weights(tmp_path / "run", "source_embedding.weight")
    assert_refused(call(*arguments, "--scaled=0.25"), 2, "scaled: 0.5 -> 0.25")
    more = train_arguments(data, tmp_path / "run", 20, plugin, "--scaled=0.5")
    assert (
        call(*more).code == 0
    )  # the resumed run has its weights from the checkpoint, and the same parameters are frozen
    assert torch.equal(weights(tmp_path / "run", "source_embedding.weight"), frozen)
    assert (tmp_path / "run/train.log").read_text().count("all weights are multiplied") == 1


@pytest.mark.parametrize("name", GIVEN)
def test_a_start_is_active_when_one_of_its_options_is_set(name):
    options = make(TrainOptions, {"data": "data", "output": "run", **GIVEN[name]})
    wanted = {name, "init-from"} if "init_from" in GIVEN[name] else {name}
    assert {entry.name for entry in registry.active("start", options)} == wanted
    assert registry.active("start", TrainOptions(data="data", output="run")) == []
