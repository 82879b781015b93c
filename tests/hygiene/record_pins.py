"""Record what PyPI publishes of every package that nmt installs, so that test_pins.py can resolve without a network.

    make pins       # after a change of constraints.txt or of the dependencies in pyproject.toml

For each supported Python version, uv chooses a version of every package, for torch's default Linux wheel and all extras but
COMET together. pip then reads the metadata of the chosen wheels. The settings of both programs on this machine are ignored,
so that a local index cannot hide a conflict. The record is pypi.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
APART = "comet"  # needs numpy < 2, and has an environment of its own (docs/how-to/evaluate.md)
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_")) or name.endswith("_CERT")
} | {"PIP_CONFIG_FILE": os.devnull}


def chosen_versions(python: str, extras: list[str]) -> list[str]:
    """The requirements NAME==VERSION that uv chooses for one Python version."""
    flags = ["--no-config", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    target = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    chosen = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *flags, *target, "--constraints", "constraints.txt"]
        + [word for extra in extras for word in ("--extra", extra)]
        + ["pyproject.toml"],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return chosen.stdout.split("\n")[:-1]


def metadata(python: str, requirements: list[str]) -> list[dict[str, Any]]:
    """The core metadata of the wheels that pip would install for one Python version. Fails if one has no wheel."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["install", "--isolated", "--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
        target = ["--target", folder, "--python-version", python, "--only-binary", ":all:"]
        report = subprocess.run(
            [sys.executable, "-m", "pip", *command, *target, *requirements],
            env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return [item["metadata"] for item in json.loads(report.stdout)["install"]]


def main() -> None:
    """Write pypi.json."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = sorted(project["optional-dependencies"].keys() - {APART})
    versions: dict[str, dict[str, str]] = {}
    wheels: dict[str, dict[str, Any]] = {}
    for python in PYTHONS:
        versions[python] = {}
        for wheel in metadata(python, chosen_versions(python, extras)):
            name = wheel["name"].lower().replace("_", "-").replace(".", "-")
            versions[python][name] = wheel["version"]
            wheels[f"{name} {wheel['version']}"] = {
                "requires_python": wheel.get("requires_python", ""),
                "requires_dist": wheel.get("requires_dist", []),
            }
        print(f"Python {python}: {len(versions[python])} packages")
    record = {"versions": versions, "wheels": wheels}
    (HERE / "pypi.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
