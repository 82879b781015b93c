"""`nmt recipes` lists the recipes, describes one, and writes a complete copy of one."""

import json
import os
import re
import stat
from pathlib import Path

import pytest
from pages import ROOT
from refusals import assert_refused

from nmt import installation

RECIPES = ROOT / "recipes"
NAMES = sorted([*(script.parent.name for script in RECIPES.glob("*/run.sh")), "table2"])
MAX_SUMMARY_CHARACTERS = 110
NAMED = re.compile(
    r"(?:\$here|\$\(dirname \"\$\{BASH_SOURCE\[0\]\}\"\))/([\w./-]+\.(?:sh|py|toml))\b"
)  # files of a script


def script_of(name: str) -> Path:
    return Path("table2.sh") if name == "table2" else Path(name, "run.sh")


def test_every_recipe_is_listed_with_the_first_line_of_its_script(call):
    listed = call("recipes", "--json").json
    assert sorted(listed) == NAMES
    for name, summary in listed.items():
        assert (RECIPES / script_of(name)).read_text().split("\n")[1] == f"# {summary}"
        assert 0 < len(summary) <= MAX_SUMMARY_CHARACTERS
    rows = call("recipes").out.splitlines()
    assert [row.split(maxsplit=1) for row in rows] == [[name, listed[name]] for name in NAMES]


def test_a_recipe_is_described_by_the_comment_in_its_script(call):
    told = call("recipes", "toy").out
    assert "TARGET_LANG" in told and "#" not in told and call("recipes", "toy", "--json").json["help"] + "\n" == told


@pytest.mark.parametrize("name", NAMES)
def test_a_written_recipe_has_every_file_that_its_scripts_name(name, tmp_path, call):
    output = tmp_path / "a folder"
    told = call("recipes", name, "--output", output, "--json")
    assert told.code == 0 and told.json["script"] == str(output / script_of(name))
    written = {path.relative_to(output): path for path in output.rglob("*") if path.is_file()}
    for file, path in written.items():
        if path.suffix == ".sh":
            missing = [name for name in NAMED.findall(path.read_text()) if not (path.parent / name).is_file()]
            assert not missing, file
        if file != Path("manifest.json"):
            assert path.read_bytes() == (RECIPES / file).read_bytes()
            assert os.access(path, os.X_OK) == path.read_bytes().startswith(b"#!")
    own = {path.relative_to(RECIPES) for path in RECIPES.glob(f"{name}/*") if path.is_file()}
    assert own | {script_of(name), Path("steps.sh"), Path("fetch.py"), Path("mirrors.py")} <= written.keys()
    assert not [path for path in written if "outputs" in path.parts]  # of the parsing recipe, for example
    uses = re.search(r"^# Uses: (.*)$", (RECIPES / script_of(name)).read_text(), re.M)
    others = {other for other in NAMES if (output / script_of(other)).exists()}
    assert others == {name, *(uses[1].split() if uses else ())}


def test_only_a_folder_with_a_written_recipe_is_replaced_and_only_on_request(tmp_path, call):
    output = tmp_path / "out"
    assert call("recipes", "toy", "--output", output).code == 0
    changed = output / "toy" / "settings.toml"
    changed.write_text("max_updates = 1\n")
    (output / "runs").mkdir()
    (output / "runs" / "kept").write_text("a result")
    assert_refused(call("recipes", "toy", "--output", output), 2, str(output))
    assert changed.read_text() == "max_updates = 1\n"
    assert call("recipes", "toy", "--output", output, "--overwrite").code == 0
    assert changed.read_bytes() == (RECIPES / "toy" / "settings.toml").read_bytes()
    assert (output / "runs" / "kept").read_text() == "a result"
    for folder in (tmp_path, tmp_path / "out" / "toy"):
        assert call("recipes", "toy", "--output", folder, "--overwrite").code == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["toi"], "toy"),
        (["--output", "x"], "--output"),
        (["toy", "--overwrite"], "--overwrite"),
        (["toy", "more"], "more"),
    ],
)
def test_wrong_arguments_are_reported(words, named, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = call("recipes", *words)
    assert refused.code == 2 and named in refused.err and refused.out == "" and not list(tmp_path.iterdir())


def test_a_recipe_that_cannot_be_written_or_read_is_reported_with_its_path(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert call("recipes", "toy", "--output", tmp_path / "file").code == 2
    assert_refused(call("recipes", "toy", "--output", tmp_path / "file" / "in"), 5, str(tmp_path / "file"))
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "nmt")
    assert_refused(call("recipes"), 5, str(tmp_path / "nmt" / "recipes"))


def test_a_written_recipe_has_the_permissions_of_the_users_umask(call, tmp_path):
    """The recipes of a system installation can be read-only; a written copy must be editable."""
    old = os.umask(0o027)
    try:
        assert call("recipes", "toy", "--output", tmp_path / "out").code == 0
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) for name in ("steps.sh", "toy/run.sh")}
    assert modes == {"steps.sh": 0o640, "toy/run.sh": 0o750}
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["kind"] == "recipe"
