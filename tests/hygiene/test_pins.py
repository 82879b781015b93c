"""The pins can be installed: of constraints.txt with every extra, and deploy/runtime.txt, on every supported Python version.

The versions and requirements are those that PyPI publishes; record_pins.py has written them to pypi.json.
"""

import json
import tomllib
from collections import deque
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: requirements for name, requirements in PROJECT["optional-dependencies"].items() if name != "comet"}
RECORD = json.loads((Path(__file__).parent / "pypi.json").read_text())
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] not in ("", "#")]
RUNTIME_EXTRAS = ["serve", "ctranslate2"]
RUNTIME = [
    Requirement(line) for line in (ROOT / "deploy/runtime.txt").read_text().splitlines() if line[:1] not in ("", "#")
]
REFRESH = "run `make pins` to record what PyPI publishes"


def environment(python: str) -> dict[str, str]:
    """The values of environment markers for CPython on Linux."""
    values = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    values |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    return values | {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
    }


def applies(requirement: Requirement, markers: dict[str, str], extras: set[str]) -> bool:
    """Whether a requirement counts for a package that is installed with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate(markers | {"extra": extra}) for extra in extras or {""})


def conflicts(python: str, requirements: list[str], pins: list[Requirement]) -> list[str]:
    """What keeps the recorded versions from being an installation of these requirements: empty if nothing does."""
    versions, markers, found = RECORD["versions"][python], environment(python), []
    for pin in pins:
        name = canonicalize_name(pin.name)
        if applies(pin, markers, set()) and name in versions and versions[name] not in pin.specifier:
            found.append(f"constraints.txt wants {pin}, but {name} {versions[name]} is needed")
    waiting = deque((Requirement(line), "nmt") for line in requirements)
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, parent = waiting.popleft()
        name, extras = canonicalize_name(requirement.name), requirement.extras
        if name not in versions:
            found.append(f"{parent} needs {requirement}, which is not recorded; {REFRESH}")
            continue
        version = versions[name]
        wheel = RECORD["wheels"][f"{name} {version}"]
        if version not in requirement.specifier:
            found.append(f"{parent} needs {requirement}, but {version} is pinned or recorded; {REFRESH}")
        if f"{python}.0" not in SpecifierSet(wheel["requires_python"]):
            found.append(f"{name} {version} needs Python {wheel['requires_python']}")
        for extra in {"", *extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                needed = [Requirement(line) for line in wheel["requires_dist"]]
                waiting.extend((one, f"{name} {version}") for one in needed if applies(one, markers, {extra}))
    return found


def direct(extras: list[str], python: str) -> list[str]:
    """The requirements of nmt itself with some extras, on one Python version."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return [line for line in lines if applies(Requirement(line), environment(python), set())]


@pytest.mark.parametrize("python", RECORD["versions"])
def test_every_extra_alone_and_all_together_can_be_installed(python):
    for extras in [[], *([name] for name in EXTRAS), list(EXTRAS)]:
        assert conflicts(python, direct(extras, python), PINS) == []


@pytest.mark.parametrize("python", RECORD["versions"])
def test_each_direct_requirement_is_pinned_once(python):
    applying = [canonicalize_name(pin.name) for pin in PINS if applies(pin, environment(python), set())]
    assert len(applying) == len(set(applying))
    needed = {canonicalize_name(Requirement(line).name) for line in direct(list(EXTRAS), python)}
    # torch brings its own triton, and the index of its CPU builds has an older setuptools; the rest is pinned.
    assert needed - {"triton", "setuptools"} <= set(applying)
    assert all(str(pin.specifier).startswith("==") for pin in PINS)


def test_a_pin_that_torch_excludes_is_found():
    for python in RECORD["versions"]:
        [conflict] = conflicts(python, direct([], python), [*PINS, Requirement("triton==3.9.0")])
        assert "triton==3.9.0" in conflict


def test_a_requirement_that_the_pins_exclude_is_found():
    for python in RECORD["versions"]:
        [conflict] = conflicts(python, [*direct([], python), "numpy<2"], PINS)
        assert "numpy<2" in conflict


def test_the_supported_python_versions_are_the_recorded_ones():
    classifiers = PROJECT["classifiers"]
    named = [
        line.removeprefix("Programming Language :: Python :: ") for line in classifiers if ":: Python :: 3." in line
    ]
    assert named == list(RECORD["versions"])
    assert min(named, key=lambda version: int(version[2:])) == PROJECT["requires-python"].removeprefix(">=")


def packages(python: str, requirements: list[str], left_out: str) -> set[str]:
    """The names of all packages that requirements install, by the record, without one and what it alone needs."""
    markers, found, waiting = environment(python), set[tuple[str, str]](), deque(map(Requirement, requirements))
    while waiting:
        requirement = waiting.popleft()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} if name != left_out else ():
            if (name, extra) not in found:
                found.add((name, extra))
                wheel = RECORD["wheels"][f"{name} {RECORD['versions'][python][name]}"]
                needed = map(Requirement, wheel["requires_dist"])
                waiting.extend(one for one in needed if applies(one, markers, {extra}))
    return {name for name, _ in found}


@pytest.mark.parametrize("python", RECORD["versions"])
def test_the_runtime_without_torch_is_complete_and_has_the_pinned_versions(python):
    listed = {canonicalize_name(pin.name): pin for pin in RUNTIME if applies(pin, environment(python), set())}
    assert all(str(pin.specifier).startswith("==") for pin in RUNTIME)
    assert listed.keys() == packages(python, direct(RUNTIME_EXTRAS, python), "torch")
    assert [str(pin) for name, pin in listed.items() if RECORD["versions"][python][name] not in pin.specifier] == []
    pinned = {canonicalize_name(pin.name): pin for pin in PINS if applies(pin, environment(python), set())}
    assert {name: listed[name].specifier for name in listed.keys() & pinned.keys()} == {
        name: pinned[name].specifier for name in listed.keys() & pinned.keys()
    }
