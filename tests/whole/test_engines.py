"""`--engine`: CTranslate2 gives the results of the torch engine or is not used; its export is made once and always checked."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import random_models
from conftest import NMT, WORDS, small_disk, small_model, wait_for
from forks import forked_nmt
from random_models import make_model

import nmt.extensions.ctranslate2.cached as cached_module
import nmt.extensions.ctranslate2.engine
from nmt.artefact import Artefact
from nmt.errors import Interrupted
from nmt.extensions.ctranslate2.engine import CTranslate2Model
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.signals import Signals
from nmt.text.pipeline import Pipeline

pytest.importorskip("ctranslate2")

SEARCHES = [  # that CTranslate2 treats like the torch engine
    ["--decoder=greedy"],
    [],
    ["--beam-size=1"],
    ["--beam-size=8", "--length-penalty=average", "--alpha=1", "--stop=full"],
    ["--alpha=2", "--stop=full"],
    ["--alpha=0"],
    ["--length-penalty=none"],
    ["--length-penalty=none", "--stop=full"],
    ["--min-length=0"],
    ["--max-len-a=0", "--max-len-b=2"],
    ["--max-source-length=3"],
    ["--batch-tokens=20", "--replicas=2", "--threads=2"],
]
OWN_ONLY = [  # with words from the reason
    (["--n-best=2"], "--n-best"),
    (["--coverage-penalty=0.2"], "--coverage-penalty"),
    (["--prune=3"], "--prune"),
    (["--length-penalty=average", "--alpha=1"], "--stop best"),
    (["--min-length=2"], "--min-length"),
    (["--no-unk"], "--no-unk"),
    (["--no-repeat-ngram=2"], "--no-repeat-ngram"),
    (["--max-len-b=3000"], "lengths"),
    (["--max-source-length=4000", "--max-len-a=0", "--max-len-b=20"], "lengths"),
    (["--decoder=sampling"], "--decoder sampling"),
    (["--decoder=constrained-beam"], "--decoder constrained-beam"),
    (["--alignment=hard"], "--alignment"),
    (["--word-scores"], "--word-scores"),
    (["--replace-unk"], "--replace-unk"),
    (["--matmul=torch"], "--matmul"),
    (["--precision=bf16"], "--precision bf16"),
]


def text(lines: int) -> str:
    """Lines of all kinds: 1 to 40 words, blank, with unknown words, and with invisible words."""
    chance = random.Random(5)
    rows = [" ".join(chance.choices(WORDS, k=chance.randint(1, 40 if i % 7 == 0 else 9))) for i in range(lines)]
    return "".join(f"{row}\n" for row in [*rows, "", "zzz", f"{WORDS[0]} zzz", "\u200b"])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that ends its sentences, with its export."""
    folder = make_model(tmp_path_factory.mktemp("engines") / "model", norm_position="pre", tie="none")
    line = tmp_path_factory.mktemp("line") / "line"
    line.write_text("ban\n")
    command = [forked_nmt(), "translate", "--engine=ctranslate2", "--model", folder, "--input", line]
    assert subprocess.run(command, capture_output=True).returncode == 0
    return folder


@pytest.fixture
def translate(call, tmp_path):
    """`translate(model, content, flags)`: the objects of `--json`, and the messages of --verbose."""
    (tmp_path / "lines").write_text(text(40))

    def run(model, *flags, content=None):
        path = tmp_path / "lines"
        if content is not None:
            path = tmp_path / "content"
            path.write_text(content)
        result = call("translate", "--model", model, "--input", path, "--json", "--verbose", "--threads=1", *flags)
        return result.code, [json.loads(line) for line in result.out.splitlines()], result.err

    return run


