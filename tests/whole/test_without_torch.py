"""Translating does not need torch (deploy/runtime.txt): what works without torch, and what reports that it needs torch.

The commands run in processes from which tests/without_torch hides torch. Their models were exported with torch.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, NMT, WORDS, small_model
from servers import serving

from nmt import registry
from nmt.cli.commands import commands
from nmt.cli.main import run as run_here

pytest.importorskip("ctranslate2")

TESTS = Path(__file__).parents[1]
PATHS = [str(TESTS / "without_torch"), *filter(None, [os.environ.get("PYTHONPATH")])]
WITHOUT_TORCH = {"PYTHONPATH": os.pathsep.join(PATHS)}
TEXT = "".join(f"{' '.join(WORDS[i : i + 4])}\n" for i in range(0, 20, 3)) + "\n" + "unknown words\n"
NEED_TORCH = {
    "train": ["--data=DATA", "--output=NEW", "--preset=transformer-tiny"],
    "average": ["--checkpoint=MODEL", "--output=NEW"],
    "export": ["--model=MODEL", "--output=NEW"],
    "import": ["--model=MODEL", "--output=NEW"],
    "score": ["--model=MODEL", "--source=TEXT", "--target=TEXT"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model in `model`, its export in `export`, and a text of the model's words in `text`."""
    folder = tmp_path_factory.mktemp("without-torch")
    small_model(folder / "model", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    assert run_here(["export", f"--model={folder / 'model'}", f"--output={folder / 'export'}", "--quiet"]) == 0
    (folder / "text").write_text(TEXT)
    return folder / "model"


@pytest.fixture(scope="module")
def export(model: Path) -> Path:
    return model.parent / "export"


@pytest.fixture(scope="module")
def text(model: Path) -> Path:
    return model.parent / "text"


@pytest.fixture
def caches(tmp_path: Path) -> dict[str, str]:
    """Environment variables for processes with a separate cache folder."""
    return {"XDG_CACHE_HOME": str(tmp_path / "caches")}


@pytest.fixture
def without(new_nmt, caches) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    """`without(arguments, input=b"")` runs a command without torch."""
    return lambda *arguments, **given: new_nmt(*arguments, env={**caches, **WITHOUT_TORCH}, **given)


def filled(flags: list[str], **paths: Path) -> list[str]:
    """Flags with names replaced by their paths."""
    values = [flag.partition("=") for flag in flags]
    return [f"{flag}{equals}{paths.get(value, value)}" for flag, equals, value in values]


def refused(done: "subprocess.CompletedProcess[bytes]", *named: str) -> bool:
    """Whether a command ended with status 2 and one line that names torch and other words."""
    lines = done.stderr.decode().splitlines()
    errors = [line for line in lines if line.startswith("nmt: error: ")]
    return done.returncode == 2 and len(errors) == 1 and all(word in errors[0] for word in ("torch", *named))


def test_torch_is_hidden_from_these_processes(without):
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**ENVIRONMENT, **WITHOUT_TORCH}).returncode == 0
    assert subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT).returncode == 1


@pytest.mark.parametrize("flags", [[], ["--json"], ["--decoder=greedy"], ["--precision=int8"], ["--split"]])
def test_an_export_translates_the_same_as_with_torch(flags, export, text, nmt, without):
    expected, found = (run("translate", "--model", export, *flags, input=TEXT.encode()) for run in (nmt, without))
    assert found.returncode == expected.returncode == 0
    assert found.stdout == expected.stdout and found.stdout.count(b"\n") == TEXT.count("\n")


@pytest.fixture
def kept(model, text, tmp_path, nmt, caches) -> Path:
    """A copy of the model, with an export that nmt has made and cached."""
    folder = shutil.copytree(model, tmp_path / "kept")
    assert nmt("translate", "--engine=ctranslate2", "--model", folder, "--input", text, env=caches).returncode == 0
    return folder


def test_a_model_translates_with_its_cached_export(kept, export, text, without):
    expected, found = (without("translate", "--json", "--model", name, "--input", text) for name in (export, kept))
    assert found.returncode == expected.returncode == 0 and found.stdout == expected.stdout


def test_an_export_gives_the_same_scores_as_with_torch(export, text, nmt, without):
    scored = ["evaluate", "--model", export, "--source", text, "--reference", text]
    expected, found = (run(*scored) for run in (nmt, without))
    assert found.returncode == expected.returncode == 0 and found.stdout == expected.stdout


