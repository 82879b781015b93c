"""The complete WMT14 recipes on archives with the same names and layouts: killed at every step, and after every fault."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, small_disk
from forks import forked_nmt
from mirror_server import Server
from refusals import assert_refused

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = ["--encoder-layers=1", "--decoder-layers=1", "--d-model=16", "--d-ff=16", "--heads=2", "--batch-tokens=600"]
SHORT = ["--max-updates=20", "--save-every=10u", "--valid-every=20u", "--threads=1"]

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")

# Runs a program at the first call of a step and kills it when its output is half written; later calls run another one.
KILLER = """
import glob, os, subprocess, sys, time
marks, program, later_program, arguments = sys.argv[1], sys.argv[2].split("|"), sys.argv[3], sys.argv[4:]
HALF = {
    "fetch": "archives/training-parallel-nc-v9.tgz", "prepare": ".data.partial/train.source.bin",
    "train": "base/run/checkpoints/update-10/manifest.json", "average": "base/.model.partial/.lock",
    "translate": "base/.newstest2014.*.partial", "evaluate": "base/scores.json.partial",
}
step = next(name for name in HALF if any(name in word for word in arguments[:1]))
mark = os.path.join(marks, step)
process = subprocess.Popen([*([later_program] if os.path.exists(mark) else program), *arguments])
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
        **ENVIRONMENT, "MIRROR": str(mirror), "WORK": str(work), "WORKERS": "1",
        "NMT": forked_nmt(), "PYTHON": sys.executable, "VOCAB_SIZE": "200", "LAST": "2", "APART": "0",
        "FETCH": "--tries 1", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1",  # no mirror except the given one
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
        if name not in ("training.json", "report.json")  # these contain minutes and paths
    }
    found = next((work / "base").glob("newstest2014.*"))
    return {**files, "translations": found.read_text(), "scores": (work / "base/scores.json").read_text()}


@pytest.fixture(scope="module")
def undisturbed(lang: str, mirror: Path, tmp_path_factory) -> Path:
    """The work of an uninterrupted run."""
    work = tmp_path_factory.mktemp("undisturbed") / "work"
    done = recipe(lang, mirror, work)
    assert done.returncode == 0, done.stderr
    assert "sacreBLEU 13a" in done.stdout and "published" in done.stdout
    return work


def assert_same_results(one: Path, two: Path) -> None:
    texts = [{name: text.replace(str(work), "") for name, text in results(work).items()} for work in (one, two)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("lang", ["de"], indirect=True)
def test_a_recipe_killed_at_every_step_gives_the_same_result(lang, mirror, undisturbed, tmp_path):
    killer, marks, work = tmp_path / "killer.py", tmp_path / "marks", tmp_path / "two/work"
    killer.write_text(KILLER)
    marks.mkdir()
    programs = {
        "NMT": f"{sys.executable} {killer} {marks} {sys.executable}|-m|nmt {forked_nmt()}",
        "PYTHON": f"{tmp_path / 'python'}",
    }
    (tmp_path / "python").write_text(
        f'#!/bin/sh\nexec {sys.executable} {killer} {marks} {sys.executable} {sys.executable} "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    codes = [recipe(lang, mirror, work, **programs).returncode for _ in range(6)]
    killed = sorted(os.listdir(marks))
    assert set(codes) <= {0, 137} and {"prepare", "train", "average", "translate", "evaluate"} <= set(killed), (
        codes,
        killed,
    )
    last = recipe(lang, mirror, work)
    assert last.returncode == 0, last.stderr
    assert_same_results(undisturbed, work)


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """Replace the content of a file within the block."""
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


def with_link(archive: bytes) -> bytes:
    """A tgz in which the first text is a link to a file outside."""
    made = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=made, mode="w:gz") as new:
        for number, info in enumerate(old.getmembers()):
            if number == 0:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
            new.addfile(info, old.extractfile(info) if number else None)
    return made.getvalue()


@pytest.mark.parametrize("lang", ["de"], indirect=True)
def test_after_each_mirror_failure_the_recipe_gives_the_same_result(lang, mirror, undisturbed, tmp_path):
    work = tmp_path / "work"

    def refused(code: int, *messages: str, at: str | Path = mirror) -> None:
        done = recipe(lang, at, work)
        assert done.returncode == code and all(message in done.stderr for message in messages), done.stderr

    europarl, news = mirror / "wmt13/training-parallel-europarl-v7.tgz", mirror / "wmt14/training-parallel-nc-v9.tgz"
    with replaced(europarl, europarl.read_bytes()[: europarl.stat().st_size // 2]):
        refused(4, "training-parallel-europarl-v7.tgz", "damaged gzip: unexpected end")
    with replaced(news, with_link(news.read_bytes())):
        refused(4, "news-commentary-v9.de-en.en: it is a link")
    (work / "archives" / europarl.name).unlink()
    with replaced(europarl, news.read_bytes()):
        refused(4, "training-parallel-europarl-v7.tgz", f"{work / 'data.lock'}")
    server = Server(mirror)
    server.cuts = [1000]
    refused(5, "ended after 1,000 of", at=server.address)
    assert (work / "archives" / f".{europarl.name}.part").stat().st_size == 1000
    server.close()
    done = recipe(lang, mirror, work)
    assert done.returncode == 0, done.stderr
    assert_same_results(undisturbed, work)


def room(folder: Path) -> int:
    """Disk space of a folder, bytes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


@pytest.mark.parametrize("lang", ["de"], indirect=True)
def test_after_a_full_disk_at_any_step_the_recipe_gives_the_same_result(lang, mirror, undisturbed, tmp_path):
    (work := tmp_path / "work").mkdir()
    archives, data, run = (room(undisturbed / name) for name in ("archives", "data", "base/run"))
    sizes = {"fetch.py": archives // 2, "nmt prepare": archives + data // 2, "nmt train": archives + data + run // 2}
    with small_disk(work, 64 << 20) as resize:
        for step, size in sizes.items():
            resize(size)
            full = recipe(lang, mirror, work)
            steps = [line for line in full.stderr.splitlines() if line.startswith("== after")]
            assert_refused(full, 5, "bytes needed")
            assert (step in steps[-1]) if steps else (step == "fetch.py"), full.stderr
        resize(64 << 20)
        done = recipe(lang, mirror, work)
        assert done.returncode == 0, done.stderr
        assert_same_results(undisturbed, work)


RECORDER = """#!/bin/sh
mkdir -p "$WORK/$MODEL"
for word in "$@"; do printf '%s\\n' "$word" >> "$WORK/asked"; done
echo >> "$WORK/asked"
"""


@pytest.mark.parametrize("text", ["paper", "fairseq", "marian"])
@pytest.mark.parametrize("model", ["base", "big"])
def test_every_variant_gives_valid_settings(text, model, lang, mirror, tmp_path, call):
    (tmp_path / "nmt").write_text(RECORDER)
    (tmp_path / "nmt").chmod(0o755)
    given = {"NMT": str(tmp_path / "nmt"), "RECIPE": text, "MODEL": model, "VOCAB_SIZE": ""}
    done = recipe(lang, mirror, tmp_path / "work", **given)
    assert done.returncode == 0, done.stderr
    asked = [lines.split("\n") for lines in (tmp_path / "work/asked").read_text().strip().split("\n\n")]
    assert [command for command, *_ in asked] == ["prepare", "train", "average", "translate", "evaluate", "evaluate"]
    found = {words[0]: tomllib.loads(result.out) for words in asked if (result := call(*words, "--dump-config")).out}
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
