"""Ways of computing do not change the results: products, precision, compilation, splitting, recomputation; and dry runs."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import records_of, train_arguments, updates_of
from plans import plan_of
from refusals import assert_refused

from nmt import registry
from nmt.data.loader import Loader
from nmt.data.plan import Position
from nmt.data.shards import PreparedData
from nmt.errors import UserError
from nmt.extensions.fast.nn import products
from nmt.extensions.watch.previews import dry_run
from nmt.extensions.watch.reporters.estimate import Estimate, estimate_lines, processor_seconds
from nmt.models.base import Vocabularies
from nmt.nn import matmul
from nmt.train.trainer import make_update


def losses(run):
    return [record["loss"] for record in updates_of(run)]


def newest(run):
    return (run / "checkpoints" / "update-20" / "model.safetensors").read_bytes()


DRY = ["--dropout=0", "--no-valid-bleu"]


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    """The losses of 20 updates without dropout, as they come by default."""
    from nmt.cli.main import run

    output = tmp_path_factory.mktemp("plain") / "run"
    assert run(train_arguments(data, output, 20, *DRY)) == 0
    return losses(output)


@pytest.mark.parametrize(
    ("flags", "tolerance"),
    [
        (["--matmul=onednn"], 1e-5),
        (["--activation-checkpointing"], 0),
        (["--max-tokens=auto"], 1e-5),
        (["--max-tokens=20"], 1e-5),
        (["--precision=bf16"], 0.02),
        (["--precision=fp16"], 0.005),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_way_of_computing_gives_the_losses_of_the_plain_way(flags, tolerance, plain, data, call, tmp_path):
    if flags == ["--matmul=onednn"] and not products.onednn_available():
        pytest.skip("this torch has no oneDNN")
    assert call(*train_arguments(data, tmp_path / "run", 20, *DRY, *flags)).code == 0
    assert losses(tmp_path / "run") == pytest.approx(plain, rel=tolerance, abs=0)
    assert type(matmul.current()) is matmul.Products  # no file is left


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("flags", "tolerance"),
    [
        ([], 1e-4),
        (["--precision=tf32"], 1e-2),
        (["--precision=bf16"], 0.02),
        (["--precision=fp16"], 0.005),
        (["--max-tokens=auto"], 1e-4),
        (["--activation-checkpointing"], 1e-4),
        (["--compile"], 1e-4),
        (["--capture"], 1e-4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_training_on_a_gpu_gives_the_losses_of_the_cpu(flags, tolerance, plain, data, call, tmp_path):
    before = torch.get_float32_matmul_precision()
    assert call(*train_arguments(data, tmp_path / "run", 20, *DRY, "--device=cuda", *flags)).code == 0
    assert losses(tmp_path / "run") == pytest.approx(plain, rel=tolerance, abs=0)
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_largest_micro_batch_found_fits_the_gpu(data, call, tmp_path):
    """Training with the size found by the trial fits into memory, and its peak exceeds that of one pair."""
    told = call(
        *train_arguments(data, tmp_path / "run", 20), "--device=cuda", "--dry-run", "--json", "--max-tokens=auto"
    ).json
    assert told["max_tokens"] > 50 and 10**6 < told["memory"] < told["free"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("flags", [[], ["--precision=bf16"]], ids=lambda flags: "".join(flags) or "fp32")
def test_compiled_layers_give_the_same_losses_and_are_compiled_once_per_kind(flags, data, new_nmt, tmp_path):
    """20 updates of many lengths, a validation and a checkpoint need one graph per kind of layer to train and one to
    validate with."""
    arguments = [word for word in train_arguments(data, tmp_path / "run", 20, *DRY) if word != "--quiet"]
    done = new_nmt(*arguments, *flags, "--compile", "--encoder-layers=2", env={"PYTHONWARNINGS": "default"})
    assert done.returncode == 0, done.stderr
    assert b"torch.compile compiled 4 graphs" in done.stderr
    assert new_nmt(*train_arguments(data, tmp_path / "other", 20, *DRY), *flags, "--encoder-layers=2").returncode == 0
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "other"), rel=1e-3 if flags else 1e-4)


@pytest.mark.parametrize(
    "flags", [["--max-tokens=auto", "--matmul=auto"], ["--precision=fp16"]], ids=lambda flags: flags[0]
)
def test_measured_choices_are_saved_so_that_a_run_resumes_bit_for_bit(flags, data, call, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert call(*train_arguments(data, whole, 20, *flags)).code == 0
    for updates in (10, 20):
        assert call(*train_arguments(data, cut, updates, *flags)).code == 0
    assert newest(whole) == newest(cut)
    assert updates_of(whole) == updates_of(cut)
    kept = json.loads((cut / "checkpoints" / "update-20" / "training.json").read_text())["progress"]
    assert kept["limit"]["matmul"] in ("torch", "onednn") and kept["limit"]["max_tokens"] > 0
    assert (kept["scale"] == {"factor": 2.0**15, "good": 20}) if "fp16" in flags[0] else (kept["scale"] is None)


def test_a_run_without_onednn_uses_torch_products(data, call, tmp_path, monkeypatch):
    monkeypatch.setattr(products, "onednn_available", lambda: False)
    assert call(*train_arguments(data, tmp_path, 10, "--matmul=auto")).code == 0
    found = json.loads((tmp_path / "checkpoints" / "update-10" / "training.json").read_text())["progress"]["limit"]
    assert found["matmul"] == "torch"


def test_a_resumed_run_uses_and_reports_a_changed_max_tokens(data, call, tmp_path):
    for updates, tokens in ((10, "auto"), (20, "77")):
        assert call(*train_arguments(data, tmp_path, updates, f"--max-tokens={tokens}")).code == 0
    found = json.loads((tmp_path / "checkpoints" / "update-20" / "training.json").read_text())["progress"]["limit"]
    assert (found["asked"], found["max_tokens"], found["max_micro_batch_tokens"]) == ("77 on 1 x cpu", 77, 77)
    assert "--max-tokens changed from auto on 1 x cpu to 77 on 1 x cpu" in (tmp_path / "train.log").read_text()


def test_a_micro_batch_smaller_than_the_longest_pair_is_reported(data, call, tmp_path):
    lengths = PreparedData(data).train
    longest = 1 + int(max(lengths.source_lengths.max(), lengths.target_lengths.max()))
    for tokens in (longest, longest - 1):
        assert call(*train_arguments(data, tmp_path / str(tokens), 1, f"--max-tokens={tokens}")).code == 0
    told = f"--max-tokens {longest - 1}: longer pairs (up to {longest} tokens)"
    assert told in (tmp_path / f"{longest - 1}" / "train.log").read_text()
    assert "longer pairs" not in (tmp_path / f"{longest}" / "train.log").read_text()


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--precision=tf32", "needs an NVIDIA GPU"),
        ("--max-tokens=0", "at least 1, or auto"),
        ("--max-tokens=many", "--max-tokens 'many': must be a whole number or auto"),
    ],
)
def test_impossible_settings_are_reported(flag, told, data, call, tmp_path):
    assert_refused(call(*train_arguments(data, tmp_path / "run", 20, flag)), 2, told)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_dry_run_describes_the_run_and_leaves_no_files(data, call, tmp_path):
    asked = [*train_arguments(data, tmp_path / "run", 500), "--dry-run"]
    done = call(*asked, "--json")
    assert done.code == 0 and not (tmp_path / "run").exists()
    told = done.json
    assert (told["first"], told["last"], told["pairs"], told["ranks"]) == (1, 500, 300, 1)
    assert told["target_tokens"] == pytest.approx(400, rel=0.2) and told["seconds"] > 0 and told["memory"] > 10**8
    assert told["hours"] == pytest.approx(told["seconds"] * 500 / 3600)
    lines = call(*asked).out.splitlines()
    assert any(line.startswith("the run: updates 1 to 500") for line in lines) and lines[-1] == "nothing was saved"


@pytest.mark.parametrize("seconds_per_token", [1e-4, 0.05, 0.5])
def test_a_dry_run_of_slow_updates_extrapolates_from_partial_passes(
    seconds_per_token, data, call, tmp_path, monkeypatch
):
    """With a simulated clock and memory: an update takes a second, plus time and bytes for each token."""
    passes, steps = [], []

    def simulated(run, update):
        steps.append(sum(batch.cells for batch in update.batches))
        passes.extend(batch.cells for batch in update.batches)
        return make_update(run, update)

    def now():
        return len(steps) + seconds_per_token * sum(steps)

    monkeypatch.setattr(dry_run, "make_update", simulated)
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(monotonic=now))
    monkeypatch.setattr(dry_run.Memory, "watch", lambda _: passes.clear())
    monkeypatch.setattr(dry_run.Memory, "peak", lambda _: 10**9 + 1000 * max(passes, default=0))
    asked = [*train_arguments(data, tmp_path / "run", 500), "--batch-tokens=1000", "--dry-run"]
    told = call(*asked, "--json").json
    prepared = PreparedData(data).train
    planned = list(islice(Loader(plan_of(prepared, 1000, 1), 4096).updates(Position()), 4))
    largest = max(batch.cells for update in planned for batch in update.batches)
    cells = sum(batch.cells for update in planned[1:] for batch in update.batches) / 3
    assert told["seconds"] == pytest.approx(1 + seconds_per_token * cells, rel=0.02)
    of_first_pass = 1 + seconds_per_token * dry_run.FIRST_TOKENS
    if seconds_per_token < 0.01:
        assert told["extrapolated_from"] is None
    else:
        assert 0 < told["extrapolated_from"] < largest
        assert now() <= max(dry_run.MAX_SECONDS + 2 * of_first_pass, (2 + dry_run.PASSES_PER_SIZE) * of_first_pass)
    if of_first_pass < dry_run.MAX_SECONDS:  # otherwise memory is known for only one size
        assert told["memory"] == pytest.approx(10**9 + 1000 * largest)
    steps.clear()
    kind = "measured" if seconds_per_token < 0.01 else "extrapolated"
    assert any(line.startswith(f"{kind}: ") for line in call(*asked).out.splitlines())


def test_the_estimates_of_a_dry_run_match_the_run(trained, data, call, tmp_path):
    """The checkpoint size and FLOPs match the run; for an existing run it reports where that resumes."""
    told = call(*train_arguments(data, trained, 60), "--dry-run", "--json").json
    assert (told["first"], told["last"]) == (41, 60)
    files = trained / "checkpoints" / "update-40"
    on_disk = sum((files / name).stat().st_size for name in ("model.safetensors", "training.safetensors"))
    assert told["checkpoint"] == pytest.approx(on_disk, rel=0.1)
    flops = [record["eflop"] for record in records_of(trained) if "eflop" in record]
    assert told["flops"] == pytest.approx(1e18 * flops[-1] / 40, rel=0.2)
    before = sorted(path.name for path in trained.rglob("*"))
    ended = call(*train_arguments(data, trained, 40), "--dry-run")
    assert "nothing to do, because it ended at update 40" in ended.out
    assert_refused(call(*train_arguments(data, trained, 60), "--dry-run", "--lr=1"), 2, "lr: 0.005 -> 1.0")
    assert sorted(path.name for path in trained.rglob("*")) == before


@pytest.mark.parametrize("asked", ["100000", "auto"])
def test_a_run_that_runs_out_of_memory_continues_with_smaller_batches(asked, tmp_path):
    """A real limit: the process can use only a little more memory than torch has taken.

    With one malloc arena, memory freed by a large trial serves all threads. With one arena per thread, a thread that
    starts later finds nothing for its own data, and the C library ends the process.
    """
    script = f"""