def test_a_line_that_ctranslate2_cannot_search_fails_alone(kept, without):
    lines = f"{WORDS[0]} ||| {WORDS[1]}\n{WORDS[2]}\n".encode()
    done = without("translate", "--model", kept, "--input-form=prefix", input=lines)
    first, second, _ = done.stdout.split(b"\n")
    assert done.returncode == 5 and not first and second and b"torch" in done.stderr


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--engine=torch"], "--engine"),
        (["--decoder=sampling"], "--decoder sampling"),
        (["--n-best=2"], "--n-best"),
        (["--alignment=hard"], "--alignment"),
        (["--markup=xml"], "--markup"),
        (["--word-scores"], "--word-scores"),
        (["--repair"], "--repair"),
        (["--devices=2"], "--devices"),
        (["--attention=a.html"], "--attention"),
        (["--beam-graph=b.json"], "--beam-graph"),
        (["--rerank=MODEL"], "--rerank"),
        (["--model=MODEL"], "ensembles"),
        (["--precision=bf16"], "--precision bf16"),
        (["--device=cuda"], "CPU"),
        ([], "nmt export --format ctranslate2"),
        (["--engine=ctranslate2"], "nmt export --format ctranslate2"),
        (["--plugin=PLUGIN"], "plugin.py"),
    ],
)
def test_options_that_need_torch_are_reported_in_one_line(flags, named, model, text, without, tmp_path):
    (tmp_path / "plugin.py").write_text("import torch.nn\n")
    flags = filled(flags, MODEL=model, PLUGIN=tmp_path / "plugin.py")
    assert refused(without("translate", "--model", model, "--input", text, *flags, cwd=tmp_path), named)


def test_a_gpu_that_only_torch_could_use_does_not_prevent_translation(export, monkeypatch, text):
    code = (
        "import sys\nfrom pathlib import Path\nexists = Path.exists\n"
        "Path.exists = lambda path: str(path) == '/dev/nvidiactl' or exists(path)\n"
        f"from nmt.cli.main import run\nsys.exit(run(['translate', '--quiet', '--model', {str(export)!r}]))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=TEXT.encode(), capture_output=True, env={**ENVIRONMENT, **WITHOUT_TORCH})
    assert done.returncode == 0 and done.stdout.count(b"\n") == TEXT.count("\n")


@pytest.mark.parametrize("command", NEED_TORCH)
def test_a_command_that_needs_torch_says_so(command, model, data, text, without, tmp_path):
    flags = filled(NEED_TORCH[command], DATA=data, MODEL=model, TEXT=text, NEW=tmp_path / "new")
    assert refused(without(command, *flags), f"nmt {command}") and not (tmp_path / "new").exists()


def test_help_lists_and_descriptions_equal_those_of_a_complete_installation(model, export):
    """Two processes, only one of which has torch, print the same."""
    calls = [["--help"], ["list"], *([name, "--help"] for name in commands())]
    calls += [["describe", kind, name] for kind in registry.FOLDERS for name in registry.names(kind)]
    calls += [["describe", str(model)], ["describe", str(export)], ["describe", str(model), "--json"]]
    code = f"import sys\nfrom nmt.cli.main import run\nsys.exit(any([run(words) for words in {calls!r}]))"
    expected, found = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, env={**ENVIRONMENT, **variables})
        for variables in ({}, WITHOUT_TORCH)
    )
    assert found.returncode == expected.returncode == 0, found.stderr
    assert found.stdout == expected.stdout


def test_a_description_read_from_the_file_equals_that_of_the_class(monkeypatch):
    loaded = {(kind, name): registry.find(kind, name) for kind in registry.FOLDERS for name in registry.names(kind)}
    of_classes = {key: registry.documentation(*key) for key in loaded}
    monkeypatch.setattr(registry, "_shelf", registry._Shelf(entry_points_loaded=True))
    assert {key: registry.documentation(*key) for key in loaded} == of_classes


def test_python_loads_an_export(export):
    code = f"import nmt\nprint(nmt.load({str(export)!r}).translate([{WORDS[0]!r}])[0].text)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**ENVIRONMENT, **WITHOUT_TORCH})
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_a_server_gives_the_output_of_translate_and_rejects_options_that_need_torch(
    model, export, nmt, tmp_path, caches
):
    pytest.importorskip("uvicorn")
    line = " ".join(WORDS[:4])
    expected = nmt("translate", "--model", export, input=f"{line}\n".encode()).stdout.decode().strip()
    variables = {**caches, **WITHOUT_TORCH}
    models = ["--preload", "--model", f"export={export}"]
    with serving(tmp_path, *models, engine="auto", environment=variables, program=NMT) as server:
        assert server.translate(text=line)["translations"][0]["translation"] == expected
        asked = [{"alignment": True}, {"n_best": 2}, {"markup": "xml"}, {"word_scores": True}]
        for fields in asked:
            status, content, _ = server.ask("POST", "/v1/translate", {"text": line, **fields})
            assert status == 400, (fields, content)
        status, content, _ = server.ask("POST", "/v1/translate", {"text": line, "repair": True})
        assert status == 200 and content["translations"][0]["translation"] == expected
    with serving(tmp_path, "--model", model, engine="auto", environment=variables, program=NMT) as server:
        status, _, _ = server.ask("POST", "/v1/translate", {"text": line})
        assert status == 503 and "nmt export --format ctranslate2" in server.log.read_text()


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("whole/test_doctor.py", ""),
        ("contract/test_metrics.py", "not comet"),
        ("truth/test_evaluate.py", ""),
        ("contract/test_prepare.py", "not signal and not kill and not disk"),
    ],
)
def test_the_tests_that_need_no_torch_pass_without_it(file, chosen, tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / file)]
    command += ["-k", chosen, f"--basetemp={tmp_path / 'tests'}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, env={**variables, **WITHOUT_TORCH})
    assert done.returncode == 0, done.stdout
