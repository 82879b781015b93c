"""The content of an installed package: pyproject.toml names the files that are not Python, and they can be read."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from extras import EXTRAS
from pages import DOCUMENTS

import nmt
from nmt.extensions.watch.pictures.page import read_asset

ROOT = Path(nmt.__file__).parent
FILES = {  # of no module: the skeletons of `nmt new-plugin` are texts
    path
    for path in ROOT.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and (path.suffix != ".py" or "skeletons" in path.parts)
}


def test_every_non_python_file_is_in_the_package_data():
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["nmt"]
    assert {path for pattern in patterns for path in ROOT.glob(pattern)} == FILES


@pytest.mark.parametrize(
    "path", sorted(path for path in FILES if path.parent.name == "pictures"), ids=lambda path: path.name
)
def test_page_parts_are_read_as_package_resources(path):
    assert read_asset(path.name) == path.read_text(encoding="utf-8")


BUILD = """
import runpy, sys
import setuptools
from setuptools.command.build import build
setuptools.setup = lambda **_: None
command = runpy.run_path("setup.py")["BuildRecipes"](setuptools.Distribution())
assert build.sub_commands[-1] == ("build_recipes", None)
command.build_lib = sys.argv[1]
command.run()
command.editable_mode = True
assert command.get_outputs() == []
"""


def test_the_wheel_contains_every_recipe_without_results_and_an_editable_installation_none(tmp_path):
    # In a process of its own, because setuptools replaces distutils for the whole process.
    subprocess.run([sys.executable, "-c", BUILD, tmp_path], cwd=ROOT.parent, check=True)
    folder = ROOT.parent / "recipes"
    recipes = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    made = {path.relative_to(tmp_path / "nmt" / "recipes") for path in tmp_path.rglob("*") if path.is_file()}
    assert made == {path for path in recipes if not {"runs", "outputs"} & {*path.parts}} and Path("toy/run.sh") in made


def test_the_page_about_the_installation_lists_every_extra_for_users():
    extras = {name: packages for name, packages in EXTRAS.items() if name not in ("dev", "docs", "recording", "fuzz")}
    page = (DOCUMENTS / "how-to" / "install.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", page, re.M)
    assert {name: re.findall(r"`([^`]+)`", packages) for name, packages in rows} == extras
