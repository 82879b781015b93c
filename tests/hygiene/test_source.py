"""What the source must not contain: ways to run code of others, and to split lines elsewhere than at LF.

Rules 4 and 12 of docs/reference/contract.md.
"""

import ast
import subprocess
import sys

from modules import FILES, ROOT, tree_of

RUNS_CODE = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal", "codecs"}
METHODS = {"extractall", "splitlines", "unsafe_load"}
TRUSTED = {  # file, name: why it may
    ("device.py", "splitlines"): "text of the kernel",
    ("data/duplicates.py", "pickle"): "reads what the same process wrote into a file that it holds open",
    ("data/workers.py", "pickle"): "reads what its parent wrote into a file that only its user can read",
    ("extensions/documents/document.py", "codecs"): "looks up whether a charset exists",
    (
        "extensions/toolkits/pickled.py",
        "pickle",
    ): "catches errors of torch.load, which runs nothing (weights_only=True)",
}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            yield node, name, {keyword.arg: keyword.value for keyword in node.keywords}


def is_text_mode(name, node, given):
    """Whether a call opens a file as text without saying where its lines end."""
    mode = given.get("mode")
    if mode is None and name == "open":
        of_module = isinstance(node.func, ast.Name) or getattr(node.func.value, "id", "") in ("os", "io")
        place = 1 if of_module else 0
        mode = node.args[place] if len(node.args) > place else ast.Constant("r")
    return isinstance(mode, ast.Constant) and "b" not in str(mode.value) and "newline" not in given


def is_narrowing(test):
    """Whether an assertion only tells the type checker what is known: that values are there, or of a class."""
    if isinstance(test, ast.BoolOp):
        return all(map(is_narrowing, test.values))
    is_there = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
    return is_there or (isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance")


def faults_of(path):
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and not is_narrowing(node.test):
            yield node, "assert"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from ((node, name) for name in names if name.split(".")[0] in MODULES)
    for node, name, given in calls(tree):
        if isinstance(node.func, ast.Name) and name in RUNS_CODE:
            yield node, name
        if name in METHODS:
            yield node, name
        only_weights = given.get("weights_only")
        if ast.unparse(node.func) == "torch.load" and not (
            isinstance(only_weights, ast.Constant) and only_weights.value
        ):
            yield node, "torch.load"
        shell = given.get("shell")
        if isinstance(shell, ast.Constant) and shell.value:
            yield node, "shell=True"
        if name == "open" and ast.unparse(node.func) != "os.open" and is_text_mode(name, node, given):
            yield node, "text-mode open"


def test_the_source_runs_no_foreign_code_and_splits_lines_only_at_lf():
    found = [(str(path.relative_to(ROOT)), name, node.lineno) for path in FILES for node, name in faults_of(path)]
    assert [fault for fault in found if fault[:2] not in TRUSTED] == []
    assert TRUSTED.keys() == {fault[:2] for fault in found}


def test_each_benchmark_finds_what_it_imports():
    """They are not run by any other test. Only their definitions are run here, in a process of their own."""
    program = "import pathlib, runpy\nfor path in sorted(pathlib.Path.cwd().glob('*.py')): runpy.run_path(str(path))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT.parent / "benchmarks", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
