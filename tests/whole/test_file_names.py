"""Folder names that are not UTF-8 work like others; a name that is too long is reported with exit status 2."""

import os
import shutil

import pytest
from conftest import TINY, train_arguments
from refusals import assert_refused

LONG = "n" * 5_000
PREPARE = ["prepare", "--source-lang=en", "--target-lang=de", "--subword=none", "--quiet"]


@pytest.fixture
def latin(data, tmp_path):
    """A folder with a name that is not UTF-8, containing the texts of prepared data."""
    folder = tmp_path / os.fsdecode(b"d\xfcrr")
    folder.mkdir()
    for side in ("en", "de"):
        for name in ("train", "dev"):
            shutil.copy(data.parent / f"{name}.{side}", folder)
    return folder


def test_every_step_works_in_a_folder_whose_name_is_not_utf_8(latin, call, nmt):
    assert call(*PREPARE, f"--train={latin}/train", f"--valid={latin}/dev", f"--output={latin}/data").code == 0
    assert call(*train_arguments(latin / "data", latin / "run", 10)).code == 0
    settings = ["train", f"--config={latin}/run/settings.toml", "--max-updates=20", "--quiet"]
    assert call(*settings).code == 0
    assert sorted(path.name for path in (latin / "run/checkpoints").iterdir()) == ["update-10", "update-20"]
    assert call("average", f"--run={latin}/run", "--last=2", f"--output={latin}/model", "--quiet").code == 0
    translated = ["translate", f"--model={latin}/model", f"--input={latin}/dev.en", f"--output={latin}/out", "--quiet"]
    assert call(*translated).code == 0
    assert len((latin / "out").read_bytes().split(b"\n")) == len((latin / "dev.en").read_bytes().split(b"\n"))
    assert call("export", f"--model={latin}/model", "--format=int8", f"--output={latin}/small", "--quiet").code == 0
    for command in ("status", "report", "plot"):
        assert call(command, latin / "run").code == 0
    examined = nmt("doctor", latin / "data", "--quiet")  # its stdout accepts such names
    assert examined.returncode == 0 and b"d\xfcrr" in examined.stdout, (
        examined.stderr
    )  # the positions of repeated pairs


def test_runs_and_sweeps_with_names_that_are_not_utf_8_are_resumed(latin, call, nmt):
    assert call(*PREPARE, f"--train={latin}/train", f"--valid={latin}/dev", f"--output={latin}/data").code == 0
    assert call(*train_arguments(latin / "data", latin / "run", 10)).code == 0
    begun = call(*train_arguments(latin / "data", latin / "more", 10), f"--init-from={latin}/run")
    assert begun.code == 0, begun.err
    file = latin / "sweep.toml"
    file.write_bytes(os.fsencode(f'[translate]\nmodel = "{latin}/run"\nbeam_size = [1, 2]\n'))
    texts = f"--source={latin}/dev.en", f"--reference={latin}/dev.de"
    swept = [nmt("sweep", str(file), f"--output={latin}/out", *texts, "--quiet") for _ in range(2)]
    assert [one.returncode for one in swept] == [0, 0], swept
    assert swept[0].stdout == swept[1].stdout and b"beam_size" in swept[0].stdout


def test_a_set_name_must_be_utf_8(latin, call):
    for side in ("en", "de"):
        shutil.copy(latin / f"dev.{side}", latin / os.fsdecode(b"d\xe9v." + side.encode()))
    refused = call(
        *PREPARE, f"--train={latin}/train", "--valid", latin / os.fsdecode(b"d\xe9v"), f"--output={latin}/data"
    )
    assert_refused(refused, 2, "'d\\udce9v'", "UTF")
    assert not (latin / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", f"--model={LONG}"],
        ["translate", "--model={model}", f"--input={LONG}"],
        ["translate", "--model={model}", "--input={text}", f"--output={LONG}"],
        [*PREPARE, f"--train={LONG}", "--output={new}"],
        [*PREPARE, "--train={train}", f"--output={LONG}"],
        ["train", "--data={data}", f"--output={LONG}", *TINY, "--max-updates=1"],
        ["train", "--data={data}", "--output={new}", f"--config={LONG}"],
        ["train", "--data={data}", "--output={new}", f"--plugin={LONG}"],
        ["average", f"--run={LONG}", "--last=1", "--output={new}"],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_a_name_that_is_too_long_is_status_2_and_truncated_in_the_message(arguments, call, data, trained, tmp_path):
    places = {"model": trained, "text": data.parent / "dev.en", "train": data.parent / "train", "data": data}
    refused = call(*(argument.format(new=tmp_path / "new", **places) for argument in arguments))
    assert_refused(refused, 2, "File name too long")
    assert len(refused.err) < 500 and not (tmp_path / "new").exists()
