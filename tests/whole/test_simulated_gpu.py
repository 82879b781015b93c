"""Training and translation on simulated GPUs give the results of the CPU, and wait for the device only where expected."""

import contextlib
import functools
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ENVIRONMENT, TINY, reseal, updates_of
from refusals import assert_refused
from small_models import SMALL

from nmt import registry
from nmt.cli import main

RUN = Path(__file__).parents[1] / "simulated/run.py"
PERIODS = (
    "--save-every=1u",
    "--valid-every=3u",
    "--log-every=1u",
    "--quiet",
    "--valid-metrics=none",
    "--no-valid-bleu",
)
SETTINGS = ("--batch-tokens=300", "--schedule=constant", "--lr=0.001", "--threads=1", "--matmul=torch")
TRANSFORMER = (
    "--model=transformer",
    *(f"--{name.replace('_', '-')}={value}" for name, value in SMALL["transformer"].items()),
)
MODELS = registry.names("model")
WAITS_FOR_STEPS = {"adafactor"}  # torch's implementation reads numbers of each weight
RANKS_MATTER = {"moe"}  # its balanced gates distribute the tokens of a rank
BY_DDP = {"gnmt", "moe", "transformer"}  # it wraps all models in the same way, and each takes some seconds
WAITS_FOR_ROUTES = {"moe"}  # the CPU must know how many tokens each expert gets


