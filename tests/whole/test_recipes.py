"""The recipes as a user runs them: data from a folder or mirror, finished steps skipped, figures at the end."""

import fcntl
import gzip
import hashlib
import io
import json
import os
import random
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import sacrebleu
import safetensors.torch
import torch
from conftest import records_of, small_disk, train_arguments, updates_of
from forks import forked_nmt
from mirror_server import Server
from refusals import assert_refused

from nmt.cli import train
from nmt.data.shards import PreparedData
from nmt.locks import Lock

RECIPES = Path(__file__).parents[2] / "recipes"
sys.path.insert(0, str(RECIPES))
import fetch as program  # noqa: E402
import tables  # noqa: E402
from students import new_text  # noqa: E402

TINY = ["--encoder-layers", "1", "--decoder-layers", "1", "--d-model", "16", "--d-ff", "16", "--heads", "2"]
TEXT = "".join(f"line {i} of a text\n" for i in range(500)).encode()
LARGE = random.Random(1).randbytes(3_000_000)

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pinned(**files: bytes) -> str:
    """The lines of a lock file for files given as name__ending."""
    rows = {name.replace("__", "."): data for name, data in files.items()}
    return "".join(f"{sha256(data)}  {len(data)}  {name}\n" for name, data in rows.items())


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder with a file in gzip, one that is plain, and one that is large."""
    folder = tmp_path / "a mirror" / "data"
    folder.mkdir(parents=True)
    (folder / "zipped.en.gz").write_bytes(gzip.compress(TEXT))
    (folder / "plain.de").write_bytes(TEXT[::-1])
    (folder / "large").write_bytes(LARGE)
    return folder.parent


def where(folder: Path) -> list[str]:
    """The folder and the lock files of a fetch."""
    return [f"--to={folder / 'to'}", f"--lock={folder / 'lock'}", f"--learned={folder / 'learned'}"]


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[..., int]:
    """`fetch(mirrors, arguments)` fetches to FOLDER/to with the lock files FOLDER/lock and FOLDER/learned."""

    def call(mirrors: object, *arguments: str) -> int:
        given = [f"--mirror={mirror}" for mirror in (mirrors if isinstance(mirrors, list) else [mirrors])]
        return program.main([*given, *where(tmp_path), "--wait=0.01", "--timeout=10", *arguments])

    return call


def standing(folder: Path) -> list[str]:
    """The names of all files except the lock."""
    return sorted(path.name for path in folder.glob("*") if path.name != ".lock")


@pytest.fixture
def server(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server(mirror)
    yield made
    made.close()


# Fetching


@pytest.mark.parametrize("scheme", ["", "file://", "http://"])
@pytest.mark.parametrize("names", [("data/zipped.en.gz", "data/plain.de"), ("data/zipped.en", "data/plain.de.gz")])
def test_text_is_fetched_from_a_folder_or_mirror_plain_or_gzipped(mirror, server, tmp_path, fetch, scheme, names):
    source = {"": mirror, "file://": mirror.as_uri(), "http://": server.address}[scheme]
    assert fetch(source, "--plain", *names) == 0
    assert (tmp_path / "to" / "zipped.en").read_bytes() == TEXT
    assert (tmp_path / "to" / "plain.de").read_bytes() == TEXT[::-1]
    assert standing(tmp_path / "to") == ["plain.de", "zipped.en"]
    assert (tmp_path / "learned").read_text() == pinned(zipped__en=TEXT, plain__de=TEXT[::-1])
    assert not (tmp_path / "lock").exists()


def test_a_plain_file_is_kept_unchanged_and_also_found_at_the_top_of_a_mirror(mirror, tmp_path, fetch, capsys):
    packed = (mirror / "data" / "zipped.en.gz").read_bytes()
    assert fetch([tmp_path / "nowhere", mirror / "data"], "elsewhere/zipped.en.gz") == 0
    assert (tmp_path / "to" / "zipped.en.gz").read_bytes() == packed
    errors = capsys.readouterr().err
    assert sha256(packed) in errors and str(tmp_path / "learned") in errors


def test_an_existing_file_is_not_fetched_again(server, fetch):
    assert fetch(server.address, "data/large") == 0
    assert fetch(server.address, "data/large") == 0
    assert server.requests == [("/data/large", None)]


def test_a_name_with_spaces_is_read_back_from_the_lock(mirror, tmp_path, fetch):
    (mirror / "data" / "in two  words").write_bytes(TEXT)
    for _ in range(2):
        assert fetch(mirror, "data/in two  words") == 0
    assert (tmp_path / "to" / "in two  words").read_bytes() == TEXT


def test_after_an_interrupted_transfer_only_the_rest_is_requested(server, tmp_path, fetch):
    server.cuts = [1_000_000, 500_000]
    assert fetch(server.address, "data/large") == 0
    assert (tmp_path / "to" / "large").read_bytes() == LARGE
    assert [asked for _, asked in server.requests] == [None, "bytes=1000000-", "bytes=1500000-"]


def test_a_download_from_a_server_without_ranges_restarts(server, tmp_path, fetch):
    server.ranges, server.cuts = False, [1_000_000]
    assert fetch(server.address, "data/large") == 0
    assert (tmp_path / "to" / "large").read_bytes() == LARGE
    assert len(server.requests) == 2


def test_a_busy_server_is_retried_and_then_the_next_mirror_is_used(server, mirror, tmp_path, fetch):
    server.codes = [503, 429]
    assert fetch(server.address, "data/plain.de") == 0
    server.codes = [503] * 9
    assert fetch([server.address, mirror], "--tries=3", "data/large") == 0
    assert len(server.requests) == 3 + 3
    assert standing(tmp_path / "to") == ["large", "plain.de"]


def test_the_next_run_continues_an_interrupted_download_unless_the_file_changed(server, mirror, tmp_path, fetch):
    for changed in (False, True):
        whole = LARGE[::-1] if changed else LARGE
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        (tmp_path / "learned").unlink(missing_ok=True)
        server.requests, server.cuts = [], [1_000_000]
        assert fetch(server.address, "--tries=1", "data/large") == 5
        assert (tmp_path / "to" / ".large.part").stat().st_size == 1_000_000
        (mirror / "data" / "large").write_bytes(whole)
        assert fetch(server.address, "data/large") == 0
        assert server.requests[1] == ("/data/large", "bytes=1000000-")
        assert (tmp_path / "to" / "large").read_bytes() == whole
        assert standing(tmp_path / "to") == ["large"]


def test_a_partial_download_continues_at_another_mirror_only_with_a_known_hash(server, mirror, tmp_path, fetch):
    for lock, asked in ((pinned(large=LARGE), "bytes=1000000-"), ("", None)):
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        (tmp_path / "lock").write_text(lock)
        (tmp_path / "learned").unlink(missing_ok=True)
        server.requests, server.cuts = [], [1_000_000]
        assert fetch(server.address, "--tries=1", "data/large") == 5
        other = Server(mirror)
        assert fetch(other.address, "data/large") == 0
        other.close()
        assert other.requests == [("/data/large", asked)]
        assert (tmp_path / "to" / "large").read_bytes() == LARGE


def test_a_partial_download_of_a_different_file_is_detected_and_restarted(server, mirror, tmp_path, fetch):
    (tmp_path / "lock").write_text(pinned(large=LARGE))
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / ".large.part").write_bytes(b"X" * 1_000_000)
    assert fetch(server.address, "data/large") == 0
    assert [asked for _, asked in server.requests] == ["bytes=1000000-", None]
    assert (tmp_path / "to" / "large").read_bytes() == LARGE


def test_a_partial_download_that_is_already_complete_is_used(server, tmp_path, fetch):
    server.cuts = [len(LARGE)]
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / ".large.part").write_bytes(LARGE)
    facts = f'{{"address": "{server.address}/data/large", "validator": "\\"{sha256(LARGE)[:8]}\\""}}'
    (tmp_path / "to" / ".large.part.json").write_text(facts)
    assert fetch(server.address, "data/large") == 0
    assert server.requests == [("/data/large", f"bytes={len(LARGE)}-")]
    assert standing(tmp_path / "to") == ["large"]


@pytest.mark.parametrize("wrong", [LARGE[:-1] + b"?", LARGE[:-1]])
def test_wrong_bytes_are_rejected_and_the_next_mirror_is_tried(server, mirror, tmp_path, fetch, capsys, wrong):
    (tmp_path / "lock").write_text(pinned(large=LARGE))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "large").write_bytes(wrong)
    assert fetch(tmp_path / "bad", "data/large") == 4
    errors = capsys.readouterr().err
    assert (sha256(LARGE) in errors and sha256(wrong) in errors) or f"{len(wrong):,} bytes" in errors
    assert standing(tmp_path / "to") == []
    assert fetch([tmp_path / "bad", server.address], "data/large") == 0
    assert (tmp_path / "to" / "large").read_bytes() == LARGE


def test_a_file_modified_on_disk_is_renamed_and_fetched_again(mirror, tmp_path, fetch, capsys):
    assert fetch(mirror, "--plain", "data/zipped.en.gz") == 0
    (tmp_path / "to" / "zipped.en").write_bytes(b"!" + TEXT[1:])
    assert fetch(tmp_path / "nowhere", "--plain", "data/zipped.en.gz") == 4
    assert standing(tmp_path / "to") == ["zipped.en.refused"]
    assert fetch(mirror, "--plain", "data/zipped.en.gz") == 0
    assert (tmp_path / "to" / "zipped.en").read_bytes() == TEXT


def test_a_learned_hash_is_enforced_later_and_never_written_to_the_recipes_lock(mirror, tmp_path, fetch):
    """As after a rehearsal: learned hashes apply only to their folder, and the recipe's lock overrides them."""
    (tmp_path / "lock").write_text(pinned(other=b"other"))
    assert fetch(mirror, "data/large") == 0
    learned = (tmp_path / "learned").read_text()
    assert learned == pinned(large=LARGE) and (tmp_path / "lock").read_text() == pinned(other=b"other")
    shutil.rmtree(tmp_path / "to")
    (mirror / "data" / "large").write_bytes(LARGE[::-1])
    assert fetch(mirror, "data/large") == 4
    (tmp_path / "lock").write_text(pinned(large=LARGE[::-1]))
    assert fetch(mirror, "data/large") == 0 and (tmp_path / "to" / "large").read_bytes() == LARGE[::-1]
    assert (tmp_path / "learned").read_text() == learned


