"""Several processes give the updates and translations of one, resume bit for bit after a loss, and never wait forever."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import (
    ENVIRONMENT,
    NMT,
    SLOW,
    SLOW_UPDATE,
    TINY,
    records_of,
    reseal,
    train_arguments,
    updates_of,
    wait_for,
    write_corpus,
)
from forks import forked_nmt
from ranks import ranks_of
from safetensors.numpy import load_file
from torch.distributed import DistNetworkError, TCPStore

import nmt.cli.launch as launcher
from nmt.artefact import Artefact
from nmt.dist import LAUNCHER, PARENT_SECONDS, World
from nmt.errors import RankFailed, ResourceError
from nmt.locks import Lock
from nmt.signals import Signals
from nmt.train.update import ASK_SECONDS
from nmt.translate.distributed import ranges

DRY = ["--dropout=0"]  # its random draws depend on the rank and the micro-batch


@pytest.mark.parametrize("flag", [False, True])
def test_a_flag_of_one_process_does_not_affect_others(flag):
    assert World().any(flag) is flag


def losses(run: Path) -> list[float]:
    """The loss of each update."""
    return [record["loss"] for record in updates_of(run)]


def start(
    arguments: list[str], devices: int = 2, program: Sequence[str] = (), **environment: str
) -> subprocess.Popen[str]:
    """`nmt train` on several CPU ranks. program: the words that start nmt; by default a fork, with forks as ranks"""
    command = [*(program or [forked_nmt()]), *arguments, f"--devices={devices}", "--device=cpu"]
    own = {**ENVIRONMENT, **environment}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=own, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status and output."""
    try:
        _, told = process.communicate(timeout=200)
        return process.returncode, told
    finally:
        if process.poll() is None:
            for pid in (*ranks_of(process).values(), process.pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory, nmt) -> Path:
    output = tmp_path_factory.mktemp("alone") / "run"
    assert nmt(*train_arguments(data, output, 20, *DRY)).returncode == 0
    return output