def assert_equal(rows, others):
    """Check that translations are equal and scores too, to the precision of float32."""
    assert [row["translation"] for row in rows] == [row["translation"] for row in others]
    for row, other in zip(rows, others, strict=True):
        assert [candidate["tokens"] for candidate in row["candidates"]] == [
            candidate["tokens"] for candidate in other["candidates"]
        ]
        for name in ("log_prob", "score"):
            values = [candidate[name] for candidate in row["candidates"]]
            assert values == pytest.approx([candidate[name] for candidate in other["candidates"]], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("flags", SEARCHES, ids=" ".join)
def test_ctranslate2_gives_the_translations_of_the_torch_engine(flags, translate, model):
    code, rows, told = translate(model, *flags)
    assert code == 0 and "engine ctranslate2: " in told
    code, own_rows, told = translate(model, *flags, "--engine=torch")
    assert code == 0 and "engine torch" in told and len(rows) == 44
    assert_equal(rows, own_rows)


@pytest.mark.parametrize(("flags", "reason"), OWN_ONLY, ids=lambda value: " ".join(value))
def test_options_that_ctranslate2_lacks_use_the_torch_engine_or_are_rejected_on_request(
    flags, reason, translate, model
):
    code, rows, told = translate(model, *flags, content="ban des kit\n")
    assert code == 0 and "engine torch: CTranslate2 is not used: " in told and reason in told and len(rows) == 1
    code, _, told = translate(model, *flags, "--engine=ctranslate2", content="ban des kit\n")
    assert code == 2 and "--engine ctranslate2: " in told and reason in told


def test_ensembles_and_checkpoints_use_the_torch_engine(translate, model, trained):
    for flags in ([f"--model={model}"], [f"--rerank={model}"]):
        code, _, told = translate(model, *flags, content="ban\n")
        assert code == 0 and "engine torch: CTranslate2 is not used: " in told
    code, _, told = translate(trained, content="ban\n")
    assert code == 0 and "engine torch: CTranslate2 is not used: checkpoints" in told


def test_a_checkpoint_is_exported_into_the_cache_folder_on_request(translate, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    content = text(10)
    code, rows, told = translate(trained, "--engine=ctranslate2", content=content)
    assert code == 0 and f"engine ctranslate2: {tmp_path}/caches/nmt/" in told
    assert_equal(rows, translate(trained, "--engine=torch", content=content)[1])


def test_lines_with_constraints_use_the_torch_engine(translate, model):
    requests = [
        {"source": "ban des"},
        {"source": "ban des kit", "target_prefix": "LORA"},
        {"source": "", "target_prefix": "LORA"},
        {"source": "ban ban", "avoid": ["BAN"]},
        {"source": "kit"},
    ]
    content = "".join(json.dumps(request) + "\n" for request in requests)
    code, rows, told = translate(model, "--input-form=json", content=content)
    assert code == 5 and "engine ctranslate2: " in told
    assert rows[1]["translation"].startswith("LORA") and "error" in rows[2]
    assert_equal(rows, translate(model, "--input-form=json", "--engine=torch", content=content)[1])


def test_a_model_unsupported_by_ctranslate2_uses_the_torch_engine(translate, tmp_path):
    other = make_model(tmp_path / "model", "rnnsearch")
    code, _, told = translate(other, content="ban\n")
    assert code == 0 and "engine torch: CTranslate2 is not used: " in told and "'rnnsearch'" in told
    assert translate(other, "--engine=ctranslate2", content="ban\n")[0] == 2
    assert [path.name for path in tmp_path.iterdir() if "ctranslate2" in path.name] == []


def test_an_8_bit_model_uses_the_torch_engine(translate, call, model, tmp_path):
    assert call("export", "--format=int8", "--model", model, "--output", tmp_path / "int8").code == 0
    code, _, told = translate(tmp_path / "int8", content="ban\n")
    assert code == 0 and "already has 8-bit weights" in told


def test_without_ctranslate2_the_torch_engine_translates(translate, model, monkeypatch):
    monkeypatch.setattr(nmt.extensions.ctranslate2.engine, "find_spec", lambda name: None)
    code, _, told = translate(model, content="ban\n")
    assert code == 0 and "CTranslate2 is not used: it is not installed" in told


def test_precision_int8_runs_in_ctranslate2(translate, model):
    code, rows, told = translate(model, "--precision=int8")
    assert code == 0 and ".ctranslate2-int8" in told
    _, own_rows, _ = translate(model, "--engine=torch")
    equal = sum(row["translation"] == other["translation"] for row, other in zip(rows, own_rows, strict=True))
    assert equal > 20  # of 44; 8-bit weights differ


def test_a_shortlist_becomes_a_vocabulary_map(translate, model, tmp_path):
    pipeline = Pipeline.load(Artefact(model, "model"))
    chance, (sources, targets) = np.random.default_rng(1), pipeline.sizes
    tokens = np.concatenate([chance.choice(targets, 3, replace=False) for _ in range(sources)])
    shortlist = Shortlist(np.arange(0, 3 * sources + 1, 3), tokens, np.array([10, 11, 12]))
    shortlist.save(tmp_path / "short", pipeline.hash)
    # In CTranslate2 the lines of a batch share their candidate tokens.
    flags = [f"--shortlist={tmp_path / 'short'}", "--batch-tokens=1"]
    code, rows, told = translate(model, *flags)
    assert code == 0 and ".ctranslate2-float32-shortlist-" in told
    assert_equal(rows, translate(model, *flags, "--engine=torch")[1])
    _, others, _ = translate(model, "--batch-tokens=1")
    assert [row["translation"] for row in rows] != [row["translation"] for row in others]


def test_a_failed_batch_is_retried_in_halves(translate, model, monkeypatch):
    whole = CTranslate2Model.submit
    _, expected, _ = translate(model)

    class Failing:
        def done(self) -> bool:
            return True

        def result(self) -> None:
            raise MemoryError("no room")

    def submit(self, sources, **settings):
        results = whole(self, sources, **settings)
        return [Failing()] * len(results) if len(results) > 4 else results

    monkeypatch.setattr(CTranslate2Model, "submit", submit)
    code, rows, told = translate(model)
    assert code == 0 and "was retried in halves" in told and "MemoryError: no room" in told
    assert_equal(rows, expected)
    monkeypatch.setattr(CTranslate2Model, "submit", lambda self, sources, **settings: [Failing()] * len(sources))
    code, rows, told = translate(model, content="ban\n")
    assert code == 5 and rows[0]["error"] == "MemoryError: no room"


def test_evaluate_names_the_engine_next_to_the_score(call, model, tmp_path):
    (tmp_path / "lines").write_text("ban des\nkit lora\n")
    files = ["--model", model, "--source", tmp_path / "lines", "--reference", tmp_path / "lines", "--json"]
    [own] = {row["decoder"] for row in call("evaluate", *files, "--engine=torch").json}
    [other] = {row["decoder"] for row in call("evaluate", *files).json}
    assert other.startswith(own + "|engine:ctranslate2-")


# The cached export


@pytest.fixture
def copied(model, tmp_path, monkeypatch):
    """A copy of the model without an export, with a new cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return Path(shutil.copytree(model, tmp_path / "copied"))


def cached(tmp_path: Path) -> Path:
    """The only export in the cache."""
    [folder] = (tmp_path / "caches/nmt").iterdir()
    return folder


def entries(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "caches/nmt").iterdir()}


def aged(folder: Path, seconds: float) -> None:
    """Make an export look as if it had last been used this long ago."""
    os.utime(folder / "manifest.json", times=(0, time.time() - seconds))


def test_the_export_is_made_once_per_model(translate, copied, tmp_path):
    files = {path: path.stat() for path in [tmp_path, *tmp_path.rglob("*")] if path.name not in ("caches", "content")}
    code, rows, told = translate(copied)
    assert code == 0 and "exported to CTranslate2 and checked" in told
    made = Artefact(cached(tmp_path), "ctranslate2").manifest
    code, again, told = translate(copied)
    assert code == 0 and again == rows and "exported to CTranslate2 and checked" not in told
    assert {path for path in tmp_path.rglob("*") if "caches" not in path.parts} <= files.keys()
    shutil.rmtree(copied)
    make_model(copied, norm_position="post", tie="none")
    code, others, told = translate(copied)
    assert code == 0 and "exported to CTranslate2 and checked" in told
    assert Artefact(cached(tmp_path), "ctranslate2").manifest["made_of"] != made["made_of"]
    assert_equal(others, translate(copied, "--engine=torch")[1])


def test_a_damaged_export_is_made_again(translate, copied, tmp_path):
    _, rows, _ = translate(copied)
    weights = cached(tmp_path) / "model.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    code, again, told = translate(copied)
    assert code == 0 and again == rows and "exported to CTranslate2 and checked" in told
    weights.unlink()
    code, again, told = translate(copied)
    assert code == 0 and again == rows and "exported to CTranslate2 and checked" in told


def as_link(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.parent.parent)


def as_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


DAMAGES = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "an empty folder": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
    "no JSON": lambda folder: (folder / "manifest.json").write_bytes(b"{"),
    "another kind": lambda folder: (folder / "manifest.json").write_text('{"format": 1, "kind": "model", "files": {}}'),
    "a newer format": lambda folder: (folder / "manifest.json").write_text('{"format": 99, "kind": "ctranslate2"}'),
    "a link": as_link,
    "a file": as_file,
    "a link inside": lambda folder: (folder / "model.bin").unlink() or (folder / "model.bin").symlink_to("config.json"),
    "no file but its manifest": lambda folder: [
        path.unlink() for path in folder.glob("*.json") if path.stem != "manifest"
    ],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_wrong_with_the_cached_export_it_is_reported_and_made_again(damage, translate, copied, tmp_path):
    _, rows, _ = translate(copied)
    folder = cached(tmp_path)
    DAMAGES[damage](folder)
    code, again, told = translate(copied)
    assert code == 0 and again == rows and "warning: the cached export for CTranslate2 is damaged" in told
    assert "exported to CTranslate2 and checked" in told and cached(tmp_path) == folder
    assert Artefact(folder, "ctranslate2").check() is None
    code, again, told = translate(copied)
    assert code == 0 and again == rows and "is damaged" not in told and f"engine ctranslate2: {folder}" in told


def test_two_commands_replace_a_damaged_export_at_once(copied, translate, tmp_path):
    translate(copied)
    for _ in range(3):
        (cached(tmp_path) / "manifest.json").unlink()
        command = [forked_nmt(), "translate", "--engine=ctranslate2", "--model", str(copied)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both = [subprocess.Popen(command, **pipes) for _ in range(2)]
        outputs = [process.communicate(b"ban des kit\n", timeout=120) for process in both]
        assert [process.returncode for process in both] == [0, 0], outputs
        assert outputs[0][0] == outputs[1][0] and Artefact(cached(tmp_path), "ctranslate2").check() is None


def test_a_damaged_export_on_a_read_only_disk_is_reported_at_each_start(nmt, model, tmp_path):
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 10_000_000):
        command, caches = ["translate", "--quiet", "--model", model], {"XDG_CACHE_HOME": str(tmp_path / "disk")}
        assert nmt(*command, input=b"ban\n", env=caches).returncode == 0
        next((tmp_path / "disk/nmt").glob("*/manifest.json")).unlink()
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)
        done = nmt(*command, input=b"ban\n", env=caches)
        assert done.returncode == 0 and done.stdout.count(b"\n") == 1
        assert done.stderr.count(b"CTranslate2 is not used") == 1 and b"Read-only file system" in done.stderr


def test_a_model_elsewhere_with_the_same_content_shares_the_export(translate, copied, tmp_path):
    _, rows, _ = translate(copied)
    moved = copied.rename(tmp_path / "moved")
    code, again, told = translate(moved)
    assert code == 0 and again == rows and "exported to CTranslate2 and checked" not in told


def test_an_export_in_the_model_folder_is_used_only_if_it_matches_the_model(translate, call, copied, tmp_path):
    made = call("export", "--model", copied, "--output", copied / "ctranslate2")
    assert made.code == 0, made.err
    code, rows, told = translate(copied)
    assert code == 0 and f"engine ctranslate2: {copied}/ctranslate2" in told and not (tmp_path / "caches").exists()
    assert_equal(rows, translate(copied, "--engine=torch")[1])
    code, _, told = translate(copied, "--precision=int8", content="ban\n")  # the export has other weights
    assert code == 0 and f"engine ctranslate2: {tmp_path}/caches/nmt/" in told
    make_model(tmp_path / "other", norm_position="post", tie="none")
    (copied / "ctranslate2").rename(tmp_path / "other/ctranslate2")
    code, _, told = translate(tmp_path / "other", content="ban\n")
    assert code == 0 and f"engine ctranslate2: {tmp_path}/caches/nmt/" in told


def test_an_export_next_to_the_model_from_an_earlier_version_is_used_only_if_it_matches(translate, copied, tmp_path):
    translate(copied)
    beside = cached(tmp_path).rename(tmp_path / ".copied.ctranslate2-float32")
    code, _, told = translate(copied, content="ban\n")
    assert code == 0 and f"engine ctranslate2: {beside}" in told and not entries(tmp_path)
    shutil.rmtree(copied)
    make_model(copied, norm_position="post", tie="none")
    code, _, told = translate(copied, content="ban\n")
    assert code == 0 and f"engine ctranslate2: {cached(tmp_path)}" in told


def test_the_cache_drops_exports_that_are_unused_or_exceed_its_size(translate, copied, tmp_path, monkeypatch):
    models = [copied, *(tmp_path / name for name in ("second", "third", "fourth"))]
    for number, model in enumerate(models[1:], 1):
        make_model(model, norm_position="post", tie="none", d_ff=32 * number)
    found: list[Path] = []
    for model in models[:2]:
        translate(model, content="ban\n")
        found += [tmp_path / "caches/nmt" / name for name in entries(tmp_path) - {path.name for path in found}]
    first, second = found
    abandoned = tmp_path / "caches/nmt/.killed.partial"
    abandoned.mkdir()
    os.utime(abandoned, times=(0, 0))
    aged(first, cached_module.MAX_UNUSED_SECONDS + 60)
    aged(second, cached_module.MAX_UNUSED_SECONDS - 60)
    translate(models[2], content="ban\n")
    assert not first.exists() and second.exists() and not abandoned.exists()
    monkeypatch.setattr(cached_module, "MAX_CACHE_BYTES", sum(path.stat().st_size for path in second.rglob("*")))
    translate(models[1], content="ban\n")  # now `second` is the most recently used one except for the new one
    assert second.exists() and len(entries(tmp_path)) == 2
    translate(models[3], content="ban\n")
    assert len(entries(tmp_path)) == 1 and not second.exists()


def test_a_read_only_model_folder_does_not_prevent_the_export(nmt, model, tmp_path):
    (tmp_path / "fixed").mkdir()
    with small_disk(tmp_path / "fixed", 10_000_000):
        shutil.copytree(model, tmp_path / "fixed/model")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "fixed"], check=True)
        command = ["translate", "--model", tmp_path / "fixed/model", "--verbose"]
        caches = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
        first, second = (nmt(*command, input=b"ban des kit\n", env=caches) for _ in range(2))
        assert first.returncode == second.returncode == 0
        assert f"engine ctranslate2: {tmp_path}/caches/nmt/".encode() in first.stderr
        assert (
            b"exported to CTranslate2 and checked" in first.stderr
            and b"exported to CTranslate2 and checked" not in second.stderr
        )
        own = nmt(*command, "--engine=torch", input=b"ban des kit\n")
        assert first.stdout == second.stdout == own.stdout != b""


def test_with_a_full_disk_the_torch_engine_translates(nmt, model, tmp_path):
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 40_000):
        command, caches = ["translate", "--model", model], {"XDG_CACHE_HOME": str(tmp_path / "disk")}
        done = nmt(*command, input=b"ban\n", env=caches)
        assert done.returncode == 0 and done.stdout.count(b"\n") == 1
        assert done.stderr.count(b"warning: CTranslate2 is not used") == 1 and b"No space left" in done.stderr
        assert nmt(*command, "--engine=ctranslate2", input=b"ban\n", env=caches).returncode == 5
        assert not [path for path in (tmp_path / "disk").rglob("*") if path.is_file()]


def test_concurrent_and_killed_exports_leave_one_valid_export(copied, translate, tmp_path):
    command = [forked_nmt(), "translate", "--engine=ctranslate2", "--model", str(copied), "--quiet"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A fork would be killed a little later.
    killed = subprocess.Popen([sys.executable, "-m", "nmt", *command[1:]], **pipes)
    wait_for(lambda: [*(tmp_path / "caches").glob("nmt/.*.partial")], killed, 60)
    killed.kill()
    killed.communicate()
    assert all(name.endswith(".partial") for name in entries(tmp_path))
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    outputs = [process.communicate(b"ban des kit\n", timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    _, [row], _ = translate(copied, "--engine=torch", content="ban des kit\n")
    assert {out.decode() for out, _ in outputs} == {row["translation"] + "\n"}
    assert cached(tmp_path).is_dir()


def test_a_signal_ends_a_long_search(model):
    command = [*NMT, "translate", "--engine=ctranslate2", "--model", str(model), "--beam-size=64", "--threads=1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write((" ".join(WORDS) + "\n").encode() * 400)
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and rest.count(b"\n") < 399


# A CTranslate2 folder as the model


@pytest.mark.parametrize("flags", [[], ["--decoder=greedy"]], ids=lambda flags: "".join(flags) or "beam")
def test_a_line_translated_from_a_ctranslate2_folder_does_not_depend_on_longer_lines_in_its_batch(
    flags, translate, call, tmp_path, monkeypatch
):
    """This model never ends its sentences, and CTranslate2 stops according to the longest source of a batch."""
    monkeypatch.setattr(random_models, "LIKELY", -30.0)
    endless = make_model(tmp_path / "endless", norm_position="pre", tie="none")
    made = call("export", "--model", endless, "--format=ctranslate2", "--output", tmp_path / "out")
    assert made.code == 0, made.err
    line, longer, limits = "ban des\n", "ban " * 60 + "\n", ["--max-len-b=5", *flags]
    [alone] = translate(tmp_path / "out", *limits, content=line)[1]
    together = translate(tmp_path / "out", *limits, content=line + longer)[1][0]
    assert len(alone["candidates"][0]["tokens"]) == 2 + 5
    assert together["translation"] == alone["translation"]


def test_a_ctranslate2_folder_translates_without_its_model(translate, call, model, tmp_path):
    assert call("export", "--model", model, "--format=ctranslate2", "--output", tmp_path / "out").code == 0
    content = text(10)
    code, rows, _ = translate(tmp_path / "out", content=content)
    assert code == 0
    assert_equal(rows, translate(model, "--engine=torch", content=content)[1])
    for flags in (["--engine=torch"], ["--n-best=2"], ["--shortlist=x"]):
        code, _, told = translate(tmp_path / "out", *flags, content=content)
        assert code == 2 and "a folder for CTranslate2" in told, told
    request = json.dumps({"source": "ban", "target_prefix": "LORA"}) + "\n"
    code, [row], _ = translate(tmp_path / "out", "--input-form=json", content=request)
    assert code == 5 and "does not support prefixes" in row["error"]


def test_a_rejected_export_starts_no_threads_that_would_block_search_processes(tmp_path):
    pytest.importorskip("ctranslate2")
    model = small_model(
        tmp_path / "model", "rnnsearch", embedding_size=64, hidden_size=64, maxout_size=64, alignment_size=64
    )
    text = "".join(f"{' '.join(WORDS[i : i + 8])}\n" for i in range(16)) * 8
    command = ["translate", "--model", model, "--threads=4", "--replicas=2", "--batch-tokens=64", "--beam-size=2"]
    done = subprocess.run([*NMT, *command, "--max-len-b=5"], input=text.encode(), capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 128, done.stderr


def test_without_a_folder_for_the_export_the_torch_engine_translates(tmp_path):
    pytest.importorskip("ctranslate2")
    model = make_model(tmp_path / "model")
    environment = {**os.environ, "XDG_CACHE_HOME": "/proc/none"}
    command = [forked_nmt(), "translate", "--model", model, "--quiet"]
    done = [
        subprocess.run([*command, f"--engine={engine}"], input=b"ban kit\n", capture_output=True, env=environment)
        for engine in ("auto", "torch", "ctranslate2")
    ]
    assert [each.returncode for each in done] == [0, 0, 5] and done[0].stdout == done[1].stdout
    assert b"XDG_CACHE_HOME" in done[2].stderr


def test_abandoned_batches_do_not_delay_the_exit(monkeypatch):
    """CTranslate2 cannot drop them, and deleting its model waits for them; so the process exits without deleting the model."""
    engine_of = nmt.extensions.ctranslate2.engine
    monkeypatch.setattr(engine_of, "_GIVEN_UP", [])
    engine = object.__new__(engine_of.CTranslate2Engine)
    results = [SimpleNamespace(done=lambda: is_done) for _ in range(4)]
    engine._max_submitted, engine._model, engine._submit = 1, object(), lambda lines: [results[len(lines)]]
    is_done = False

    def interrupted():
        raise Interrupted(15)

    with pytest.raises(Interrupted), Signals(None, interrupted):
        next(engine.search([[], []]))
    assert engine_of.is_searching() and engine_of._GIVEN_UP[0][0] is engine._model
    is_done = True
    assert not engine_of.is_searching() and not engine_of._GIVEN_UP