@pytest.mark.parametrize("lock", ["lock", "learned"])
def test_a_malformed_line_in_either_lock_file_is_reported(mirror, tmp_path, fetch, capsys, lock):
    (tmp_path / lock).write_text(f"{pinned(large=LARGE)}nonsense\n")
    assert fetch(mirror, "data/large") == 2
    assert f"{tmp_path / lock}:2" in capsys.readouterr().err and not standing(tmp_path / "to")


def test_the_lock_checks_the_text_independently_of_its_compression(mirror, tmp_path, fetch):
    assert fetch(mirror, "--plain", "data/zipped.en.gz") == 0
    for level, text, code in ((1, TEXT, 0), (9, TEXT + b"and more\n", 4)):
        (mirror / "data" / "zipped.en.gz").write_bytes(gzip.compress(text, level))
        shutil.rmtree(tmp_path / "to")
        assert fetch(mirror, "--plain", "data/zipped.en.gz") == code


@pytest.mark.parametrize("plain", [True, False])
def test_a_damaged_archive_is_never_recorded_and_is_fetched_again_next_time(mirror, tmp_path, fetch, plain):
    whole = (mirror / "data" / "zipped.en.gz").read_bytes()
    arguments = ["--plain"] if plain else []
    for damaged in (whole[:-20], b"<html>Please sign in</html>\n"):
        (mirror / "data" / "zipped.en.gz").write_bytes(damaged)
        assert fetch(mirror, *arguments, "data/zipped.en.gz") == 4
        assert not (tmp_path / "learned").exists() and standing(tmp_path / "to") == []
    (mirror / "data" / "zipped.en.gz").write_bytes(whole)
    assert fetch(mirror, *arguments, "data/zipped.en.gz") == 0


