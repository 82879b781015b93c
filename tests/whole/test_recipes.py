"""The recipes as a user runs them: data from a folder or a mirror, steps that are not done twice, figures at the end."""

import gzip
import hashlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = ["--encoder-layers", "1", "--decoder-layers", "1", "--d-model", "16", "--d-ff", "16", "--heads", "2"]
TEXT = "".join(f"line {i} of a text\n" for i in range(500)).encode()

pytestmark = pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="needs bash and curl")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder with one file in gzip and one that is plain."""
    folder = tmp_path / "a mirror" / "data"
    folder.mkdir(parents=True)
    (folder / "zipped.en.gz").write_bytes(gzip.compress(TEXT))
    (folder / "plain.de").write_bytes(TEXT[::-1])
    return folder.parent


def fetch(source: object, to: Path, *files: str) -> subprocess.CompletedProcess[str]:
    command = [RECIPES / "fetch.sh", str(source), to, to.parent / "lock", *files]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("names", [("data/zipped.en.gz", "data/plain.de"), ("data/zipped.en", "data/plain.de.gz")])
def test_text_comes_from_a_folder_or_a_mirror_in_gzip_or_not(
    mirror: Path, tmp_path: Path, scheme: str, names: tuple[str, str]
) -> None:
    source = scheme + str(mirror).replace(" ", "%20") if scheme else str(mirror)
    done = fetch(source, tmp_path / "to", *names)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to" / "zipped.en").read_bytes() == TEXT
    assert (tmp_path / "to" / "plain.de").read_bytes() == TEXT[::-1]
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["plain.de", "zipped.en"]
    wanted = f"{sha256(TEXT)}  zipped.en\n{sha256(TEXT[::-1])}  plain.de\n"
    assert (tmp_path / "lock").read_text() == wanted


def test_a_download_that_was_cut_goes_on_where_it_stopped(mirror: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    (to / ".part.plain.de").write_bytes(b"X" * 1000)  # told from what a new download would bring
    source = "file://" + str(mirror).replace(" ", "%20")
    assert fetch(source, to, "data/plain.de").returncode == 0
    assert (to / "plain.de").read_bytes() == b"X" * 1000 + TEXT[::-1][1000:]


def test_a_download_that_was_cut_at_its_very_end_is_used(mirror: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    (to / ".part.zipped.en.gz").write_bytes((mirror / "data" / "zipped.en.gz").read_bytes())
    done = fetch("file://" + str(mirror).replace(" ", "%20"), to, "data/zipped.en.gz")
    assert done.returncode == 0, done.stderr
    assert (to / "zipped.en").read_bytes() == TEXT


def test_another_text_than_the_lock_demands_is_refused(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"{sha256(b'another')}  plain.de\n")
    done = fetch(mirror, tmp_path / "to", "data/plain.de")
    assert done.returncode == 4
    assert sha256(b"another") in done.stderr and sha256(TEXT[::-1]) in done.stderr
    assert list((tmp_path / "to").glob(".[!m]*")) == list((tmp_path / "to").glob("[!.]*")) == []


def test_the_hash_seen_first_is_demanded_ever_after(mirror: Path, tmp_path: Path) -> None:
    assert fetch(mirror, tmp_path / "one", "data/zipped.en.gz").returncode == 0
    (mirror / "data" / "zipped.en.gz").write_bytes(gzip.compress(TEXT + b"and more\n"))
    assert fetch(mirror, tmp_path / "two", "data/zipped.en.gz").returncode == 4
    (tmp_path / "one" / "zipped.en").write_bytes(TEXT[:-5])
    assert fetch(mirror, tmp_path / "one", "data/zipped.en.gz").returncode == 4


def test_a_damaged_archive_is_refused_and_fetched_anew_the_next_time(mirror: Path, tmp_path: Path) -> None:
    whole = (mirror / "data" / "zipped.en.gz").read_bytes()
    (mirror / "data" / "zipped.en.gz").write_bytes(whole[:-20])
    assert fetch(mirror, tmp_path / "to", "data/zipped.en.gz").returncode == 4
    (mirror / "data" / "zipped.en.gz").write_bytes(whole)
    assert fetch(mirror, tmp_path / "to", "data/zipped.en.gz").returncode == 0
    assert (tmp_path / "to" / "zipped.en").read_bytes() == TEXT


def test_a_file_that_is_not_there_is_told(mirror: Path, tmp_path: Path) -> None:
    done = fetch(mirror, tmp_path / "to", "data/absent.en.gz")
    assert done.returncode == 5
    assert "absent.en.gz" in done.stderr and "DATA=" in done.stderr


def run(recipe: str, folder: Path, *flags: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a recipe with its work in FOLDER/work; flags go to nmt train."""
    command = folder / "nmt"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from nmt.cli.main import main; main()" "$@"\n')
    command.chmod(0o755)
    own = {"NMT": str(command), "PYTHON": sys.executable, "WORK": str(folder / "work"), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own, **settings}
    return subprocess.run([RECIPES / recipe / "run.sh", *flags], env=environment, capture_output=True, text=True)


