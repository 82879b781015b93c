"""The WMT14 recipes whole, on archives of the right names and layouts, and killed at every step."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ENVIRONMENT

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = ["--encoder-layers=1", "--decoder-layers=1", "--d-model=16", "--d-ff=16", "--heads=2", "--batch-tokens=600"]
SHORT = ["--max-updates=20", "--save-every=10u", "--valid-every=20u", "--threads=1"]

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")

# Runs a program and, the first time that a step is asked for, kills it when what the step makes is half there.
KILLER = """
import glob, os, subprocess, sys, time
marks, program, arguments = sys.argv[1], sys.argv[2].split("|"), sys.argv[3:]
HALF = {
    "fetch": "archives/training-parallel-nc-v9.tgz", "prepare": ".data.partial/train.source.bin",
    "train": "base/run/checkpoints/update-10/manifest.json", "average": "base/.model.partial/.lock",
    "translate": "base/.newstest2014.*.partial", "evaluate": "base/scores.json.partial",
}
step = next(name for name in HALF if any(name in word for word in arguments[:1]))
process = subprocess.Popen([*program, *arguments])
mark = os.path.join(marks, step)
if not os.path.exists(mark):
    while process.poll() is None and not glob.glob(os.path.join(os.environ["WORK"], HALF[step])):
        time.sleep(0.001)
    if process.poll() is None:
        open(mark, "w").close()
        process.kill()
sys.exit(process.wait() and 137)
"""


@pytest.fixture(scope="module", params=["de", "fr"])
def lang(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def mirror(lang: str, tmp_path_factory) -> Path:
    """Archives of toy sentences."""
    folder = tmp_path_factory.mktemp(f"wmt14-{lang}")
    generate = [sys.executable, RECIPES / "toy/generate.py", "--target-lang", lang, "--train", "500", "--test", "20"]
    subprocess.run([*generate, "--output", folder / "text"], check=True)
    texts = {name: folder / "text" / name for name in ("train", "valid", "test")}
    fill = [sys.executable, RECIPES / "rehearse.py", "--output", folder / "mirror", "--target-lang", lang]
    subprocess.run([*fill, *(f"--{name}={path}" for name, path in texts.items())], check=True)
    return folder / "mirror"


def recipe(lang: str, mirror: Path, work: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {
        **ENVIRONMENT, "MIRROR": str(mirror), "WORK": str(work), "LOCK": str(work.parent / "lock"), "WORKERS": "1",
        "NMT": f"{sys.executable} -m nmt", "PYTHON": sys.executable, "VOCAB_SIZE": "200", "LAST": "2", "APART": "0",
        **environment,
    }  # fmt: skip
    command = ["bash", RECIPES / f"wmt14-en-{lang}/run.sh", *TINY, *SHORT]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300)


def results(work: Path) -> dict[str, str]:
    """The sha256 of every file of the data and the model, the weights of the run, and the translations."""
    folders = (work / "data", work / "base/model", work / "base/run/checkpoints/update-20")
    files = {
        f"{folder.name}/{name}": facts["sha256"]
        for folder in folders
        for name, facts in json.loads((folder / "manifest.json").read_bytes())["files"].items()
        if name not in ("training.json", "report.json")  # which hold minutes, and paths
    }
    found = next((work / "base").glob("newstest2014.*"))
    return {**files, "translations": found.read_text(), "scores": (work / "base/scores.json").read_text()}


def test_the_recipe_runs_whole_and_killed_at_every_step_it_ends_in_the_very_same_result(lang, mirror, tmp_path):
    whole = recipe(lang, mirror, tmp_path / "one/work")
    assert whole.returncode == 0, whole.stderr
    assert "sacreBLEU 13a" in whole.stdout and "published" in whole.stdout
    killer, marks, work = tmp_path / "killer.py", tmp_path / "marks", tmp_path / "two/work"
    killer.write_text(KILLER)
    marks.mkdir()
    programs = {
        "NMT": f"{sys.executable} {killer} {marks} {sys.executable}|-m|nmt",
        "PYTHON": f"{tmp_path / 'python'}",
    }
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} {killer} {marks} {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    codes = [recipe(lang, mirror, work, **programs).returncode for _ in range(6)]
    killed = sorted(os.listdir(marks))
    assert set(codes) <= {0, 137} and {"prepare", "train", "average", "translate", "evaluate"} <= set(killed), (
        codes,
        killed,
    )
    last = recipe(lang, mirror, work)
    assert last.returncode == 0, last.stderr
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    one, two = ({name: text.replace(path, "") for name, text in results(Path(path) / "work").items()} for path in paths)
    assert one == two


RECORDER = """#!/bin/sh
mkdir -p "$WORK/$MODEL"
for word in "$@"; do printf '%s\\n' "$word" >> "$WORK/asked"; done
echo >> "$WORK/asked"
"""


@pytest.mark.parametrize("text", ["paper", "fairseq", "marian"])
@pytest.mark.parametrize("model", ["base", "big"])
def test_every_variant_asks_for_settings_that_there_are(text, model, lang, mirror, tmp_path, call):
    (tmp_path / "nmt").write_text(RECORDER)
    (tmp_path / "nmt").chmod(0o755)
    given = {"NMT": str(tmp_path / "nmt"), "RECIPE": text, "MODEL": model, "VOCAB_SIZE": ""}
    done = recipe(lang, mirror, tmp_path / "work", **given)
    assert done.returncode == 0, done.stderr
    asked = [lines.split("\n") for lines in (tmp_path / "work/asked").read_text().strip().split("\n\n")]
    assert [command for command, *_ in asked] == ["prepare", "train", "average", "translate", "evaluate", "evaluate"]
    found = {words[0]: tomllib.loads(told.out) for words in asked if (told := call(*words, "--dump-config")).out}
    assert set(found) == {command for command, *_ in asked}
    size = {"paper": 37000 if lang == "de" else 32000, "fairseq": 40000, "marian": 36000}[text]
    assert found["prepare"]["vocab_size"] == size and found["prepare"]["truecase"] == (text == "marian")
    assert len(found["prepare"]["train"]) == (3 if lang == "de" else 5)
    assert bool(found["prepare"]["hold_out"]) == (text == "fairseq") == (not found["prepare"]["valid_source"])
    assert found["train"]["dropout"] == (0.3 if (model, lang) == ("big", "de") else 0.1)
    assert (found["translate"]["beam_size"], found["translate"]["alpha"], found["translate"]["max_len_b"]) == (
        4,
        0.6,
        50,
    )
