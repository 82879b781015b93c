"""A wheel works without the checkout: every command, preset, page and table, in an empty folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from forks import forked_nmt
from pages import ROOT
from servers import serving

from nmt.cli.commands import commands
from nmt.version import __version__

SOURCES = ("nmt", "recipes", "pyproject.toml", "setup.py", "README.md")  # what a wheel is built from
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
TINY = {
    "encoder-layers": 1,
    "decoder-layers": 1,
    "d-model": 16,
    "d-ff": 16,
    "heads": 2,
    "max-updates": 4,
    "save-every": "1u",
}

pytestmark = [
    pytest.mark.skipif(find_spec("pip") is None, reason="needs pip"),
    pytest.mark.skipif(not shutil.which("bash"), reason="needs bash"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nmt from its wheel, and with the packages of this one but not its checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, target = ROOT / name, folder / "sources" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    pip = [sys.executable, "-m", "pip", "--isolated", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", "."]
    subprocess.run(build, cwd=folder / "sources", env=ENVIRONMENT, check=True)
    shutil.rmtree(folder / "sources")
    made = folder / "environment"
    venv.create(made, symlinks=True)
    install = ["install", "--no-index", "--no-deps", *map(str, folder.glob("*.whl"))]
    subprocess.run([*pip, f"--python={made / 'bin' / 'python'}", *install], env=ENVIRONMENT, check=True)
    # A path file adds these folders without the path files in them, such as that of an editable installation.
    (site,) = made.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text("".join(f"{sysconfig.get_path(name)}\n" for name in ("purelib", "platlib")))
    return made


class Wheel:
    """The commands of the wheel. python, program: paths; commands: the names of those that ran"""

    def __init__(self, environment: Path) -> None:
        self.python = str(environment / "bin" / "python")
        self.program, self.commands = forked_nmt(self.python), set[str]()

    def __call__(self, *words: object) -> str:
        """Run a command and return its stdout."""
        self.commands.add(str(words[0]))
        return self.run([self.program, *map(str, words)])

    def run(self, command: list[str], **variables: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, **variables})
        assert done.returncode == 0, (command, done.stderr)
        assert str(ROOT) not in done.stdout + done.stderr, command
        return done.stdout


@pytest.fixture
def nmt(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """The commands of the wheel in an empty folder."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return Wheel(environment)


def test_the_installed_program_comes_from_the_wheel(environment: Path, nmt: Wheel) -> None:
    program = str(environment / "bin" / "nmt")
    place = "import nmt, torch; print(nmt.__file__)"
    assert nmt.run([nmt.python, "-c", place]).startswith(str(environment))
    version = nmt.run([program, "--version"])
    assert __version__ in version and metadata.version("torch") in version and "commit" not in version
    assert nmt.run([program, "recipes"]).splitlines() == nmt("recipes").splitlines() != []


@pytest.mark.timeout(600)
def test_every_command_works_from_the_wheel_in_an_empty_folder(nmt: Wheel, tmp_path: Path) -> None:
    nmt("recipes", "toy", "--output", "recipes")
    flags = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    settings = {"NMT": nmt.program, "PYTHON": nmt.python, "TRAIN": "400", "TEST": "20", "VOCAB_SIZE": "200"}
    assert "held-out BLEU" in nmt.run(["bash", "recipes/toy/run.sh", *flags], **settings)
    nmt.commands |= {"prepare", "train", "average", "translate", "evaluate"}

    toy = Path("runs/toy")
    model, trained, data, source, target = (
        toy / name for name in ("model", "run", "data", "text/test.en", "text/test.de")
    )
    assert len(nmt("score", "--model", model, "--source", source, "--target", target).splitlines()) == 20
    assert nmt("status", trained)
    nmt("shortlist", "--data", data, "--output", "shortlist")
    nmt("export", "--model", model, "--format", "ctranslate2", "--check-lines", 5, "--output", "exported")
    nmt("import", "--model", "exported", "--source-lang", "en", "--target-lang", "de", "--output", "imported")
    nmt(
        "translate", "--model", "imported", "--input", source, "--output", "translated", "--attention", "attention.html"
    )
    nmt("doctor", data, "--html", "doctor.html")
    nmt("clean", toy / "text/train", "--source-lang", "en", "--target-lang", "de", "--output", "cleaned")
    nmt("plot", trained, "--output", "curves.html")
    nmt("report", trained, "--html", "report.html")
    for page in ("attention", "doctor", "curves", "report"):
        assert "</html>" in Path(f"{page}.html").read_text()
    rows = [f"{name} = {value!r}\n" for name, value in {**TINY, "data": str(data), "lr": [1.0]}.items()]
    Path("sweep.toml").write_text(f"[train]\n{''.join(rows)}")
    assert len(nmt("sweep", "sweep.toml", "--output", "sweep", "--score", "valid_ppl").splitlines()) >= 2
    assert "noam" in nmt("describe", "schedule", "noam")
    assert "--plugin my_model.py" in nmt("new-plugin", "model", "my_model.py")
    assert "my-model" in nmt("list", "model", "--plugin", "my_model.py")
    listed = json.loads(nmt("list", "--json"))
    found = f"from nmt import registry\nfor kind, names in {listed}.items():\n    for name in names:\n"
    presets = "registry.presets()[name] if kind == 'preset' else registry.find(kind, name)"
    nmt.run([nmt.python, "-c", f"{found}        {presets}"])

    with serving(tmp_path, "--model", model, environment=ENVIRONMENT, program=[nmt.program]) as server:
        for name in ("", "page/page.css", "page/page.js", "page/icon.svg", "page/facts"):
            status, content, _ = server.ask("GET", f"/{name}")
            assert status == 200 and content
        assert server.ask("POST", "/translate", {"q": "A dog.", "source": "en", "target": "de"})[0] == 200
    nmt.commands.add("serve")
    assert nmt.commands == set(commands())