@pytest.mark.parametrize(("devices", "engine", "max_tokens"), [(2, "ddp", 4096), (3, "ddp", 40), (3, "fsdp", "auto")])
def test_any_number_of_ranks_makes_the_same_updates(devices, engine, max_tokens, alone, data, tmp_path):
    output = tmp_path / "run"
    asked = [f"--engine={engine}", f"--max-tokens={max_tokens}", *DRY]
    program = NMT if engine == "fsdp" else ()  # not all are forks, which have equal hash seeds
    assert ended(start(train_arguments(data, output, 20, *asked), devices, program)) == (0, "")
    assert losses(output) == pytest.approx(losses(alone), rel=1e-5)
    assert Artefact(output / "checkpoints/update-20", "checkpoint").manifest["ranks"] == devices
    one, other = (records_of(run) for run in (alone, output))
    same = ("update", "epoch", "target_tokens", "eflop", "lr", "valid_bleu")
    assert [[row.get(key) for key in same] for row in one] == [[row.get(key) for key in same] for row in other]
    assert other[-1]["valid_loss"] == pytest.approx(one[-1]["valid_loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("devices", "engine", "average"),
    [(2, "ddp", "--ema=0.9"), (3, "fsdp", "--ema=0.9"), (2, "fsdp", "--optimizer=schedule-free")],
)
def test_several_ranks_average_weights_like_one_and_resume_bit_for_bit(devices, engine, average, data, tmp_path, nmt):
    one, whole, cut = (tmp_path / name for name in ("one", "whole", "cut"))
    flags = (average, "--valid-every=10u", *DRY)
    assert nmt(*train_arguments(data, one, 20, *flags)).returncode == 0
    for run, updates in ((whole, 20), (cut, 10), (cut, 20)):
        arguments = train_arguments(data, run, updates, *flags, f"--engine={engine}")
        assert ended(start(arguments, devices)) == (0, "")
    assert losses(whole) == pytest.approx(losses(one), rel=1e-5)
    measured = [records_of(run)[-1] for run in (one, whole)]
    assert measured[1]["valid_loss"] == pytest.approx(measured[0]["valid_loss"], rel=1e-5)
    averages = [load_file(run / "checkpoints/update-20/model.safetensors") for run in (one, whole)]
    trained = load_file(whole / "checkpoints/update-20/training.safetensors")
    for name, value in averages[0].items():
        np.testing.assert_allclose(averages[1][name], value, rtol=1e-3, atol=1e-4)
        assert not np.array_equal(averages[1][name], trained[f"weights.{name}"])
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (whole / file).read_bytes() == (cut / file).read_bytes()


def test_several_ranks_sample_the_same_subwords_as_one(tmp_path, nmt):
    write_corpus(tmp_path / "train", 300, 1)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={tmp_path / 'train'}", "--subword=bpe"]
    assert nmt(*prepare, "--vocab-size=70", f"--output={tmp_path / 'data'}", "--quiet").returncode == 0
    arguments = ["--subword-sampling=0.2", "--valid-metrics=none", *DRY]
    assert nmt(*train_arguments(tmp_path / "data", tmp_path / "one", 20, *arguments)).returncode == 0
    more = train_arguments(tmp_path / "data", tmp_path / "three", 20, "--max-tokens=60", *arguments)
    assert ended(start(more, 3)) == (0, "")
    assert losses(tmp_path / "three") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    tokens = [[row["target_tokens"] for row in records_of(tmp_path / run)] for run in ("one", "three")]
    assert tokens[0] == tokens[1]


SMALL = """
import os
import torch
from nmt import register
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions

@register("criterion", "small", CrossEntropyOptions)
class Small(CrossEntropy):
    \"\"\"Cross entropy on a device, rank 1's, that holds 40 tokens.\"\"\"
    def __call__(self, model, batch):
        if os.environ["RANK"] == "1" and model.training and batch.target.numel() > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(model, batch)
"""


@pytest.mark.parametrize(
    ("engine", "code", "told"), [("ddp", 0, "out of memory with"), ("fsdp", 5, "while other ranks waited")]
)
def test_running_out_of_memory_on_one_rank_reduces_its_batches_or_ends_all_ranks(
    engine, code, told, alone, data, tmp_path
):
    (tmp_path / "small.py").write_text(SMALL)
    arguments = [*train_arguments(data, tmp_path / "run", 20, *DRY), f"--engine={engine}", "--no-quiet"]
    found, said = ended(start([*arguments, "--criterion=small", f"--plugin={tmp_path / 'small.py'}"]))
    assert (found, told in said, "Traceback" in said) == (code, True, False), said
    if code == 0:
        assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-5)
        state = json.loads((tmp_path / "run/checkpoints/update-20/training.json").read_text())
        assert state["progress"]["limit"]["max_micro_batch_tokens"] <= 60


def test_a_run_that_runs_out_of_memory_continues_with_sharded_weights(alone, data, tmp_path):
    """If ranks split their batches independently, they would make different numbers of passes and wait for each other."""
    first, arguments = (train_arguments(data, tmp_path / "run", end, *DRY, "--timeout=0.5") for end in (10, 20))
    assert ended(start(first))[0] == 0
    checkpoint = tmp_path / "run/checkpoints/update-10"
    state = json.loads((checkpoint / "training.json").read_text())
    state["progress"]["limit"]["max_micro_batch_tokens"] = 40
    reseal(checkpoint, "training.json", json.dumps(state).encode())
    code, told = ended(start([*arguments, "--engine=fsdp"]))
    assert code == 0, told
    assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-5)


HELD = """
import os, time
from collections.abc import Iterator
from pathlib import Path
from nmt import register
from nmt.schedules.inverse_sqrt import InverseSqrt, InverseSqrtOptions

@register("schedule", "held", InverseSqrtOptions)
class Held(InverseSqrt):
    \"\"\"Inverse-sqrt, that waits before update 16, or another, until it may go on.\"\"\"
    def __call__(self, update):
        place = Path(os.environ["PLACE"])
        if update == int(os.environ.get("HELD_AT", "16")) and not (place / "go").exists():
            (place / f"rank-{os.environ['RANK']}").touch()
            end = time.monotonic() + 150
            while not (place / "go").exists() and time.monotonic() < end:
                time.sleep(0.01)
            if os.environ["RANK"] == os.environ.get("RAISES"):
                raise ArithmeticError("on purpose")
        return super().__call__(update)
"""


