"""Settings, flags, exit codes and streams of every command (contract 1-3, docs/settings.md)."""

import os
import subprocess
import tomllib

import pytest
from conftest import ENVIRONMENT, NMT

from nmt.cli.main import COMMANDS
from nmt.errors import quoted


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_refuses_an_unknown_flag(command, nmt):
    shown = nmt(command, "--help")
    assert shown.returncode == 0 and b"--config" in shown.stdout
    refused = nmt(command, "--no-such-flag")
    assert refused.returncode == 2 and refused.stdout == b""
    assert refused.stderr.startswith(b"nmt: error: ") and refused.stderr.count(b"\n") == 1


def test_an_unknown_command_names_the_nearest(nmt):
    refused = nmt("trian")
    assert refused.returncode == 2
    assert b"did you mean 'train'?" in refused.stderr


def test_a_mistyped_flag_value_or_key_names_what_was_wanted(nmt, tmp_path):
    assert b"did you mean '--dropout'?" in nmt("train", "--dropuot", "0.1").stderr
    assert (
        b"'lots' (set by the command line); wanted FLOAT"
        in nmt("train", "--data=d", "-o", "r", "--dropout=lots").stderr
    )
    assert b"dropout is 1.5" in nmt("train", "--data=d", "-o", "r", "--dropout=1.5").stderr
    config = tmp_path / "s.toml"
    config.write_text("dropuot = 0.1\n")
    refused = nmt("train", "--config", config)
    assert refused.returncode == 2
    assert b"s.toml" in refused.stderr and b"did you mean 'dropout'?" in refused.stderr


def test_flags_win_over_files_and_files_over_presets_and_each_origin_is_told(nmt, tmp_path):
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("dropout = 0.2\nheads = 2\nd-ff = 99\n")
    second.write_text("heads = 4\n")
    given = ["train", "--preset=transformer-big", "--config", first, second, "--d-ff=7", "--data=d", "--output=o"]
    dumped = nmt(*given, "--dump-config").stdout.decode()
    values = tomllib.loads(dumped)
    assert (values["d_model"], values["dropout"], values["heads"], values["d_ff"]) == (1024, 0.2, 4, 7)
    assert "d_model = 1024  # preset transformer-big" in dumped
    assert f"dropout = 0.2  # {first}" in dumped
    assert f"heads = 4  # {second}" in dumped
    assert "d_ff = 7  # the command line" in dumped
    assert "adam_eps = 1e-09" in dumped
    (tmp_path / "all.toml").write_text(dumped)
    assert tomllib.loads(nmt("train", "--config", tmp_path / "all.toml", "--dump-config").stdout.decode()) == values


def test_the_chosen_parts_decide_which_flags_there_are(nmt):
    shown = nmt("train", "--model", "rnnsearch", "--help", env={"COLUMNS": "200"}).stdout
    assert b"--d-ff" not in shown and b"rnnsearch" in shown
    assert b"--d-ff" in nmt("train", "--help", env={"COLUMNS": "200"}).stdout
    assert nmt("train", "--model=rnnsearch", "--d-ff=3").returncode == 2


def test_a_file_name_with_markup_and_control_characters_is_told_escaped(nmt):
    name = "[/b]\x1b[31m\nred" + "x" * 300
    refused = nmt("train", f"--data={name}", "--output=o", "--config", name)
    assert refused.returncode == 2
    assert b"[/b]\\x1b[31m\\nred" in refused.stderr
    assert b"\x1b" not in refused.stderr and refused.stderr.count(b"\n") == 1
    assert len(quoted("x" * 1000)) == 200


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_stdout_or_stderr_is_5(number):
    shell = " ".join(f"'{word}'" for word in NMT)
    closed = subprocess.run(["bash", "-c", f"{shell} list --json {number}>&-"], env=ENVIRONMENT, capture_output=True)
    assert closed.returncode == 5


def test_a_full_stdout_is_5_and_a_reader_that_left_is_141():
    shell = " ".join(f"'{word}'" for word in NMT)
    full = subprocess.run(["bash", "-c", f"{shell} list > /dev/full"], env=ENVIRONMENT, capture_output=True)
    assert full.returncode == 5 and b"No space left" in full.stderr
    read, write = os.pipe()
    os.close(read)
    left = subprocess.run([*NMT, "list"], env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert left.returncode == 141 and left.stderr == b""


def test_a_missing_model_or_data_is_4_and_names_it(nmt, tmp_path):
    score = ["score", "--model=nowhere", "--source=a", "--target=b"]
    for arguments in (score, ["train", "--data=nowhere", f"--output={tmp_path / 'run'}"]):
        refused = nmt(*arguments)
        assert refused.returncode == 4
        assert b"nowhere: is not there" in refused.stderr


def test_a_bug_is_1_with_the_traceback_only_on_request(nmt, tmp_path):
    plugin = tmp_path / "bug.py"
    broken = "def broken(kind):\n    raise KeyError('oops')\n"
    plugin.write_text(f"import nmt.cli.list as command\n\n{broken}\ncommand._summaries = broken\n")
    bug = nmt("list", "--plugin", plugin)
    assert bug.returncode == 1 and b"a bug in nmt: KeyError" in bug.stderr and b"Traceback" not in bug.stderr
    assert b"Traceback" in nmt("list", "--plugin", plugin, "--debug").stderr
