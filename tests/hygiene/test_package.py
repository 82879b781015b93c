"""What an installed package holds: the files that are not Python are named in pyproject.toml, and are read where they lie."""

import tomllib
from pathlib import Path

import pytest

import nmt
from nmt.pictures.page import read_asset

ROOT = Path(nmt.__file__).parent
FILES = {
    path for path in ROOT.rglob("*") if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
}


def test_every_file_that_is_not_python_is_in_the_package_data():
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["nmt"]
    assert {path for pattern in patterns for path in ROOT.glob(pattern)} == FILES


@pytest.mark.parametrize(
    "path", sorted(path for path in FILES if path.parent.name == "pictures"), ids=lambda path: path.name
)
def test_the_parts_of_a_page_are_read_as_resources(path):
    assert read_asset(path.name) == path.read_text(encoding="utf-8")