def times(folder: Path) -> dict[str, int]:
    """When each file below a folder was written."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_toy_recipe_does_each_step_once_and_ends_with_three_translations(tmp_path: Path) -> None:
    flags, settings = (
        [*TINY, "--max-updates", "4", "--save-every", "1u", "--no-valid-bleu", "--best-by", "loss"],
        {"TRAIN": "300", "TEST": "30", "VOCAB_SIZE": "300"},
    )
    done = run("toy", tmp_path, *flags, **settings)
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    before = times(work)
    (work / "test.de").unlink()
    again = run("toy", tmp_path, *flags, **settings)
    assert again.returncode == 0, again.stderr
    after = times(work)
    assert {name for name in after if after[name] != before.get(name)} == {"test.de"}

    sources, found = ((work / "text" / "test.en").read_text().splitlines(), (work / "test.de").read_text().splitlines())
    references = (work / "text" / "test.de").read_text().splitlines()
    assert len(sources) == len(found) == len(references) == 30
    for output in (done.stdout, again.stdout):
        for three in zip(sources[:3], found[:3], references[:3], strict=True):
            for said in three:
                assert f" {said}\n" in output
        assert "tok:13a" in output and "expected >= 90" in output


@pytest.mark.parametrize(
    ("recipe", "language", "protocol", "published"),
    [("multi30k-en-fr", "fr", "tokenised", "61.80"), ("multi30k-en-de", "de", "raw", "none")],
)
def test_multi30k_comes_from_a_mirror_and_is_scored_beside_the_published_figure(
    tmp_path: Path, recipe: str, language: str, protocol: str, published: str
) -> None:
    ending, folder = ("lc.norm.tok.", "tok") if protocol == "tokenised" else ("", "raw")
    texts = tmp_path / "dataset" / "data" / "task1" / folder
    texts.mkdir(parents=True)
    words = random.Random(1).choices(["dog", "cat", "man", "sees", "a", "the", "&apos;s", "."], k=60 * 6)
    text = "".join(" ".join(words[i : i + 6]) + "\n" for i in range(0, len(words), 6)).encode()
    for split in ("train", "val", "test_2016_flickr"):
        for side in ("en", language):
            path = texts / f"{split}.{ending}{side}"
            path.write_bytes(text)
            if protocol == "raw":
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(text))
                path.unlink()
    done = run(
        recipe,
        tmp_path,
        *(*TINY, "--max-updates", "10"),
        DATA=f"file://{tmp_path}/dataset",
        LOCK=str(tmp_path / "lock"),
        PROTOCOL=protocol,
        VOCAB_SIZE="40",
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "work" / f"test_2016_flickr.{language}").read_text().splitlines()) == 60
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("test_2016_flickr"))
    assert row[-1] == published
    assert f"tok:{'none' if protocol == 'tokenised' else '13a'}" in done.stdout


def test_tatoeba_says_that_it_must_be_told_where_its_data_is(tmp_path: Path) -> None:
    done = run("tatoeba-en-de", tmp_path, DATA="")
    assert done.returncode != 0
    assert "DATA" in done.stderr and "en-de" in done.stderr
