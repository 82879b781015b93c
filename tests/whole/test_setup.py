"""`make setup` says why it cannot use a Python, and rebuilds `.venv` only when it must."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="no make")


def python_of(file: Path, version: str) -> Path:
    """Write a program that runs this Python but reports another version."""
    numbers = tuple(map(int, version.split(".")))
    program = f"import sys; sys.version_info = {numbers}; sys.argv.pop(0); exec(sys.argv[0])"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && echo Python {version} && exit\n'
        f'[ "$1" = -c ] && shift && exec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\nexit 99\n'
    )
    file.chmod(0o755)
    return file


def setup(environment: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """`make setup` for an environment, independent of the make that runs the tests."""
    of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "VENV")
    kept = {name: value for name, value in os.environ.items() if name not in of_make}
    command = ["make", "setup", f"VENV={environment}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**kept, **variables}, timeout=60)


def must_be_built(environment: Path, *arguments: object) -> bool:
    done = setup(environment, "--question", *arguments)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 1


@pytest.fixture
def environment(tmp_path):
    """A folder that looks like a finished environment of Python 3.12.1."""
    python_of(tmp_path / "venv/bin/python", "3.12.1")
    (tmp_path / "venv/ready").touch()
    return tmp_path / "venv"


def assert_refused(environment, done, *named):
    assert done.returncode == 2 and all(name in done.stderr for name in named), done.stderr
    assert not environment.exists() or (environment / "ready").exists()


def test_a_python_that_does_not_run_is_reported(tmp_path):
    assert_refused(tmp_path / "venv", setup(tmp_path / "venv", "PYTHON=python9.9"), "python9.9")


def test_a_python_that_is_too_old_is_reported_with_its_version(tmp_path, environment):
    old = python_of(tmp_path / "old", "3.10.13")
    assert_refused(tmp_path / "new", setup(tmp_path / "new", f"PYTHON={old}"), str(old), "3.10")
    assert_refused(environment, setup(environment, f"PYTHON={old}"), str(old), "3.10")
    assert (environment / "bin/python").exists()


def test_a_python_without_venv_is_reported_with_the_package_to_install(tmp_path):
    (tmp_path / "ensurepip.py").write_text("raise ImportError\n")
    python = python_of(tmp_path / "python", "3.12.1")
    done = setup(tmp_path / "venv", f"PYTHON={python}", PYTHONPATH=str(tmp_path))
    assert_refused(tmp_path / "venv", done, str(python), "python3.12-venv")


def test_an_environment_is_rebuilt_only_for_a_different_python(tmp_path, environment):
    same, other = python_of(tmp_path / "same", "3.12.1"), python_of(tmp_path / "other", "3.13.0")
    assert not must_be_built(environment)
    assert not must_be_built(environment, f"PYTHON={same}")
    assert must_be_built(environment, f"PYTHON={other}")
    assert must_be_built(tmp_path / "new")


def test_an_environment_with_a_deleted_python_is_rebuilt(environment):
    (environment / "bin/python").unlink()
    (environment / "bin/python").symlink_to("/nonexistent")
    assert must_be_built(environment)


def test_an_environment_is_updated_when_its_requirements_change(environment):
    os.utime(environment / "ready", (0, 0))
    [created, *installed] = setup(environment, "--dry-run").stdout.splitlines()
    assert "ensurepip" in created and any("pip install" in line for line in installed)
    assert not any("-m venv" in line for line in [created, *installed])
