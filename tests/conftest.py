"""Fixtures that tests share: small prepared data, a small run, and nmt in this process or in one of its own."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import interpreted  # noqa: F401
import pytest
from forks import forget_plugins, forked_nmt
from hypothesis import HealthCheck, settings

from nmt import registry
from nmt.cli.main import run
from nmt.log import log
from nmt.runs import Checkpoints

# No clock decides about a test, and the same inputs are tried in each run.
settings.register_profile(
    "exact", derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("exact")

# Compiled kernels of another torch, Python or kind of processor would be taken from torch's cache, and be wrong.
COMPILED_FOR = sys.version_info[:3], metadata.version("torch"), os.environ.get("ATEN_CPU_CAPABILITY", "default")
KERNELS = f"nmt-kernels-{hashlib.sha256(repr(COMPILED_FOR).encode()).hexdigest()[:16]}"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / KERNELS)

NMT = [sys.executable, "-c", "from nmt.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
WORDS = [f"{a}{b}" for a in ("ba", "de", "ki", "lo", "mu") for b in ("n", "s", "t", "ra", "li")]
TINY = [
    "--encoder-layers=1", "--decoder-layers=1", "--d-model=32", "--d-ff=64", "--heads=2", "--dropout=0.1",
    "--schedule=inverse-sqrt", "--lr=0.005", "--warmup-updates=20", "--batch-tokens=400", "--threads=1",
    "--matmul=torch",  # no clock decides the bits that tests compare
]  # fmt: skip


SLOW = '''
"""Greedy search that waits at each batch until a file exists."""
import time
from dataclasses import dataclass
from pathlib import Path
from nmt import register
from nmt.decoders.base import SearchOptions
from nmt.decoders.greedy import Greedy

@dataclass(frozen=True, kw_only=True)
class SlowOptions(SearchOptions):
    pass

@register("decoder", "slow", SlowOptions)
class Slow(Greedy):
    """Greedy search, slowly."""
    def decode(self, scorer, source, constraints):
        (Path(__file__).parent / "validating").touch()
        if not (Path(__file__).parent / "go").exists():
            time.sleep(0.5)
        return super().decode(scorer, source, constraints)
'''


SLOW_UPDATE = '''
"""The Transformer. It counts its passes in a saved buffer, and each of update 13 takes 3 seconds until `go` exists."""
import os, time
from pathlib import Path
import torch
from nmt import register
from nmt.models.transformer import Transformer, TransformerOptions

@register("model", "slow", TransformerOptions)
class Slow(Transformer):
    """A slow Transformer."""
    def __init__(self, options, vocabularies):
        super().__init__(options, vocabularies)
        self.register_buffer("passes", torch.zeros(()))
        self.number = 0
    def begin_update(self, number):
        self.number = number
    def forward(self, batch):
        self.passes += self.training
        if self.number == 13 and not (Path(__file__).parent / "go").exists():
            (Path(__file__).parent / f"slow-{os.environ.get('RANK', 0)}").touch()
            time.sleep(3)
        return super().forward(batch)
'''


CLIFF = '''
"""A learning rate that is as usual for 15 updates, and then beyond all numbers."""
from dataclasses import dataclass
from nmt import opt, register
from nmt.schedules.base import Schedule

@dataclass(frozen=True, kw_only=True)
class CliffOptions:
    lr: float = opt(0.005, "before the cliff")
    warmup_updates: int = opt(0, "not looked at")

@register("schedule", "cliff", CliffOptions)
class Cliff(Schedule):
    """A cliff."""
    def __init__(self, options, width, max_updates):
        self.lr = options.lr
    def __call__(self, update):
        return self.lr if update < 15 else 1e30
'''


def pytest_configure() -> None:
    heed_signals()


def heed_signals() -> None:
    """Take signals as a command in a terminal does, also where nohup or a shell's `&` has them ignored."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def write_corpus(prefix: Path, pairs: int, seed: int) -> None:
    """Write sentences of invented words; the target is the source in reverse order and in capitals."""
    chance = random.Random(seed)
    sources = [[chance.choice(WORDS) for _ in range(chance.randint(1, 6))] for _ in range(pairs)]
    prefix.with_suffix(".en").write_text("".join(" ".join(s) + "\n" for s in sources))
    prefix.with_suffix(".de").write_text("".join(" ".join(s[::-1]).upper() + "\n" for s in sources))


