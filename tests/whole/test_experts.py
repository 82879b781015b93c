"""Mixtures of experts as a user runs them: training, resuming, recomputation and translation."""

import pytest
from conftest import records_of, train_arguments, updates_of
from refusals import assert_refused

EXPERTS = ["--ffn=moe", "--experts=4", "--expert-every=1", "--log-every=10u"]


def test_losses_and_statistics_of_experts_are_recorded_and_the_run_resumes_bit_for_bit(data, tmp_path, call):
    for output, ends in (("whole", [20]), ("cut", [10, 20])):
        for updates in ends:
            trained = call(*train_arguments(data, tmp_path / output, updates, *EXPERTS))
            assert trained.code == 0, trained.err
    *_, update, validation = records_of(tmp_path / "whole")
    losses = [update[name] for name in ("main_loss", "importance_loss", "load_loss")]
    assert update["loss"] == pytest.approx(sum(losses), rel=1e-12)
    assert update["max_load"] >= 1 and update["importance_cv"] > 0 and update["load_cv"] > 0
    assert {"valid_importance_loss", "valid_load_loss", "valid_max_load"} < validation.keys()
    rows = {name: updates_of(tmp_path / name) for name in ("whole", "cut")}
    assert rows["whole"] == rows["cut"]
    (tmp_path / "text").write_text("ba bi\n")
    assert call("translate", "--model", tmp_path / "whole", "--input", tmp_path / "text").code == 0


def test_balanced_gates_send_equally_many_training_tokens_to_each_expert(data, tmp_path, call):
    trained = call(*train_arguments(data, tmp_path / "run", 10, *EXPERTS, "--gates=balanced"))
    assert trained.code == 0, trained.err
    for row in updates_of(tmp_path / "run"):
        assert "load_loss" not in row and row["threshold_loss"] > 0
        assert row["load_cv"] == 0 and row["max_load"] == 1


def test_recomputed_layers_give_bit_identical_losses(data, tmp_path, call):
    for name, more in (("plain", []), ("recomputed", ["--activation-checkpointing"])):
        assert call(*train_arguments(data, tmp_path / name, 10, *EXPERTS, *more)).code == 0
    plain, recomputed = ([row["loss"] for row in updates_of(tmp_path / name)] for name in ("plain", "recomputed"))
    assert plain == recomputed


def test_experts_cannot_be_compiled_or_run_by_ctranslate2(data, tmp_path, call):
    assert_refused(call(*train_arguments(data, tmp_path / "run", 10, *EXPERTS, "--compile")), 2, "--compile")
    assert call(*train_arguments(data, tmp_path / "run", 10, *EXPERTS)).code == 0
    (tmp_path / "text").write_text("ba bi\n")
    translated = call("translate", "--model", tmp_path / "run", "--input", tmp_path / "text", "--compile")
    assert_refused(translated, 2, "--compile")
    exported = call("export", "--model", tmp_path / "run", "--output", tmp_path / "ct2", "--format", "ctranslate2")
    assert_refused(exported, 2, "not experts")
