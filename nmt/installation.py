"""How nmt is installed (from a wheel or as a checkout), its versions, the requirements of its extras, and the recipes folder."""

import importlib
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nmt.errors import UserError, quoted
from nmt.version import __version__

DISTRIBUTION: Final = "nmt-toolkit"
# Groups: the package with its version bounds, any other marker, the extra.
_OF_EXTRA: Final = re.compile(r"([^;]+); *(?:(.+) and )?extra *== *['\"](.+)['\"]")
_PACKAGE: Final = Path(__file__).parent


def missing_package(purpose: str, extra: str, error: ImportError | None = None) -> UserError:
    """The error for an optional package that cannot be imported. It includes the command that installs the package.

    purpose: option, format or command that needs the package
    extra: name of its extra in pyproject.toml
    error: reason why the import failed, if known
    """
    state = "is not installed" if error is None or isinstance(error, ModuleNotFoundError) else "cannot be imported"
    cause = f": {quoted(error)}" if error else ""
    command = shlex.join(["pip", "install", *requirements(extra)])
    return UserError(f"{purpose} needs a package that {state}{cause} (run `{command}`)")


def required(module: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional package. Raises the UserError from `missing_package` if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package(purpose, extra, error) from None


def requirements(extra: str) -> list[str]:
    """The packages of an extra with their version bounds, in pip's syntax: `['matplotlib>=3.8']`.

    In a checkout they come from pyproject.toml, which can be newer than the metadata of an editable installation.
    """
    if checkout() is not None:
        listed: list[str] = _project()["optional-dependencies"][extra]
        return listed
    from importlib.metadata import requires  # slow to import

    entries = (_OF_EXTRA.fullmatch(entry) for entry in requires(DISTRIBUTION) or ())
    return ["; ".join(filter(None, entry.groups()[:2])) for entry in entries if entry and entry[3] == extra]


def checkout() -> Path | None:
    """The folder of nmt's source checkout, or None if nmt was installed from a wheel."""
    return _PACKAGE.parent if _project().get("name") == DISTRIBUTION else None


def recipes_folder() -> Path:
    """The folder of the recipes. In a wheel it is inside the package; see setup.py."""
    return (checkout() or _PACKAGE) / "recipes"


def version_text() -> str:
    """The versions of nmt and torch and, in a checkout, the commit: `nmt 0.1.0 (torch 2.13.0, commit 57000a452e89)`."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        facts = [f"torch {version('torch')}"]
    except PackageNotFoundError:
        facts = ["torch not installed"]
    sources = checkout()
    if sources is not None and (commit := commit_of(sources)):
        facts.append(f"commit {commit[:12]}")
    return f"nmt {__version__} ({', '.join(facts)})"


def commit_of(folder: Path) -> str | None:
    """The current commit of a git checkout, read without git; None if the folder is not a checkout."""
    with suppress(OSError, ValueError):
        git = folder / ".git"
        if git.is_file():  # in a worktree, it contains the line `gitdir: PATH`
            git = folder / _text(git).removeprefix("gitdir:").strip()
        head = _text(git / "HEAD")
        if not head.startswith("ref: "):
            return head
        branch = head.removeprefix("ref: ")
        common = git / _text(git / "commondir") if (git / "commondir").is_file() else git
        if (common / branch).is_file():
            return _text(common / branch)
        packed = (line.split(" ") for line in _text(common / "packed-refs").split("\n"))
        return next((words[0] for words in packed if words[-1] == branch), None)
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _project() -> dict[str, Any]:
    """The table [project] of the pyproject.toml next to the package; empty if there is no such file."""
    import tomllib

    try:
        with (_PACKAGE.parent / "pyproject.toml").open("rb") as file:
            project: dict[str, Any] = tomllib.load(file).get("project", {})
            return project
    except (OSError, ValueError):
        return {}