def held_arguments(data: Path, output: Path, plugin: Path) -> list[str]:
    plugin.write_text(HELD)
    return [*train_arguments(data, output, 20), "--schedule=held", f"--plugin={plugin}"]


def when_held(process: subprocess.Popen[str], place: Path) -> dict[int, int]:
    """Wait until all three ranks wait, and return their process ids."""
    for rank in range(3):
        wait_for((place / f"rank-{rank}").exists, process, 90)
    return ranks_of(process)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> Path:
    """A run on three ranks, with dropout."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "go").touch()
    arguments = held_arguments(data, folder / "run", folder / "held.py")
    assert ended(start(arguments, 3, NMT, PLACE=str(folder))) == (0, "")
    return folder / "run"


FAULTS = (  # each with the update, the exit status and the message; the last two save that update
    ("kill", 16, 5, r"rank 1 \(process \d+\) ended by signal 9"),
    ("stop", 16, 5, "rank [02] timed out waiting for the other ranks: rank 1 does not answer"),
    ("stop the leader", 16, 5, "rank [12] timed out: rank 0, which coordinates all ranks, cannot be reached"),
    ("raise", 16, 2, r"nmt: error: plug-in .*held.py:\d+ failed: ArithmeticError: on purpose"),
    ("term", 16, 143, "stopped by signal 15"),
    ("stop, then term", 18, 143, "stopped by signal 15"),
)


def test_a_lost_rank_is_named_ends_all_and_the_run_resumes_bit_for_bit(undisturbed, data, tmp_path):
    """One run loses a rank in each way."""
    arguments = held_arguments(data, tmp_path / "run", tmp_path / "held.py")
    for fault, update, code, message in FAULTS:
        for name in ("go", "rank-0", "rank-1", "rank-2"):
            (tmp_path / name).unlink(missing_ok=True)
        more = ["--timeout=0.1"] if fault in ("stop", "stop the leader") else ["--no-quiet"] if "term" in fault else []
        settings = {"HELD_AT": str(update), **({"RAISES": "1"} if fault == "raise" else {})}
        process = start([*arguments, *more], 3, PLACE=str(tmp_path), **settings)
        ranks = when_held(process, tmp_path)
        launchers = {int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in ranks.values()}
        assert len(launchers) == 1 and not outside_loopback([*launchers, *ranks.values()])
        if fault == "stop the leader":
            time.sleep(ASK_SECONDS)  # until the others query the leader's store, which no longer answers
        if fault != "raise":
            lost = ranks[0 if fault == "stop the leader" else 1]
            os.kill(lost, {"kill": signal.SIGKILL, "term": signal.SIGTERM}.get(fault, signal.SIGSTOP))
        if fault == "stop, then term":
            process.terminate()
        (tmp_path / "go").touch()
        found, said = ended(process)
        assert (found, bool(re.search(message, said))) == (code, True), said
        assert "Traceback" not in said
        assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]
    assert ended(start(arguments, 3, PLACE=str(tmp_path))) == (0, "")
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (undisturbed / file).read_bytes()


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_a_signal_to_one_rank_abandons_a_long_update_on_all_and_it_is_repeated(engine, data, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_UPDATE)
    slow = ["--model=slow", f"--plugin={tmp_path / 'slow.py'}", "--max-tokens=40", f"--engine={engine}"]
    process = start([*train_arguments(data, tmp_path / "cut", 20), *slow])
    for rank in range(2):
        wait_for((tmp_path / f"slow-{rank}").exists, process, 120)
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    code, told = ended(process)
    assert code == 143, told
    assert "after update 12, which is saved; update 13 was abandoned" in (tmp_path / "cut/train.log").read_text()
    (tmp_path / "go").touch()
    for name in ("cut", "whole"):
        assert ended(start([*train_arguments(data, tmp_path / name, 20), *slow])) == (0, "")
    for file in ("metrics.jsonl", "checkpoints/update-20/model.safetensors"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_signal_to_one_rank_during_validation_ends_all_and_the_validation_runs_after_resuming(data, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    asked = ["--valid-every=10u", "--valid-batch-tokens=1", f"--plugin={tmp_path / 'slow.py'}", "--decoder=slow"]
    process = start([*train_arguments(data, tmp_path / "cut", 20), *asked])
    wait_for((tmp_path / "validating").exists, process, 120)
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    assert ended(process)[0] == 143
    assert [path.name for path in (tmp_path / "cut/checkpoints").glob("update-*")] == ["update-10"]
    (tmp_path / "go").touch()
    for name in ("cut", "whole"):
        assert ended(start([*train_arguments(data, tmp_path / name, 20), *asked])) == (0, "")
    one, other = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("cut", "whole"))
    assert one == other and one.count(b"valid_bleu") == 2


WRONG = """
import os
from nmt import register
from nmt.criteria.cross_entropy import CrossEntropy, CrossEntropyOptions
from nmt.metrics.base import Metric, Score
from nmt.metrics.ter import TerOptions

