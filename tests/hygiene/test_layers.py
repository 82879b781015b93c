"""The house rules that a reader may rely on: layers, who may print, what may import torch, and names that must not exist."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

from conftest import small_model, train_arguments
from modules import FILES, ROOT, imported_modules, module_of, tree_of

LAYERS = {
    "errors": 0, "symbols": 0, "version": 0, "quantities": 0,
    "installation": 1, "component_files": 2, "open_options": 2,
    "options": 1, "signals": 1, "log": 1, "locks": 1, "files": 2, "dist": 2, "registry": 2.5, "artefact": 3, "runs": 4,
    "storages": 3, "__init__": 3, "tokenizers": 3.5, "text": 4, "nn": 4, "device": 4, "rows": 4.5, "subwords": 4.5,
    "columns": 4.6, "batch": 4.7,
    "noises": 4.8, "preparations": 4.8, "data": 5, "plans": 5.1, "metrics": 5, "mixers": 5, "feed_forwards": 5, "positions": 5,
    "models": 6, "evaluations": 6,
    "filters": 6.5, "weight_formats": 6.5, "search_speedups": 6.6, "training_speedups": 6.6,
    "checkpoint": 7, "kernels": 7, "criteria": 8, "optimizers": 8, "schedules": 8, "decoders": 8,
    "translate": 10,
    "engines": 11, "passes": 11, "formats": 11, "scorings": 11, "viewers": 11, "report": 11, "reporters": 11.5, "previews": 11.5,
    "translators": 12, "train": 12, "starts": 13, "cli": 14, "__main__": 15,
}  # fmt: skip
EXTENSIONS = "extensions"  # what may be imported from it, test_line.py says
FREE_OF_TORCH = [
    "nmt", "nmt.text.pipeline", "nmt.data.shards", "nmt.data.prepare", "nmt.cli.main", "nmt.cli.prepare", "nmt.cli.evaluate",
    *(f"nmt.extensions.doctor.{name}" for name in ("doctor", "cli.clean", "cli.doctor")),
    *(f"nmt.extensions.watch.cli.{name}" for name in ("plot", "report", "status")),
]  # fmt: skip
UNUSED = [  # what a translation by beam search has no use for, each slow to import or a sign of it
    "matplotlib", "pydantic", "rich", "sacrebleu", "sacremoses", "tensorboard", "tomllib", "torch._dynamo", "torch._inductor",
    "torch.utils.flop_counter", "nmt.criteria", "nmt.optimizers", "nmt.schedules", "nmt.train", "nmt.metrics",
    *(f"nmt.extensions.{name}" for name in ("ctranslate2.export", "doctor", "scores", "searches.decoders")),
    *(f"nmt.extensions.searches.{name}" for name in ("filters.avoid", "wrappers.rerank", "wrappers.shortlist")),
    "nmt.extensions.watch.viewers.drawings", "nmt.extensions.watch.pictures",
    *(f"nmt.extensions.methods.{name}" for name in ("criteria", "optimizers", "starts", "low_rank")),
    "nmt.extensions.zoo", "nmt.extensions.variants.nn",
]  # fmt: skip


def place(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imported(file: Path) -> set[str]:
    """The parts of nmt that a file imports, by the name of their folder or file."""
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nmt":
            rest = node.module.split(".")[1:]
            found |= {rest[0]} if rest else {alias.name if alias.name in LAYERS else "__init__" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("nmt.")}
    return found


def imports_of(*folders: str) -> set[tuple[str, str]]:
    """What the files of some folders import from other folders of nmt: (module, folder)."""
    files = [file for file in FILES if place(file) in folders]
    return {(module_of(file), other) for file in files for other in imported(file) - {place(file), EXTENSIONS}}


def test_a_module_imports_only_from_lower_layers():
    found = [(own, module, other) for own in LAYERS for module, other in imports_of(own)]
    assert {place(file) for file in FILES} == {*LAYERS, EXTENSIONS}
    assert [(module, other) for own, module, other in found if LAYERS[other] >= LAYERS[own]] == []


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {module_of(file): imported_modules(file) for file in FILES}
    graph["nmt"] = set()  # what plug-ins import; it is built of the lowest layers
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_nmt_layers_imports_nothing_from_the_rest_of_nmt():
    assert sorted(imports_of("nn")) == []


def test_models_do_not_import_data_and_translation_does_not_import_training():
    forbidden = {"models": {"data", "optimizers", "decoders"}, "translate": {"train"}}
    assert [found for folder, names in forbidden.items() for found in imports_of(folder) if found[1] in names] == []


def test_no_module_names_a_concrete_model():
    files = [file for file in FILES if place(file) in ("decoders", "criteria", "train")]
    assert [file for file in files if re.search(r"models\.(transformer|rnnsearch)", file.read_text())] == []


def leaves_its_place(node: ast.AST) -> bool:
    """Whether a node prints, exits or reads arguments."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("print", "exit", "quit")
    of_sys = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys"
    return of_sys and node.attr in ("argv", "exit", "stdout")


