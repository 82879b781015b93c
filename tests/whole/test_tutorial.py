"""The commands of docs/tutorial.md run in order, as in a shell, with a smaller sample and fewer updates."""

import os
import subprocess
import sys

from conftest import ENVIRONMENT
from forks import forked_nmt
from pages import DOCUMENTS, ROOT, code_blocks

TEXT = (DOCUMENTS / "tutorial.md").read_text()
SHELL = r"""
nmt() {
    case $1 in
        prepare) set -- "$@" --vocab-size 300 ;;
        train) set -- "$@" --max-updates 8 --batch-tokens 200 --save-every 2u --valid-every 4u --threads 1 ;;
    esac
    "$NMT" "$@"
}
python() { "$PYTHON" "$@" --train 400 --valid 20 --test 10; }
set -euo pipefail
"""


def test_the_commands_of_the_tutorial_run_in_order(tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    commands = "".join(code_blocks(TEXT))
    paths = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**ENVIRONMENT, "NMT": forked_nmt(), "PYTHON": sys.executable, "PYTHONPATH": paths}
    done = subprocess.run(
        ["bash", "-c", SHELL + commands], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "BLEU = " in done.stdout
    lines = {file.name: len(file.read_text().split("\n")) - 1 for file in tmp_path.glob("*.out")}
    assert lines == {"test.out": 10, "valid.out": 20}
    assert (tmp_path / "look.html").exists() and (tmp_path / "model-int8/manifest.json").exists()

    [program] = code_blocks(TEXT, "python")
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stdout.count("\n") == 1, told.stderr
