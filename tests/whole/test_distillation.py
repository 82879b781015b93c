"""`nmt train --criterion distillation`: a student learns from a model folder, resumes bit for bit, agrees with its teacher."""

import json
import shutil

from conftest import kill_after_update_10, records_of, reseal, train_arguments
from refusals import assert_refused


def test_a_killed_student_resumes_bit_for_bit_and_agrees_more_with_its_teacher_than_an_untaught_model(
    data, tmp_path, call
):
    assert call(*train_arguments(data, tmp_path / "teacher", 60)).code == 0
    flags = (
        "--criterion=distillation",
        f"--teacher={tmp_path / 'teacher/checkpoints/update-60'}",
        "--teacher-weight=1",
        "--seed=2",
    )
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    kill_after_update_10(train_arguments(data, cut, 100_000, *flags), cut)
    for run in (cut, whole):
        assert call(*train_arguments(data, run, 60, *flags)).code == 0
    for file in ("metrics.jsonl", "checkpoints/update-60/model.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes()
    rows = records_of(whole)
    divergences = [row["divergence"] for row in rows if "divergence" in row]
    assert divergences[-1] < divergences[0] / 2


def test_replacing_the_teacher_by_another_model_is_an_error(data, trained, tmp_path, call):
    flags = ("--criterion=distillation", f"--teacher={tmp_path / 'teacher'}")
    shutil.copytree(trained / "checkpoints/update-10", tmp_path / "teacher")
    assert call(*train_arguments(data, tmp_path / "run", 10, *flags)).code == 0
    shutil.rmtree(tmp_path / "teacher")
    shutil.copytree(trained / "checkpoints/update-20", tmp_path / "teacher")
    assert_refused(call(*train_arguments(data, tmp_path / "run", 20, *flags)), 2, "criterion.teacher_sha256")
    state = tmp_path / "run/checkpoints/update-10"
    saved = json.loads((state / "training.json").read_text())
    del saved["settings"]["criterion.teacher_sha256"]  # as earlier versions wrote it
    reseal(state, "training.json", json.dumps(saved).encode())
    assert call(*train_arguments(data, tmp_path / "run", 20, *flags)).code == 0


def test_a_missing_teacher_a_run_and_prepared_data_are_rejected_as_teachers(data, trained, tmp_path, call):
    assert_refused(call(*train_arguments(data, tmp_path / "run", 10, "--criterion=distillation")), 2, "needs a teacher")
    refused = call(*train_arguments(data, tmp_path / "run", 10, "--criterion=distillation", f"--teacher={data}"))
    assert refused.code != 0 and refused.err.count("\n") == 1
    refused = call(*train_arguments(data, tmp_path / "run", 10, "--criterion=distillation", f"--teacher={trained}"))
    assert_refused(refused, 2, "the best checkpoint of a run may change")
