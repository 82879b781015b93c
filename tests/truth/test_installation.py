"""What nmt knows about its own installation: the packages of an extra, its versions, and the commit of a checkout."""

import importlib
import importlib.metadata
import shutil
import subprocess

import pytest
from extras import EXTRAS, named_packages
from pages import ROOT

from nmt import UserError, installation
from nmt.version import __version__

TORCH = importlib.metadata.version("torch")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder on the path with the metadata that a wheel of pyproject.toml has, and no pyproject.toml."""
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "nmt")
    folder = tmp_path / "nmt_toolkit-0.1.0.dist-info"
    folder.mkdir()
    rows = [
        f'Requires-Dist: {name}{" and" if ";" in name else ";"} extra == "{extra}"'
        for extra, names in EXTRAS.items()
        for name in names
    ]
    (folder / "METADATA").write_text(
        "\n".join(["Name: nmt-toolkit", "Version: 0.1.0", "Requires-Dist: torch>=2", *rows])
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_checkout_names_the_packages_of_an_extra(extra):
    error = installation.missing_package("--flag", extra)
    assert str(error).startswith("--flag ") and named_packages(error) == EXTRAS[extra]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_wheel_names_the_same_packages(extra, wheel):
    assert installation.checkout() is None
    assert named_packages(installation.missing_package("--flag", extra)) == EXTRAS[extra]


def test_an_installed_but_broken_package_is_reported_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "brokenpackage.py").write_text("raise ImportError('libgone.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"libgone\.so") as refused:
        installation.required("brokenpackage", "--flag", "plots")
    assert named_packages(refused.value) == EXTRAS["plots"] and "not installed" not in str(refused.value)


def test_the_recipes_are_at_the_top_of_a_checkout_and_in_the_package_of_a_wheel(tmp_path, monkeypatch):
    assert (installation.recipes_folder(), installation.checkout()) == (ROOT / "recipes", ROOT)
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "nmt")
    assert installation.recipes_folder() == tmp_path / "nmt" / "recipes"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "something-else"\n')
    assert installation.checkout() is None  # the package was copied into another project


def test_a_wheel_reports_its_version_and_torchs_but_no_commit(wheel):
    assert installation.version_text() == f"nmt {__version__} (torch {TORCH})"


def test_the_version_is_reported_without_torch(wheel, monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert installation.version_text() == f"nmt {__version__} (torch not installed)"


def test_the_commit_of_a_folder_without_git_is_unknown(tmp_path):
    assert installation.commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert installation.commit_of(tmp_path) is None


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize("state", ["branch", "packed", "detached", "worktree"])
def test_the_commit_of_a_checkout_equals_gits(state, tmp_path):
    folder = tmp_path / "checkout"

    def git(*words):
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True).stdout

    subprocess.run(["git", "init", "--quiet", folder], check=True)
    for message in ("one", "two"):
        git("commit", "--quiet", "--allow-empty", "--message", message)
    if state == "packed":
        git("tag", "a-tag", "HEAD~1")
        git("pack-refs", "--all")
    elif state == "detached":
        git("checkout", "--quiet", "HEAD~1")
    elif state == "worktree":
        git("worktree", "add", "--quiet", "-b", "a/branch", tmp_path / "other", "HEAD~1")
        folder = tmp_path / "other"
    assert installation.commit_of(folder) == git("rev-parse", "HEAD").strip()