def fail():
    if os.environ["RANK"] == os.environ["PLACE"]:
        raise ArithmeticError("on purpose")

@register("metric", "wrong", TerOptions)
class Wrong(Metric):
    def __call__(self, hypotheses, references, sources=None):
        fail()
        return Score(1.0, "wrong")

@register("criterion", "wrong", CrossEntropyOptions)
class WrongCriterion(CrossEntropy):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.run = context

    def __call__(self, model, batch):
        if not model.training and self.run.update:
            fail()
        return super().__call__(model, batch)
"""


@pytest.mark.parametrize(
    ("engine", "rank", "part"), [("ddp", "1", "--criterion=wrong"), ("fsdp", "0", "--valid-metrics=wrong")]
)
def test_an_error_of_one_rank_during_validation_saves_first_and_the_validation_runs_after_resuming(
    engine, rank, part, data, tmp_path
):
    """Only the leader can have an error in a metric, since the others do not compute it."""
    (tmp_path / "wrong.py").write_text(WRONG)
    small = "--max-tokens=64"  # so that each rank has a batch of the validation set
    flags = ["--valid-every=10u", f"--plugin={tmp_path / 'wrong.py'}", part, f"--engine={engine}", small]
    code, message = ended(start([*train_arguments(data, tmp_path / "cut", 20), *flags], PLACE=rank))
    assert (code, message.count("nmt: error: plug-in"), message.count("nmt: error")) == (2, 1, 1), message
    assert "failed: ArithmeticError: on purpose" in message
    assert [path.name for path in (tmp_path / "cut/checkpoints").glob("update-*")] == ["update-10"]
    for name in ("cut", "whole"):
        assert ended(start([*train_arguments(data, tmp_path / name, 20), *flags], PLACE="none")) == (0, "")
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("cut", "whole")]
    assert metrics[0] == metrics[1] and metrics[0].count(b"valid_loss") == 2


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        *(([0, 0, 0], 0), ([0, -15, 0], 0), ([5, 2, 5], 2), ([-15, 2, -15], 2), ([5, 143, 5], 143)),
        *(([-15, -15, -15], 143), ([-15, -1, -15], 129), ([-15, 130, -15], 130)),  # before they could check for signals
        *(([5, -9, -15], "rank 1 .* by signal 9"), ([0, 0, 9], "rank 2 .* with exit status 9")),
    ],
)
def test_if_ranks_end_together_the_cause_is_reported(codes, wanted):
    if isinstance(wanted, int):
        assert launcher._exit_code(codes, [1, 2, 3], None, "go on") == wanted
    else:
        with pytest.raises(ResourceError, match=wanted):
            launcher._exit_code(codes, [1, 2, 3], None, "go on")


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        ([143, 143], 143),
        ([143, -15], 143),
        ([-15, -15], 143),
        ([5, 143], 5),
        ([143, 5], 143),
        ([0, 0], 0),
        ([0, -11], None),
    ],
)
def test_after_a_signal_the_exit_status_is_that_of_the_signal_unless_a_rank_failed(codes, wanted):
    if wanted is not None:
        assert launcher._exit_code(codes, [1, 2], signal.SIGTERM, "go on") == wanted
    else:
        with pytest.raises(ResourceError, match=r"rank 1 .* by signal 11"):
            launcher._exit_code(codes, [1, 2], signal.SIGTERM, "go on")


SAVES = "import signal, time; signal.signal(signal.SIGTERM, {}); print(flush=True); {}"


def test_ranks_share_the_threads_without_a_setting(data, tmp_path, nmt):
    arguments = [word for word in train_arguments(data, tmp_path / "run", 1) if not word.startswith("--threads")]
    done = nmt(*arguments, "--devices=2", "--device=cpu", env={"OMP_NUM_THREADS": "4"})
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((tmp_path / "run/settings.toml").read_text())["threads"] == "none"
    assert launcher._variables_of_each(2, "cpu", 3) == {}
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    assert launcher._variables_of_each(2, "cpu", None) == {"OMP_NUM_THREADS": "2"}
    torch.set_num_threads(threads)


@pytest.mark.parametrize("code", [2, 4, 5])
def test_a_leader_that_ends_cleanly_does_not_hide_the_exit_status_of_a_failed_rank(code):
    leader = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(143))\nprint('up', flush=True)\ntime.sleep(60)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", leader], stdout=subprocess.PIPE)]
    with processes[0].stdout as started:
        assert started.readline() == b"up\n"
    processes.append(subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]))
    codes = launcher._wait(processes)
    assert codes == [-signal.SIGTERM, code]
    assert launcher._exit_code(codes, [1, 2], None, "go on") == code


@pytest.mark.parametrize(
    ("leader", "other", "handler", "wanted"),
    [
        ("time.sleep(3); exit(143)", "exit(143)", "lambda *_: None", [143, 143]),  # a checkpoint is being written
        ("time.sleep(3); exit(5)", "exit(1)", "lambda *_: None", [5, 1]),
        ("exit(5)", "time.sleep(60)", "lambda *_: None", [5, -signal.SIGTERM]),
        ("exit(0)", "time.sleep(0.3)", "signal.SIG_DFL", [0, 0]),
        ("exit(0)", "time.sleep(60)", "signal.SIG_DFL", [0, -signal.SIGTERM]),
        (
            "time.sleep(60)",
            "exit(130)",
            "signal.SIG_DFL",
            [-signal.SIGTERM, 130],
        ),  # the leader waits for the others to join
    ],
)
def test_the_launcher_waits_for_a_saving_leader_and_ends_other_ranks(leader, other, handler, wanted, monkeypatch):
    monkeypatch.setattr(launcher, "GRACE_SECONDS", 2.0)
    commands = ([sys.executable, "-c", SAVES.format(handler, work)] for work in (leader, other))
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    for process in ranks:
        with process.stdout:
            process.stdout.readline()
    assert launcher._wait(ranks) == wanted


def test_ranks_that_missed_a_signal_get_another(monkeypatch):
    monkeypatch.setattr(launcher, "RESEND_SECONDS", 0.5)
    ignores = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    rank = subprocess.Popen([sys.executable, "-c", ignores], stdout=subprocess.PIPE)
    with rank.stdout:
        rank.stdout.readline()
    with Signals(None):
        os.kill(os.getpid(), signal.SIGINT)
        assert launcher._wait([rank]) == [-signal.SIGTERM]


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("Connection closed by peer [127.0.0.1]:29500", RankFailed),
        ("Connection reset by peer", RankFailed),
        ("writev [127.0.0.1]:29500: Broken pipe", RankFailed),
        ("wait timeout after 6000ms, keys: left/0", ResourceError),
    ],
)
def test_a_leader_that_ended_is_not_reported_again_but_an_unresponsive_one_is(message, wanted, monkeypatch):
    """The message is that of a lost connection; the leader's store is gone."""
    world = World(rank=1, size=2)  # never joined, so there is no store to query
    monkeypatch.delenv(LAUNCHER, raising=False)
    assert type(world._ended(DistNetworkError(message))) is wanted