def test_a_tar_truncated_at_the_mirror_is_never_recorded(mirror, tmp_path, fetch):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        info = tarfile.TarInfo("t.en")
        info.size = len(LARGE)
        made.addfile(info, io.BytesIO(LARGE))
    (mirror / "a.tar").write_bytes(stream.getvalue()[: len(LARGE) // 2])
    assert fetch(mirror, "a.tar") == 4
    (mirror / "a.tar").write_bytes(stream.getvalue())
    assert fetch(mirror, "a.tar") == 0
    assert (tmp_path / "learned").read_text() == pinned(a__tar=stream.getvalue())


def test_a_file_missing_from_all_mirrors_is_status_5_with_every_address(server, mirror, tmp_path, fetch, capsys):
    gone = Server(mirror)
    gone.close()
    assert fetch([mirror, server.address, gone.address], "--tries=2", "data/absent") == 5
    errors = capsys.readouterr().err.splitlines()[-1]
    for tried in (f"{mirror}/data/absent: no such file", f"{server.address}/data/absent: HTTP 404", f"{gone.address}/"):
        assert tried in errors
    assert "refused (2 failures" in errors


def test_a_server_that_sends_more_bytes_than_the_lock_lists_is_stopped(server, mirror, tmp_path, fetch):
    server.lengths = False
    (tmp_path / "lock").write_text(f"{sha256(b'short')}  5  large\n")
    assert fetch(server.address, "data/large") == 4
    assert standing(tmp_path / "to") == []


def test_a_server_that_always_answers_that_no_bytes_are_left_is_not_asked_forever(server, fetch):
    server.codes = [416] * 50
    assert fetch(server.address, "data/large", "--tries=2") == 5
    assert len(server.requests) < 10


@pytest.mark.parametrize("mirrors", ["", "ftp://127.0.0.1", "https://[x/"])
def test_an_invalid_mirror_is_a_usage_error(fetch, mirrors):
    with pytest.raises(SystemExit) as caught:
        fetch(mirrors, "data/large")
    assert caught.value.code == 2


def test_of_two_simultaneous_fetches_the_second_is_status_6(mirror, tmp_path):
    command = [sys.executable, RECIPES / "fetch.py", f"--mirror={mirror}", *where(tmp_path), "data/large"]
    with Lock(tmp_path / "to"):
        assert subprocess.run(command, capture_output=True).returncode == 6


def test_two_fetches_that_record_in_one_lock_file_wait_for_each_other(tmp_path):
    lock, folder = tmp_path / "lock", os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as another fetch could do between reading and writing
    pins = program.Pins(tmp_path / "none", lock)
    ours = threading.Thread(target=pins.record, args=("ours", program.Pin("a" * 64, 1, lock)))
    ours.start()
    ours.join(0.3)
    assert ours.is_alive() and not lock.exists()
    lock.write_text(f"{'b' * 64}  2  theirs\n")
    os.close(folder)
    ours.join(30)
    assert {line.split()[2] for line in lock.read_text().splitlines()} == {"ours", "theirs"}


@pytest.mark.parametrize("size_known", [True, False])
def test_a_full_disk_is_status_5_with_the_bytes_needed_and_the_download_continues_later(
    server, tmp_path, fetch, capsys, size_known, monkeypatch
):
    if not size_known:  # as if another program filled the disk meanwhile
        usage = shutil._ntuple_diskusage(1, 0, 1 << 40)  # type: ignore[attr-defined]
        monkeypatch.setattr(program.shutil, "disk_usage", lambda _: usage)
    (tmp_path / "to").mkdir()
    with small_disk(tmp_path / "to", 1 << 20) as resize:
        assert fetch(server.address, "data/large") == 5
        error = capsys.readouterr().err.splitlines()[-1]
        assert ".large.part cannot be written" in error and f"at least {len(LARGE):,} bytes needed" in error
        kept = (tmp_path / "to" / ".large.part").stat().st_size if not size_known else 0
        assert (kept > 500_000) == (not size_known) and f"the {kept:,} bytes already downloaded" in error
        resize(8 << 20)
        assert fetch(server.address, "data/large") == 0
        assert server.requests[-1][1] == (None if size_known else f"bytes={kept}-")
        assert (tmp_path / "to" / "large").read_bytes() == LARGE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_fetch_continues_where_it_stopped(server, tmp_path, fetch, number):
    server.cuts = [2_000_000]
    server.hold.set()
    command = [sys.executable, RECIPES / "fetch.py", f"--mirror={server.address}", *where(tmp_path), "--timeout=2"]
    process = subprocess.Popen([*command, "data/large"], stderr=subprocess.DEVNULL)
    part, end = tmp_path / "to" / ".large.part", time.monotonic() + 30
    while not (part.exists() and part.stat().st_size > 500_000):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(number)
    if number == signal.SIGTERM:
        server.released.set()
    assert process.wait(30) == (-9 if number == signal.SIGKILL else 128 + number)
    server.hold.clear()
    there = part.stat().st_size
    assert fetch(server.address, "data/large") == 0
    assert server.requests[-1] == ("/data/large", f"bytes={there}-")
    assert (tmp_path / "to" / "large").read_bytes() == LARGE


# The recipes


def run(recipe: str, folder: Path, *flags: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a recipe with its work in FOLDER/work; flags are passed to nmt train."""
    own = {"NMT": forked_nmt(), "PYTHON": sys.executable, "WORK": str(folder / "work"), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own, **settings}
    script = RECIPES / (recipe if recipe.endswith(".sh") else f"{recipe}/run.sh")
    return subprocess.run([script, *flags], env=environment, capture_output=True, text=True)


def times(folder: Path) -> dict[str, int]:
    """The modification time of each file below a folder, except for the records of steps."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".commands", ".cpu"))
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def test_the_toy_recipe_does_each_step_once_and_prints_three_translations(tmp_path: Path) -> None:
    flags, settings = (
        [*TINY, "--max-updates", "4", "--save-every", "1u", "--no-valid-bleu", "--best-by", "loss"],
        {"TRAIN": "300", "TEST": "30", "VOCAB_SIZE": "300"},
    )
    dry = run("toy", tmp_path, *flags, "--dry-run", **settings)
    assert dry.returncode == 0 and "updates 1 to 4" in dry.stdout, dry.stderr
    assert not (tmp_path / "work" / "run").exists() and not (tmp_path / "work" / "model").exists()
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
            for text in three:
                assert f" {text}\n" in output
        assert "tok:13a" in output and "expected >= 90" in output


def test_the_first_look_of_the_toy_recipe_changes_no_weight(tmp_path: Path) -> None:
    """With a settings file of a tiny model; a second call skips the first look."""
    shutil.copytree(RECIPES / "toy", tmp_path / "recipes" / "toy")
    shutil.copy(RECIPES / "steps.sh", tmp_path / "recipes")
    own = tmp_path / "recipes/toy/settings.toml"
    rows = [flag.removeprefix("--").replace("-", "_") for flag in TINY[::2]]
    sizes = "".join(f"{name} = {value}\n" for name, value in zip(rows, TINY[1::2], strict=True))
    periods = 'max_updates = 130\nwarmup_updates = 20\nsave_every = "10u"\nvalid_every = "50u"\nkeep_last = 4\n'
    own.write_text(f"{sizes}{periods}batch_tokens = 200\nthreads = 1\nmatmul = 'torch'\n")
    settings = {"TRAIN": "300", "TEST": "5", "VOCAB_SIZE": "300"}
    script = str(tmp_path / "recipes/toy/run.sh")
    done = run(script, tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    looked = (work / "first-look.de").read_text()
    assert looked.count("\n") == 1 and f" {looked}" in done.stdout and done.stdout.count("first look") == 1
    straight = [*shlex.split(forked_nmt()), "train", "--data", work / "data", "--output", tmp_path / "run"]
    assert subprocess.run([*straight, "--config", own, "--quiet"]).returncode == 0
    folders = [folder / "checkpoints" / "update-130" for folder in (work / "run", tmp_path / "run")]
    for name in ("model.safetensors", "training.safetensors"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    losses = [[record["loss"] for record in updates_of(run)] for run in (work / "run", tmp_path / "run")]
    assert losses[0] == losses[1] and len(losses[0]) == 130
    shutil.rmtree(work / "model")
    again = run(script, tmp_path, **settings)
    assert again.returncode == 0 and "first look" not in again.stdout


def write_captions(dataset: Path, language: str, protocol: str) -> None:
    """Write 60 random lines of six words in the layout of Multi30k, the same for each set and side."""
    ending, folder = ("lc.norm.tok.", "tok") if protocol == "tokenised" else ("", "raw")
    texts = dataset / "data" / "task1" / folder
    texts.mkdir(parents=True)
    words = random.Random(1).choices(["dog", "cat", "man", "sees", "a", "the", "&apos;s", "."], k=60 * 6)
    text = "".join(" ".join(words[i : i + 6]) + "\n" for i in range(0, len(words), 6)).encode()
    for split in ("train", "val", "test_2016_flickr"):
        for side in ("en", language):
            path = texts / f"{split}.{ending}{side}"
            if protocol == "raw":
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(text))
            else:
                path.write_bytes(text)


@pytest.mark.parametrize(
    ("recipe", "language", "protocol", "published"),
    [("multi30k-en-fr", "fr", "tokenised", "61.80"), ("multi30k-en-de", "de", "raw", "none")],
)
def test_multi30k_is_fetched_from_a_mirror_and_its_score_printed_next_to_the_published_one(
    tmp_path: Path, recipe: str, language: str, protocol: str, published: str
) -> None:
    write_captions(tmp_path / "dataset", language, protocol)
    done = run(
        recipe,
        tmp_path,
        *(*TINY, "--max-updates", "10", "--warmup-updates", "5"),
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


def table2(tmp_path: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {"RUNS": str(tmp_path / "runs"), "LOCK": str(tmp_path / "lock"), "LAST": "1", **variables}
    return run("table2.sh", tmp_path, *flags, **given)


def test_table_2_trains_each_seed_within_the_budget_and_continues_after_an_interruption(tmp_path: Path) -> None:
    write_captions(tmp_path / "dataset", "de", "tokenised")
    flags = [*TINY, "--warmup-updates", "2", "--batch-tokens", "100"]
    given = {"DATASET": "multi30k", "DATA": f"{tmp_path}/dataset", "VOCAB_SIZE": "40", "TOKENS": "800", "SEEDS": "1 2"}
    assert table2(tmp_path, *flags, "--max-minutes", "x", SYSTEMS="transformer-small", **given).returncode != 0
    assert table2(tmp_path, *flags, SYSTEMS="transformer-small", **given | {"SEEDS": "1"}).returncode == 0
    folder = tmp_path / "runs" / "multi30k-en-de"
    shutil.rmtree(folder / "transformer-small-1" / "model")  # as if the run had ended before averaging
    done = table2(tmp_path, *flags, SYSTEMS="transformer-small", **given)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0].strip(":") for line in done.stdout.splitlines() if "/transformer-small" in line]
    assert names[:2] == [f"{folder}/transformer-small-{seed}/run" for seed in (1, 2)]
    for name in names[:2]:
        records = records_of(Path(name))
        tokens = [record["target_tokens"] for record in records if "target_tokens" in record]
        assert abs(sum(tokens) - 800) < max(tokens)
    ensembles = [line.split() for line in done.stdout.splitlines() if line.endswith("2 models")]
    assert [words[0] for words in ensembles] == [
        f"transformer-small-ensemble-{mean}" for mean in ("log-probabilities", "probabilities")
    ]
    for words in ensembles:
        assert words[1] == "BLEU" and len((folder / f"{words[0]}.txt").read_text().splitlines()) == 60


def test_longer_sentences_are_scored_by_length_for_each_kind_of_positions(tmp_path: Path) -> None:
    write_captions(tmp_path / "dataset", "de", "tokenised")
    texts = tmp_path / "dataset" / "data" / "task1" / "tok"
    long = [" ".join(random.Random(number).choices(["dog", "sees", "a"], k=24)) for number in range(80)]
    for side in ("en", "de"):
        with (texts / f"train.lc.norm.tok.{side}").open("a") as file:
            file.writelines(line + "\n" for line in long)
    europarl = tmp_path / "europarl"
    europarl.mkdir()
    for side, name in product(("en", "fr"), ("train", "heldout")):
        shutil.copy(texts / f"{'train' if name == 'train' else 'val'}.lc.norm.tok.en", europarl / f"{name}.{side}")
    flags = [*TINY, "--max-updates", "3", "--warmup-updates", "1", "--save-every", "1u", "--valid-every", "3u"]
    given = {
        "DATA": f"{tmp_path}/dataset",
        "EUROPARL": str(europarl),
        "LOCK": str(tmp_path / "lock"),
        "VOCAB_SIZE": "40",
    }
    given |= {
        "POSITIONS": "sinusoidal rotary",
        "LIMITS": "12",
        "EUROPARL_LIMITS": "60",
        "SEEDS": "1 2",
        "EUROPARL_SEEDS": "1 2",
        "LAST": "2",
    }
    for _ in range(2):
        done = run("longer-sentences", tmp_path, *flags, **given)
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr
    work = tmp_path / "work"
    assert done.stdout.strip() == (work / "table.md").read_text().strip()
    assert all((work / f"{corpus}.svg").read_bytes().startswith(b"<?xml") for corpus in ("multi30k", "europarl"))
    folder = work / "multi30k"
    side = PreparedData(folder / "data-12").pipeline.source
    train, natural, joined = (
        (folder / "text" / f"{name}.en").read_text().splitlines() for name in ("train", "natural", "joined")
    )
    short = sum(0 < length <= 12 for length in side.encode_batch(train).lengths)  # both sides are equal
    assert json.loads((folder / "data-12" / "report.json").read_text())["sets"][0]["kept"] == short < len(train)
    assert not any(line in text for line in long[::2] for text in train) and {*long[::2]} <= {*natural}
    assert all(any(line == text for text in train) for line in long[1::2])
    captions = (texts / "test_2016_flickr.lc.norm.tok.en").read_text().splitlines()
    assert {*captions, *(" ".join(captions[i : i + 2]) for i in range(0, 60, 2))} <= {*joined}
    scores = json.loads((folder / "rotary-12-2" / "scores.json").read_text())["scores"]["natural"]
    lengths = side.encode_batch(natural).lengths
    counts = sum(lengths <= 12), sum(lengths > 20)
    assert (scores["12"][0], scores["30"][0]) == counts and counts[1] == 40
    ours, references = (
        (folder / path).read_text().splitlines() for path in ("rotary-12-2/natural.txt", "text/natural.de")
    )
    assert scores["30"][2] == pytest.approx(sacrebleu.corpus_bleu(ours[60:], [references[60:]], tokenize="none").score)
    words = [sum(len(line.split()) for line in lines[60:]) for lines in (ours, references)]
    assert scores["30"][3] == pytest.approx(words[0] / words[1])
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| 12 | rotary", "| 60 | rotary"))]
    limits = [line.split(" | ")[0] for line in rows]
    assert limits == ["| 60"] * 3 + ["| 12"] * 5  # BLEU and ratio of each set, and the costs


def test_only_significant_differences_beyond_the_limit_are_marked() -> None:
    program = runpy.run_path(str(RECIPES / "longer-sentences" / "longer.py"))
    baseline = [program["Bucket"](40, 9.0, 20.0, 1.0, None)] * 3
    found = [program["Bucket"](40, 9.0, bleu, 1.0, p) for bleu, p in ((30.0, 0.01), (10.0, 0.04), (25.0, 0.06))]
    assert program["bleu_cell"](found, baseline, True) == "21.7 (10.4) +1 -1"
    assert program["bleu_cell"](found, baseline, False) == "21.7 (10.4)"
    assert program["bleu_cell"](baseline, baseline, True) == "20.0 (0.0)"


RECORDER = """#!/bin/sh
printf '%s\\n' "$@" '' >> "$WORDS"
while [ $# -gt 1 ]; do [ "$1" = --output ] && mkdir -p "$2"; shift; done
"""


@pytest.mark.parametrize(
    ("dataset", "language"), [("wmt14", "de"), ("wmt14", "fr"), ("multi30k", "fr"), ("tatoeba", "de")]
)
def test_table_2_gives_valid_settings_for_each_of_its_systems(
    dataset: str, language: str, tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(train.COMMAND), "base", None)  # no command has made the --init-from model
    for name, text in (("nmt-recorder", RECORDER), ("python", "#!/bin/sh\necho 7\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    given = {"DATASET": dataset, "TARGET_LANG": language, "DATA": "none", "FLOPS": "1e9", "WORDS": f"{tmp_path}/words"}
    done = table2(tmp_path, NMT=f"{tmp_path}/nmt-recorder", PYTHON=f"{tmp_path}/python", **given)
    assert done.returncode == 0, done.stderr
    commands = [text.split("\n") for text in (tmp_path / "words").read_text().strip().split("\n\n")]
    found = [
        (words[0], tomllib.loads(call(*words, "--dump-config").out)) for words in commands if words[0] != "evaluate"
    ]
    assert all(settings for _, settings in found)
    assert {settings["subword"] for name, settings in found if name == "prepare"} == {"bpe", "char"}
    trained = {
        Path(told["output"]).parent.name: told for name, told in found if name == "train" and not told["dry_run"]
    }
    models = {name.removesuffix("-1"): told["model"] for name, told in trained.items()}
    assert {"bytenet", "deep-att", "gnmt", "convs2s", "moe", "transformer"} <= set(models.values())
    for name, told in trained.items():
        if name.endswith("-rl-1"):
            before = trained[name.removesuffix("-rl-1") + "-1"]
            assert told["criterion"] == "reward"
            assert told["init_from"] == str(Path(before["output"]).with_name("model"))
        else:
            assert told["max_updates"] == 7
    assert {settings["beam_size"] for name, settings in found if name == "translate"} == {
        5 if dataset == "multi30k" else 4
    }
    assert len(found[-1][1]["runs"]) == len(models)


@pytest.mark.parametrize("recipe", [*sorted(path.parent.name for path in RECIPES.glob("*/run.sh")), "table2.sh"])
def test_a_dry_run_ends_a_recipe_after_its_first_training(recipe: str, data: Path, tmp_path: Path) -> None:
    for name, text in (("nmt-recorder", RECORDER), ("python", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "words").touch()
    texts = {"TRAIN": str(data.parent / "train"), "VALID": str(data.parent / "dev"), "TEST": str(data.parent / "dev")}
    texts = {} if recipe in ("toy", "parsing") else texts  # in the settings they are numbers
    programs = {"NMT": f"{tmp_path}/nmt-recorder", "PYTHON": f"{tmp_path}/python", "WORDS": f"{tmp_path}/words"}
    prepared = {} if recipe == "students" else {"DATA": "none"}
    given = {**texts, **prepared, **programs, "RUNS": str(tmp_path / "work"), "TEACHER": "none", "STUDENTS": "tiny"}
    for _ in range(2):  # also for a finished recipe
        (tmp_path / "words").write_text("")
        done = run(recipe, tmp_path, "--dry-run", **given)
        assert done.returncode == 0, done.stderr
        commands = [text.split("\n") for text in (tmp_path / "words").read_text().strip().split("\n\n")]
        assert [words[0] for words in commands].count("train") == 1
        assert commands[-1][0] == "train" and "--dry-run" in commands[-1]
        folder = Path(commands[-1][commands[-1].index("--output") + 1])
        assert not list(folder.parent.glob(".*model*.commands"))
    (tmp_path / "nmt-recorder").write_text("#!/bin/sh\n[ $1 != train ] || exit 4\n")
    assert run(recipe, tmp_path, "--dry-run", **given).returncode == 4


def test_the_parsing_recipe_makes_a_treebank_and_does_each_step_once(tmp_path: Path) -> None:
    flags = [*TINY, "--max-updates", "4", "--warmup-updates", "2", "--save-every", "1u"]
    (tmp_path / "sentences").write_text("the dog ( sees )\n\nthe man\n")
    settings = {"TRAIN": "200", "TEST": "3", "LAST": "2", "SEEDS": "1 2", "PARSE": str(tmp_path / "sentences")}
    done = run("parsing", tmp_path, *flags, **settings)
    assert done.returncode == 0, done.stderr
    work, model = tmp_path / "work", tmp_path / "work" / "transformer-pairs"
    parsed = (model / "parsed-1-2.trees").read_text().splitlines()
    words = [re.findall(r"([^ ()]+)\)", tree) for tree in parsed]
    assert words == [["the", "dog", "-LRB-", "sees", "-RRB-"], [], ["the", "man"]]
    before = times(work)
    (model / "test-1-2.trees").unlink()
    (work / "trees" / "train.trees").unlink()  # as if grammar.py had been interrupted: it writes them last
    again = run("parsing", tmp_path, *flags, **settings)
    assert again.returncode == 0, again.stderr
    after = times(work)
    made_again = {"transformer-pairs/test-1-2.trees", *(f"trees/{name}.trees" for name in ("test", "dev", "train"))}
    assert {name for name in after if after[name] != before.get(name)} == made_again
    assert len((model / "test-1-2.trees").read_text().splitlines()) == 3
    for output in (done.stdout, again.stdout):
        assert "bracket-F1 = " in output and "0 of 3 sentences failed" in output and "params:COLLINS" in output


def test_the_parsing_recipe_takes_a_treebank_without_a_test_set(tmp_path: Path) -> None:
    folder = tmp_path / "treebank"
    folder.mkdir()
    trees = ["(TOP (S (NP (PRP it)) (VP (VBZ works)) (. .)))", "(TOP (NP (DT a) (NN dog)))"]
    (folder / "train.trees.gz").write_bytes(gzip.compress("".join(f"{tree}\n" for tree in trees * 20).encode()))
    (folder / "dev.trees").write_text("".join(f"{tree}\n" for tree in trees))
    flags = [*TINY, "--max-updates", "2", "--save-every", "1u"]
    done = run("parsing", tmp_path, *flags, TREES=str(folder), MODEL="paper", VOCAB_SIZE="30", LAST="1")
    assert done.returncode == 0, done.stderr
    figures = [line.split() for line in done.stdout.splitlines() if "F1" in line]
    assert figures[0][-2:] == ["91.3/92.7", "WSJ"] and "of 2 sentences failed" in done.stdout
    assert len((tmp_path / "work" / "paper-brackets" / "dev-1.trees").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("recipe", "variables"),
    [
        ("parsing", ["SEEDS"]),
        ("table2.sh", ["SEEDS"]),
        ("small-data", ["SEEDS"]),
        ("table3", ["SEEDS", "ROW_SEEDS"]),
        ("ladder", ["SEEDS", "METHOD_SEEDS"]),
        ("longer-sentences", ["SEEDS", "EUROPARL_SEEDS"]),
    ],
)
def test_a_recipe_needs_different_seeds(tmp_path: Path, recipe: str, variables: list[str]) -> None:
    given = {"TRAIN": "missing", "VALID": "missing", "TEST": "missing"} if recipe == "small-data" else {}
    calls = [
        ([], {name: seeds}, f"{name} is '{seeds}', but must be different numbers")
        for name in variables
        for seeds in ("1 2 1", " ", "one")
    ]
    for flags, seeds, message in [*calls, (["--seed", "3"], {}, "--seed: set SEEDS instead")]:
        done = run(recipe, tmp_path, *flags, **given, **seeds)
        assert done.returncode == 2 and message in done.stderr and not (tmp_path / "work").exists()


@pytest.fixture
def of_students(data: Path, trained: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of the students recipe."""
    average = [*shlex.split(forked_nmt()), "average", "--run", trained, "--last", "1", "--output", tmp_path / "teacher"]
    assert subprocess.run(average).returncode == 0
    corpus = data.parent
    texts = {"TRAIN": f"{corpus / 'train'}", "VALID": f"{corpus / 'dev'}", "TEST": f"{corpus / 'dev'}"}
    return {**texts, "TEACHER": str(tmp_path / "teacher"), "LAST": "2", "TOKENIZE": "none"}


def test_students_are_trained_from_a_teacher_and_compared_with_it(
    data: Path, of_students: dict[str, str], tmp_path: Path
) -> None:
    corpus = data.parent
    further = tmp_path / "further text"
    further.write_text("".join(reversed((corpus / "dev.en").read_text().splitlines(keepends=True))))
    flags = "--max-updates 3 --warmup-updates 1 --save-every 1u --d-model 16 --d-ff 16 --encoder-layers 1"
    for _ in range(2):
        variables = {**of_students, "STUDENTS": "tiny ssru", "ROUNDS": "2", "FURTHER": str(further)}
        done = run("students", tmp_path, *flags.split(), **variables)
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    models = ["model", *["teacher"] * 9, *["tiny"] * 9, *["ssru"] * 3]  # CTranslate2 has no SSRU
    assert [row[0] for row in rows] == models
    assert rows[1][-1] == "1.00" and all(float(row[-2]) > 0 for row in rows[1:])
    translations = (tmp_path / "work" / "test" / "teacher.0.txt").read_text().splitlines()
    bleu = sacrebleu.corpus_bleu(translations, [(corpus / "dev.de").read_text().splitlines()], tokenize="none").score
    assert float(rows[1][-3]) == pytest.approx(bleu, abs=0.01)
    assert (tmp_path / "work" / "students.svg").read_bytes().startswith(b"<?xml")
    taught = (tmp_path / "work" / "text" / "taught.de").read_text().splitlines()
    assert len(taught) == 300 and taught != (corpus / "train.de").read_text().splitlines()
    taught_too = (tmp_path / "work" / "text" / "further.de").read_text().splitlines()
    assert translations == taught_too[::-1]
    data_report = json.loads((tmp_path / "work" / "data" / "report.json").read_text())
    assert data_report["sets"][0]["corpora"] == [["taught", 300], ["further", len(taught_too)]]


def test_a_smaller_student_starts_with_layers_of_its_teacher_on_existing_data(data: Path, tmp_path: Path) -> None:
    arguments = train_arguments(data, tmp_path / "teacher", 2, "--decoder-layers=2")
    assert subprocess.run([*shlex.split(forked_nmt()), *arguments]).returncode == 0
    teacher = tmp_path / "teacher" / "checkpoints" / "update-2"
    given = {"DATA": data, "TEST": data.parent / "dev", "TEACHER": teacher}
    variables = {name: str(value) for name, value in given.items()} | {
        "STUDENTS": "cut",
        "LAYERS": "1",
        "LAST": "1",
        "ROUNDS": "1",
    }
    flags = "--max-updates 2 --save-every 1u --warmup-updates 1 --lr 1e-9"
    done = run("students", tmp_path, *flags.split(), **variables)
    assert done.returncode == 0, done.stderr
    assert {"teacher", "cut-1"} <= {line.split()[0] for line in done.stdout.splitlines()}
    work = tmp_path / "work"
    first, last = (
        safetensors.torch.load_file(folder / "model.safetensors") for folder in (teacher, work / "cut-1" / "model")
    )
    assert set(last) == {name for name in first if not name.startswith("decoder.1.")} < set(first)
    assert all(torch.allclose(tensor, first[name], atol=1e-6) for name, tensor in last.items())
    settings = tomllib.loads((work / "cut-1" / "run" / "settings.toml").read_text())
    assert (settings["criterion"], settings["teacher"]) == ("distillation", [str(teacher)])
    assert not list((work / "text").iterdir())


def test_a_character_student_learns_from_new_text(data: Path, of_students: dict[str, str], tmp_path: Path) -> None:
    settings = {"VOCABULARY": "none", "PREPARE": "--subword char --max-length 500", "SPLICED": "40", "JOINED": "50"}
    flags = "--max-updates 3 --warmup-updates 1 --save-every 1u --hidden-size 8 --encoder-layers 1 --decoder-layers 1"
    done = run("students", tmp_path, *flags.split(), **of_students, **settings, STUDENTS="bytenet", ROUNDS="1")
    assert done.returncode == 0, done.stderr
    assert {"teacher", "bytenet"} <= {line.split()[0] for line in done.stdout.splitlines()}
    text, facts = tmp_path / "work" / "text", json.loads((tmp_path / "work" / "data" / "report.json").read_text())
    assert [name for name, _ in facts["sets"][0]["corpora"]] == ["taught", "spliced", "joined"]
    known, new = (path.read_text().splitlines() for path in (data.parent / "train.en", text / "spliced.en"))
    assert len(new) == len(set(new)) == 40 and not set(known) & set(new)
    assert len((text / "joined.en").read_text().splitlines()) == 50


def test_parts_of_sentences_are_joined_at_a_word_that_both_contain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_text, "NUM_CUT_WORDS", 2)  # a and in
    first, second = ["a", "man", "in", "a", "red", "shirt", "."], ["two", "dogs", "run", "in", "the", "snow", "."]
    assert new_text.spliced([first, second], 9, random.Random(1)) == ["a man in the snow ."]
    assert new_text.phrases([first, second, first]) == ["a man", "in a red shirt .", "two dogs run", "in the snow ."]
    pairs = [("a man", "ein mann"), ("in the snow", "im schnee")]
    for source, target in new_text.joined(pairs, 20, random.Random(1)):
        assert target == source.replace("a man", "ein mann").replace("in the snow", "im schnee")
    rows = (("a man", "ein mann .", "ein mann"), ("a .", "ein .", "ein ."), ("", ".", ""))
    assert all(new_text.without_mark(source, target) == wanted for source, target, wanted in rows)
    assert new_text.is_usable("in a city", "in der stadt") and not new_text.is_usable(
        "a city", "in der stadt in der stadt"
    )


def test_a_failed_step_is_repeated(tmp_path: Path) -> None:
    """The translation exists although some lines failed, and so does the folder of the run."""
    script = '. "$1/steps.sh"; cd "$2"; step out bash -c "echo $3 >out; mkdir -p run; exit $4"; echo after'
    for code, text in ((5, "half"), (0, "whole")):
        words = ["bash", "-euc", script, "bash", str(RECIPES), str(tmp_path), text, str(code)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == code and ("after" in done.stdout) == (not code)
    assert (tmp_path / "out").read_text() == "whole\n" and (tmp_path / "out.failed").read_text() == "half\n"


def test_an_output_from_different_settings_is_rejected_but_device_settings_can_differ(tmp_path: Path) -> None:
    script = (
        '. "$1/steps.sh"; cd "$2"; step model "${nmt[@]}" "true" "${@:3}"; '
        'step model "${nmt[@]}" "mkdir -p model" "${@:3}"; echo after'
    )

    def steps(*flags: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-euc", script, "bash", str(RECIPES), str(tmp_path), *flags]
        return subprocess.run(words, capture_output=True, text=True, env={**os.environ, "NMT": "bash -c"})

    assert steps("--lr", "1", "--threads", "2").returncode == 0 and (tmp_path / "model").is_dir()
    same, other = steps("--lr", "1", "--threads", "1", "--devices", "2"), steps("--lr", "2")
    assert same.returncode == 0 and same.stderr.count("exists: skipped") == 2
    assert_refused(other, 2, "model was made with different settings", "--lr")
    assert "after" not in other.stdout
    (tmp_path / "model").rmdir()
    assert steps("--lr", "2").returncode == 0 and steps("--lr", "1").returncode == 2


def test_quotes_group_words_of_a_variable_and_an_unclosed_quote_is_an_error() -> None:
    script = '. "$1/steps.sh"; printf "%s|" "${nmt[@]}" "${prepare_flags[@]}"'
    for given, code, printed in (("'/my tools/nmt' -v", 0, "/my tools/nmt|-v|--a|<2en>|*|"), ("'nmt", 2, "")):
        environment = {**os.environ, "NMT": given, "PREPARE": "--a <2en> *"}
        words = ["bash", "-euc", script, "bash", str(RECIPES)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout) == (code, printed), done.stderr


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("students", {"FURTHER": "no file"}, "no file: not a file"),
        ("students", {"STUDENTS": "nobody"}, "nobody.toml: not a file"),
        ("students", {"DATA": "nowhere"}, "nowhere/data.json: not a file"),
        ("students", {"VOCABULARY": "another"}, "the student cut keeps its teacher's"),
        ("back-translation", {"MONO": "no file"}, "no file: not a file"),
        ("back-translation", {"TEST": "nowhere"}, "nowhere.en: not a file"),
        ("small-data", {"TEST": "nowhere"}, "nowhere.en: not a file"),
        ("small-data", {"PREPARE": "--truecase"}, "--truecase depends on the language"),
    ],
)
def test_a_missing_file_for_a_late_step_is_reported_at_the_start(
    data: Path, tmp_path: Path, recipe: str, settings: dict[str, str], message: str
) -> None:
    texts = {"TRAIN": str(data.parent / "train"), "VALID": str(data.parent / "dev"), "TEST": str(data.parent / "dev")}
    done = run(recipe, tmp_path, **{**texts, "TEACHER": "none", **settings})
    assert done.returncode == 2 and message in done.stderr and "after 0 s" not in done.stderr


def test_tatoeba_without_data_names_the_variable(tmp_path: Path) -> None:
    done = run("tatoeba-en-de", tmp_path, DATA="")
    assert done.returncode != 0
    assert "DATA" in done.stderr and "en-de" in done.stderr


@pytest.mark.parametrize("config", ["settings.toml", "plain.toml"])
def test_tatoeba_is_trained_with_either_settings(config: str, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mirror" / "en-de"
    folder.mkdir(parents=True)
    for name, corpus in (("train", "train"), ("valid", "dev"), ("test", "dev")):
        for language in ("en", "de"):
            shutil.copy(data.parent / f"{corpus}.{language}", folder / f"{name}.{language}")
    given = {"DATA": str(folder.parent), "LOCK": str(tmp_path / "lock"), "VOCAB_SIZE": "60"}
    given |= {"CONFIG": str(RECIPES / "tatoeba-en-de" / config)}
    flags = [*TINY, "--max-updates", "5", "--warmup-updates", "1", "--save-every", "1u"]
    done = run("tatoeba-en-de", tmp_path, *flags, **given)
    assert done.returncode == 0, done.stderr
    assert "\ntest  " in done.stdout and "signature: nrefs:1" in done.stdout
    chosen = tomllib.loads((tmp_path / "work/run/settings.toml").read_text())
    expected = {"settings.toml": ("muon", "pre"), "plain.toml": ("adam", "post")}[config]
    assert (chosen["optimizer"], chosen["norm_position"]) == expected


@pytest.fixture
def of_europarl(data: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of the europarl-en-fr recipe, for 300 pairs."""
    for name in ("europarl/en-fr/train", "europarl/en-fr/heldout", "newstest/newstest2012", "newstest/newstest2013"):
        corpus, times = ("train", 3) if name.endswith("train") else ("dev", 1)  # 300 pairs, and 500 for validation
        for side, language in (("en", "en"), ("fr", "de")):
            path = tmp_path / "mirror" / f"{name}.{side}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((data.parent / f"{corpus}.{language}").read_bytes() * times)
    where = {"DATA": f"{tmp_path / 'mirror'}", "LOCK": f"{tmp_path / 'lock'}", "EOLE": "", "JOEYNMT": ""}
    return {
        **where,
        "PAIRS": "300",
        "VOCAB_SIZE": "60",
        "LAST": "2",
        "UPDATES": "4",
        "BLIND": f"{data.parent / 'dev.en'}",
    }


EUROPARL = [*TINY, "--max-updates", "4", "--warmup-updates", "1", "--save-every", "1u", "--precision", "fp32"]


def test_europarl_trains_with_nmt_and_skips_programs_that_are_not_installed(
    of_europarl: dict[str, str], tmp_path: Path
) -> None:
    done = run("europarl-en-fr", tmp_path, *EUROPARL, **of_europarl)
    assert done.returncode == 0, done.stderr
    for name in ("EOLE", "JOEYNMT"):
        assert f"{name.lower()} is skipped: set {name}" in done.stderr
    work = tmp_path / "work"
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith(("| nmt", "| equal"))]
    assert [row[0] for row in rows] == ["nmt", "equal"] * 2
    for row in rows[:2]:
        tokens = [record["target_tokens"] for record in updates_of(work / row[0] / "run")]
        assert (row[3], row[4]) == ("4", f"{sum(tokens) / 1e6:.2f}")
    before = times(work)
    (work / "equal" / "blind.fr").unlink()
    again = run("europarl-en-fr", tmp_path, *EUROPARL, **of_europarl)
    assert again.returncode == 0 and again.stdout == done.stdout, again.stderr
    made_again = {"download/.lock", "equal/blind.fr", "table.md", "report.json", "valid_ppl.svg"}
    made_again |= {f"{name}.json" for name in ("heldout", "newstest2012", "newstest2013")}
    assert {name for name, when in times(work).items() if when != before.get(name)} == made_again
    assert (work / "equal" / "blind.fr").read_text() == (work / "equal" / "heldout.fr").read_text()


PROGRAM = """#!/usr/bin/env {python}
import json, pathlib, shutil, sys
import safetensors.torch, torch
if sys.argv[1] == "train":
    settings = json.load(open(sys.argv[3]))
    run, log = pathlib.Path(settings["training"]["model_path"]), pathlib.Path(settings["log_file"])
    assert pathlib.Path(settings["src_vocab"]).read_text().count("\\n") == 60 - 4
    for step in (50, 100):
        (run / f"step_{{step}}").mkdir(parents=True)
        weights = {{"weight": torch.full((2,), float(step))}}
        safetensors.torch.save_file(weights, run / f"step_{{step}}" / "model.00.safetensors")
        (run / f"step_{{step}}" / "config.json").write_text("{{}}")
        with log.open("a") as file:
            file.write(f"Step {{step}}/1000000; acc: 1.0; bsz: 1900/2000/60; 900/1000 tok/s; 9 sec;\\n")
else:
    given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    assert safetensors.torch.load_file(given["-model_path"] + "/model.00.safetensors")["weight"].tolist() == [75.0, 75.0]
    shutil.copy(given["-src"], given["-output"])
"""


def test_europarl_compares_nmt_with_a_program_of_another_environment(
    of_europarl: dict[str, str], tmp_path: Path
) -> None:
    """A program that stands for eole: its newest checkpoints are averaged, and its log is read."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (folder / "eole").write_text(PROGRAM.format(python=sys.executable))
    for path in folder.iterdir():
        path.chmod(0o755)
    given = of_europarl | {"EOLE": str(folder.parent), "PROGRAMS": "nmt eole"}
    done = run("europarl-en-fr", tmp_path, *EUROPARL, **given)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| eole")]
    assert rows[0][3:5] == ["100", "0.20"]  # 2 lines of 50 updates of 2,000 tokens
    scores = json.loads((tmp_path / "work" / "newstest2013.json").read_text())
    assert rows[1][5] == f"{scores[1]['value']:.2f} ({scores[1]['p_value']:.3f})"
    assert "paired bootstrap against nmt" in done.stdout


BUSY = """
import pathlib, signal, sys, time
run = pathlib.Path(sys.argv[1])
run.mkdir(exist_ok=True)
def end(*_):
    (run / "last.ckpt").write_text(str(time.process_time()))
    sys.exit(1)
signal.signal(signal.SIGINT, end)
number = len(list(run.iterdir()))
while True:
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
    number += 1
    (run / f"{number}.ckpt").touch()
"""


def test_cpu_seconds_are_counted_over_all_calls_of_a_training(tmp_path: Path) -> None:
    """The first call is terminated after a checkpoint; the second one gets only the rest of the seconds."""
    (tmp_path / "busy.py").write_text(BUSY)
    used, done, budget = tmp_path / "used.jsonl", tmp_path / "done.json", 3.0
    words = [
        sys.executable,
        RECIPES / "europarl-en-fr" / "budget.py",
        "train",
        "--seconds",
        str(budget),
        "--used",
        used,
    ]
    words += ["--run", tmp_path, "--checkpoints", "run/*.ckpt", "--done", done, "--"]
    words += [sys.executable, tmp_path / "busy.py", tmp_path / "run"]
    with subprocess.Popen(words) as first:
        end = time.monotonic() + 60
        while not (used.exists() and used.read_text().count("\n") >= 2):
            assert first.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        first.terminate()
        assert first.wait(60) == 128 + signal.SIGTERM and not done.exists()
    before = [json.loads(line)["seconds"] for line in used.read_text().splitlines()][-1]
    assert 0 < before < budget
    assert subprocess.run(words, timeout=300).returncode == 0
    rest = float((tmp_path / "run" / "last.ckpt").read_text())
    assert budget - before - 0.1 <= rest
    told = json.loads(done.read_text())
    assert told["checkpoints"][-1]["checkpoint"].endswith("last.ckpt")
    assert told["cpu_seconds"] >= budget and told["cpu_seconds"] == pytest.approx(before + rest, abs=1)
    assert subprocess.run(words, timeout=300).returncode == 0  # nothing is left
    assert float((tmp_path / "run" / "last.ckpt").read_text()) == rest


COUNTED = """
import pathlib, sys, time
given = dict(zip(sys.argv[1:-1:2], sys.argv[2:-1:2]))
updates = int(given["--max-updates"])
assert int(given["--warmup-updates"]) < updates
pathlib.Path(given["--output"]).mkdir()
while time.process_time() < 0.5 + 0.005 * updates: pass
"""


def test_the_updates_that_fit_are_computed_from_two_short_runs(tmp_path: Path) -> None:
    """A training that needs 0.5 CPU seconds to start, and 0.005 for an update. Its schedule refuses a longer warm-up."""
    (tmp_path / "counted.py").write_text(COUNTED)
    words = [sys.executable, RECIPES / "europarl-en-fr" / "budget.py", "updates", "--seconds", "100"]
    words += [
        "--done",
        tmp_path / "updates",
        "--",
        sys.executable,
        tmp_path / "counted.py",
        "--output",
        tmp_path / "run",
    ]
    assert subprocess.run(words).returncode == 0
    assert 10_000 < int((tmp_path / "updates").read_text()) < 40_000
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", ["nothing", "mono"])
def test_back_translation_adds_sentences_with_sources_translated_by_a_model(
    given: str, data: Path, tmp_path: Path
) -> None:
    corpus = data.parent
    settings = {"TRAIN": f"{corpus / 'train'}", "VALID": f"{corpus / 'dev'}", "TEST": f"{corpus / 'dev'}"}
    settings |= {"LAST": "2", "TOKENIZE": "none", "VOCAB_SIZE": "60", "PREPARE": "--character-coverage 0.99"}
    written = (corpus / "train.de").read_text().splitlines()
    if given == "mono":
        written = written[:40]
        (tmp_path / "mono.de").write_text("".join(f"{line}\n" for line in written))
        settings |= {"MONO": f"{tmp_path / 'mono.de'}", "TAG": "<s/t>", "WEIGHTS": "pairs=2 back=1"}
    flags = ["--max-updates", "3", "--save-every", "1u", "--d-model", "16", "--d-ff", "16", "--encoder-layers", "1"]
    for _ in range(2):
        done = run(
            "back-translation", tmp_path, *flags, *["--decoder-layers", "1", "--batch-tokens", "200"], **settings
        )
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr and "BLEU" in done.stdout and "signature: " in done.stdout
    text = tmp_path / "work" / "text"
    sources = (text / "back.en").read_text().splitlines()
    assert (text / "back.de").read_text().splitlines() == written and len(sources) == len(written)
    tag = "<s/t>" if given == "mono" else "<BT>"
    assert all(line.startswith(f"{tag} ") for line in sources)
    prepared = PreparedData(tmp_path / "work" / "data")
    assert [name for name, _ in prepared.train.corpora] == ["pairs", "back"]
    ids = prepared.pipeline.source.encode(sources[0])
    assert prepared.pipeline.source.decode(ids[:1]).strip() == tag


def multi30k_mirror(data: Path, folder: Path, languages: tuple[str, ...] = ("en", "de")) -> dict[str, str]:
    """Write the test corpus to a folder with the layout of Multi30k; returns the variables of a recipe that reads it."""
    texts = folder / "data" / "task1" / "tok"
    texts.mkdir(parents=True)
    for name, corpus in (("train", "train"), ("val", "dev"), ("test_2016_flickr", "dev")):
        for language in languages:
            shutil.copy(data.parent / f"{corpus}.{language}", texts / f"{name}.lc.norm.tok.{language}")
    return {"DATA": str(folder), "LOCK": str(folder / "lock"), "VOCAB_SIZE": "70"}


def test_the_little_data_recipe_trains_on_translations_by_a_bidirectional_model(data: Path, tmp_path: Path) -> None:
    pairs = [(data.parent / f"train.{lang}").read_text().splitlines() for lang in ("en", "de")]
    pairs[1][7] = ""
    settings = multi30k_mirror(data, tmp_path / "mirror")
    texts = tmp_path / "mirror" / "data" / "task1" / "tok"
    for lang, lines in zip(("en", "de"), pairs, strict=True):
        name = f"train.lc.norm.tok.{lang}"  # without a newline at the end of the last line
        (texts / name).write_text("\n".join(lines))
    blind = tmp_path / "blind texts"
    blind.mkdir()
    blind_text = (data.parent / "dev.en").read_bytes()
    (blind / "test_2017_flickr.lc.norm.tok.en.gz").write_bytes(gzip.compress(blind_text))
    (blind / "test_2017_mscoco.lc.norm.tok.en").write_bytes(b"".join(blind_text.splitlines(keepends=True)[:3]))
    settings |= {"BLIND": str(blind), "OUTPUTS": str(tmp_path / "outputs"), "SEEDS": "1 2"}
    settings |= {"LAST": "2", "PREPARE": "--character-coverage 0.99"}
    flags = "--max-updates 3 --warmup-updates 1 --save-every 1u --d-model 18 --d-ff 16 --encoder-layers 1 --decoder-layers 1"
    recipe = "small-data/multi30k.sh"
    assert_refused(run(recipe, tmp_path, **settings, SAMPLES="0"), 2, "SAMPLES")
    for _ in range(2):
        done = run(recipe, tmp_path, *flags.split(), "--batch-tokens=200", **settings, SAMPLES="2")
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr
    work = tmp_path / "work"
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in done.stdout.splitlines() if line.startswith("|")}
    names = ["bidirectional", *(f"teacher-{number}" for number in (1, 2, 3, 4)), "final-1", "final-2", "final, mean"]
    assert list(rows) == ["model", "---", *names, "plain"] and " (p = " in rows["final-1"] and "`nrefs:1" in done.stdout
    runs = tables.runs_of(work)
    costs = [tables.cost_of(folders, work, runs) for folders in (["final-1"], ["plain"], ["final-1", "plain", "text"])]
    assert costs[2].tokens == costs[0].tokens + costs[1].tokens > costs[0].tokens > 0
    assert costs[2].seconds > costs[0].seconds + costs[1].seconds > 0
    assert (work / "multi30k").is_dir() and (work / "valid_ppl.svg").is_file()
    bleu = {
        f"final-{seed}": json.loads((work / f"final-{seed}" / "valid.json").read_text())[0]["value"] for seed in (1, 2)
    }
    middle = done.stdout.splitlines()[-1].split()[-1]
    assert bleu[middle] == min(bleu.values())
    outputs = {path.name: path.read_text().splitlines() for path in (tmp_path / "outputs").iterdir()}
    assert outputs == {
        "test_2017_flickr.de": (work / middle / "valid").read_text().splitlines(),
        "test_2017_mscoco.de": (work / middle / "valid").read_text().splitlines()[:3],
    }
    assert (work / "text" / "both.en").read_text().splitlines() == pairs[0] + [
        f"<2en> {line}" if line else "" for line in pairs[1]
    ]
    assert (work / "text" / "both.de").read_text().splitlines() == pairs[1] + pairs[0]
    assert (work / "text" / "sampled.de").read_text().splitlines() == 2 * pairs[1]
    assert len((work / "text" / "sampled.en").read_text().splitlines()) == 2 * len(pairs[1])
    rounds = {
        "round-1": ["pairs", "back", "sampled", "taught"],
        "round-2": ["pairs", "back", "sampled", "taught-1", "taught-2"],
        "round-3": ["pairs", "back", "sampled", "taught-1", "taught-2", "taught-3", "new"],
    }
    for folder, corpora in rounds.items():
        prepared = PreparedData(work / folder)
        assert [name for name, _ in prepared.train.corpora] == corpora
    parents = {"teacher-1": "bidirectional", "teacher-3": "teacher-1", "teacher-4": "teacher-2", "final-2": "teacher-3"}
    for model, parent in {**parents, "plain": None}.items():
        settings_of = tomllib.loads((work / model / "run" / "settings.toml").read_text())
        started = settings_of.get("init_from", "none")
        assert started == "none" if parent is None else started.endswith(f"{parent}/model")
        assert settings_of["dropout"] == 0.2 and settings_of["seed"] == (2 if model in ("teacher-4", "final-2") else 1)
    new = [(work / "text" / f"new.{lang}").read_text().splitlines() for lang in ("en", "de")]
    assert new[0] == (work / "text" / "sampled.en").read_text().splitlines() and len(new[1]) == len(new[0])
    assert prepared.pipeline.source.decode(prepared.pipeline.source.encode("<2en> a")[:1]).strip() == "<2en>"
    report = json.loads((work / "both" / "report.json").read_text())["sets"][0]
    assert report["dropped"]["empty"] == 2 and report["kept"] == 2 * len(pairs[0]) - 2


def test_each_method_of_the_ladder_is_compared_with_plain_training_of_its_length(data: Path, tmp_path: Path) -> None:
    settings = multi30k_mirror(data, tmp_path / "mirror") | {"UPDATES": "4", "EVERY": "2", "RISK_UPDATES": "2"}
    settings |= {"SEEDS": "1 2", "METHOD_SEEDS": "1", "LAST": "2", "PREPARE": "--character-coverage 0.99"}
    for _ in range(2):
        done = run("ladder", tmp_path, *TINY, "--batch-tokens=200", "--warmup-updates=1", **settings)
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr
    work = tmp_path / "work"
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    rows = {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}
    methods = ["r-drop", "subword-sampling", "ema", "risk"]
    assert list(rows) == ["base", "base, last", "longer", *methods, "half", "half, longer", "back-translation"]
    assert [rows[name]["seeds"] for name in ("base", "longer")] == ["2", "1"]
    assert all(
        (" (p = " in row["against same-updates".replace("-", " ")]) == (name in [*methods, "back-translation"])
        for name, row in rows.items()
    )
    updates = {name: updates_of(work / name / "run")[-1]["update"] for name in ("base-1", "base-1-longer", "risk-1")}
    assert updates == {"base-1": 4, "base-1-longer": 8, "risk-1": 2}
    losses = [[record["nll"] for record in updates_of(work / name / "run")] for name in ("base-1", "ema-1", "r-drop-1")]
    assert losses[0] == losses[1] != losses[2]
    # The model after as many updates as risk and its base: the last two checkpoints up to update 6, of both trainings.
    averaged = json.loads((work / "base-1-at-6" / "model" / "manifest.json").read_text())["averaged"]
    assert [Path(path).parts[-4:] for path in averaged] == [
        ("base-1", "run", "checkpoints", "update-4"),
        ("base-1-longer", "run", "checkpoints", "update-6"),
    ]
    german = (data.parent / "train.de").read_text().splitlines()
    back = work / "back-translation-1"
    assert (back / "text" / "back.de").read_text().splitlines() == german[150:]
    assert [name for name, _ in PreparedData(back / "data").train.corpora] == ["pairs", "back"]
    weights = {
        name: tomllib.loads((work / name / "run" / "settings.toml").read_text())["data_weights"]
        for name in ("half-1", "back-translation-1")
    }
    assert weights["half-1"] != weights["back-translation-1"]


def test_each_row_of_table_3_varies_the_base_model_as_in_the_paper_and_is_compared_with_it(
    data: Path, tmp_path: Path
) -> None:
    settings = multi30k_mirror(data, tmp_path / "mirror") | {"ROWS": "c-n2 a-h16 big", "SEEDS": "1 2", "LAST": "2"}
    settings |= {"UPDATES": "2", "SCALE": "32", "PREPARE": "--character-coverage 0.99"}
    for _ in range(2):
        done = run("table3", tmp_path, "--batch-tokens=200", "--warmup-updates=1", "--save-every=1u", **settings)
        assert done.returncode == 0, done.stderr
    assert "exists: skipped" in done.stderr and (tmp_path / "work" / "table3.svg").read_bytes().startswith(b"<?xml")
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    rows = {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}
    assert list(rows) == ["base", "a-h16", "c-n2", "big"] and [row["seeds"] for row in rows.values()] == [*"2111"]
    assert [name for name, row in rows.items() if " (p = " in row["against base"]] == ["a-h16", "c-n2", "big"]
    found = {
        name: tomllib.loads((tmp_path / "work" / f"{name}-1" / "run" / "settings.toml").read_text()) for name in rows
    }
    varied = {
        name: {key for key in found["base"] | told if found["base"].get(key) != told.get(key)} - {"config", "output"}
        for name, told in found.items()
    }
    assert varied["c-n2"] == {"encoder_layers", "decoder_layers"} and varied["a-h16"] == {"heads", "d_k", "d_v"}
    assert varied["big"] == {"d_model", "d_ff", "heads", "dropout", "max_updates"}
    assert (found["big"]["max_updates"], found["big"]["d_model"], found["base"]["d_ff"]) == (6, 32, 64)


def test_the_widths_of_table_3_must_be_multiples_of_the_scale() -> None:
    program = runpy.run_path(str(RECIPES / "table3" / "table3.py"))
    with pytest.raises(SystemExit, match="no multiple of the scale 3"):
        program["settings_of"]("transformer-base", 3)


def test_the_cpu_time_of_a_step_is_recorded_even_if_a_signal_ends_it(tmp_path: Path) -> None:
    command = (
        "import os, signal, time; [0 for _ in range(3_000_000)]; os.kill(os.getppid(), signal.SIGTERM); time.sleep(0.1)"
    )
    script = '. "$1/steps.sh"; cd "$2"; step out "$3" -c "$4"; echo after'
    words = ["bash", "-euc", script, "bash", str(RECIPES), str(tmp_path), sys.executable, command]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 143 and "after" not in done.stdout
    user, system = (float(word) for word in (tmp_path / ".out.cpu").read_text().split())
    assert user > 0 and system >= 0
