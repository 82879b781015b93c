"""The container and the service, as far as they can be tested without Docker and systemd."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, small_model
from forks import forked_nmt
from servers import serving

from nmt.extensions.serve.options import ServeOptions

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions(name: str) -> list[str]:
    """The arguments of each Dockerfile instruction with this name, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    return [line.removeprefix(f"{name} ") for line in text.split("\n") if line.startswith(f"{name} ")]


def check_flags(command: list[str]) -> None:
    """Let nmt read the flags of a command without running it."""
    assert command[:2] == ["nmt", "serve"]
    done = subprocess.run([forked_nmt(), *command[1:], "--dump-config"], capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def test_the_container_starts_with_valid_flags_as_an_unprivileged_user():
    [entry], [command] = (map(json.loads, instructions(name)) for name in ("ENTRYPOINT", "CMD"))
    check_flags(entry + command)
    [user] = instructions("USER")
    assert user not in ("root", "0") and any(
        "useradd --uid 10001 " in run and f" {user}" in run for run in instructions("RUN")
    )


def test_container_downloads_depend_only_on_the_list_of_packages():
    """The sources are copied after the last download of their stage, and the last layer installs without an index."""
    lines = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text()).split("\n")
    stages = re.split(r"^FROM .*$", "\n".join(lines), flags=re.M)[1:]
    assert len(stages) == 2
    for stage in stages:
        steps = [line for line in stage.split("\n") if re.match("(COPY|RUN) ", line)]
        uses_sources = [bool(re.match(r"COPY \. |RUN .*from=wheel", step)) for step in steps]
        downloads = [" pip " in step and "--no-index" not in step for step in steps]
        assert True in uses_sources and True in downloads
        assert max(i for i, one in enumerate(downloads) if one) < uses_sources.index(True)
    [listed] = [step for step in instructions("RUN") if " -r " in step]
    source = ROOT / re.search(r"source=([^,]+),target=/runtime.txt", listed)[1]
    assert source.samefile(DEPLOY / "runtime.txt") and "--no-deps" in listed


@pytest.mark.skipif(find_spec("setuptools") is None, reason="needs setuptools")
def test_the_build_context_contains_all_files_of_the_wheel_and_few_others(tmp_path):
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert rules[0] == "*" and rules[-1] == "**/__pycache__"
    copied = [rule.removeprefix("!") for rule in rules[1:-1]]
    context, whole = tmp_path / "context", tmp_path / "whole"
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in copied:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, context / name, **({"ignore": without_caches} if copy is shutil.copytree else {}))
    shutil.copytree(
        ROOT, whole, ignore=shutil.ignore_patterns("__pycache__", ".*", "runs", "build", "dist", "*.egg-info")
    )
    names = []
    for folder in (context, whole):
        wheels = tmp_path / f"wheel-{folder.name}"
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            wheels,
            folder,
        ]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        [wheel] = wheels.iterdir()
        names.append(set(zipfile.ZipFile(wheel).namelist()))
    assert names[0] == names[1] and "nmt/presets.toml" in names[0]
    assert sum(path.stat().st_size for path in context.rglob("*") if path.is_file()) < 10 << 20


def test_the_health_check_succeeds_only_if_the_server_answers(tmp_path):
    [check] = instructions("HEALTHCHECK")
    _, *arguments = json.loads(check[check.index("[") :])
    model = small_model(tmp_path / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)

    def run(port: int) -> int:
        command = [sys.executable, *(argument.replace(":5000/", f":{port}/") for argument in arguments)]
        return subprocess.run(command, capture_output=True, timeout=30).returncode

    with serving(tmp_path, "--model", model) as server:
        assert run(server.port) == 0
    assert run(server.port) != 0


def test_compose_mounts_models_read_only_and_grants_no_privileges():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["nmt"]
    [entry] = map(json.loads, instructions("ENTRYPOINT"))
    check_flags(entry + service["command"])
    assert service["volumes"] == ["./models:/models:ro"] and service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_the_commands_of_the_systemd_unit_start_and_stop_the_server():
    lines = (DEPLOY / "nmt-serve.service").read_text().split("\n")
    settings = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    program, *flags = shlex.split(settings["ExecStart"])
    check_flags([Path(program).name, *flags])
    assert settings["SuccessExitStatus"] == "143" and "-HUP" in settings["ExecReload"]
    assert settings["DynamicUser"] == "yes" and settings["Environment"] == "XDG_CACHE_HOME=%C/nmt"
    assert "--preload" in flags and int(settings["LimitNOFILE"]) > 2 * ServeOptions(model=("m",)).max_connections


def test_systemd_accepts_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    unit = (DEPLOY / "nmt-serve.service").read_text()
    installed = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit, flags=re.M)  # a program that exists
    (tmp_path / "nmt-serve.service").write_text(installed)
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "nmt-serve.service"], capture_output=True, text=True)
    assert done.returncode == 0 and "nmt-serve.service" not in done.stderr, done.stderr


def test_a_read_only_model_is_served_with_a_cache_elsewhere(tmp_path):
    """As in the container: a read-only file system for the models, and a folder for the cache."""
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "models"
    folder.mkdir()
    small_model(folder / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    if subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True).returncode:
        pytest.skip("needs to mount a file system")
    subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
    try:
        cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        with serving(tmp_path, "--model", folder / "m", engine="ctranslate2", environment=cache) as server:
            assert server.translate(text="a")["translations"][0]["translation"]
        assert list((tmp_path / "cache/nmt").iterdir()) and os.listdir(folder) == ["m"]
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