STORE = """
import time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
store.set("job/1", "text")
print(store.port, flush=True)
time.sleep(60)
"""


def test_requests_to_an_unresponsive_store_time_out(monkeypatch):
    monkeypatch.setattr("nmt.dist.ANSWER_SECONDS", 0.5)
    with subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True) as process:
        try:
            world = World(rank=1, size=2)
            world._store, world._seconds = TCPStore("127.0.0.1", int(process.stdout.readline())), 60.0
            assert world.fetch("job/1", 0.1) == b"text" and world.fetch("job/1", 0.1) is None
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # all its threads have stopped
            began, world._seconds = time.monotonic(), 0.3
            for question in (lambda: world.posted("stop"), lambda: world.fetch("job/1", 0.1)):
                with pytest.raises(ResourceError, match=r"rank 1 timed out: rank 0, .*, cannot be reached") as told:
                    question()
            assert world._ended(told.value) is told.value and "cannot be reached" in str(world._missing("timed out"))
            assert time.monotonic() < began + 20
        finally:
            process.kill()


WAITER = """
import sys, threading, time
from nmt.dist import _within
print(flush=True)
_within(1.5, threading.Event().wait if sys.argv[1] == "never" else lambda: time.sleep(1))
"""


def test_the_timeout_excludes_time_in_which_the_process_is_stopped():
    codes = []
    for answer in ("once", "never"):
        with subprocess.Popen(
            [sys.executable, "-c", WAITER, answer], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            process.send_signal(signal.SIGCONT)
            codes.append((process.wait(30), b"TimeoutError" in process.stderr.read()))
    assert codes == [(0, False), (1, True)]


def test_ranks_save_and_end_after_their_launcher_is_killed_even_a_stopped_leader(undisturbed, data, tmp_path):
    arguments = held_arguments(data, tmp_path / "run", tmp_path / "held.py")
    process = start(arguments, 3, PLACE=str(tmp_path))
    ranks = when_held(process, tmp_path)
    os.kill(ranks[0], signal.SIGSTOP)  # the leader holds the lock of the run
    process.kill()
    time.sleep(4 * PARENT_SECONDS)  # until the ranks have noticed it: the other updates take less time
    (tmp_path / "go").touch()
    process.communicate(timeout=100)  # until no rank holds its stderr
    wait_for_end(ranks.values())
    assert "stopped by signal 15" in (tmp_path / "run/train.log").read_text()
    assert ended(start(arguments, 3, PLACE=str(tmp_path))) == (0, "")
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


def test_an_error_of_all_ranks_is_reported_once(undisturbed, data, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    ignoring = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]  # a parent that ignores how its children end
    code, told = ended(start([*train_arguments(data, tmp_path / "run", 40), "--lr=0.5"], program=[*ignoring, *NMT]))
    assert (code, told.count("\n")) == (2, 1) and "lr: 0.005 -> 0.5" in told
    code, told = ended(start(train_arguments(tmp_path / "none", tmp_path / "other", 40)))
    assert (code, told.count("\n")) == (4, 1) and "none" in told


def test_an_error_during_interpreter_shutdown_does_not_fail_a_rank(data, tmp_path):
    (tmp_path / "plug.py").write_text("import atexit, os\nif 'RANK' in os.environ:\n    atexit.register(os.abort)\n")
    arguments = [*train_arguments(data, tmp_path / "run", 10), f"--plugin={tmp_path / 'plug.py'}"]
    assert ended(start(arguments, program=NMT)) == (0, "")
    code, told = ended(start([*arguments, "--lr=0.5"], program=NMT))
    assert (code, told.count("\n")) == (2, 1)


def outside_loopback(pids: list[int]) -> list[str]:
    """The addresses other than loopback on which processes listen."""
    sockets = {str(fd.readlink()) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    assert listening, "the ranks meet somewhere"
    return [
        address
        for address in listening
        if not address.startswith(("0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"))
    ]


def test_a_checkpoint_of_several_ranks_resumes_on_one(alone, data, tmp_path):
    output = tmp_path / "run"
    assert ended(start(train_arguments(data, output, 10, *DRY)))[0] == 0
    assert subprocess.run([forked_nmt(), *train_arguments(data, output, 20, *DRY)], env=ENVIRONMENT).returncode == 0
    assert losses(output) == pytest.approx(losses(alone), rel=1e-5)


def test_a_locked_run_is_status_6_for_all_ranks_and_reported_once(data, tmp_path):
    with Lock(tmp_path / "run"):
        code, told = ended(start(train_arguments(data, tmp_path / "run", 10)))
    assert (code, told.count("\n")) == (6, 1) and "in use" in told


LINES = [
    "ba de ki",
    "",
    "lo lo mu ran",
    "des \xff",
    "ban " * 400,
    *[f"{word} ki" * (i % 5) for i, word in enumerate("abcdef")],
]


def translating(trained: Path, devices: int, *more: str) -> list[str]:
    return ["translate", f"--model={trained}", "--max-source-length=50", f"--devices={devices}", "--threads=1", *more]


def test_translations_by_several_ranks_equal_those_of_one_in_the_same_order(trained, nmt):
    given = "\n".join(LINES).encode("latin-1")
    asked = ["--buffer-size=5", "--n-best=2"]
    alone, shared = (nmt(*translating(trained, devices, *asked), input=given) for devices in (1, 3))
    assert alone.returncode == shared.returncode == 0, shared.stderr
    texts = [
        [line.split(b" ||| ")[:2] for line in done.stdout.splitlines()] for done in (alone, shared)
    ]  # a probability's last digits depend on the batch
    assert texts[0] == texts[1] and len(texts[0]) > len(LINES)
    for told in (
        b"stdin:4:5: not UTF-8",
        b"stdin:5: truncated to 50 tokens",
        b"lines: 1 not UTF-8, 1 truncated, 7 with unknown tokens\n",
    ):
        assert alone.stderr.count(told) == shared.stderr.count(told) == 1


def test_several_ranks_answer_typed_lines_and_a_signal_ends_all(trained):
    command = [*NMT, *translating(trained, 2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        process.stdin.write(b"ban ki\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
        ranks = ranks_of(process)
        process.terminate()
        assert process.wait(60) == 143
        wait_for_end(ranks.values())


def test_a_closed_output_and_bad_input_end_all_ranks_quietly(trained, nmt, tmp_path):
    shell = f"yes ban ki | {shlex.join([*NMT, *translating(trained, 2)])} | head -n 2; echo ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, env=ENVIRONMENT, timeout=200)
    assert done.stdout.endswith(b"141\n") and b"rror" not in done.stderr
    done = nmt(*translating(trained, 2, "--strict"), input=b"ban\n\xff\n")
    assert done.returncode == 3 and done.stderr.count(b"error") == 1 and done.stdout.count(b"\n") == 1
    done = nmt(*translating(tmp_path / "none", 2), input=b"ban\n")
    # Torch may add a message about the closed connection, which contains the word too.
    assert done.returncode == 4 and done.stderr.count(b"nmt: error") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_lost_while_translating_is_named(number, trained):
    command = [forked_nmt(), *translating(trained, 2, "--timeout=0.1", "--device=cpu")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    process.stdin.write(b"ban ki\n")
    process.stdin.flush()
    assert process.stdout.readline()
    ranks = ranks_of(process)
    os.kill(ranks[1], number)
    _, told = process.communicate(b"ban\n", timeout=100)
    assert process.returncode == 5 and b"rank 1" in told and b"Traceback" not in told
    wait_for_end(ranks.values())


def wait_for_end(pids) -> None:
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("sizes", "ranks"), [([], 3), ([5], 2), ([1, 1, 1, 9], 2), ([3] * 10, 4), ([9, 1, 1], 3)])
def test_lines_are_shared_out_completely_and_evenly(sizes, ranks):
    shares = ranges(sizes, ranks)
    assert [i for start, end in shares for i in range(start, end)] == list(range(len(sizes)))
    assert len(shares) == ranks
    heaviest = max((sum(sizes[start:end]) for start, end in shares), default=0)
    assert heaviest <= sum(sizes) / ranks + max(sizes, default=0)


@pytest.fixture
def two_machines() -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Functions that run a command on either of two connected machines, 10.77.0.1 and .2, and that cut the connection."""
    names = [f"nmt{os.getpid()}{letter}" for letter in "ab"]
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs network namespaces")
    steps = [
        *(["netns", "add", name] for name in names),
        ["link", "add", "cable-a", "netns", names[0], "type", "veth", "peer", "name", "cable-b", "netns", names[1]],
    ]
    for number, (name, end) in enumerate(zip(names, ("cable-a", "cable-b"), strict=True), 1):
        steps += [
            ["-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", end],
            ["-n", name, "link", "set", "lo", "up"],
        ]
        steps += [["-n", name, "link", "set", end, "up"]]
    try:
        if any(subprocess.run(["ip", *step], stderr=subprocess.DEVNULL).returncode for step in steps):
            pytest.skip("network namespaces cannot be made here")
        one, two = (["ip", "netns", "exec", name] for name in names)
        yield one, two, ["ip", "-n", names[1], "link", "set", "cable-b", "down"]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def test_a_broken_connection_between_two_machines_ends_both_within_the_timeout(two_machines, data, tmp_path):
    *machines, cut = two_machines
    arguments = [*held_arguments(data, tmp_path / "run", tmp_path / "held.py"), "--timeout=0.1"]
    processes = []
    for rank, machine in enumerate(machines):
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": "29400",
        }
        own |= {"PLACE": str(tmp_path), "GLOO_SOCKET_IFNAME": f"cable-{'ab'[rank]}"}
        command = [*machine, *NMT, *arguments]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **own}))
    for rank, process in enumerate(processes):
        wait_for((tmp_path / f"rank-{rank}").exists, process, 90)
    subprocess.run(cut, check=True)
    (tmp_path / "go").touch()
    (code, told), (other_code, other_told) = map(ended, processes)
    assert code == other_code == 5, told + other_told
    assert "rank 0 timed out waiting for the other ranks: rank 1 does not answer" in told
    assert "rank 1 timed out: rank 0, which coordinates all ranks, cannot be reached" in other_told
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("update-*")] == ["update-10"]


EXPERTS = {  # without random draws by dropout or the gates
    "transformer": ["--ffn=moe", "--expert-every=1", "--gates=balanced", *TINY],
    "moe": ["--model=moe", "--d-model=16", "--hidden-size=24", "--attention-size=16", "--expert-size=20", *TINY[6:]],
}


@pytest.mark.parametrize("model", EXPERTS)
def test_experts_sharded_over_ranks_make_the_same_updates_as_unsharded_ones(model, data, tmp_path):
    for engine in ("ddp", "fsdp"):
        arguments = [a for a in train_arguments(data, tmp_path / engine, 10, *DRY) if a not in TINY]
        assert ended(start([*arguments, *EXPERTS[model], *DRY, "--experts=4", f"--engine={engine}"])) == (0, "")
    assert losses(tmp_path / "fsdp") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)


ARCHITECTURES = [
    ["--tie-layers=all", "--encoder-layers=2", "--norm=rms", "--ffn=glu", "--positions=rotary", "--kv-heads=1"],
    ["--decoder-autoregression=average-attention", "--optimizer=muon"],
]


@pytest.mark.parametrize("flags", ARCHITECTURES)
def test_several_ranks_train_each_architecture_like_one_process(flags, data, tmp_path, nmt):
    arguments = train_arguments(data, tmp_path / "one", 10, *DRY, *flags)
    assert nmt(*arguments).returncode == 0
    for engine in ("ddp",) if "--optimizer=muon" in flags else ("ddp", "fsdp"):
        run = tmp_path / engine
        assert ended(start(train_arguments(data, run, 10, *DRY, *flags, f"--engine={engine}"))) == (0, "")
        assert losses(run) == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_muon_is_rejected_with_sharded_matrices(data, tmp_path):
    code, told = ended(start(train_arguments(data, tmp_path / "run", 10, "--optimizer=muon", "--engine=fsdp")))
    assert code == 2 and "--optimizer muon and --engine fsdp" in told


def test_experts_that_ranks_cannot_share_evenly_are_rejected_with_advice(data, tmp_path):
    arguments = train_arguments(data, tmp_path / "run", 10, "--ffn=moe", "--experts=5", "--expert-every=1")
    code, told = ended(start([*arguments, "--engine=fsdp"]))
    assert (code, told.count("\n")) == (2, 1)
    assert "--experts 5: 2 ranks cannot share them evenly (use a multiple of 2" in told