@contextlib.contextmanager
def simulation(ranks):
    """A function that runs a command in processes with one simulated GPU per rank, and returns rank 0's result."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the device guard with")
    torchrun = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(RUN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ENVIRONMENT, **torchrun, "RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else ENVIRONMENT,
            text=True,
        )
        for rank in range(ranks)
    ]

    def call(*arguments, **given):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        command = {"arguments": [str(argument) for argument in arguments], "port": port, **given}
        for process in processes:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        limits = [threading.Timer(240, process.kill) for process in processes]
        for limit in limits:
            limit.start()
        lines = [process.stdout.readline() for process in processes]
        for limit in limits:
            limit.cancel()
        assert all(lines), f"a process ended: {[process.wait(30) for process in processes]}"
        results = [json.loads(line) for line in lines]
        assert {result["code"] for result in results} == {results[0]["code"]}, [result["err"] for result in results]
        return SimpleNamespace(**results[0])

    yield call
    for process in processes:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@pytest.fixture(scope="module")
def gpu():
    """`gpu(arguments)` runs a command in a process with simulated GPUs."""
    with simulation(1) as call:
        yield call


@pytest.fixture(scope="module")
def two_gpus():
    """`two_gpus(arguments)` runs a command on two ranks, each with its own simulated GPU."""
    with simulation(2) as call:
        yield call


@pytest.fixture(scope="module")
def data_of(data, tmp_path_factory):
    """`data_of(model)`: prepared data with words, or characters for a model that reads them."""
    characters = tmp_path_factory.mktemp("characters") / "data"
    sets = [f"--{name}={data.parent / file}" for name, file in (("train", "train"), ("valid", "dev"))]
    settings = ["--source-lang=en", "--target-lang=de", "--subword=char", "--quiet", f"--output={characters}"]
    assert main.run(["prepare", *sets, *settings]) == 0
    return lambda model: characters if registry.find("model", model).cls.reads_characters else data


def flags(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def train(gpu, data, run, updates, device, *more):
    arguments = [f"--data={data}", f"--output={run}", f"--max-updates={updates}", f"--device={device}"]
    found = gpu("train", *arguments, *SETTINGS, *PERIODS, *more)
    assert found.code == 0, found.err
    return found


def assert_trained_alike(gpu, data, tmp_path, *more, rel=1e-4):
    """Train 3 updates on the CPU and, in two parts, on a GPU; compare all numbers. Returns the result of the last part."""
    train(gpu, data, tmp_path / "cpu", 3, "cpu", *more)
    return assert_goes_as(tmp_path / "cpu", gpu, data, tmp_path / "cuda", *more, rel=rel)


def assert_goes_as(run, gpu, data, output, *more, rel=1e-4):
    """Train 3 updates on GPUs in two parts, and compare all numbers with a run. Returns the result of the last part."""
    train(gpu, data, output, 1, "cuda", *more)
    found = train(gpu, data, output, 3, "cuda", *more)
    ours, wanted = (updates_of(folder) for folder in (output, run))
    assert [record["update"] for record in ours] == [1, 2, 3]
    for one, other in zip(ours, wanted, strict=True):
        for name in ("loss", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=rel, abs=1e-5), (one["update"], name)
    assert len(found.per_update) == 2
    return found


@pytest.fixture(scope="module")
def on_the_cpu(gpu, data_of, tmp_path_factory):
    """`on_the_cpu(model)`: the flags of a model, and a run of 3 updates with them on the CPU. Each is trained once."""

    @functools.cache
    def run_of(model):
        no_dropout = () if model == "memory-network" else ("--dropout=0",)
        alike = ("--max-tokens=90",) if model == "moe" else ()  # its balance depends on the pairs in a micro-batch
        asked = (f"--model={model}", *flags(SMALL.get(model, {})), *no_dropout, *alike)
        output = tmp_path_factory.mktemp("cpu")
        train(gpu, data_of(model), output / "run", 3, "cpu", *asked)
        return asked, output / "run"

    return run_of


@pytest.mark.parametrize("model", MODELS)
def test_each_model_trains_as_on_the_cpu_and_waits_once_per_update(model, gpu, on_the_cpu, data_of, tmp_path):
    asked, run = on_the_cpu(model)
    found = assert_goes_as(run, gpu, data_of(model), tmp_path / "cuda", *asked)
    for waits in found.per_update:
        assert sum(waits.values()) == 1 or model in WAITS_FOR_ROUTES, waits


CAPTURED = sorted({"bytenet", "convs2s", "deep-att", "gnmt", "language-model", "rnnsearch", "transformer"})
REPEATED = ("--batch-tokens=60", "--log-every=1u")  # sizes recur, so that graphs are replayed


VARIANTS = {  # of the transformer
    "cut": ["--max-tokens=20"],
    "relative": ["--positions=relative", "--attention-window=3"],
    "rotary": ["--positions=rotary", "--kv-heads=1", "--norm-position=pre", "--norm=rms"],
    "ssru": ["--decoder-autoregression=ssru", "--ffn=glu"],
    "average": ["--decoder-autoregression=average-attention", "--tie-layers=all"],
    "frozen": ["--freeze=encoder.*", "--ema=0.9"],
}
CASES = [
    *((model, more) for model in CAPTURED for more in ([], ["--criterion=r-drop", "--source-word-dropout=0.1"])),
    *(("transformer", more) for more in VARIANTS.values()),
]


@pytest.mark.parametrize(
    ("model", "more"), CASES, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_captured_passes_train_like_eager_ones(model, more, gpu, on_the_cpu, data_of, tmp_path):
    asked = *on_the_cpu(model)[0], *more, *(["--clip-end=none"] if model == "gnmt" else []), "--clip-norm=1"
    train(gpu, data_of(model), tmp_path / "plain", 16, "cuda", *asked, *REPEATED)
    train(gpu, data_of(model), tmp_path / "captured", 4, "cuda", *asked, *REPEATED, "--capture")
    found = train(gpu, data_of(model), tmp_path / "captured", 16, "cuda", *asked, *REPEATED, "--capture")
    ours, wanted = (updates_of(tmp_path / name) for name in ("captured", "plain"))
    assert found.operations["graph replay"] >= 2
    for one, other in zip(ours, wanted, strict=True):
        for name in ("loss", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), (one["update"], name)


@pytest.mark.parametrize(
    "more", [["--model=language-model", "--ffn=moe"], ["--model=moe"], ["--criterion=unlikelihood"]]
)
def test_data_dependent_operations_are_not_captured(more, gpu, data, tmp_path):
    arguments = [f"--data={data}", f"--output={tmp_path / 'run'}", "--max-updates=3", "--device=cuda", "--capture"]
    assert_refused(gpu("train", *arguments, *SETTINGS, *PERIODS, *more), 2, more[0].replace("=", " "), "--capture")


@pytest.mark.parametrize("model", MODELS)
def test_each_model_trains_on_two_gpus_as_on_the_cpu(model, two_gpus, on_the_cpu, data_of, tmp_path):
    asked, run = on_the_cpu(model)
    asked = (*asked, "--timeout=1")
    if model in RANKS_MATTER:
        run = tmp_path / "cpu"
        train(two_gpus, data_of(model), run, 3, "cpu", *asked)
    for engine in ("ddp", "fsdp") if model in BY_DDP else ("fsdp",):
        found = assert_goes_as(run, two_gpus, data_of(model), tmp_path / engine, *asked, f"--engine={engine}")
        # DDP orders its buckets in the first update.
        assert sum(found.per_update[-1].values()) == 1 or model in WAITS_FOR_ROUTES, found.per_update


@pytest.mark.parametrize("optimizer", registry.names("optimizer"))
def test_each_optimizer_trains_as_on_the_cpu(optimizer, gpu, data, tmp_path):
    found = assert_trained_alike(
        gpu, data, tmp_path, *TRANSFORMER, "--dropout=0", f"--optimizer={optimizer}", "--clip-norm=1", rel=1e-3
    )
    waits = found.per_update[-1]  # the first update of a process may read the loaded state
    assert sum(waits.values()) == 1 or optimizer in WAITS_FOR_STEPS, waits


def test_the_reward_criterion_trains_as_on_the_cpu(gpu, data, trained, tmp_path):
    more = (
        f"--init-from={trained}",
        "--criterion=reward",
        "--criterion.decoder.n-best=3",
        "--criterion.decoder.max-len-b=2",
    )
    model = ("--model=transformer", *(flag for flag in TINY if "layers" in flag or "d-" in flag or "heads" in flag))
    assert_trained_alike(gpu, data, tmp_path, *model, *more, "--dropout=0")


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
def test_each_precision_trains(precision, gpu, data, tmp_path):
    train(gpu, data, tmp_path / "fp32", 3, "cuda", *TRANSFORMER, "--dropout=0")
    found = train(gpu, data, tmp_path / "run", 3, "cuda", *TRANSFORMER, "--dropout=0", f"--precision={precision}")
    ours, wanted = ([one["loss"] for one in updates_of(tmp_path / run)] for run in ("run", "fp32"))
    assert ours == pytest.approx(wanted, rel=0.02) and (ours != wanted or precision == "tf32")
    for waits in found.per_update:
        assert sum(waits.values()) == 1, waits


def test_an_overflow_of_fp16_skips_the_update_and_halves_the_scale(gpu, data, tmp_path):
    more = (*TRANSFORMER, "--dropout=0", "--precision=fp16")
    train(gpu, data, tmp_path / "run", 2, "cuda", *more)
    checkpoint = tmp_path / "run/checkpoints/update-2"
    state = json.loads((checkpoint / "training.json").read_bytes())
    state["progress"]["scale"]["factor"] = 2.0**24
    reseal(checkpoint, "training.json", json.dumps(state).encode())
    train(gpu, data, tmp_path / "run", 4, "cuda", *more)
    after = json.loads((tmp_path / "run/checkpoints/update-4/training.json").read_bytes())["progress"]
    assert (after["scale"], after["skipped"]) == ({"factor": 2.0**22, "good": 0}, 2)


def test_running_out_of_memory_reduces_the_micro_batches(gpu, data, tmp_path):
    more = (*TRANSFORMER, "--dropout=0", "--batch-tokens=3000")
    train(gpu, data, tmp_path / "whole", 3, "cuda", *more)
    arguments = [f"--data={data}", f"--output={tmp_path / 'cut'}", "--max-updates=3", "--device=cuda"]
    cut = gpu("train", *arguments, *SETTINGS, *PERIODS, *more, memory_limit=4_000_000)
    assert cut.code == 0, cut.err
    assert "out of memory with micro-batches of up to" in (tmp_path / "cut/train.log").read_text()
    ours, wanted = ([one["loss"] for one in updates_of(tmp_path / run)] for run in ("cut", "whole"))
    assert ours == pytest.approx(wanted, rel=1e-4)
    automatic = gpu("train", *arguments[:1], f"--output={tmp_path / 'auto'}", *arguments[2:], *SETTINGS, *PERIODS, *more,
                    "--max-tokens=auto", memory_limit=12_000_000)  # fmt: skip
    assert automatic.code == 0, automatic.err
    assert "--max-tokens auto: up to" in (tmp_path / "auto/train.log").read_text()
    none = gpu("train", *arguments[:1], f"--output={tmp_path / 'none'}", *arguments[2:], *SETTINGS, *PERIODS, *more,
               memory_limit=100_000)  # fmt: skip
    assert_refused(none, 5, "out of memory")


@pytest.fixture(scope="module")
def text(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    lines = [line for line in (data.parent / "dev.en").read_text().splitlines() if line.strip()][:8]
    path.write_text("".join(f"{line}\n" for line in [*lines, "", lines[0]]))
    return path


NUMBER = re.compile(r"-?\d+\.\d+")
SEARCHES = [
    *([f"--decoder={name}"] for name in registry.names("decoder")),
    ["--n-best=3", "--alignment=hard", "--coverage-penalty=0.2", "--prune=3"],
    ["--decoder=sampling", "--n-best=3", "--top-k=5", "--temperature=0.7"],
    ["--decoder=greedy", "--precision=bf16"],
    ["--replicas=2", "--batch-tokens=40"],
    ["--replicas=2", "--batch-tokens=40", "--decoder=greedy"],
]


def assert_same_text(ours, wanted):
    """Compare texts; numbers can differ in their last digits."""
    assert NUMBER.sub("", ours) == NUMBER.sub("", wanted)
    assert list(map(float, NUMBER.findall(ours))) == pytest.approx(list(map(float, NUMBER.findall(wanted))), abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES, ids=" ".join)
def test_each_search_translates_as_on_the_cpu(search, gpu, trained, text, tmp_path):
    found = {}
    for device in ("cpu", "cuda"):
        arguments = [
            f"--model={trained}",
            f"--input={text}",
            f"--device={device}",
            "--quiet",
            "--threads=1",
        ]
        found[device] = gpu("translate", *arguments, f"--output={tmp_path / device}", *search)
        assert found[device].code == 0, found[device].err
    assert_same_text(*((tmp_path / device).read_text() for device in ("cuda", "cpu")))
    steps = found["cuda"].per_step
    if search[0] in ("--decoder=beam", "--decoder=greedy", "--decoder=sampling") and len(search) == 1:
        assert steps and max(sum(waits.values()) for waits in steps) <= 1, steps


@pytest.mark.parametrize("search", [[], ["--replicas=2"], ["--decoder=sampling", "--n-best=3"], ["--precision=bf16"]])
def test_captured_steps_translate_like_eager_ones(search, gpu, trained, text, tmp_path):
    more = tmp_path / "lines.txt"
    more.write_text(8 * text.read_text())
    found = {}
    for name, capture in (("plain", []), ("captured", ["--capture"])):
        arguments = [
            f"--model={trained}",
            f"--input={more}",
            "--device=cuda",
            "--quiet",
            "--threads=1",
            "--batch-tokens=40",
        ]
        found[name] = gpu("translate", *arguments, f"--output={tmp_path / name}", *search, *capture)
        assert found[name].code == 0, found[name].err
    assert_same_text(*((tmp_path / name).read_text() for name in found))
    assert found["captured"].operations["graph replay"] >= 10
    for waits in found["captured"].per_step if "--replicas=2" not in search else []:
        assert sum(waits.values()) <= 1 + 2 * waits.get("capture", 0), waits


def test_captured_steps_need_a_gpu(trained, nmt):
    assert_refused(nmt("translate", f"--model={trained}", "--capture", input=b"ban\n"), 2, "--capture", "CUDA", "GPU")


def test_scores_on_a_gpu_equal_those_on_the_cpu(gpu, data, trained, tmp_path):
    scores = {}
    for device in ("cpu", "cuda"):
        arguments = [f"--model={trained}", f"--source={data.parent / 'dev.en'}", f"--target={data.parent / 'dev.de'}"]
        result = gpu("score", *arguments, f"--device={device}", "--threads=1", "--quiet")
        assert result.code == 0, result.err
        scores[device] = [float(line.split("\t")[0]) for line in result.out.splitlines()]
    assert scores["cuda"] == pytest.approx(scores["cpu"], rel=1e-4)
