"""The container and the service, as far as a machine without Docker and systemd can try them."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, NMT, small_model
from servers import serving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of a name in the Dockerfile, its lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    return [line.removeprefix(f"{name} ") for line in text.split("\n") if line.startswith(f"{name} ")]


def check_flags(command: list[str]) -> None:
    """Let nmt read the flags of a command without running it."""
    assert command[:2] == ["nmt", "serve"]
    done = subprocess.run([*NMT, *command[1:], "--dump-config"], capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def test_the_container_copies_what_is_there_and_starts_with_flags_that_nmt_has():
    for arguments in instructions("COPY"):
        *sources, _ = arguments.split()
        assert all((ROOT / source).exists() for source in sources)
    [entry], [command] = (map(json.loads, instructions(name)) for name in ("ENTRYPOINT", "CMD"))
    check_flags(entry + command)
    [user] = instructions("USER")
    assert user not in ("root", "0") and f" {user}" in instructions("RUN")[0]
    extras = re.search(r"'\.\[([\w,]+)\]'", instructions("RUN")[1])[1].split(",")
    assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text() for extra in extras)


def test_the_health_check_tells_a_server_that_answers_from_one_that_does_not(tmp_path):
    [check] = instructions("HEALTHCHECK")
    _, *arguments = json.loads(check[check.index("[") :])
    model = small_model(tmp_path / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)

    def run(port: int) -> int:
        command = [sys.executable, *(argument.replace(":5000/", f":{port}/") for argument in arguments)]
        return subprocess.run(command, capture_output=True, timeout=30).returncode

    with serving(tmp_path, "--model", model) as server:
        assert run(server.port) == 0
    assert run(server.port) != 0


def test_compose_mounts_models_read_only_and_gives_no_rights():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["nmt"]
    [entry] = map(json.loads, instructions("ENTRYPOINT"))
    check_flags(entry + service["command"])
    assert service["volumes"] == ["./models:/models:ro"] and service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_the_unit_starts_and_ends_the_server_as_it_is_written():
    lines = (DEPLOY / "nmt-serve.service").read_text().split("\n")
    settings = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    program, *flags = shlex.split(settings["ExecStart"])
    check_flags([Path(program).name, *flags])
    assert settings["SuccessExitStatus"] == "143" and "-HUP" in settings["ExecReload"]
    assert settings["DynamicUser"] == "yes" and settings["Environment"] == "XDG_CACHE_HOME=%C/nmt"


def test_a_model_that_may_only_be_read_is_served_with_a_cache_elsewhere(tmp_path):
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