def test_only_commands_print_exit_or_read_arguments():
    files = [file for file in FILES if "cli" not in file.relative_to(ROOT).parts]
    nodes = [(str(file), node) for file in files for node in ast.walk(tree_of(file)) if leaves_its_place(node)]
    assert [(file, node.lineno) for file, node in nodes] == []


def test_there_is_no_miscellaneous_utility_module():
    names = {part for file in FILES for part in file.relative_to(ROOT).with_suffix("").parts}
    assert not names & {"utils", "util", "common", "misc", "helpers"}


def test_torch_is_not_imported_where_it_is_not_needed():
    code = f"""
import importlib, sys
for name in {FREE_OF_TORCH}:
    importlib.import_module(name)
    assert "torch" not in sys.modules, name
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_a_mistyped_flag_and_a_completion_answer_without_torch_and_without_pydantic():
    code = """
import os, sys
from nmt.cli.commands import commands
from nmt.cli.main import run
for words in [["--version"], ["list"], *([name, flag] for name in commands() for flag in ("--help", "--no-such-flag"))]:
    code = run(words)
    assert code == (2 if words[-1] == "--no-such-flag" else 0), (words, code)
    found = [name for name in ("torch", "pydantic") if name in sys.modules]
    assert not found, (words, found)
for typed in ["nmt tr", "nmt train --model rnn", "nmt train --model rnnsearch --"]:
    os.environ |= {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    assert run([]) == 0, typed
    found = [name for name in ("torch", "pydantic") if name in sys.modules]
    assert not found, (typed, found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_translation_imports_nothing_unused(tmp_path):
    model = small_model(tmp_path / "model", d_model=8, d_ff=8, heads=1, encoder_layers=1, decoder_layers=1)
    code = (
        "import sys, torch\nby_torch = set(sys.modules)\nfrom nmt.cli.main import run\n"
        f"code = run(['translate', '--quiet', '--engine=torch', '--model', {str(model)!r}])\n"
        "print(*sorted(set(sys.modules) - by_torch), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], input="ban\n", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("\n")
    found = done.stderr.split()
    assert "nmt.decoders.beam" in found
    assert [name for name in found if any(f"{name}.".startswith(f"{unused}.") for unused in UNUSED)] == []


def test_a_training_does_not_import_the_compiler_of_torch(data, tmp_path):
    code = f"""
import sys
from nmt import registry
from nmt.cli.main import run
for name in registry.names("optimizer"):
    arguments = {train_arguments(data, Path("OUTPUT"), 2)!r}
    arguments = [word.replace("OUTPUT", {str(tmp_path)!r} + "/" + name) for word in arguments]
    code = run([*arguments, "--optimizer", name, "--schedule=constant", "--lr=0.001"])
    assert code == 0 and "torch._dynamo" not in sys.modules, (name, code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_translation_by_ctranslate2_does_not_import_torch(trained, tmp_path, call):
    model = tmp_path / "model"
    assert call("average", "--run", trained, "--output", model, "--last=1").code == 0
    command = ["translate", "--quiet", "--model", str(model)]
    code = (
        f"import sys\nfrom nmt.cli.main import run\ncode = run({command!r})\n"
        "print(*sorted(sys.modules), file=sys.stderr)\nsys.exit(code)"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], input="ban\n", capture_output=True, text=True) for _ in range(2)
    )
    assert first.returncode == second.returncode == 0 and first.stdout == second.stdout
    found = second.stderr.split()
    assert "ctranslate2" in found
    unused = ["torch", "nmt.checkpoint", *(name for name in UNUSED if name != "nmt.extensions.ctranslate2")]
    assert [name for name in found if any(f"{name}.".startswith(f"{other}.") for other in unused)] == []


def test_the_design_page_shows_the_actual_tree():
    page = (ROOT.parent / "docs/explanation/design.md").read_text()
    for path in sorted(ROOT.iterdir()):
        if path.name not in ("__pycache__", "py.typed", "__init__.py"):
            name = path.name + "/" if path.is_dir() else path.name
            assert name in page, f"docs/explanation/design.md does not name {name}"
