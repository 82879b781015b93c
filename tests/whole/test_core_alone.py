"""The core without extensions: it prepares, trains, averages, translates, scores and evaluates."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, NMT, TINY, write_corpus

import nmt

PLAIN = [flag for flag in TINY if not flag.startswith("--matmul")]  # without extensions torch computes the products


@pytest.fixture
def core(tmp_path):
    """`core(arguments)` runs a command of a copy of nmt that has no extensions."""
    ignored = shutil.ignore_patterns("extensions", "__pycache__")
    shutil.copytree(Path(nmt.__file__).parent, tmp_path / "core" / "nmt", ignore=ignored)

    def call(*arguments: object) -> str:
        environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path / "core")}
        given = {"capture_output": True, "text": True, "env": environment, "cwd": tmp_path, "timeout": 240}
        done = subprocess.run([*NMT, *map(str, arguments)], **given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_the_core_works_without_any_extension(core, tmp_path):
    write_corpus(tmp_path / "train", 100, 1)
    write_corpus(tmp_path / "dev", 10, 2)
    languages = ["--source-lang=en", "--target-lang=de"]
    core("prepare", *languages, "--train=train", "--valid=dev", "--vocab-size=60", "--output=data", "--quiet")
    periods = ["--max-updates=4", "--save-every=2u", "--valid-every=2u"]
    core("train", "--data=data", "--output=run", *PLAIN, *periods, "--quiet")
    core("average", "--run=run", "--last=2", "--output=model", "--quiet")
    core("translate", "--engine=torch", "--model=model", "--input=dev.en", "--output=out.de", "--threads=1")
    assert len((tmp_path / "out.de").read_text().splitlines()) == 10
    scores = core("score", "--model=model", "--source=dev.en", "--target=dev.de").split()
    assert len(scores) == 10 and all(float(score) < 0 for score in scores)
    assert core("evaluate", "--hypothesis=out.de", "--reference=dev.de").startswith("BLEU")
    assert "--beam-size" in core("translate", "--help")