def small_model(folder: Path, name: str = "transformer", **options: object) -> Path:
    """Make a model folder of an untrained network without weights of 0 or 1. Its words are `WORDS`."""
    import torch

    from nmt.checkpoint import save_model, weights_of
    from nmt.models.saved import ModelFacts, Vocabularies
    from nmt.options import make
    from nmt.text.pipeline import Pipeline, Side
    from nmt.text.settings import SideSettings
    from nmt.text.vocabulary import WordVocabulary

    side = Side(SideSettings("en", "nfc", False, False, "none", "none"), WordVocabulary(WORDS))
    entry, vocabularies = registry.find("model", name), Vocabularies(side.size, side.size, True)
    made = make(entry.options, options)
    torch.manual_seed(3)
    model = entry.cls(made, vocabularies)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.2)
    facts = ModelFacts.of(name, made, vocabularies)
    save_model(folder, weights_of(model), facts, Pipeline(side, side, True), {})
    return folder


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Wait until a condition holds, while a process lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """Mount a file system of `size` bytes at a folder; gives a function that changes the size. Skips without root."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what the tests export for CTranslate2 out of the user's cache folder."""
    folder = str(tmp_path_factory.mktemp("caches"))
    os.environ["XDG_CACHE_HOME"] = ENVIRONMENT["XDG_CACHE_HOME"] = folder


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Undo --quiet and --plugin after each test, since tests share a process."""
    yield
    log.quiet = False
    forget_plugins()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data of 300 invented pairs, and 20 for validation."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "train", 300, 1)
    write_corpus(folder / "dev", 20, 2)
    output = folder / "data"
    arguments = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}"]
    arguments += [f"--valid={folder / 'dev'}", "--subword=none", f"--output={output}", "--quiet"]
    assert run(arguments) == 0
    return output


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 updates with checkpoints at 10, 20, 30 and 40."""
    output = tmp_path_factory.mktemp("run") / "run"
    assert run(train_arguments(data, output, 40)) == 0
    return output


@pytest.fixture(scope="session")
def broken(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with finite weights so large that its probabilities are NaN."""
    import torch

    from nmt.artefact import new_folder
    from nmt.checkpoint import load_model, weights_of, write_model

    loaded, folder = load_model(trained, torch.device("cpu")), tmp_path_factory.mktemp("broken") / "model"
    weights = {name: tensor * 1e30 for name, tensor in weights_of(loaded.model).items()}
    with new_folder(folder, "model", {}) as temporary:
        write_model(temporary, weights, loaded.facts, loaded.pipeline)
    return folder


def records_of(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of a run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def updates_of(run: Path) -> list[dict[str, Any]]:
    """The records of updates in metrics.jsonl of a run."""
    return [record for record in records_of(run) if "loss" in record]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Make torch compute with one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train_arguments(data: Path, output: Path, updates: int, *more: str) -> list[str]:
    """The arguments of `nmt train` for the tiny model."""
    periods = ["--save-every=10u", "--valid-every=20u", "--log-every=10u", f"--max-updates={updates}"]
    return ["train", f"--data={data}", f"--output={output}", *TINY, *periods, "--quiet", *more]


def kill_after_update_10(arguments: list[str], run: Path) -> None:
    """Start a training, kill it once it has a checkpoint, and leave it the one of update 10."""
    process = subprocess.Popen([forked_nmt(), *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE)
    wait_for(lambda: (run / "checkpoints/update-10/manifest.json").exists(), process, 120)
    process.kill()
    process.communicate()
    for newer in Checkpoints(run).all()[1:]:
        shutil.rmtree(newer)


def run_process(program: Sequence[str], *arguments: object, **given: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own. given: `input`, and `env`, which is added to the environment of tests."""
    environment = {**ENVIRONMENT, **given.pop("env", {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given}
    return subprocess.run([*program, *map(str, arguments)], env=environment, timeout=240, **streams)


@pytest.fixture(scope="session")
def nmt() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`nmt(arguments, input=b"")` runs the command in a process of its own, which has imported everything."""
    return partial(run_process, [forked_nmt()])


@pytest.fixture(scope="session")
def new_nmt() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`nmt` by a new interpreter, for what it reads when it starts or imports, such as PYTHONPATH."""
    return partial(run_process, NMT)


class CommandResult(NamedTuple):
    """The exit status and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as JSON, which has no NaN and no Infinity."""
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., CommandResult]:
    """`call(arguments)` runs the command in this process, which is fast; stdin and signals are those of the tests."""

    def run_here(*arguments: object) -> CommandResult:
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return CommandResult(code, out.decode(), err.decode())

    return run_here


def reseal(checkpoint: Path, name: str, content: bytes) -> None:
    """Change a file of a checkpoint as somebody would who wants nmt to believe it."""
    (checkpoint / name).write_bytes(content)
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