import resource, sys
import torch
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from conftest import write_corpus
from nmt.cli.main import run
import nmt.cli.train, torch._dynamo
folder = Path({str(tmp_path)!r})
write_corpus(folder / "train", 8000, 1)
arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={{folder / 'train'}}", "--subword=none"]
assert run([*arguments, f"--output={{folder / 'data'}}", "--quiet"]) == 0
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 500_000_000,) * 2)
small = ["--encoder-layers=1", "--decoder-layers=1", "--d-model=128", "--d-ff=256", "--heads=2", "--dropout=0"]
sys.exit(run(["train", f"--data={{folder / 'data'}}", f"--output={{folder / 'run'}}", *small, "--batch-tokens=80000",
              "--max-updates=2", "--threads=1", "--matmul=torch", "--max-tokens={asked}"]))
"""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    told = "--max-tokens auto: up to" if asked == "auto" else "out of memory with micro-batches of up to"
    assert told in done.stderr
    found = json.loads((tmp_path / "run/checkpoints/update-2/training.json").read_text())["progress"]["limit"]
    assert found["max_micro_batch_tokens"] < 20_000  # the largest of the plan has more
    assert (found["max_micro_batch_tokens"] == found["max_tokens"]) == (
        asked == "auto"
    )  # a probed limit did not run out


def test_a_run_reports_its_duration_and_faster_presets_after_one_minute(data, call, tmp_path, monkeypatch):
    seen, update = {}, Estimate.update

    def kept(self, run, batches):
        seen.update(run=run, batches=batches)
        update(self, run, batches)

    monkeypatch.setattr(Estimate, "update", kept)
    with monkeypatch.context() as patched:
        patched.setattr("nmt.extensions.watch.reporters.estimate.FIRST_SHARE", 0.0)
        flags = "--max-minutes=10", "--save-every=1u", "--no-quiet"
        early = call(*train_arguments(data, tmp_path / "early", 3), *flags)
    assert "estimate: " in early.err  # the share of --max-minutes has passed
    done = call(*train_arguments(data, tmp_path / "short", 3), "--no-quiet")
    assert "estimate: " not in done.err  # before the first minute
    assert f"saved update-1; to try the model while it trains: nmt translate --model {tmp_path / 'early'}" in early.err
    assert early.err.count("to try the model") == 1 and "last validation on " in early.err
    monkeypatch.setattr("nmt.extensions.watch.reporters.estimate.FIRST_SECONDS", 0.0)
    done = call(*train_arguments(data, tmp_path / "run", 3), "--no-quiet")
    [told] = [line for line in done.err.splitlines() if "estimate: about" in line]
    assert " to update 3, at " in told and "GB at the peak so far" in told
    assert "within a week" not in done.err
    run, batches = seen["run"], seen["batches"]
    run.options = replace(run.options, max_updates=10**9)
    first, second = estimate_lines(run, batches, 0.001)
    assert "about 11.6 days to update 1,000,000,000, at 0.001 s per update" in first
    lengths = torch.from_numpy(batches.source_lengths), torch.from_numpy(batches.target_lengths)
    preset = registry.find_preset("transformer-tiny").values
    pipeline = PreparedData(data).pipeline
    sizes = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
    tiny = registry.build(registry.choose("model", "transformer", preset), sizes)
    updates = preset["max_updates"] * preset["batch_tokens"] / batches.tokens
    hours = 0.001 / 3600 * updates * tiny.training_flops(*lengths) / run.model.training_flops(*lengths)
    assert f"presets would: --preset transformer-tiny (about {hours:.1f} h)" in second
    _, second = estimate_lines(run, batches, 1000.0)
    assert "no preset would either (use fewer --max-updates)" in second

    def refuse(model, *lengths):  # as --min-encoder-layers does for models with fewer layers
        if model is not run.model:
            raise UserError("the model has 2 and 2 layers")
        return 1

    monkeypatch.setattr(run.criterion, "training_flops", refuse)
    _, second = estimate_lines(run, batches, 0.001)
    assert "no preset would either" in second
    run.options = replace(run.options, max_updates=None)
    [only] = estimate_lines(run, batches, 1000.0)
    assert "the run has no end" in only


def test_a_run_that_ends_during_its_warmup_says_so(data, call, tmp_path):
    rises = "the learning rate still rises at the last update, 3"
    assert rises in call(*train_arguments(data, tmp_path / "short", 3), "--no-quiet").err
    epochs = call(
        *train_arguments(data, tmp_path / "epochs", 100), "--max-epochs=1", "--warmup-updates=99", "--no-quiet"
    )
    assert epochs.code == 0 and "still rises" in epochs.err
    ended = call(*train_arguments(data, tmp_path / "run", 3), "--warmup-updates=2", "--no-quiet")
    assert ended.code == 0 and "still rises" not in ended.err


@pytest.mark.parametrize("others", [0.2, 1.4])
def test_a_run_next_to_other_programs_suggests_a_faster_number_of_threads(others, data, call, tmp_path, monkeypatch):
    clock = {"now": 0.0}

    def used() -> tuple[float, float]:  # this process has used two cores since the start, the others part of one
        clock["now"] = time.monotonic()
        return (2 + others) * clock["now"], 2 * clock["now"]

    monkeypatch.setattr("nmt.extensions.watch.reporters.estimate.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("nmt.extensions.watch.reporters.estimate.processor_seconds", used)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    done = call(*train_arguments(data, tmp_path / "run", 3), "--threads=2", "--no-quiet")
    warning = "other programs use 1.4 of this machine's 2 cores, so the 2 threads of this run wait for each other. --threads 1"
    assert (warning in done.err) == (others > 1)


def test_the_processor_time_of_all_programs_includes_this_process():
    before, ends = processor_seconds(), time.process_time() + 0.3
    while time.process_time() < ends:
        pass
    after = processor_seconds()
    if before is None or after is None:
        pytest.skip("this system has no /proc/stat")
    ours = after[1] - before[1]
    assert ours >= 0.3 and after[0] - before[0] >= ours - 0.05  # /proc counts in hundredths of a second
