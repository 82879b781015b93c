"""`prepare --train-tsv`: the same data as of two files, from a file or a pipe, and errors with FILE:LINE."""

import gzip
import json
import signal
import subprocess

import pytest
from conftest import ENVIRONMENT, wait_for, write_corpus
from forks import forked_nmt
from refusals import assert_refused

LANGUAGES = ["prepare", "--source-lang=en", "--target-lang=de", "--subword=none", "--quiet"]


@pytest.fixture
def tsv(tmp_path):
    """A TSV file of 60 pairs, next to files of both sides."""
    write_corpus(tmp_path / "c", 60, 1)
    sides = [(tmp_path / f"c.{language}").read_text().splitlines() for language in ("en", "de")]
    path = tmp_path / "c.tsv"
    path.write_text("".join("\t".join(pair) + "\n" for pair in zip(*sides, strict=True)))
    return path


def files_of(folder):
    """The content of the files of data, but for what names the options."""
    names = {"manifest.json", "report.json"}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in names}


def test_a_tsv_gives_the_same_data_as_two_files(tsv, tmp_path, nmt):
    (tmp_path / "c.tsv.gz").write_bytes(gzip.compress(tsv.read_bytes()))
    (tmp_path / "w").write_text("2\n" * 60)
    more = ["--hold-out=10", f"--column=w={tmp_path / 'w'}"]
    wanted = nmt(*LANGUAGES, *more, f"--train={tmp_path / 'c'}", f"--output={tmp_path / 'wanted'}")
    assert wanted.returncode == 0, wanted.stderr
    for name, file in (("plain", tsv), ("packed", f"{tsv}.gz"), ("pipe", "-")):
        given = {"input": tsv.read_bytes()} if file == "-" else {}
        made = nmt(*LANGUAGES, *more, f"--train-tsv={file}", f"--output={tmp_path / name}", **given)
        assert made.returncode == 0, made.stderr
        assert files_of(tmp_path / name) == files_of(tmp_path / "wanted")


def test_corpora_of_tsv_files_have_names(tsv, tmp_path, nmt):
    arguments = [f"--train-tsv=web={tsv}", f"--train-tsv={tsv}", "--train-tsv=-"]
    made = nmt(*LANGUAGES, *arguments, f"--output={tmp_path / 'data'}", input=b"a\tb\n")
    assert made.returncode == 0, made.stderr
    [train] = json.loads((tmp_path / "data/data.json").read_text())
    assert train["corpora"] == [["web", 60], ["c", 60], ["stdin", 1]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"a\tb\na b\n", ":2: 1 column found, expected 2"),
        (b"a\tb\na\tb\tc\n", ":2: 3 columns found, expected 2"),
        (b"a\tb\n\n", ":2: 1 column found, expected 2"),
        (b"a\tb\na\tb\xff\n", ":2:4: not UTF-8"),
        (b"a\tb\na\xff\tb\n", ":2:2: not UTF-8"),
        ("a\tb\n".encode("utf-16"), ":1:1: UTF-16, not UTF-8"),
        (b"", " is empty"),
    ],
)
@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_line_that_is_not_a_pair_is_reported_with_file_and_line(lines, message, is_pipe, tmp_path, nmt):
    (tmp_path / "bad.tsv").write_bytes(lines)
    file = "-" if is_pipe else str(tmp_path / "bad.tsv")
    told = nmt(*LANGUAGES, f"--train-tsv={file}", f"--output={tmp_path / 'data'}", input=lines)
    assert_refused(told, 3, f"{'stdin' if is_pipe else file}{message}")
    assert told.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]


def test_a_file_whose_name_looks_like_stdin_is_read_instead_of_stdin(tsv, tmp_path):
    tsv.rename(tmp_path / "a=-")
    command = [forked_nmt(), *LANGUAGES, "--train-tsv=a=-", f"--output={tmp_path / 'data'}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=ENVIRONMENT, cwd=tmp_path) as process:
        assert process.wait(60) == 0  # with a stdin that does not end
    assert json.loads((tmp_path / "data/report.json").read_bytes())["sets"][0]["read"] == 60


def test_an_error_about_column_lines_names_stdin(tmp_path, nmt):
    (tmp_path / "w").write_text("1\n")
    told = nmt(
        *LANGUAGES,
        "--train-tsv=-",
        f"--column=w={tmp_path / 'w'}",
        f"--output={tmp_path / 'data'}",
        input=b"a\tb\na\tb\n",
    )
    assert_refused(told, 3, tmp_path / "w")


def test_waiting_for_stdin_ends_at_a_signal_and_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [forked_nmt(), *LANGUAGES, "--train-tsv=-", f"--output={tmp_path / 'data'}"],
        stdin=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        process.stdin.write(b"a\tb\n")
        process.stdin.flush()
        wait_for(lambda: list(tmp_path.rglob("stdin.tsv")), process, 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_and_stdin_twice_are_refused(tmp_path, nmt):
    for words, message in (
        (("-", "x=-"), "only one of the files can be -"),
        ((str(tmp_path / "none.tsv"),), "none.tsv: no such file"),
    ):
        assert_refused(nmt(*LANGUAGES, "--train-tsv", *words, f"--output={tmp_path / 'data'}"), 2, message)
