"""docs/reference/formats.md lists the files and keys that the commands write."""

import re
from pathlib import Path

from conftest import records_of
from pages import DOCUMENTS

TEXT = (DOCUMENTS / "reference/formats.md").read_text()


def named(heading: str) -> set[str]:
    """The first cells of the table under a heading."""
    rows = TEXT.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return set(re.findall(r"`([^`]+)`(?=[^|\n]*\|[^|\n]*\|$)", rows, re.M))


def section(title: str) -> set[str]:
    """The files of the first table of a section."""
    rows = TEXT.partition(f"## {title}\n")[2].partition("| file | contents |")[2].partition("\n\n")[0]
    return {name for row in rows.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def without_pipeline(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("pipeline/")}


def test_the_page_lists_the_files_of_a_model_a_run_and_a_checkpoint(trained, tmp_path, call):
    assert call("average", "--run", trained, "--last=2", "--output", tmp_path / "model").code == 0
    model = section("Model folder")
    assert without_pipeline(files_of(tmp_path / "model")) == without_pipeline(model)
    assert "pipeline/pipeline.json" in files_of(tmp_path / "model") & model
    top = {path.name for path in trained.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert top == {name for name in section("Run folder") if "." in name}
    added = files_of(trained / "checkpoints/update-40") - files_of(tmp_path / "model")
    assert added == {"training.safetensors", "training.json"} == named("additional file of a checkpoint")


def test_the_page_lists_the_keys_of_the_metrics(trained):
    records = records_of(trained)
    updates = [record for record in records if "valid_loss" not in record]
    assert set(updates[-1]) == named("key of an update") - {"rollbacks"}  # only runs that diverged have these
    assert set(records[-1]) == named("key of a validation")


def test_the_page_lists_the_files_of_prepared_data(data):
    names = section("Prepared data")
    sets = {re.sub(r"^(train|valid\.\w+)\.", "STEM.", name) for name in without_pipeline(files_of(data))}
    assert sets == {name for name in names if "COLUMN" not in name and name != "pipeline/"}
